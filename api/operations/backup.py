"""Backing up a store that is in use: the log, and apart from it the content keys.

A backup is built beside its final path and renamed when every byte is durable and checked: a folder of that name is a
complete backup, or does not exist.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, again
from mnemolog.domain.position import Position, UtcTime
from mnemolog.domain.result import Result
from mnemolog.infra.keys.engine import KeysEngine
from mnemolog.infra.keys.keyring import check
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.files import temporary_folder, write_synced
from mnemolog.infra.version import this_version
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_keys import KeysCopy, copied_keys, publish_keys, require_keys_folder
from mnemolog.operations.backup_manifest import BACKUP_FILE, FORMAT, BackupManifest
from mnemolog.operations.copied_log import counting, opened_copy, verify_copy
from mnemolog.operations.known_backups import KnownBackup, failed_commands, noted_witnesses, remember_backup
from mnemolog.projections.health.verify import Verification, Witness, witnesses_of
from mnemolog.projections.ports import Progress
from mnemolog.projections.sql import checked_json

_TEMPORARY: Final = "backup"
_NOT_MADE: Final = "no backup was made, and an earlier one is as it was"
_NO_KEYS: Final = (
    f"The content keys ({KEYS_FILE}) are not in this backup: without a copy of them its content can "
    "never be read. `--keys FOLDER` copies them to a folder outside the backup."
)


class BackupReport(Result, frozen=True, kw_only=True):
    """The result of a backup."""

    target: str
    log_id: str
    head: Position
    """The last position of its log."""
    digest: str
    created_at: UtcTime
    bytes: int
    keys: str | None
    """Where the content keys were copied to; None if the store has none, or no folder was given."""
    notes: tuple[str, ...]
    """What to know when keeping the backup."""
    seconds: float


def make_backup(
    store: Path,
    log: EventLog,
    target: Path,
    *,
    keys: Path | None,
    replace: bool,
    progress: Progress | None,
) -> BackupReport:
    """Copy the store in the folder `store` into the new folder `target`. See `MemoryStore.backup`."""
    began, log_id = perf_counter(), log.log_id
    witnesses = [Witness("the open store", log.head())]  # Raises for a store that is closed.
    _refuse_inside(store, target, keys)
    if not replace and (target / BACKUP_FILE).exists():
        hint = Hint("nothing was changed; name another folder, or replace that backup: ", again(replace=True))
        raise errors.BackupRefused(target, "it has an earlier backup").saying(hint=hint)
    manifests.require_free(target, of=log_id if replace else None)
    if replace and (target / BACKUP_FILE).exists():
        earlier = manifests.read(target)
        witnesses.append(Witness("the earlier backup", Head(position=earlier.head, digest=earlier.digest)))
    if keys is not None and log.identity.is_sealed:
        require_keys_folder(keys, log_id)
    try:
        with temporary_folder(_TEMPORARY, target) as temporary:
            moved = counting(progress, log.usable_engine.size_bytes())
            witnesses += noted_witnesses(store, log_id)
            witnesses += witnesses_of(store, log)  # Before the copy, which may be older than what comes after.
            log.usable_engine.copy_to(temporary / LOG_FILE, moved=moved)
            moved(log.usable_engine.size_bytes())  # It may be shorter than it was.
            manifest, kept = _checked(temporary, log, keys, witnesses, progress)
            manifests.publish(temporary, target.absolute(), of=log_id if replace else None)
    except errors.MnemologError as error:
        structured_log.error("backup.failed", target=target, error=error)
        raise
    head = Head(position=manifest.head, digest=manifest.digest, log_id=log_id)
    known = None if kept is None else str(kept.path.parent.absolute())
    made_now = KnownBackup(
        path=str(target.absolute()),
        keys=known,
        created_at=manifest.created_at,
        head=head,
        failed=failed_commands(store),
    )
    remember_backup(store, made_now)
    kept = None if kept is None else kept.caught_up()  # Last, so that it holds nothing forgotten before this returns.
    report = BackupReport(
        target=str(target),
        log_id=log_id,
        head=manifest.head,
        digest=manifest.digest,
        created_at=manifest.created_at,
        bytes=manifest.log.size_bytes,
        keys=None if kept is None else str(kept.path),
        notes=(_NO_KEYS,) if manifest.needs_keys and kept is None else (),
        seconds=perf_counter() - began,
    )
    structured_log.info("backup.made", target=target, head=report.head, bytes=report.bytes)
    return report


def _checked(
    folder: Path, log: EventLog, keys: Path | None, witnesses: list[Witness], progress: Progress | None
) -> tuple[BackupManifest, KeysCopy | None]:
    """Check the copied log, write the manifest, and put the copy of the keys in place of the earlier one.

    The keys are copied after the log, so that no key it needs is missing, and get their name before the backup gets
    its own, so that no backup is without keys. Raises `LogDamaged`.
    """
    own = None if log.keyring is None else log.keyring.engine.another()
    copying = nullcontext() if own is None or keys is None else copied_keys(own, keys)
    try:
        with copying as copied:
            opening, what = _opening(own, copied), "the copy of the log"
            with opened_copy(folder, what=what, outcome=_NOT_MADE, keys=opening) as copy:
                verified = verify_copy(
                    copy,
                    what=what,
                    outcome=_NOT_MADE,
                    contents=opening is not None,
                    witnesses=witnesses,
                    progress=progress,
                )
            manifest = _write_manifest(folder, verified, log)
            kept = None if copied is None else publish_keys(copied)
    except errors.KeysMissing as error:
        if error.wrapped:
            raise
        raise errors.LogDamaged(f"{error}; {_NOT_MADE}") from error
    return manifest, kept


def _opening(own: KeysEngine | None, copied: KeysCopy | None) -> KeysEngine | None:
    """Return the keys to check a backup with: their copy, or the store's own; None where there are none."""
    if own is None or (copied is None and not own.is_there()):
        return None
    if copied is not None:
        return SqliteKeys(copied.path, log_id=own.log_id)
    check(own.another())
    return own


def _write_manifest(folder: Path, verified: Verification, log: EventLog) -> BackupManifest:
    manifest = BackupManifest(
        format=FORMAT,
        mnemolog=this_version(),
        log_id=log.log_id,
        head=verified.head,
        digest=verified.digest,
        created_at=datetime.now(UTC),
        needs_keys=log.identity.is_sealed,
        files=(manifests.described(folder / LOG_FILE),),
    )
    write_synced(folder / BACKUP_FILE, checked_json.encode(manifest))
    return manifest


def _refuse_inside(store: Path, target: Path, keys: Path | None) -> None:
    """Raise `BackupRefused` if a folder is inside another that it must not be in."""
    inside, around = target.resolve(), store.resolve()
    if inside.is_relative_to(around):
        raise errors.BackupRefused(target, "it is in the store's own folder")
    if keys is None:
        return
    apart = keys.resolve()
    if apart.is_relative_to(inside) or inside.is_relative_to(apart):
        raise errors.BackupRefused(keys, "the keys are kept apart from the backup, not in the same folder")
    if apart.is_relative_to(around):
        raise errors.BackupRefused(keys, "it is in the store's own folder")
