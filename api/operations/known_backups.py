"""What a store remembers of its backups, and what to do with them when a log or its keys are lost.

They are in `backups.json`, a note beside the log that can be deleted at any time. Hints have calls that work as they
are printed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.chain import Finding, Kind
from mnemolog.domain.display import dated
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, remedy
from mnemolog.domain.store_layout import SEEN_HEAD, StoreLayout
from mnemolog.infra.keys import keys_file
from mnemolog.infra.log.postgres.address import read_address
from mnemolog.infra.log.seen_head import noted_head
from mnemolog.infra.runtime.files import mapped_to_store_errors, read_file, replace_file
from mnemolog.infra.sqlite import REMEDY_FOR_MARK
from mnemolog.operations.backup_keys import newest_copy
from mnemolog.operations.backup_manifest import BACKUP_FILE, KEYS_NOTE_FILE
from mnemolog.projections.history.verify import IN_QUARANTINE, Witness
from mnemolog.projections.quarantine import PURGE
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
    failed: int = 0
    """For how many backups in a row, up to this one, the command after it has failed (`mnemolog backup`)."""


# Made at import: see `checked_json`.
_DECODER: Final = msgspec.json.Decoder(tuple[KnownBackup, ...])


def last_backup(store: Path) -> KnownBackup | None:
    """Return the newest backup that the store in the folder `store` knows of and that is still there.

    Never raises: a note that is missing or damaged knows of no backup. Needs no log and opens no database.
    """
    return next((known for known in _known(store) if (Path(known.path) / BACKUP_FILE).is_file()), None)


def failed_commands(store: Path) -> int:
    """Return for how many backups in a row, up to the newest, the command after it has failed. Never raises."""
    return next((known.failed for known in _known(store)), 0)


def note_failed_commands(store: Path, failed: int) -> None:
    """Note what `failed_commands` returns until the next command."""
    for known in _known(store)[:1]:
        remember_backup(store, msgspec.structs.replace(known, failed=failed))


def last_keys(store: Path) -> Path | None:
    """Return the folder of the newest copy of the keys that the store knows of and that is still there."""
    folders = (Path(known.keys) for known in _known(store) if known.keys is not None)
    return next((folder for folder in folders if (folder / KEYS_NOTE_FILE).is_file()), None)


def copies_of_keys(store: Path, before: int) -> list[str]:
    """Return the folders of all known copies of the keys made when the log was shorter than `before`, newest first."""
    found = [Path(known.keys) for known in _known(store) if known.keys is not None and known.head.position < before]
    return [str(at) if (at / KEYS_NOTE_FILE).is_file() else f"{at} (not there now)" for at in found]


def noted_witnesses(store: Path, log_id: str) -> list[Witness]:
    """Return what a store notes of a log's history: the last head that it has seen, and its newest known backup."""
    known, noted = last_backup(store), noted_head(store)
    found = [] if noted is None else [Witness(SEEN_HEAD, noted)]
    found += [] if known is None else [Witness(f"the backup {known.path}", known.head)]
    return [witness for witness in found if witness.head.log_id == log_id]


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


def restore_newest_backup(store: Path) -> Hint:
    """Return how to restore the newest backup that the store knows of, into a new folder beside it.

    The store's own keys go with it if they can be used: they also know what was forgotten since the backup.
    """
    backup = last_backup(store)
    if backup is None:
        return Hint("no backup of this store is known here; if there is one elsewhere, restore it into a new folder")
    place = store.absolute().resolve()
    own_keys = read_address(place) is not None or keys_file.log_of(StoreLayout(place).keys) == backup.head.log_id
    keys = str(place) if own_keys else backup.keys
    restore = remedy("restore_backup", backup.path, restored(place), **({"keys": keys} if keys else {}))
    made = f"of {dated(backup.created_at)}, up to position {backup.head.position}"
    return Hint(f"restore the newest known backup ({made}) into a new folder: ", restore)


def after_findings(store: Path, findings: Iterable[Finding]) -> Hint:
    """Return what to do about a log with findings: rescue all of it where nothing is lost, else restore a backup."""
    found = [item for item in findings if item.kind is not Kind.UNFIT]
    if not found:
        return Hint("nothing is lost, and no read uses these events; find the program that wrote them and stop it")
    if all(item.kind is Kind.WITNESS and item.detail.startswith(IN_QUARANTINE) for item in found):
        given_up = "what the log has lost was given up; "
        return Hint(given_up, PURGE, " deletes what is left of it, and the evidence")
    place = store.absolute().resolve()
    folder = restored(place)
    own_keys = read_address(place) is not None or StoreLayout(place).keys.exists()
    keys: dict[str, Any] = {"keys": place} if own_keys else {}
    if all(item.detail.endswith(REMEDY_FOR_MARK) for item in found):
        copy = free(folder.with_name(f"{folder.name}-from"))
        steps = remedy("backup", copy), remedy("restore_backup", copy, folder, **keys)
    elif all(item.kind is Kind.UNPROTECTED for item in found):
        copy = free(folder.with_name(f"{folder.name}-from.jsonl"))
        steps = remedy("audit.export", copy), remedy("import_log", copy, folder, **keys)
    else:
        return Hint(f"stop writing to it and keep {store} as evidence; ", restore_newest_backup(store))
    return Hint("no event is lost; copy the store into a new folder: ", steps[0], ", then ", steps[1])


def put_keys_back(store: Path, missing: errors.KeysMissing) -> str:
    """Return how to put the newest known copy of the store's keys back, keeping the present file.

    Keys in a database are put back there, and wrapped ones need the key file: the error says how.
    """
    if read_address(store) is not None or missing.wrapped:
        return missing.hint.removeprefix("nothing counts as forgotten; ")
    folder, keys = last_keys(store), StoreLayout(store.absolute()).keys
    if keys.exists() and not os.access(keys, os.R_OK):
        return f"use the store as its owner: `ls -l {shlex.quote(str(keys))}` shows who that is"
    copy = None if folder is None else newest_copy(folder)
    if copy is None:
        return "put the store's own keys.db back beside log.db; no copy of it is known here"
    line, name = f"cp {shlex.quote(str(copy))} {shlex.quote(str(keys))}", shlex.quote(str(keys))
    if any(keys.parent.glob(f"{keys.name}*")):
        aside = shlex.quote(str(free(keys.with_name("keys-set-aside"))))
        line = f"mkdir {aside} && mv {name}* {aside} && {line}"
    return f"end the processes that use the store, then put the newest copy of its keys back: `{line}`"


def restored(place: Path) -> Path:
    """Return a new folder beside a store, to restore it into."""
    return free(place.with_name(f"{place.name}-restored"))


def free(wanted: Path) -> Path:
    """Return a path that does not exist yet: this one, or one with a number."""
    number, path = 1, wanted
    while path.exists():
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")
    return path
