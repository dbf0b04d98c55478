"""Files that the console keeps for a few minutes: an upload until it is imported, an export until it is fetched."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.domain import errors
from mnemolog.infra.runtime.atomic_files import ScratchFolder, write_pieces
from mnemolog.server.console.console import Refused
from mnemolog.server.http.problems import Problem

KEPT_S: Final = 900.0
"""How long a file is kept."""
FILES_MAX: Final = 16
"""Files that are kept at the same time."""
FILES_OF_ONE_MAX: Final = 2
"""Files of one owner among them."""
PIECE_BYTES: Final = 1 << 20
Owner = tuple[object, ...]


class PrivateFiles:
    """Files under random names in a folder that only the server's user may read. Each belongs to one caller."""

    def __init__(self) -> None:
        self._folder: ScratchFolder | None = None
        self._kept: dict[str, tuple[Owner, Path]] = {}

    @property
    def folder(self) -> Path:
        """Where the files are. It is deleted when the server ends."""
        if self._folder is None:
            self._folder = ScratchFolder()
        return self._folder.path

    def require_room(self, owner: Owner) -> None:
        """Raise `Refused` if there are too many files for one more of this owner."""
        if sum(whose == owner for whose, _ in self._kept.values()) >= FILES_OF_ONE_MAX:
            raise Refused(_too_many(f"{FILES_OF_ONE_MAX} files of yours"))
        if len(self._kept) >= FILES_MAX:
            raise Refused(_too_many(f"{FILES_MAX} files"))

    def place(self, owner: Owner, *, suffix: str = "") -> tuple[str, Path]:
        """Return a new id and the path of a file, which is still to be written. Raises `Refused` for too many files."""
        self.require_room(owner)
        name = secrets.token_urlsafe(18)
        path = self.folder / f"{name}{suffix}"
        self._kept[name] = owner, path
        return name, path

    async def keep(self, owner: Owner, upload: BinaryIO, *, bytes_max: int) -> tuple[str, Path]:
        """Copy an upload into a new file. Raises `LimitExceeded`: nothing is kept."""
        name, path = self.place(owner)
        try:
            await asyncio.to_thread(write_pieces, path, _pieces(upload, bytes_max))
        except BaseException:
            self.remove(name)
            raise
        self.delete_later(name)
        return name, path

    def delete_later(self, name: str) -> None:
        """Delete a file that is complete when its time is over."""
        asyncio.get_running_loop().call_later(KEPT_S, self.remove, name)

    def find(self, owner: Owner, name: str) -> Path:
        """Return the path of a file of this owner. Raises `Refused` if it is not kept any more."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != owner:
            raise Refused(_GONE)
        return kept[1]

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(KeyError, OSError):
            self._kept.pop(name)[1].unlink()


def _pieces(upload: BinaryIO, bytes_max: int) -> Iterator[bytes]:
    size = 0
    while piece := upload.read(PIECE_BYTES):
        size += len(piece)
        if size > bytes_max:
            raise errors.LimitExceeded("file", limit=bytes_max, actual=size, unit="bytes")
        yield piece


def _too_many(files: str) -> Problem:
    return Problem(
        status=503,
        title="Too many files",
        detail=f"{files} wait to be imported or fetched.",
        hint=f"Try again in {KEPT_S / 60:.0f} minutes: until then they are deleted.",
    )


_GONE: Final = Problem(
    status=404,
    title="The file is gone",
    detail=f"Files are kept for {KEPT_S / 60:.0f} minutes, for whoever made them.",
    hint="Upload it, or make it, again.",
)
