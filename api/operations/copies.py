"""Copies of a store: a backup of a store that is in use, its restore, and a copy to another folder or database.

A backup is built beside its final path and renamed when every byte is durable and checked: a folder of that name is a
complete backup, or does not exist. A restore checks every byte, then the history, and renames the new folder last. A
copy to another place is made there, event by event: if it is killed, what was copied stays, and the next run continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.application.tokens import revoke, tokens_of
from mnemolog.domain import errors, structured_log
from mnemolog.domain.chain import Kind
from mnemolog.domain.display import Bytes
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.tokens import Token
from mnemolog.domain.values import ORIGIN, Position, UtcTime, to_datetime
from mnemolog.forgetting.history import Erasure, ReapplyReport
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.embedding import make_encoder
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.keys.keyring import VARIABLE, KeysEngine, check, id_of, read_keys
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE, PARTS, SqliteKeys
from mnemolog.infra.log.event_log import EventLog, copy_rows, require_beginning
from mnemolog.infra.log.open import keys_of, open_log
from mnemolog.infra.log.postgres.address import LogAddress, place_of, read_address, without_password
from mnemolog.infra.log.seen_head import Known, SeenHead
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path, temporary_folder, write_synced
from mnemolog.infra.version import this_version
from mnemolog.operations.backup_files import (
    BACKUP_FILE,
    FORMAT,
    BackupManifest,
    KeysCopy,
    KnownBackup,
    copied_keys,
    copy_described,
    described,
    failed_commands,
    noted_witnesses,
    publish,
    publish_keys,
    read_manifest,
    remember_backup,
    require_free,
    require_keys_folder,
    restore_keys,
)
from mnemolog.projections.history.verify import Verification, Witness, verify, witnesses_of
from mnemolog.projections.ports import Progress, tell
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
        raise errors.BackupRefused(target, "it has an earlier backup").saying(
            hint=errors.Hint(
                "nothing was changed; name another folder, or replace that backup: ", errors.again(replace=True)
            )
        )
    require_free(target, of=log_id if replace else None)
    if replace and (target / BACKUP_FILE).exists():
        earlier = read_manifest(target)
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
            publish(temporary, target.absolute(), of=log_id if replace else None)
    except errors.MnemologError as error:
        structured_log.error("backup.failed", target=target, error=error)
        raise
    known = None if kept is None else str(kept.path.parent.absolute())
    remember_backup(
        store,
        KnownBackup(
            path=str(target.absolute()),
            keys=known,
            created_at=manifest.created_at,
            head=Head(position=manifest.head, digest=manifest.digest, log_id=log_id),
            failed=failed_commands(store),
        ),
    )
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
        files=(described(folder / LOG_FILE),),
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
_TOKENS: Final = errors.Hint(
    "Tokens that were revoked after the backup was made are valid again. Revoke them, or delete what was restored and "
    "restore again, with the erasures kept elsewhere or with all tokens revoked: ",
    errors.again(revoke_tokens=True),
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
    manifest = read_manifest(source)
    require_free(folder)
    try:
        with temporary_folder(_RESTORING, folder) as temporary:
            copy_described(
                manifest.log, source, temporary / LOG_FILE, moved=counting(progress, manifest.log.size_bytes)
            )
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
                publish(temporary, folder.absolute())
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
        verify_copy(
            log,
            what=what,
            outcome=_NOT_DONE,
            contents=keys,
            witnesses=[Witness(BACKUP_FILE, Head(position=manifest.head, digest=manifest.digest))],
            progress=progress,
        )


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


_KEYS_NOT_COPIED: Final = (
    "The content of this log is encrypted, and its keys were not copied. Until the copy is continued with them, no "
    "content can be read and nothing can be recorded."
)
_PROJECTIONS: Final = "Projections are not copied: the first recall there builds them from the log."


class CopyReport(Result, frozen=True, kw_only=True):
    """The result of copying a store, or with `dry_run` what there is to copy."""

    source: str
    target: str
    """The folder of the copy."""
    database: str
    """Where its log is in PostgreSQL: its name and the URL without a password; empty if it is a file."""
    log_id: str
    head: Position
    """The last position of the copy. What was recorded in the source meanwhile is copied by the next run."""
    digest: str
    """The log's digest at `head`, hexadecimal: the same in both."""
    copied: int
    """Events that this run copied."""
    keys: bool
    """Whether the content keys were copied."""
    moved: bool
    """Whether the source was moved, and refuses events: then nothing is missing in the copy."""
    dry_run: bool
    notes: tuple[str, ...]
    seconds: float


