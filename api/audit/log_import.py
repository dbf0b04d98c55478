"""Import an exported log as a store with the same bytes, digests and identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Final

from mnemolog.audit.log_export import ExportReader
from mnemolog.audit.results import LogImport
from mnemolog.domain import errors
from mnemolog.domain.chain import Chain
from mnemolog.domain.digest import LogRow
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.infra.keys.keys_file import KEYS_FILE, PARTS
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.copying import append_rows
from mnemolog.infra.log.engine import LogIdentity
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.log_file import LOG_FILE
from mnemolog.infra.runtime.atomic_files import publish_folder, sync, temporary_folder, temporary_name
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.paths import local_path
from mnemolog.infra.text_file import TextSource
from mnemolog.operations.backup_keys import restore_keys
from mnemolog.operations.copied_log import opened_copy, verify_copy
from mnemolog.projections.health.verify import EventChecker
from mnemolog.projections.ports import Progress

BATCH_MAX: Final = 500
"""Rows of the store that are read together."""


def import_log(
    export: str | Path,
    folder: str | Path,
    *,
    keys: str | Path | None = None,
    progress: Progress | None = None,
) -> LogImport:
    """Create a store from an exported log, or extend a store that has the beginning of the same log.

    The new log has the columns, digests and identity of the exported one; its projections are built when first
    needed. If `folder` holds no store, afterwards it holds a complete one or none. An existing store must be of the
    same log and end within the export; it gets the missing events in transactions of 500, so an interrupted import
    can be run again.

    An export holds encrypted content as it is stored. `keys` is a folder with its keys, from which they are copied:
    that of `MemoryStore.backup(keys=)`, or of a store that has them. All content is opened with them first. An import
    without keys can be finished by running it again with them.

    Raises `ImportRefused` for an invalid line (naming it), for an event that `verify` would report (naming its line and
    position; what is encrypted is not looked into) and for a store with another history; `InvalidInput`
    for keys that do not open the content, then no new store was created; `NotAStore`, `StoreNotWritable`,
    `FormatTooNew`.
    """
    source, target = local_path("export", export), local_path("folder", folder)
    keys = None if keys is None else local_path("keys", keys)
    if (target / LOG_FILE).exists():
        return _bring_up(source, target, keys, progress)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise errors.NotAStore(target, f"the folder exists, but holds no {LOG_FILE}")
    return _make(source, target, keys, progress)


def _make(source: Path, folder: Path, keys: Path | None, progress: Progress | None) -> LogImport:
    final = folder.absolute()
    with TextSource(source, progress=progress) as file:
        reader = ExportReader(file)
        header = reader.header
        if header.after != ORIGIN:
            why = f"it begins after position {header.after}; a new store needs an export from the first event"
            raise reader.refused(why)
        identity = LogIdentity(header.log_id, header.log_format, Micros(header.created_at))
        with temporary_folder(f"{final.name}.import", folder) as temporary:
            # Durability is needed only once the folder has its final name: closing the log syncs everything at once.
            log = open_log(temporary, clock=SystemClock(), create=True, synchronous="NORMAL", identity=identity)
            with closing(log):
                appended = _append(log, reader, _valid(reader, EventChecker(opaque=True)))
                head = log.head()
            if keys is not None:
                _put_keys(keys, temporary, identity)
            publish_folder(temporary, final)
    return LogImport(
        log_id=header.log_id,
        created=True,
        events=appended,
        already_there=0,
        needs_keys=identity.is_sealed and keys is None,
        head=head,
    )


def _bring_up(source: Path, folder: Path, keys: Path | None, progress: Progress | None) -> LogImport:
    with closing(open_log(folder, clock=SystemClock(), create=False)) as log:
        head = log.head().position
        last = _checked_against(log, source, head, progress=_half(progress, first=True))
        appended = 0
        if last > head:
            with TextSource(source, progress=_half(progress, first=False)) as file:
                reader = ExportReader(file)
                appended = _append(log, reader, (row for row in reader.rows() if row.position > head))
        if keys is not None:
            _put_keys(keys, folder, log.identity)
        return LogImport(
            log_id=log.log_id,
            created=False,
            events=appended,
            already_there=min(head, last),
            needs_keys=log.identity.is_sealed and not (folder / KEYS_FILE).exists(),
            head=log.head(),
        )


def _put_keys(keys: Path, folder: Path, identity: LogIdentity) -> None:
    """Copy the keys of a log beside it, once they have opened all content. Keys that are there already stay.

    Raises `InvalidInput`.
    """
    if not identity.is_sealed:
        raise errors.InvalidInput("keys", "this log is not encrypted: it has no keys")
    final = folder / KEYS_FILE
    placed = final if final.exists() else folder / temporary_name("keys")
    try:
        if placed != final:
            restore_keys(keys, placed, log_id=identity.log_id)
        opening, outcome = SqliteKeys(placed, log_id=identity.log_id), f"no {KEYS_FILE} was copied"
        with opened_copy(folder, what="the log", outcome=outcome, keys=opening) as log:
            verify_copy(log, what="the log", outcome=outcome, contents=True)
        if placed != final:
            placed.rename(final)
            sync(folder)
    except errors.BackupUnusable as error:
        raise errors.InvalidInput("keys", f"{keys}: {error.why}") from error
    except errors.LogDamaged as error:
        raise errors.InvalidInput("keys", f"{keys}: {error}") from error
    finally:
        if placed != final:
            for part in PARTS:
                placed.with_name(placed.name + part).unlink(missing_ok=True)


def _checked_against(log: EventLog, source: Path, head: Position, *, progress: Progress | None) -> int:
    """Read the whole export, and return where it ends: it is complete and continues the history of the store."""
    with TextSource(source, progress=progress) as file:
        reader = ExportReader(file)
        header = reader.header
        if header.log_id != log.log_id:
            raise reader.refused(f"it is of log {header.log_id}, the store there of {log.log_id}")
        if header.after > head:
            why = f"it begins after position {header.after}, the store ends at {head}: events in between are missing"
            raise reader.refused(why)
        _require_same(log, reader)
        for row in _valid(reader, _checker_at(log, head), after=head):
            if row.position == head:
                _require_same(log, reader)
        if reader.chain.position < head:
            _require_same(log, reader)
        return reader.chain.position


def _require_same(log: EventLog, reader: ExportReader) -> None:
    """Raise `ImportRefused` unless the log has the event that was read last."""
    position = Position(reader.chain.position)
    if log.digest_at(position) != reader.chain.digest:
        raise reader.refused(f"the target diverges from this export at or before position {position}")


def _checker_at(log: EventLog, position: Position) -> EventChecker:
    """Return a checker that has read a log up to a position. Raises `LogDamaged`."""
    events = EventChecker(opaque=True)
    pages = log.stored_rows(after=ORIGIN, upto=position, batch_max=BATCH_MAX)
    for row in Chain(log.genesis).checked(chain.from_iterable(pages), outcome="nothing was imported"):
        events.check(row)
    return events


def _valid(reader: ExportReader, events: EventChecker, *, after: int = ORIGIN) -> Iterator[LogRow]:
    """Yield the rows of an export. Raises `ImportRefused` for the first past `after` that `verify` would report."""
    for row in reader.rows():
        if row.position > after and (flaw := events.check(row)) is not None:
            raise reader.refused(f"the event at position {row.position} is invalid: {flaw.detail}")
        yield row


def _append(log: EventLog, reader: ExportReader, rows: Iterator[LogRow]) -> int:
    def rows_after(position: Position, digest: bytes) -> Iterator[LogRow]:
        return Chain(digest, position=position).checked(rows, outcome="it was not imported")

    try:
        return append_rows(log, rows_after)
    except errors.LogDamaged as error:
        raise reader.refused(f"it does not continue the store as it is now: {error}") from error


def _half(progress: Progress | None, *, first: bool) -> Progress | None:
    """Return a progress callback for one of two passes over a file."""
    if progress is None:
        return None
    return lambda done, total: progress(done if first else total + done, 2 * total)
