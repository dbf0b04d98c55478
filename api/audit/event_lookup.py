"""One event of the log, as stored and decoded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mnemolog.audit.results import StoredEvent
from mnemolog.domain import errors
from mnemolog.domain.chain import Chain
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.digest import LogRow
from mnemolog.domain.events import Event
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.infra.log.event_log import EventLog


def event_at(log: EventLog, position: int) -> StoredEvent:
    """Return the event at a position, damaged or not.

    Raises `InvalidInput` for a position outside the log, `LogDamaged` if the event at it is gone.
    """
    wanted = checked_position("position", position)
    before = Position(max(wanted - 2, ORIGIN))
    pages = log.stored_rows(after=before, upto=wanted, batch_max=2)
    rows = {row.position: row for page in pages for row in (LogRow(*columns) for columns in page)}
    row = rows.get(wanted)
    if row is None:
        head = log.head().position
        if wanted == ORIGIN or wanted > head:
            raise errors.InvalidInput("position", f"no event is at {wanted}; positions of this log are 1 to {head}")
        raise errors.LogDamaged("the event that was here is gone", position=wanted)
    previous = log.genesis if wanted == 1 else _bytes(rows[wanted - 1].digest) if wanted - 1 in rows else None
    event, unreadable = _read(log, row)
    return StoredEvent(
        position=wanted,
        stream=_text(row.stream),
        version=row.version,
        topic=_text(row.topic),
        key=None if row.key is None else _text(row.key),
        recorded_at=row.recorded_at,
        at=_moment(row.recorded_at),
        state=_bytes(row.state),
        digest=_bytes(row.digest).hex(),
        previous_digest=None if previous is None else previous.hex(),
        link_holds=previous is not None and not Chain(previous, position=wanted - 1).follow(row),
        event=event,
        unreadable=unreadable,
    )


def _read(log: EventLog, row: LogRow) -> tuple[Event | None, str | None]:
    try:
        stream, topic = _text(row.stream), _text(row.topic)
        return log.decode(row.position, stream, row.version, topic, _bytes(row.state)), None
    except errors.LogDamaged as error:
        return None, str(error)


def _text(stored: Any) -> str:
    return _bytes(stored).decode(errors="replace")


def _bytes(stored: Any) -> bytes:
    """Return bytes unchanged; empty if damage has changed the type of the value."""
    return stored if isinstance(stored, bytes) else b""


def _moment(recorded_at: int) -> datetime | None:
    try:
        return to_datetime(Micros(recorded_at))
    except (OverflowError, TypeError):
        return None
