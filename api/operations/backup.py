"""Backing up a store that is in use, the log and apart from it the content keys, and restoring a backup.

A backup is built beside its final path and renamed when every byte is durable and checked: a folder of that name is a
complete backup, or does not exist. A restore checks every byte, then the history, and renames the new folder last.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.application.tokens import revoke, tokens_of
from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, again
from mnemolog.domain.position import Position, UtcTime, to_datetime
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.tokens import Token
from mnemolog.forgetting.results import Erasure, ReapplyReport
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.embedding import make_encoder
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.keys.keyring import KeysEngine, check
from mnemolog.infra.keys.keys_file import KEYS_FILE, PARTS
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import keys_of, open_log
from mnemolog.infra.log.seen_head import Known, SeenHead
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path, temporary_folder, write_synced
from mnemolog.infra.version import this_version
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_keys import KeysCopy, copied_keys, publish_keys, require_keys_folder, restore_keys
from mnemolog.operations.backup_manifest import BACKUP_FILE, FORMAT, BackupManifest
from mnemolog.operations.copied_log import counting, opened_copy, verify_copy
from mnemolog.operations.known_backups import KnownBackup, failed_commands, noted_witnesses, remember_backup
from mnemolog.projections.history.verify import Verification, Witness, witnesses_of
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
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


_RESTORING: Final = "restore"
_NOT_DONE: Final = "nothing was restored"
_KEYS_NOT_RESTORED: Final = (
    f"The content of this log is encrypted, and its keys are not restored: put {KEYS_FILE} into the folder, or restore "
    "into another one with `keys`, the folder that has them. Until then no content can be read, and nothing recorded."
)
_TOKENS: Final = Hint(
    "Tokens that were revoked after the backup was made are valid again. Revoke them, or delete what was restored and "
    "restore again, with the erasures kept elsewhere or with all tokens revoked: ",
    again(revoke_tokens=True),
)


class RestoreReport(Result, frozen=True, kw_only=True):
    """The result of a restore, or with `dry_run` of its checks."""

    backup: str
    path: str
    dry_run: bool
    log_id: str
    head: Position
    """The last position of the restored log. Events recorded after the backup are not in it."""
    digest: str
    created_at: datetime
    """When the backup was made."""
    bytes: int
    keys: bool
    """Whether content keys were restored with it."""
    erasures: int
    """How many of the given requests to forget the backup did not have: their content is forgotten again."""
    tokens: tuple[Token, ...]
    """Tokens that are valid in the restored store. One that was revoked after the backup was made is valid again,
    unless it is in the given erasures."""
    revoked: int
    """How many tokens were revoked, of those in the given erasures or with `revoke_tokens` of all."""
    notes: tuple[str, ...]
    seconds: float


def restore_backup(
    backup: str | Path,
    path: str | Path,
    *,
    keys: str | Path | None = None,
    erasures: Sequence[Erasure] = (),
    revoke_tokens: bool = False,
    dry_run: bool = False,
    allow_network_filesystem: bool = False,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore a backup as a store in a new folder.

    - `backup`: the folder of the backup
    - `path`: the new folder of the store
    - `keys`: the folder of the content keys (`MemoryStore.backup`), or that of the store which has them
    - `erasures`: the requests to forget and the revoked tokens since the backup (`store.audit.erasures`)
    - `revoke_tokens`: revoke all tokens of a server
    - `dry_run`: do everything but the last rename; it needs as much disk space
    - `allow_network_filesystem`: restore to a network file system, which is unsafe
    - `progress`: called now and then with what is done and what there is to do

    Size and SHA-256 of the log are compared with `backup.json`, which is also a witness of the history; every digest
    and page is verified, and with `keys` all content is opened. Erasures are carried out before the store can be
    opened; requests to forget need the keys.

    Raises `BackupUnusable` for missing or changed files, `LogDamaged` if the history does not verify, `KeysMissing` for
    keys that are wrapped with a key that the key file does not have,
    `BackupRefused` if `path` exists and is not empty, `NetworkFilesystem`, `StoreNotWritable`,
    `StorageFull`: in all of these nothing was restored.
    """
    if keys is None and not all(item.token for item in erasures):
        raise errors.InvalidInput("erasures", "`erasures` needs `keys`: content is erased by destroying its keys")
    began = perf_counter()
    source = local_path("backup", backup)
    folder = local_path("path", path)
    require_local(folder, allowed=allow_network_filesystem)
    manifest = manifests.read(source)
    manifests.require_free(folder)
    try:
        with temporary_folder(_RESTORING, folder) as temporary:
            moved = counting(progress, manifest.log.size_bytes)
            manifests.copy_described(manifest.log, source, temporary / LOG_FILE, moved=moved)
            if keys is not None:
                restore_keys(local_path("keys", keys), temporary / KEYS_FILE, log_id=manifest.log_id)
            _verify(temporary, manifest, keys=keys is not None, progress=progress)
            if keys is not None:  # Again: their store may have forgotten something since.
                for part in PARTS:
                    (temporary / (KEYS_FILE + part)).unlink(missing_ok=True)
                restore_keys(local_path("keys", keys), temporary / KEYS_FILE, log_id=manifest.log_id)
            repeated = _forget_again(temporary, erasures)
            tokens, revoked = _settle_tokens(temporary, revoke_all=revoke_tokens)
            with closing(SeenHead(temporary, manifest.log_id, writable=True)) as seen:
                seen.saw(Known(manifest.head, bytes.fromhex(manifest.digest)))
            if not dry_run:
                manifests.publish(temporary, folder.absolute())
    except errors.MnemologError as error:
        structured_log.error("restore.failed", backup=source, path=folder, error=error)
        raise
    report = RestoreReport(
        backup=str(source),
        path=str(folder),
        dry_run=dry_run,
        log_id=manifest.log_id,
        head=manifest.head,
        digest=manifest.digest,
        created_at=manifest.created_at,
        bytes=manifest.log.size_bytes,
        keys=keys is not None,
        erasures=repeated.requested,
        tokens=tokens,
        revoked=repeated.revoked + revoked,
        notes=(
            *((_KEYS_NOT_RESTORED,) if manifest.needs_keys and keys is None else ()),
            *((_TOKENS,) if tokens and not erasures else ()),
        ),
        seconds=perf_counter() - began,
    )
    structured_log.info("restore.done", backup=source, path=folder, head=report.head, dry_run=dry_run)
    return report


