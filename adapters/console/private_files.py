"""Files that the console keeps for a few minutes: an upload until it is imported, an export until it is fetched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.adapters.console.console import Problem, Refused
from mnemolog.domain import errors
from mnemolog.infra.runtime.atomic_files import ScratchFolder, write_pieces

KEPT_S: Final = 900.0
"""How long a file is kept."""
FILES_MAX: Final = 16
"""Files that are kept at the same time."""
PIECE_BYTES: Final = 1 << 20
Owner = tuple[object, ...]


class PrivateFiles:
    """Files under random names in a folder that only the server's user may read. Each belongs to one caller."""

    def __init__(self) -> None:
        self._folder: ScratchFolder | None = None
        self._kept: dict[str, tuple[Owner, float, Path]] = {}

    def place(self, owner: Owner, *, suffix: str = "") -> tuple[str, Path]:
        """Return a new id and the path of a file, which is still to be written.

        Raises `Refused` while too many files are kept.
        """
        self._sweep()
        if len(self._kept) >= FILES_MAX:
            raise Refused(_TOO_MANY)
        if self._folder is None:
            self._folder = ScratchFolder()
        name = secrets.token_urlsafe(18)
        path = self._folder.path / f"{name}{suffix}"
        self._kept[name] = owner, time.monotonic() + KEPT_S, path
        return name, path

    def keep(self, owner: Owner, upload: BinaryIO, *, bytes_max: int) -> tuple[str, Path]:
        """Copy an upload into a new file. Raises `LimitExceeded`: nothing is kept."""
        name, path = self.place(owner)
        try:
            write_pieces(path, _pieces(upload, bytes_max))
        except BaseException:
            self.remove(name)
            raise
        return name, path

    def find(self, owner: Owner, name: str) -> Path:
        """Return the path of a file of this owner. Raises `Refused` if it is not kept any more."""
        self._sweep()
        kept_for, _, path = self._kept.get(name, ((), 0.0, Path()))
        if name not in self._kept or kept_for != owner:
            raise Refused(_GONE)
        return path

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(KeyError, OSError):
            self._kept.pop(name)[2].unlink()

    def _sweep(self) -> None:
        now = time.monotonic()
        for name in [name for name, (_, until, _) in self._kept.items() if until < now]:
            self.remove(name)


def _pieces(upload: BinaryIO, bytes_max: int) -> Iterator[bytes]:
    size = 0
    while piece := upload.read(PIECE_BYTES):
        size += len(piece)
        if size > bytes_max:
            raise errors.LimitExceeded("file", limit=bytes_max, actual=size, unit="bytes")
        yield piece


_TOO_MANY: Final = Problem(
    status=503,
    title="Too many files",
    detail=f"{FILES_MAX} files wait to be imported or fetched.",
    hint=f"Try again in {KEPT_S / 60:.0f} minutes: until then they are deleted.",
)
_GONE: Final = Problem(
    status=404,
    title="The file is gone",
    detail=f"Files are kept for {KEPT_S / 60:.0f} minutes, for whoever made them.",
    hint="Upload it, or make it, again.",
)
