"""What a backup says of itself: `backup.json`, written last. A folder without it was never finished."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections import durable
from mnemolog.projections.sql import checked_json

BACKUP_FILE: Final = "backup.json"
KEYS_NOTE_FILE: Final = "keys.json"
FORMAT: Final = 1
PIECE_BYTES: Final = 1 << 20

Moved = Callable[[int], None]
Said = TypeVar("Said")


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup."""

    path: str
    """Below the backup's folder, with slashes."""
    size_bytes: int
    sha256: str
    """Hexadecimal."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Which log a backup is of, how far it goes, and every file of it."""

    format: int
    mnemolog: str
    """The version that made it."""
    log_id: str
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal: a witness of the history in the backup."""
    created_at: datetime
    needs_keys: bool
    """Whether content is encrypted with keys that are not in here."""
    files: tuple[BackupFile, ...]


class KeysNote(msgspec.Struct, frozen=True, kw_only=True):
    """What lies beside a copy of the content keys."""

    format: int
    log_id: str
    created_at: datetime
    keys: BackupFile


def this_version() -> str:
    """Return the version of mnemolog that runs."""
    try:
        return version("mnemolog")
    except PackageNotFoundError:
        return "unknown"


def read(backup: Path) -> BackupManifest:
    """Return what a backup says of itself. Raises `BackupUnusable`."""
    found = _said(backup / BACKUP_FILE, BackupManifest, shown=backup)
    if found.format != FORMAT:
        raise errors.BackupUnusable(backup, f"it has format {found.format}, this mnemolog reads {FORMAT}")
    for item in found.files:
        path = PurePosixPath(item.path)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise errors.BackupUnusable(backup, f"it names a file outside of itself: {item.path!r}")
    return found


def read_keys_note(folder: Path) -> KeysNote:
    """Return what is said of the keys in a folder. Raises `BackupUnusable`."""
    return _said(folder / KEYS_NOTE_FILE, KeysNote, shown=folder)


def _said(path: Path, kind: type[Said], *, shown: Path) -> Said:
    try:
        return checked_json.decode(path.read_bytes(), kind)
    except FileNotFoundError as error:
        raise errors.BackupUnusable(shown, f"there is no {path.name} in it, so it was never finished") from error
    except OSError as error:
        raise errors.BackupUnusable(shown, str(error)) from error
    except checked_json.NotAsWritten as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error}") from error


def copy_file(source: Path, target: Path, *, moved: Moved = lambda _: None) -> None:
    """Copy a file that nobody changes into a new one, durably. For databases there is `copy_database`."""
    durable.make_folder(target.parent)
    durable.write_pieces(target, _pieces(source, moved))


def described(root: Path, path: Path) -> BackupFile:
    """Return what a manifest says of a file below `root` that nobody has open."""
    digest, size = sha256(), 0
    for piece in _pieces(path, lambda _: None):
        digest.update(piece)
        size += len(piece)
    return BackupFile(path=path.relative_to(root).as_posix(), size_bytes=size, sha256=digest.hexdigest())


def _pieces(path: Path, moved: Moved) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
            moved(len(piece))


def require_free(folder: Path, *, of: str | None = None) -> None:
    """Raise `BackupRefused` unless there is nothing, an empty folder, or a backup `of` this log, if that is given."""
    if of is not None and (folder / BACKUP_FILE).exists():
        if (found := read(folder).log_id) != of:
            raise errors.BackupRefused(folder, f"it is a backup of another log, {found}")
        return
    try:
        if any(folder.iterdir()):
            raise errors.BackupRefused(folder, "it is there already, and not empty")
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise errors.BackupRefused(folder, "it is a file") from error
    except OSError as error:
        raise writing_error(folder, error) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into errors of our tree."""
    try:
        yield
    except OSError as error:
        raise writing_error(folder, error) from error


def writing_error(folder: Path, error: OSError) -> errors.MnemologError:
    """Return what an error of the file system means to who wants to write there."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return errors.StorageFull(folder)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return errors.OutOfDescriptors(folder)
    return errors.StoreNotWritable(folder, str(error))


@contextmanager
def building(prefix: str, final: Path) -> Iterator[Path]:
    """Give a new folder beside `final` to build it in. What is not published when the block ends is deleted."""
    temporary = final.absolute().with_name(durable.temporary_name(prefix))
    with writing(final):
        spare = os.open(os.devnull, os.O_RDONLY)  # Deleting takes one: there may be no other left then.
        try:
            durable.make_folder(temporary)
            yield temporary
        finally:
            os.close(spare)
            _discard(temporary)


def _discard(folder: Path) -> None:
    with suppress(OSError):
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
    with suppress(OSError):
        folder.rmdir()


def publish(temporary: Path, final: Path, *, of: str | None = None) -> None:
    """Give a finished folder its name, durably; in place of a backup `of` this log, if that is given.

    Raises `BackupRefused` where somebody was quicker.
    """
    for path in sorted(temporary.rglob("*"), reverse=True):
        if path.is_dir():
            durable.sync_folder(path)
    durable.sync_folder(temporary)
    replaced = None
    if of is not None and (final / BACKUP_FILE).exists():
        require_free(final, of=of)
        replaced = final.with_name(durable.temporary_name("replaced"))
        final.rename(replaced)
    try:
        temporary.rename(final)  # Over an empty folder that is allowed, over any other it is not.
    except OSError as error:
        if replaced is not None:
            with suppress(OSError):
                replaced.rename(final)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise errors.BackupRefused(final, "somebody else has put something there meanwhile") from error
    durable.sync_folder(final.parent)
    if replaced is not None:
        _discard(replaced)
