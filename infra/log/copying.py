"""Append rows to a log as another copy of it has them. Nothing is decoded: every digest stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, LogRow
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.infra.log.engine import StagedRow
from mnemolog.infra.log.event_log import EventLog

PAGE: Final = 500
"""Rows that are committed together. A copy that is killed continues after the last of them."""

RowsAfter = Callable[[Position, bytes], Iterator[LogRow]]
"""Yields the rows after a position with this digest, checked. Raises where they do not follow it."""


def append_rows(log: EventLog, rows_after: RowsAfter, *, appended: Callable[[Position], None] | None = None) -> int:
    """Append rows in pages. Return how many.

    `rows_after` is called with the head of `log`, under its lock, and again if another process has appended meanwhile.
    `appended` is called with the last position of every page that is durable, and may raise to stop. Raises what these
    raise, `LogDamaged` for rows that no log can have, and the errors of an append.
    """
    engine = log.engine
    count = 0
    position = int(ORIGIN)
    head: tuple[int, bytes] | None = None
    rows: Iterator[LogRow] = iter(())
    try:
        connection = engine.connect()
        try:
            while True:
                position, digest, given, _ = connection.lock(0)
                if position != given:
                    why = f"{log.path}: the log ends at {position}, and had {given} events: some were cut off"
                    raise errors.LogDamaged(why, position=position + 1)
                found = position, log.genesis if digest is None else bytes(digest)
                if found != head:
                    rows = rows_after(Position(position), found[1])
                page = list(islice(rows, PAGE))
                if not page:
                    return count
                connection.insert([_staged(row) for row in page])
                connection.commit()
                count, head = count + len(page), (page[-1].position, page[-1].digest)
                if appended is not None:
                    appended(Position(page[-1].position))
        finally:
            connection.roll_back()
            connection.close()
    except engine.driver_errors as error:
        if engine.is_conflict(error):
            why = "a stream has one of its versions or idempotency keys twice; nothing from there on was written"
            raise errors.LogDamaged(why, position=position + 1) from error
        raise engine.error_of(error) from error


def copy_rows(source: EventLog, target: EventLog, *, upto: Position, copied: Callable[[Position], None]) -> int:
    """Copy what `target` does not have yet of the events of `source` up to a position. Return how many were copied.

    Several copies may run at once. `copied` is called with the last position of every page that is durable, and may
    raise to stop. Raises `BackupRefused` where `target` has other events, `LogDamaged` at the first event that is not
    what was recorded, and the errors of an append.
    """

    def rows_after(position: Position, digest: bytes) -> Iterator[LogRow]:
        _require_beginning(source, target, position, digest)
        pages = source.stored_rows(after=position, upto=upto, batch_max=PAGE)
        rows = chain.from_iterable(pages)
        return Chain(digest, position=position).checked(rows, outcome="nothing from there on was copied")

    return append_rows(target, rows_after, appended=copied)


def require_beginning(source: EventLog, target: EventLog) -> Position:
    """Return the head of `target`, up to which it has the events of `source`. Raises `BackupRefused` where it has not.

    The digest at a position is proof of all events up to it.
    """
    head, given = target.head(), target.last_given()
    if target.identity != source.identity:
        raise _refused(target, f"it holds log {target.log_id}, not {source.log_id}")
    if head.position != given:
        raise _refused(target, f"its log ends at {head.position}, and had {given} events: some were cut off")
    _require_beginning(source, target, head.position, head.digest_bytes)
    return head.position


def _require_beginning(source: EventLog, target: EventLog, position: Position, digest: bytes) -> None:
    expected = source.genesis if position == ORIGIN else source.digest_at(position)
    if digest != expected:
        here = "that are not in the source" if expected is None else "that differ from the source"
        raise _refused(target, f"its log has events up to position {position} {here}: the two have diverged")


def _refused(target: EventLog, why: str) -> errors.BackupRefused:
    hint = "nothing there was changed; name another folder, or another log of the database"
    return errors.BackupRefused(target.path.parent, why).saying(hint=hint)


def _staged(row: LogRow) -> StagedRow:
    """Return a row as it is inserted. Raises `LogDamaged` for a text that is not UTF-8."""
    try:
        stream = row.stream.decode()
        topic = row.topic.decode()
        key = None if row.key is None else row.key.decode()
    except UnicodeDecodeError as error:
        why = "one of its names is not UTF-8; nothing from there on was written"
        raise errors.LogDamaged(why, position=row.position) from error
    return row.position, stream, row.version, topic, bytearray(row.state), row.recorded_at, bytearray(row.digest), key
