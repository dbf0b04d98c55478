"""The state of an agent: its current session, and its switches between sessions.

The position at which it last left or entered a session marks requests made before a switch, so that a late answer
cannot reach another session.
"""

from __future__ import annotations

from typing import Final

import msgspec
from immutables import Map

from mnemolog.domain.events import RecordedEvent, SessionSwitched
from mnemolog.domain.position import Position

_STREAM_PREFIX: Final = "agent/"


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that has switched at least once."""

    last: SessionSwitched
    generation: int
    """How many switches there were."""
    touched: Map[str, Position]
    """The position of the last switch that left or entered a session, by its id."""

    @property
    def current(self) -> str:
        """The session it is in."""
        return self.last.to


def agent_stream(agent: str) -> str:
    """Return the name of the stream that holds the agent's switches."""
    return _STREAM_PREFIX + agent


def agent_of(stream: str) -> str | None:
    """Return the agent whose stream it is, or None for a stream of another kind."""
    return stream.removeprefix(_STREAM_PREFIX) if stream.startswith(_STREAM_PREFIX) else None


def evolve_agent(state: AgentState | None, recorded: RecordedEvent) -> AgentState | None:
    """Return the state after an event; None before the first switch. Events of other kinds change nothing."""
    event = recorded.event
    if not isinstance(event, SessionSwitched):
        return state
    touched: Map[str, Position] = Map() if state is None else state.touched
    for session in {event.from_ or event.to, event.to}:
        touched = touched.set(session, recorded.position)
    return AgentState(last=event, generation=1 if state is None else state.generation + 1, touched=touched)
