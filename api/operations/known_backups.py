"""What a store remembers of its backups: `backups.json`, a note beside the log that can be deleted at any time."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.runtime.atomic_files import replace_file
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.infra.runtime.regular_files import read_file
from mnemolog.operations.backup_manifest import BACKUP_FILE, KEYS_NOTE_FILE
from mnemolog.projections.health.verify import Witness
from mnemolog.projections.sql import checked_json

BACKUPS_MAX: Final = 10
"""Backups that are remembered. More than one, because the newest may have been a drill that was deleted."""
BYTES_MAX: Final = 1 << 20
"""The most that is read of the note."""


class KnownBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that this store made, and where."""

    path: str
    """Absolute."""
    keys: str | None
    """The folder that the content keys were copied to, absolute; None if there was none."""
    created_at: datetime
    head: Head


# Made at import: see `checked_json`.
_DECODER: Final = msgspec.json.Decoder(tuple[KnownBackup, ...])


def last_backup(store: Path) -> KnownBackup | None:
    """Return the newest backup that the store in the folder `store` knows of and that is still there.

    Never raises: a note that is missing or damaged knows of no backup. Needs no log and opens no database.
    """
    return next((known for known in _known(store) if (Path(known.path) / BACKUP_FILE).is_file()), None)


def last_keys(store: Path) -> Path | None:
    """Return the folder of the newest copy of the keys that the store knows of and that is still there."""
    folders = (Path(known.keys) for known in _known(store) if known.keys is not None)
    return next((folder for folder in folders if (folder / KEYS_NOTE_FILE).is_file()), None)


def copies_of_keys(store: Path, before: int) -> list[str]:
    """Return the folders of all known copies of the keys made when the log was shorter than `before`, newest first."""
    found = [Path(known.keys) for known in _known(store) if known.keys is not None and known.head.position < before]
    return [str(at) if (at / KEYS_NOTE_FILE).is_file() else f"{at} (not there now)" for at in found]


def backup_witnesses(store: Path, log_id: str) -> list[Witness]:
    """Return the newest known backup of a log as a witness of its history."""
    known = last_backup(store)
    if known is None or known.head.log_id != log_id:
        return []
    return [Witness(f"the backup {known.path}", known.head)]


def remember_backup(store: Path, made: KnownBackup) -> None:
    """Add a backup to the note. Where the store cannot be written, the backup is good all the same."""
    others = [known for known in _known(store) if known.path != made.path]
    path = StoreLayout(store).known_backups
    try:
        with mapped_to_store_errors(path):
            newest = checked_json.encode((made, *others)[:BACKUPS_MAX])
            replace_file(path, newest, prefix="backups", synced=True)
    except (errors.MnemologError, UnicodeEncodeError) as error:  # JSON has no form for a path that is not UTF-8.
        structured_log.warning("backup.not_remembered", path=path, error=error)


def _known(store: Path) -> tuple[KnownBackup, ...]:
    path = StoreLayout(store).known_backups
    try:
        return checked_json.decode(read_file(path, size_max=BYTES_MAX), _DECODER)
    except (OSError, checked_json.NotAsWritten):
        return ()
