"""What is asked of sessions, whoever asks: each question on the state it is about, each change one append."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from mnemolog import commands
from mnemolog.domain import errors, session
from mnemolog.domain.agent import AgentState, agent_stream
from mnemolog.domain.checkpoints import find_checkpoint
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.limits import LABEL_BYTES_MAX, MemoryLimits, checked_label, checked_text
from mnemolog.domain.lineage import unhidden
from mnemolog.domain.position import Micros, Position, Version
from mnemolog.domain.spans import Spans
from mnemolog.domain.state import SessionState
from mnemolog.domain.switching import Switch, SwitchReason, parse_switch_reason
from mnemolog.infra.log import EventLog
from mnemolog.projections.states import SessionStates

Decision = Callable[[SessionState | None, Micros], list[Event]]
"""Says which events follow from the state of a session at a moment, or raises."""

DEFAULT_AGENT: Final = "agent"


class Sessions:
    """The sessions of one log."""

    def __init__(self, log: EventLog, states: SessionStates, *, clock: Clock, limits: MemoryLimits) -> None:
        self.log, self.states, self.clock, self.limits = log, states, clock, limits

    def state(self, session_id: str) -> SessionState:
        """Return what a session is now. Raises `UnknownSession`."""
        state = self.states.latest(session_id)
        if state is None:
            raise errors.UnknownSession(session_id)
        return state

    def state_at(self, session_id: str, position: int) -> SessionState:
        """Return what a session was at a position. Raises `UnknownSession`, `OutsideSession`."""
        first, head = self.state(session_id).started_position, self.log.head().position
        state = self.states.at(session_id, Position(position)) if first <= position <= head else None
        if state is None:
            raise errors.OutsideSession(session_id, position=position, first=first, last=head)
        return state

    def spans(self, session_id: str, *, hidden: bool = False) -> Spans:
        """Return the turns that a session sees; with `hidden` also those that it has hidden."""
        state = self.state(session_id)
        if not hidden:
            return state.spans
        beginnings = [self.log.first_event(session.session_stream(ancestor)) for ancestor in state.ancestors]
        return unhidden(state, [first for first in beginnings if first is not None])

    def agent(self, agent: str) -> AgentState | None:
        """Return which session an agent is in, and how often it has switched; None before any switch."""
        return self.log.fold(agent_stream(agent), commands.evolve_agent_stream).state

    def version(self, session_id: str) -> Version:
        """Return the version of a session's stream."""
        return self.log.version(session.session_stream(session_id))

    def start(self, session_id: str | None, started: SessionStarted) -> str:
        """Start a session, under a random id where none is given. Return its id."""
        chosen = new_session_id() if session_id is None else session.checked_session_id(session_id)
        self.log.transact(commands.start_session(chosen, started, self.states))
        return chosen

    def end(self, session_id: str, *, reason: str) -> None:
        """End a session; ending it again changes nothing."""
        checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
        self.decide(session_id, lambda state, _: session.end(session_id, state, reason=reason))

    def decide(self, session_id: str, decision: Decision) -> list[RecordedEvent]:
        """Append to a session what `decision` makes of its state and of the moment."""
        return self.log.transact(
            commands.decide(session_id, self.states, lambda state: decision(state, self.clock.now()))
        )

    def record(self, session_id: str, turn: TurnRecorded, *, key: str | None) -> commands.Recorded:
        """Record a turn that is checked already."""
        if key is not None:
            session.checked_key(key)
        return self.log.transact(commands.record_turn(session_id, turn, self.states, key=key))

    def record_behind(
        self, session_id: str, turns: Sequence[tuple[TurnRecorded, str | None]], *, expected: Version
    ) -> list[commands.Recorded]:
        """Record turns if the stream is still at version `expected`. Raises `WrongExpectedVersion`."""
        return self.log.transact(commands.record_behind(session_id, turns, self.states, expected=expected))

    def rewind(self, session_id: str, *, turns: int | None, to: int | None) -> int:
        """Hide turns of a session, and say how many."""
        _check_one_of(turns, to)
        return self.log.transact(commands.rewind(session_id, self.states, to=to, turns=turns))

    def branch(self, session_id: str, to: str | None, *, at: int | str | None, name: str | None) -> commands.Switched:
        """Start a session that goes on from another; no agent moves."""
        state = self.state(session_id)
        asked = Switch(
            agent=state.started.agent,
            reason=SwitchReason.BRANCH,
            from_=session_id,
            to=to or new_session_id(),
            at=find_checkpoint(state, at).position if isinstance(at, str) else at,
            name=name,
        )
        return self.log.transact(commands.branch(asked, self.states))

    def switch(
        self,
        to: str | None,
        *,
        reason: str,
        left: str | None,
        agent: str | None,
        at: int | None,
        turns: int | None,
        name: str | None,
        scope: str | None,
    ) -> commands.Switched:
        """Switch an agent to another session. See `MemoryStore.switch`."""
        parsed = parse_switch_reason(reason)
        if turns is not None:
            _check_one_of(turns, at)
            if parsed is not SwitchReason.REWIND:
                raise errors.SwitchRefused(reason, "leave out `turns`, or use 'rewind'")
        if agent is None:
            agent = DEFAULT_AGENT if left is None else self.state(left).started.agent
        if to is None:
            to = self._default_to(parsed, left=left, agent=checked_label("agent", agent))
        asked = Switch(agent=agent, reason=parsed, from_=left, to=to, at=at, name=name, scope=scope)
        return self.log.transact(commands.switch(asked, self.states, turns=turns))

    def _default_to(self, reason: SwitchReason, *, left: str | None, agent: str) -> str:
        if reason is SwitchReason.RESUME:
            raise errors.SwitchRefused(reason, "say which session to resume")
        if reason not in (SwitchReason.COMPRESS, SwitchReason.REWIND):
            return new_session_id()
        if left is not None:
            return left
        state = self.agent(agent)
        if state is None:
            raise errors.SwitchRefused(reason, f"agent {agent!r} is in no session; name the one that is meant")
        return state.current


def new_session_id() -> str:
    """Return a random id for a session."""
    return secrets.token_hex(8)


def _check_one_of(turns: int | None, to: int | None) -> None:
    if (turns is None) == (to is None):
        raise errors.InvalidInput("turns", "say either by how many turns or to which position")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        raise errors.InvalidInput("turns", f"expected a number of turns from 1 on, got {turns!r}")
