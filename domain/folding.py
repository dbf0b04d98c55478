"""Folding a stream into a state, from any state of it that is known already.

A state that was true at a version stays true of that version, because events are never changed: whoever
has one needs only what came after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import NO_STREAM, ORIGIN, Position, Version

State = TypeVar("State")

Past = Callable[[str, Position], State | None]
"""Gives the state of a stream as it was at a position."""

Evolve = Callable[[State | None, RecordedEvent, Past[State]], State | None]
"""Gives the state after an event; events of other kinds change nothing. It must not depend on turns."""


class Folded(NamedTuple, Generic[State]):
    """A state, and the last event of its stream that went into it."""

    version: Version
    position: Position
    state: State | None

    def through(self, events: Iterable[RecordedEvent], evolve: Evolve[State], past: Past[State]) -> Folded[State]:
        """Return what follows when `events`, which come behind this one in its stream, have happened."""
        version, position, state = self
        for recorded in events:
            version, position, state = recorded.version, recorded.position, evolve(state, recorded, past)
        return Folded(version, position, state)


Known = Callable[[str, Position | None], Folded[State] | None]
"""Says what is known of a stream at or before a position; at the latest, if that is None."""


def nothing_folded() -> Folded[State]:
    """Return the state of a stream before its first event."""
    return Folded(NO_STREAM, ORIGIN, None)


def nothing_known(_stream: str, _position: Position | None) -> None:
    """Know nothing: fold from the beginning."""
    return
