"""The files that pages link to: our own style and script, and the vendored libraries (`static/vendor/vendor.json`)."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from mnemolog.infra.runtime.regular_files import read_file

STATIC: Final = Path(__file__).parent / "static"


@cache
def address_of(name: str) -> str:
    """Return the URL of a file, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(read_file(STATIC / name, follow=True)).hexdigest()[:12]}"


class Assets(StaticFiles):
    """The files, which browsers may keep for a year."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(self, *given: Any, **options: Any) -> Response:
        """Return the answer to a request for a file."""
        response = super().file_response(*given, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