def _verify(folder: Path, manifest: BackupManifest, *, keys: bool, progress: Progress | None) -> None:
    """Verify the history, after all files are in place and before the store can be opened."""
    what = "the log in the backup"
    opening = keys_of(folder, log_id=manifest.log_id, address=None) if keys else None
    with opened_copy(folder, what=what, outcome=_NOT_DONE, keys=opening) as log:
        if log.log_id != manifest.log_id:
            raise errors.BackupUnusable(folder, f"its log is {log.log_id}, backup.json says {manifest.log_id}")
        witness = Witness(manifests.BACKUP_FILE, Head(position=manifest.head, digest=manifest.digest))
        verify_copy(log, what=what, outcome=_NOT_DONE, contents=keys, witnesses=[witness], progress=progress)


def _forget_again(folder: Path, erasures: Sequence[Erasure]) -> ReapplyReport:
    """Forget what was forgotten since the backup, before the store exists under its name."""
    if not erasures:
        return ReapplyReport(erasures=0, requested=0)
    layout = StoreLayout(folder)
    with (
        closing(open_log(folder, clock=SystemClock(), create=False)) as log,
        closing(ProjectionSet(layout, log, None, make_encoder=make_encoder)) as projections,
    ):
        forgetting = Forgetting(
            layout, log, projections, nodes=list, purged=lambda _: None, copies_of_keys=lambda _: []
        )
        forgetting.resume()
        repeated = forgetting.reapply(erasures)
    if repeated.pending is not None:
        raise errors.BackupUnusable(folder, f"the erasures could not be carried out: {repeated.pending}")
    return repeated


def _settle_tokens(folder: Path, *, revoke_all: bool) -> tuple[tuple[Token, ...], int]:
    """Return the tokens that are valid, and how many were revoked."""
    now = to_datetime(SystemClock().now())
    with closing(open_log(folder, clock=SystemClock(), create=False)) as log:
        valid = tuple(token for token in tokens_of(log) if token.is_valid(now))
        if not revoke_all or not valid:
            return valid, 0
        return (), len(log.appends.transact(partial(revoke, ids=[token.id for token in valid])))
