"""What happened to a session besides turns and values: rewinds, restores, checkpoints, its ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from mnemolog.adapters.support.store_access import events_of
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointRestored,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    TurnsRewound,
)
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_stream
from mnemolog.store import MemoryStore

Kind = Literal["rewind", "restore", "checkpoint", "end", "resume"]


class Mark(Result, frozen=True, kw_only=True):
    """Something that happened to a session."""

    kind: Kind
    position: Position
    at: datetime
    to: Position | None = None
    """Of a rewind or a restore: turns after this position are hidden since."""
    detail: str = ""
    """The name of a checkpoint, the reason of an end."""

    def hides(self, position: Position) -> bool:
        """Return whether a turn at a position is hidden by this."""
        return self.to is not None and self.to < position < self.position


def marks_of(store: MemoryStore, session: str, *, upto: Position) -> tuple[Mark, ...]:
    """Return what happened to a session up to a position, in order. Reads its events, without the turns."""

    def add(marks: tuple[Mark, ...] | None, recorded: RecordedEvent, _: object) -> tuple[Mark, ...]:
        found = _mark(recorded)
        return (marks or ()) + ((found,) if found is not None else ())

    return events_of(store).fold(session_stream(session), add, upto=upto).state or ()


def hidden_by(marks: Sequence[Mark], position: Position) -> Mark | None:
    """Return what hid a turn first, None if nothing did."""
    return next((mark for mark in marks if mark.hides(position)), None)


def _mark(recorded: RecordedEvent) -> Mark | None:
    position, at = recorded.position, to_datetime(recorded.recorded_at)
    match recorded.event:
        case TurnsRewound(to=to):
            return Mark(kind="rewind", position=position, at=at, to=Position(to))
        case CheckpointRestored(position=to):
            return Mark(kind="restore", position=position, at=at, to=Position(to))
        case CheckpointCreated(name=name):
            return Mark(kind="checkpoint", position=position, at=at, detail=name)
        case SessionEnded(reason=reason):
            return Mark(kind="end", position=position, at=at, detail=reason)
        case SessionResumed(reason=reason):
            return Mark(kind="resume", position=position, at=at, detail=reason or "")
        case _:
            return None
