"""An agent: which session it is in, and how often it has switched.

The generation stamps what was asked before a switch, so that a late answer reaches no other session.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mnemolog.domain.events import Event, SessionSwitched

_STREAM_PREFIX: Final = "agent/"


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that has switched at least once."""

    last: SessionSwitched
    generation: int
    """How many switches there were."""

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


def evolve_agent(state: AgentState | None, event: Event) -> AgentState | None:
    """Return the state after `event`; None before the first switch. Events of other kinds change nothing."""
    if not isinstance(event, SessionSwitched):
        return state
    return AgentState(last=event, generation=1 if state is None else state.generation + 1)
