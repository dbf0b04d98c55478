"""Folding a stream into a state, from any state of it that is known already.

Turns are left out, through an index that does not hold them: what a session is stays quick to say however
long it talks. A state once true at a version stays true of that version, because events are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import Position, Version
from mnemolog.infra.mapper import recorded_event
from mnemolog.infra.schema import NOT_A_TURN

State = TypeVar("State")

Past = Callable[[str, Position], State | None]
"""Gives the state of a stream as it was at a position."""

Evolve = Callable[[State | None, RecordedEvent, Past[State]], State | None]
"""Gives the state after an event; events of other kinds change nothing."""


class Folded(NamedTuple, Generic[State]):
    """A state, and the version of the last event of its stream that went into it."""

    version: Version
    state: State | None

    def through(self, events: Iterable[RecordedEvent], evolve: Evolve[State], past: Past[State]) -> Folded[State]:
        """Return what follows when `events`, which come behind this one in its stream, have happened."""
        version, state = self
        for recorded in events:
            version, state = recorded.version, evolve(state, recorded, past)
        return Folded(version, state)


Known = Callable[[str, Position | None], Folded[State] | None]
"""Says what is known of a stream at or before a position; at the latest, if that is None."""

_SELECT_SPARSE: Final = (
    "SELECT position, stream, version, topic, state, key, recorded_at FROM events INDEXED BY events_sparse "
    f"WHERE stream = ? AND version > ? AND {NOT_A_TURN}"
)


def nothing_known(_stream: str, _position: Position | None) -> None:
    """Know nothing: fold from the beginning."""
    return


def read_sparse(
    execute: Callable[..., Any], stream: str, *, after: Version, upto: Position | None = None
) -> list[RecordedEvent]:
    """Return the events of a stream that are no turns, behind version `after`, up to position `upto`."""
    if upto is None:
        rows = execute(f"{_SELECT_SPARSE} ORDER BY version", (stream, after))
    else:
        rows = execute(f"{_SELECT_SPARSE} AND position <= ? ORDER BY version", (stream, after, upto))
    return [recorded_event(*row) for row in rows.fetchall()]