def copy_store(
    source: str | Path,
    target: str | Path,
    *,
    log: str | None = None,
    local: str | Path | None = None,
    keys: str | None = None,
    with_keys: bool = True,
    move: bool = False,
    dry_run: bool = False,
    allow_network_filesystem: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a store to another folder, or into a PostgreSQL database.

    - `source`: the folder of the store
    - `target`: the folder of the copy, or the URL of a database (docs/moving.md)
    - `log`: with a URL, the name of the log in the database
    - `local`: with a URL, the folder of the copy on this machine
    - `keys`: with a URL, the URL of another database for the keys of the content
    - `with_keys`: False to copy no content keys
    - `move`: note at the end in the source where it was moved
    - `dry_run`: write nothing
    - `allow_network_filesystem`: copy to a network file system, which is unsafe
    - `progress`: called now and then with what is done and what there is to do

    The events are copied as they are stored, so that all digests are the same; then the content keys. At the end the
    copy is verified from its first event to its last. Other processes may read and write the source meanwhile. A copy
    that was interrupted, or made before events were recorded in the source, is continued, once its digest proves that
    it is the beginning of the source.

    Of a source that was moved, a process that opens it later may read, and what it tries to record raises
    `StoreNotWritable`. Stop all writers before a move: a process that has it open does not notice.

    Raises `BackupRefused` for a target that holds anything else: nothing was
    changed; with `move` also if events were recorded meanwhile: then the source was not moved, and what was copied
    stays. `LogDamaged` for a source with damage, `LogBusy`, `LogUnreachable`, `StoreNotWritable`, `StorageFull`,
    `KeysMissing`: what was copied before stays.
    """
    began, folder = perf_counter(), local_path("source", source)
    place, address = place_of(target, log=log, local=local, keys=keys)
    require_local(place, allowed=allow_network_filesystem)
    _refuse_itself(folder, place, address)
    with ExitStack() as opened:
        original = opened.enter_context(
            closing(open_log(folder, clock=SystemClock(), create=False, read_only=dry_run or not move))
        )
        moved_to, head = original.usable_engine.moved_to(), original.head()
        where = _database(address or read_address(place)) or str(place.absolute())
        if move and moved_to not in ("", where):
            raise errors.StoreNotWritable(folder, f"the log was moved to {moved_to}")
        copy = opened.enter_context(_target(original, place, address, dry_run=dry_run))
        after = ORIGIN if copy is None else require_beginning(original, copy)
        sealed = with_keys and original.identity.is_sealed
        count = head.position - after
        if not dry_run and copy is not None:
            count = copy_rows(
                original,
                copy,
                upto=head.position,
                copied=lambda upto: tell(progress, upto - after, head.position - after),
            )
            tell(progress, count, count)  # Also where nothing was left to copy.
            keys_copy = _copy_keys(original, copy, place) if sealed else None
            verify_copy(
                copy,
                what="the copy of the log",
                outcome="the copy is not complete",
                contents=sealed,
                witnesses=[Witness("the source", head)],
                progress=progress,
            )
            if move:
                _note_move(original, copy, where, head)
            copy.close()
            while keys_copy is not None and keys_copy.is_overtaken():  # Forgotten while the copy was verified.
                keys_copy = _copy_keys(original, copy, place)
        report = CopyReport(
            source=str(folder),
            target=str(place),
            database=_database(address or read_address(place)),
            log_id=original.log_id,
            head=head.position,
            digest=head.digest,
            copied=count,
            keys=sealed and not dry_run,
            moved=bool(moved_to) or (move and not dry_run),
            dry_run=dry_run,
            notes=(_KEYS_NOT_COPIED, _PROJECTIONS)
            if original.identity.is_sealed and not with_keys
            else (_PROJECTIONS,),
            seconds=perf_counter() - began,
        )
    if not dry_run:
        structured_log.info("store.copied", source=folder, target=place, head=report.head, copied=report.copied)
    return report


@contextmanager
def _target(source: EventLog, place: Path, address: LogAddress | None, *, dry_run: bool) -> Iterator[EventLog | None]:
    """Give the log to copy to, created with the identity of the source; None if a dry run finds none."""
    try:
        log = open_log(
            place,
            clock=SystemClock(),
            create=not dry_run,
            identity=source.identity,
            read_only=dry_run,
            address=address,
        )
    except errors.StoreNotFound:
        yield None
        return
    with closing(log):
        yield log


def _note_move(source: EventLog, copy: EventLog, where: str, head: Head) -> None:
    """Note in the source that it was moved. Raises `BackupRefused` if it has grown, `InvalidInput` for one log."""
    if not source.engine.set_moved_to(where, head=head.position):
        raise errors.BackupRefused(source.path.parent, "events were recorded in it while it was copied").saying(
            hint="the copy stays, and the store was not moved: stop all of its writers, then run the copy again"
        )
    if copy.usable_engine.moved_to():  # The URLs differ, and name the same database.
        source.engine.set_moved_to("", head=head.position)
        raise errors.InvalidInput("target", "it is the source")


def _refuse_itself(source: Path, place: Path, address: LogAddress | None) -> None:
    """Raise `InvalidInput` if source and target are the same, `BackupRefused` if one is inside the other."""
    inside, around = place.resolve(), source.resolve()
    own, given = read_address(source), address or read_address(place)
    same = own is not None and given is not None and own[:2] == (without_password(given.url), given.log)
    if inside == around or same:
        raise errors.InvalidInput("target", "it is the source")
    if inside.is_relative_to(around) or around.is_relative_to(inside):
        raise errors.BackupRefused(place, "a store cannot be in the folder of another one")


def _copy_keys(original: EventLog, copy: EventLog, place: Path) -> KeysCopy | None:
    """Put a copy of the keys in place of those that are there: what was forgotten since is forgotten there too."""
    if original.keyring is None or copy.keyring is None:
        return None
    source, target = original.keyring.engine.another(), copy.keyring.engine.another()
    if not source.is_there():
        raise source.missing("there are none; `with_keys=False` copies the log without them")
    with closing(target), copied_keys(source, place) as copied:
        target.replace(copied.path)
    return copied


def _database(address: LogAddress | None) -> str:
    return "" if address is None else f"{address.log} in {without_password(address.url)}"


_AS_RECORDED: Final = frozenset({Kind.UNDECODABLE, Kind.UNFIT})
"""Findings about what was recorded, not about the copy: the digests prove that it is copied as it was recorded."""


def counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return what is called with the size of each piece that is copied: `progress` gets the sum, `total` at most."""
    done = 0

    def moved(size: int) -> None:
        nonlocal done
        done = min(done + size, total)
        tell(progress, done, Bytes(total))

    return moved


def verify_copy(
    log: EventLog,
    *,
    what: str,
    outcome: str,
    contents: bool,
    witnesses: Iterable[Witness] = (),
    progress: Progress | None = None,
) -> Verification:
    """Check every page, digest and witness of a log, and with `contents` open all content.

    Messages name the copy by `what`, and end with the `outcome`: what was not done. Raises `LogDamaged` for a log that
    is not whole, and where content does not open.
    """
    try:
        found = verify(log, witnesses=witnesses, contents=contents, progress=progress)
    except errors.KeysMissing as error:
        if error.wrapped:
            raise
        raise errors.LogDamaged(f"the keys do not open the content of {what}: {error.why}; {outcome}") from error
    damage = [finding for finding in found.findings if finding.kind not in _AS_RECORDED]
    if damage:
        text = f"{what} does not verify: {damage[0].kind.value}: {damage[0].detail}"
        more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
        raise errors.LogDamaged(f"{text}{more}; {outcome}", position=damage[0].position)
    return found


@contextmanager
def opened_copy(folder: Path, *, what: str, outcome: str, keys: KeysEngine | None = None) -> Iterator[EventLog]:
    """Give the log in a folder that no other process has open. Raises `LogDamaged` if there is none to open.

    `keys` open its content; they are closed with it.
    """
    try:
        log = open_log(folder, clock=SystemClock(), create=False, keys=keys, notes=False)
    except (errors.NotAStore, errors.StoreNotFound, errors.FormatTooNew) as error:
        raise errors.LogDamaged(f"{what} cannot be opened as a log; {outcome}") from error
    with closing(log):
        yield log


class KeysReport(Result, frozen=True, kw_only=True):
    """How the content keys of a store are stored. A key of the key file is named by an id of 8 hexadecimal digits."""

    store: str
    before: str | None
    """The key that they were wrapped with, None: in the clear."""
    wrapped_with: str | None
    """The key that they are wrapped with now, or after a dry run would be; None: in the clear."""
    key_file: tuple[str, ...]
    """The keys of the key file. The first one wraps, each may unwrap."""
    dry_run: bool
    wiped: bool
    """Whether the earlier form is in no file of the keys any more. If not, `forget` and open stores try again."""


def wrap_keys(path: str | Path, *, clear: bool = False, dry_run: bool = False) -> KeysReport:
    """Wrap the content keys of a store with the first key of the key file, in one transaction.

    `MNEMOLOG_KEY_FILE` names the key file, for each process that opens the store or a backup of its keys: a key a line,
    64 hexadecimal digits each. Keep it on another disk than the keys and their backups. Without the key that they are
    wrapped with, the content can never be read (docs/keys.md).

    Parameters:

    - `path`: the folder of the store. Its keys may be in PostgreSQL.
    - `clear`: store the content keys in the clear, as they are without a key file.
    - `dry_run`: change nothing; the report says what would be done.

    Example: `MNEMOLOG_KEY_FILE=/elsewhere/mnemolog.key`, then `wrap_keys("memory/").wrapped_with`.

    Raises `InvalidInput` for a missing or unusable key file, `StoreNotFound`, `KeysMissing`, `LogBusy`,
    `LogUnreachable`, `StoreNotWritable`.
    """
    folder = local_path("path", path)
    try:
        keys = read_keys()
    except (OSError, ValueError) as error:
        raise errors.InvalidInput("key_file", f"{os.environ[VARIABLE]} cannot be used: {error}") from error
    if not clear and not dry_run:
        _require_apart(folder, keys)
    with closing(open_log(folder, clock=SystemClock(), create=False, read_only=dry_run)) as log:
        if log.keyring is None:
            raise errors.InvalidInput("path", f"the content of {folder} is not encrypted: it has no keys")
        before, wiped = log.keyring.wrapping_key(), True
        new = None if clear or not keys else keys[0]
        if not dry_run:
            log.keyring.rewrap(new)
            wiped = log.keyring.wipe()
    after = None if new is None else id_of(new)
    if not dry_run:
        structured_log.info("keys.wrapped", store=folder, before=before, key=after)
    return KeysReport(
        store=str(folder),
        before=before,
        wrapped_with=after,
        key_file=tuple(map(id_of, keys)),
        dry_run=dry_run,
        wiped=wiped,
    )


def _require_apart(folder: Path, keys: list[bytes]) -> None:
    if not keys:
        why = f"no key file is named: set {VARIABLE}, or pass `mnemolog --key-file FILE`"
        raise errors.InvalidInput("key_file", why)
    named = Path(os.environ[VARIABLE]).resolve()
    if named.is_relative_to(folder.resolve()):
        why = f"{named} is in the folder of the store: who copies the folder has both; keep it on another disk"
        raise errors.InvalidInput("key_file", why)
