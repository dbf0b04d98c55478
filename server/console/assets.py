"""The files that pages link to: our own style and script, and the vendored libraries (`static/vendor/vendor.json`)."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mnemolog.infra.runtime.regular_files import read_file

STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
_KEPT: Final = "public, max-age=31536000, immutable"
"""The address of a file changes with its content, so browsers may keep it for a year."""


class Asset(NamedTuple):
    """A file with its media type and the SHA-256 of its content."""

    content: bytes
    media_type: str
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files that pages may link to, by their path below `static`. They are read once."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in _TYPES:
            content = read_file(path, follow=True)
            digest = hashlib.sha256(content).hexdigest()
            found[path.relative_to(STATIC).as_posix()] = Asset(content, _TYPES[path.suffix], digest)
    return found


def address_of(name: str) -> str:
    """Return the URL of a file."""
    return f"/static/{name}?v={assets()[name].digest[:12]}"


async def send_asset(request: Request) -> Response:
    """Answer a request for a file."""
    found = assets().get(str(request.path_params["name"]))
    if found is None:
        return PlainTextResponse("there is no such file\n", status_code=404)
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": _KEPT})
