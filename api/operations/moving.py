"""Copy a store to another place: between folders and databases, event by event, with the same digests.

A copy is made in its final place: if it is killed, what was copied stays, and the next run continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.log.event_log import EventLog, copy_rows, require_beginning
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres.address import LogAddress, place_of, read_address, without_password
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path
from mnemolog.operations.backup_keys import KeysCopy, copied_keys
from mnemolog.operations.copied_log import verify_copy
from mnemolog.projections.history.verify import Witness
from mnemolog.projections.ports import Progress, tell

_NO_KEYS: Final = (
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
        reads = dry_run or not move
        original = opened.enter_context(closing(open_log(folder, clock=SystemClock(), create=False, read_only=reads)))
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
            notes=(_NO_KEYS, _PROJECTIONS) if original.identity.is_sealed and not with_keys else (_PROJECTIONS,),
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
        hint = "the copy stays, and the store was not moved: stop all of its writers, then run the copy again"
        raise errors.BackupRefused(source.path.parent, "events were recorded in it while it was copied").saying(
            hint=hint
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
