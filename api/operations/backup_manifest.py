"""The manifest of a backup: `backup.json`, written last. A folder without it is incomplete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.infra.runtime.atomic_files import make_folder, publish_folder, write_pieces
from mnemolog.infra.runtime.os_errors import as_store_error
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
    """Relative to the backup's folder, with slashes."""
    size_bytes: int
    sha256: str
    """Hexadecimal."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The log that was backed up, its head, and every file of the backup."""

    format: int
    mnemolog: str
    """The version of mnemolog that made it."""
    log_id: str
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal: a witness of the history in the backup."""
    created_at: datetime
    needs_keys: bool
    """Whether content is encrypted; the keys are not in the backup."""
    files: tuple[BackupFile, ...]


class KeysNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note beside a copy of the content keys."""

    format: int
    log_id: str
    created_at: datetime
    keys: BackupFile


def read(backup: Path) -> BackupManifest:
    """Return the manifest of a backup. Raises `BackupUnusable`."""
    found = _said(backup / BACKUP_FILE, BackupManifest, shown=backup)
    if found.format != FORMAT:
        raise errors.BackupUnusable(backup, f"it has format {found.format}, this mnemolog reads {FORMAT}")
    for item in found.files:
        path = PurePosixPath(item.path)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise errors.BackupUnusable(backup, f"it names a file outside of itself: {item.path!r}")
    return found


def read_keys_note(folder: Path) -> KeysNote:
    """Return the note on the keys in a folder. Raises `BackupUnusable`."""
    return _said(folder / KEYS_NOTE_FILE, KeysNote, shown=folder)


def _said(path: Path, kind: type[Said], *, shown: Path) -> Said:
    try:
        return checked_json.decode(path.read_bytes(), msgspec.json.Decoder(kind))
    except FileNotFoundError as error:
        raise errors.BackupUnusable(shown, f"there is no {path.name} in it, so it was never finished") from error
    except OSError as error:
        raise errors.BackupUnusable(shown, str(error)) from error
    except checked_json.NotAsWritten as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error}") from error


def copy_file(source: Path, target: Path, *, moved: Moved = lambda _: None) -> None:
    """Copy a file that does not change into a new one, durably. For databases use `copy_database`."""
    make_folder(target.parent)
    write_pieces(target, _pieces(source, moved))


def described(root: Path, path: Path) -> BackupFile:
    """Return the manifest entry of a file below `root` that is not open anywhere."""
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
    """Raise `BackupRefused` unless the folder is new, empty, or, if `of` is given, a backup of that log."""
    if of is not None and (folder / BACKUP_FILE).exists():
        if (found := read(folder).log_id) != of:
            raise errors.BackupRefused(folder, f"it is a backup of another log, {found}")
        return
    try:
        if any(folder.iterdir()):
            raise errors.BackupRefused(folder, "the folder exists and is not empty")
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise errors.BackupRefused(folder, "it is a file") from error
    except OSError as error:
        raise as_store_error(error, folder) from error


def publish(temporary: Path, final: Path, *, of: str | None = None) -> None:
    """Rename a finished folder durably; if `of` is given, it may replace a backup of that log.

    Raises `BackupRefused` if the name is in use by now.
    """
    replace = of is not None and (final / BACKUP_FILE).exists()
    if replace:
        require_free(final, of=of)
    try:
        publish_folder(temporary, final, replace=replace)
    except FileExistsError as error:
        raise errors.BackupRefused(final, "another program has created files there meanwhile") from error
