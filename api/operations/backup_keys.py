"""The copy of a store's content keys, in a folder of its own. Only the newest copy is kept.

An older copy would still have keys that were destroyed since to forget content. Older backups do not need it,
because keys are only added or destroyed.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.infra.copy_database import copy_database
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.runtime.atomic_files import make_folder, replace_file, sync, temporary_name
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_manifest import FORMAT, KEYS_NOTE_FILE, KeysNote
from mnemolog.projections.sql import checked_json

_COPIES: Final = "keys-*.db"


def require_keys_folder(folder: Path, log_id: str) -> None:
    """Raise `BackupRefused` unless the folder is new, empty, or has the keys of this log."""
    with mapped_to_store_errors(folder):
        if not (folder / KEYS_NOTE_FILE).exists():
            manifests.require_free(folder)
        elif manifests.read_keys_note(folder).log_id != log_id:
            raise errors.BackupRefused(folder, "it has the keys of another log")


def copy_keys(store: Path, folder: Path, *, log_id: str) -> Path | None:
    """Copy the keys of a store into `folder`, and return their path; None if the store has none.

    The note beside them names the file and is replaced in one step: after a crash at any point, one copy is complete.
    """
    source = store / KEYS_FILE
    if not source.exists():
        return None
    make_folder(folder)
    temporary = folder / temporary_name("keys")
    try:
        copy_database(source, temporary)
        keys = manifests.described(folder, temporary)
        final = folder / f"keys-{keys.sha256[:16]}.db"
        temporary.rename(final)
        said = KeysNote(
            format=FORMAT,
            log_id=log_id,
            created_at=datetime.now(UTC),
            keys=manifests.BackupFile(path=final.name, size_bytes=keys.size_bytes, sha256=keys.sha256),
        )
        sync(folder)  # The keys are in place before the note names them.
        replace_file(folder / KEYS_NOTE_FILE, checked_json.encode(said), prefix="note", synced=True)
    finally:
        temporary.unlink(missing_ok=True)
    for path in folder.glob(_COPIES):
        if path != final:
            with suppress(OSError):  # The next copy tries again.
                path.unlink()
    return final


def newest_copy(folder: Path) -> Path | None:
    """Return the path of the copy in a folder of keys, None if there is none."""
    try:
        copy = folder / manifests.read_keys_note(folder).keys.path
    except errors.BackupUnusable:
        return None
    return copy if copy.is_file() else None


def restore_keys(folder: Path, target: Path, *, log_id: str) -> None:
    """Copy the keys that belong to a log to `target`. Raises `BackupUnusable`."""
    note = manifests.read_keys_note(folder)
    if note.log_id != log_id:
        raise errors.BackupUnusable(folder, f"its keys are those of log {note.log_id}, the backup is of {log_id}")
    try:
        source = folder / note.keys.path
        manifests.copy_file(source, target, within=folder, size_bytes=note.keys.size_bytes)
    except FileNotFoundError as error:
        raise errors.BackupUnusable(folder, f"{note.keys.path} is missing") from error
    except OSError as error:
        if error.filename != str(source):
            raise  # The copy cannot be written.
        raise errors.BackupUnusable(folder, f"{note.keys.path}: {error.strerror or error}") from error
    found = manifests.described(target.parent, target)
    if (found.size_bytes, found.sha256) != (note.keys.size_bytes, note.keys.sha256):
        raise errors.BackupUnusable(folder, f"{note.keys.path} has changed since the backup")
