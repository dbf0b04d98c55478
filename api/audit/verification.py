"""Verify a log against its witnesses, note its head, and look at one event as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mnemolog.audit.results import StoredEvent
from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, Kind
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.digest import LogRow
from mnemolog.domain.events import Event
from mnemolog.domain.head import Head, parse_head
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.infra.log import head_file
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.health.verify import Verification, Witness, quick_verify, verify
from mnemolog.projections.health.witnesses import witnesses_of
from mnemolog.projections.ports import Progress


def verify_store(
    folder: Path,
    log: EventLog,
    *,
    expect_head: str | None = None,
    heads: Path | None = None,
    contents: bool = False,
    others: Iterable[Witness] = (),
    progress: Progress | None,
) -> Verification:
    """Verify the log against all witnesses: what this node has seen, heads kept elsewhere, and `others`."""
    seen = log.engine.seen_head()
    own = [] if seen is None else [Witness("this node", seen)]
    witnesses = [*own, *witnesses_of(folder, log), *_noted(expect_head, heads), *others]
    found = verify(log, witnesses=witnesses, contents=contents, progress=progress)
    return replace(found, moved_to=log.moved_to())


def _noted(expect_head: str | None, heads: Path | None) -> Iterator[Witness]:
    """Yield the heads that were kept outside of the store."""
    if expect_head is not None:
        yield Witness("the expected head", parse_head("expect_head", expect_head))
    if heads is not None:
        for line, head in head_file.read_heads(heads):
            yield Witness(f"{heads.name} line {line}", head)


def append_head(log: EventLog, file: Path, *, now: Micros) -> Head:
    """Append the head of the log to a file of heads, unless the last head in it contradicts the log."""

    def head_after(last: tuple[int, Head] | None) -> Head:
        head = log.head()
        if last is not None:
            line, noted = last
            for finding in quick_verify(log, [Witness(f"{file}:{line}", noted)]):
                if finding.kind is Kind.WITNESS:
                    raise errors.LogDamaged(f"{finding.detail}; nothing was written", position=finding.position)
        noted_at = to_datetime(now).isoformat()
        return Head(position=head.position, digest=head.digest, log_id=log.log_id, noted_at=noted_at)

    return head_file.append_head(file, head_after)


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
