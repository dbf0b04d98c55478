"""Publishing files so that a crash leaves the old state or the new one, never a mix. All are ours alone to read."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mnemolog.domain import errors

_REMOVED: Final = "removed"

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""What is remembered is nobody else's to read, whatever the umask of the program allows."""


@contextmanager
def mapped_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system in `folder` into `StorageFull` or `ProjectionUnreadable`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.StorageFull(folder) from error
        raise errors.ProjectionUnreadable(folder, str(error)) from error


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and make its content durable."""
    write_pieces(path, [data])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a new file piece by piece and make it durable. Return how many bytes it has."""
    size = 0
    with open(path, "xb", opener=_open_private) as file:
        for piece in pieces:
            size += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return size


def write_note(path: Path, data: bytes) -> None:
    """Write a file, new or over what is there, that nobody will miss after a power cut."""
    with open(path, "wb", opener=_open_private) as file:
        file.write(data)


def make_folder(folder: Path) -> None:
    """Make a folder, and those it lies in where they are missing. One that is there stays as it is."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder its final name. Raises `FileExistsError` when that is taken."""
    sync_folder(temporary)
    if final.exists():
        raise FileExistsError(final)
    temporary.rename(final)
    sync_folder(final.parent)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def temporary_name(prefix: str) -> str:
    """Return a name that no other process picks, and that readers pass over."""
    return f".{prefix}.{os.getpid()}.{secrets.token_hex(4)}"


def leftovers(folder: Path, prefix: str) -> list[Path]:
    """Return what writers of `folder` are at, or were at when they were cut off."""
    return [path for kind in (prefix, _REMOVED) for path in folder.glob(f".{kind}.*")]


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Delete what writers of `folder` that were cut off have left. For who alone may write in it."""
    for path in leftovers(folder, prefix):
        shutil.rmtree(path, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete what another folder replaces. Renamed first, so that no reader sees half of it.

    What cannot be deleted now is left for `remove_leftovers`: what replaces it counts already.
    """
    doomed = folder.with_name(temporary_name(_REMOVED))
    with suppress(OSError):
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def quarantine(path: Path, folder: Path, *, reason: str, state: str = "damaged") -> Path | None:
    """Set `path` aside in the quarantine that is `folder`, None where it stays. See `Quarantine.set_aside`."""
    from mnemolog.projections.health.quarantine import Quarantine  # It is made of what is above.

    return Quarantine(folder).set_aside(path, reason=reason, state=state)
