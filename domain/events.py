"""The facts that a log holds. Past tense, frozen, in the words of the domain.

Rules of evolution (docs/adr/0005-event-names-and-evolution.md): an event is stored under its `topic`, a
name we chose, never under a Python path. A field may be added with a default; a default never changes,
because fields equal to their default are not stored. A changed meaning is a new topic (`.v2`) and an
upcaster, tested against stored bytes in `tests/golden/`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from mnemolog.domain.position import Micros, Position, Version


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact. Appended once, never changed."""

    topic: ClassVar[str]


class SessionStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An agent began a conversation. The first event of a session's stream."""

    topic: ClassVar[str] = "session.started.v1"

    name: str
    """A label for people; not unique."""
    agent: str
    scope: str = ""
    reason: str = "new"
    parent: str | None = None
    """The session this one was branched from, with the position it was branched at."""
    branched_at: int | None = None


class TurnRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody said something in a session."""

    topic: ClassVar[str] = "turn.recorded.v1"

    role: str
    text: str
    speaker: str | None = None
    said_at: int | None = None
    """Microseconds since the Unix epoch; None when the caller gave no time."""
    tool_calls: list[Any] = []
    metadata: dict[str, Any] = {}


class SessionEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation is over: its stream takes no more turns."""

    topic: ClassVar[str] = "session.ended.v1"

    reason: str = "ended"


EVENT_TYPES: Final[dict[str, type[Event]]] = {
    event_type.topic: event_type for event_type in (SessionStarted, TurnRecorded, SessionEnded)
}
"""Every topic this version can read and write."""


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its place in the log. What projections and replay read."""

    position: Position
    stream: str
    version: Version
    recorded_at: Micros
    key: str | None
    event: Event
