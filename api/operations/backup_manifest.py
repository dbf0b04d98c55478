"""The manifest of a backup: `backup.json`, written last. A folder without it is incomplete."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Annotated, BinaryIO, Final, TypeVar

import msgspec
from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.files import as_store_error, make_folder, open_file, publish_folder, read_file, write_pieces
from mnemolog.projections.sql import checked_json

BACKUP_FILE: Final = "backup.json"
KEYS_NOTE_FILE: Final = "keys.json"
FORMAT: Final = 1
PIECE_BYTES: Final = 256 << 10
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_KEYS: Final = re.compile(r"keys-[0-9a-f]{16}\.db")

Moved = Callable[[int], None]
Said = TypeVar("Said")


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup."""

    path: str
    """Its name in the folder of the backup or of the keys."""
    size_bytes: int
    sha256: str
    """Hexadecimal."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The log that was backed up, its head, and its file."""

    format: int
    mnemolog: str
    """The version of mnemolog that made it."""
    log_id: str
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal: a witness of the history in the backup."""
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    needs_keys: bool
    """Whether content is encrypted; the keys are not in the backup."""
    files: tuple[BackupFile, ...]
    """The log alone: projections are rebuilt from it."""

    @property
    def log(self) -> BackupFile:
        """The file of the log."""
        return self.files[0]


class KeysNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note beside a copy of the content keys."""

    format: int
    log_id: str
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    keys: BackupFile


def read(backup: Path) -> BackupManifest:
    """Return the manifest of a backup. Raises `BackupUnusable`."""
    found = _said(backup / BACKUP_FILE, BackupManifest, shown=backup)
    if found.format != FORMAT:
        raise errors.BackupUnusable(backup, f"it has format {found.format}, this mnemolog reads {FORMAT}")
    # A backup may come from an untrusted source: no other name is read or written.
    if foreign := sorted({item.path for item in found.files} - {LOG_FILE}):
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} names a file that no backup has: {foreign[0][:200]!r}")
    if len(found.files) != 1:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} does not name {LOG_FILE}, or names it twice")
    if not ORIGIN <= found.head <= INTEGER_MAX or found.log.size_bytes < 0:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} has a number that no backup has")
    if _DIGEST.fullmatch(found.digest) is None:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} has a digest that no backup has")
    return found


def read_keys_note(folder: Path) -> KeysNote:
    """Return the note on the keys in a folder. Raises `BackupUnusable`."""
    found = _said(folder / KEYS_NOTE_FILE, KeysNote, shown=folder)
    if _KEYS.fullmatch(found.keys.path) is None or found.keys.size_bytes < 0:
        why = f"{KEYS_NOTE_FILE} names a file that is no copy of keys: {found.keys.path[:200]!r}"
        raise errors.BackupUnusable(folder, why)
    return found


def _said(path: Path, kind: type[Said], *, shown: Path) -> Said:
    try:
        return checked_json.decode(read_file(path), msgspec.json.Decoder(kind))
    except FileNotFoundError as error:
        raise errors.BackupUnusable(shown, f"there is no {path.name} in it, so it was never finished") from error
    except OSError as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error.strerror or error}") from error
    except checked_json.NotAsWritten as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error}") from error


def copy_file(
    source: Path, target: Path, *, within: Path, size_bytes: int | None = None, moved: Moved = lambda _: None
) -> None:
    """Copy a file that does not change into a new one, durably. For databases use `copy_database`.

    `source` is below the folder `within`, and no link on the way is followed. A file of another size than `size_bytes`
    is not copied. Raises `OSError`.
    """
    make_folder(target.parent)
    with open_file(source, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        if size_bytes is not None and size != size_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, {size_bytes:,} are expected", str(source))
        write_pieces(target, _pieces(file, moved))


def copy_described(item: BackupFile, folder: Path, target: Path, *, moved: Moved = lambda _: None) -> None:
    """Copy a file of a backup, and check the copy, because the copy is what will be opened. Raises `BackupUnusable`."""
    source = folder / item.path
    try:
        copy_file(source, target, within=folder, size_bytes=item.size_bytes, moved=moved)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.BackupUnusable(folder, f"{item.path} is missing") from error
    except OSError as error:
        if error.filename != str(source):
            raise  # The copy cannot be written.
        raise errors.BackupUnusable(folder, f"{item.path}: {error.strerror or error}") from error
    if replace(described(target), path=item.path) != item:
        raise errors.BackupUnusable(folder, f"{item.path} has changed since the backup")


def described(path: Path) -> BackupFile:
    """Return the manifest entry of a file that is not open anywhere."""
    with open_file(path) as file:
        digest = file_digest(file, sha256).hexdigest()
        return BackupFile(path=path.name, size_bytes=file.tell(), sha256=digest)


def _pieces(file: BinaryIO, moved: Moved) -> Iterator[bytes]:
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
    replaces = of is not None and (final / BACKUP_FILE).exists()
    if replaces:
        require_free(final, of=of)
    try:
        publish_folder(temporary, final, replace=replaces)
    except FileExistsError as error:
        raise errors.BackupRefused(final, "another program has created files there meanwhile") from error
