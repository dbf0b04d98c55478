"""Agents, their switches between sessions, and rewinds of what a session sees. Every change is one append."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Required, TypedDict, Unpack

from mnemolog.application import commands
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors, session, working_memory
from mnemolog.domain.events import RecordedEvent, TurnRecorded, TurnsRewound
from mnemolog.domain.head import position_at
from mnemolog.domain.limits import checked_label, checked_whole
from mnemolog.domain.options import Option
from mnemolog.domain.position import ORIGIN, Position, Version, When
from mnemolog.domain.request import current_actor, current_request_key
from mnemolog.domain.session import SessionState, cut
from mnemolog.domain.stream_fold import FoldedState
from mnemolog.domain.switching import (
    AgentState,
    SwitchReason,
    SwitchRequest,
    agent_stream,
    evolve_agent,
    left_by,
    parse_switch_reason,
)
from mnemolog.domain.working_memory import find_checkpoint
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.sql.session_pages import Group

AGENTS_KEPT_MAX: Final = 1_000


class SwitchHow(TypedDict, total=False):
    """Arguments of `MemoryStore.switch` besides the session to enter."""

    reason: Required[
        Annotated[
            SwitchReason | str, Option("`new`, `reset`, `resume`, `branch`, `compress` or `rewind` (docs/sessions.md)")
        ]
    ]
    session: Annotated[session.SessionLike | None, Option("the session to leave; None for the one that `agent` is in")]
    agent: Annotated[str | None, Option("the agent that switches; None for the agent of `session`, or the default one")]
    at: Annotated[When | None, Option("the position or time of recording to branch at or to rewind to")]
    turns: Annotated[int | None, Option("for `rewind`, a number of turns instead of `at`")]
    title: Annotated[str | None, Option("title of a session that is started; None for that of one left in its scope")]
    scope: Annotated[str | None, Option("scope of a session that is started; None for that of the session left")]
    key: Annotated[str | None, Option("makes a retry safe: repeating the switch under the same key writes nothing")]


class Agents:
    """The agents of one log, and the names that this store may give to agents and sessions."""

    def __init__(self, visible: VisibleEvents) -> None:
        self._visible, self._boundary = visible, visible.boundary
        self._agents: dict[str, FoldedState[AgentState]] = {}

    def state(self, agent: str) -> AgentState | None:
        """Return an agent's current session and number of switches; None before any switch."""
        stream = agent_stream(agent)
        if len(self._agents) >= AGENTS_KEPT_MAX:
            self._agents.clear()
        folded = self._agents[stream] = self._visible.log.fold(stream, evolve_agent, known=self.known)
        return folded.state

    def known(self, stream: str, position: Position | None) -> FoldedState[AgentState] | None:
        """Return what is known of an agent's stream without reading the log."""
        return self._agents.get(stream) if position is None else None

    def own(self, agent: str | None, scope: str | None = None) -> str:
        """Return the name in the log of the agent that a name stands for here, the default for none. See `in_log`."""

        def keeps(name: str) -> bool:
            # Of an agent of others no more than the last event is read, so that its switches cannot be timed.
            last = self._visible.log.last_event(agent_stream(name))
            return last is not None and self._visible.shows(last)

        name = checked_label("agent", DEFAULT_AGENT if agent is None else agent)
        own = self._boundary.in_log("agent", name, scope, keeps=keeps, has=lambda item: self.state(item) is not None)
        return checked_label("agent", own)

    def new_session_name(self) -> str:
        """Return a name for a session: a random one, or for a request with a key one that a retry gets again."""
        if (key := current_request_key()) is None:
            return secrets.token_hex(8)
        of_caller = "\0".join((key, current_actor(), *self._boundary.scopes))  # Others may use the same key.
        return hashlib.sha256(of_caller.encode()).hexdigest()[:16]

    def generation(self, session_id: str) -> Position:
        """Return the position of the last event that changed what a session sees, or of a switch from or to it.

        Raises `UnknownSession`.
        """
        state = self._visible.state(session_id)
        agent = self.state(state.started.agent)
        touched = None if agent is None else agent.touched.get(session_id)
        return max(state.spans[-1].after, touched or ORIGIN)


class Switches:
    """Changes of which session an agent is in, and of which turns a session sees."""

    def __init__(self, visible: VisibleEvents, agents: Agents, scopes: Callable[[], list[Group]]) -> None:
        """`scopes` returns the scopes that sessions have."""
        self._visible = visible
        self._states = visible.states
        self._agents = agents
        self._transact, self._scopes = visible.transact, scopes

    def rewind(self, session_id: str, *, turns: int | None, to: When | None, dry_run: bool = False) -> int:
        """Hide turns of a session, and return how many; with `dry_run` only count them."""
        _check_one_of(turns, to)
        target = None if to is None else self._visible.place(session_id, "to", to, rewinds=True)
        stream, key = session.session_stream(session_id), None if dry_run else current_request_key()

        def rewind_once(tx: Transaction) -> list[Position] | RecordedEvent:
            made = None if key is None else tx.find(stream, key)
            return made or commands.rewind(tx, session_id, self._states, to=target, turns=turns, key=key)

        done = self._transact(rewind_once, dry_run=dry_run)
        if isinstance(done, list):
            return len(done)
        before = self._states.at(session_id, Position(done.position - 1))
        if before is None or not isinstance(done.event, TurnsRewound):
            raise self._visible.unknown(session_id)
        spans = cut(before.spans, upto=done.position)
        return len(commands.last_visible(self._visible.log, spans, after=Position(done.event.to)))

    def take_back(self, session_id: str) -> RecordedEvent | None:
        """Hide the last turn that a session sees, and return it; None if it sees none. No two callers get the same."""
        work = partial(commands.rewind, session_id=session_id, states=self._states, to=None, turns=1)
        while hidden := self._transact(work):
            taken = self._visible.log.event_at(hidden[0])
            if taken is not None and isinstance(taken.event, TurnRecorded):  # Otherwise it was forgotten meanwhile.
                return taken
        return None

    def flag_pending_undo(self, session_id: str, *, agent: str) -> None:
        """Resume a session for `agent`, and record that some of its turns were undone, not yet known which."""
        resume = self._switch(session_id, reason=SwitchReason.RESUME, session=session_id, agent=agent)

        def flag(tx: Transaction) -> None:
            resume(tx)
            commands.decide(tx, session_id, self._states, partial(working_memory.flag_undo, session_id))

        self._transact(flag)

    def resolve_pending_undo(self, session_id: str, *, turns: int, expected: Version) -> None:
        """Hide the last `turns` turns and clear the flag. Raises `WrongExpectedVersion`."""
        self._transact(
            lambda tx: commands.resolve_pending_undo(tx, session_id, self._states, turns=turns, expected=expected)
        )

    def preview_restore(self, session_id: str, checkpoint: str) -> commands.Restored:
        """Return what a restore of a session's checkpoint would change."""
        return self._transact(lambda tx: commands.restore(tx, session_id, self._states, checkpoint), dry_run=True)

    def branch(self, session_id: str, to: str | None, *, at: When | None, title: str | None) -> commands.Switched:
        """Start a session that continues from another; no agent moves. As text, `at` is a checkpoint or else a time."""
        state, key = self._visible.state(session_id), current_request_key()
        asked = SwitchRequest(
            agent=state.started.agent,
            reason=SwitchReason.BRANCH,
            from_=state.session,
            to=self._states.id_of(to or self._agents.new_session_name(), state.started.scope),
            at=None if at is None else self._branch_point(state, at),
            title=title and self._visible.log.redaction().text(title),
        )
        return self._transact(lambda tx: commands.branch(tx, asked, self._states, key=key))

    def _branch_point(self, state: SessionState, at: When) -> Position:
        if not isinstance(at, str):
            return self._visible.place(state.session, "at", at, rewinds=False)
        try:
            return find_checkpoint(state, at).position
        except errors.UnknownCheckpoint as unknown:
            try:
                return self._visible.place(state.session, "at", at, rewinds=False)
            except errors.InvalidInput:
                raise unknown from None

    def switch(
        self, to: session.SessionLike | None, *, dry_run: bool = False, joins: bool = False, **how: Unpack[SwitchHow]
    ) -> commands.Switched:
        """Switch an agent to another session; with `dry_run` only return what it would append.

        If it `joins`, a session that another process starts meanwhile is resumed.
        """
        return self._transact(self._switch(to, joins=joins, **how), dry_run=dry_run)

    def _switch(
        self, target: session.SessionLike | None, *, joins: bool = False, **how: Unpack[SwitchHow]
    ) -> Callable[[Transaction], commands.Switched]:
        reason = parse_switch_reason(how["reason"])
        agent = how.get("agent")
        leave = how.get("session")
        name = None if target is None else session.checked_session_id(session.session_id_of(target, "to"))
        old = None if leave is None else self._visible.state(session.session_id_of(leave))
        left = here = None if old is None else old.session
        at = how.get("at")
        turns = how.get("turns")
        given_scope = how.get("scope")
        title = how.get("title")
        if turns is not None:
            _check_one_of(turns, at)
            if reason is not SwitchReason.REWIND:
                raise errors.SwitchRefused(reason, "leave out `turns`, or use 'rewind'")
        if name is None and reason is SwitchReason.RESUME:
            raise errors.SwitchRefused(reason, "say which session to resume")
        scope = None if given_scope is None else self._visible.boundary.one(given_scope)
        entered = self._visible.state(name) if name is not None and reason is SwitchReason.RESUME else None
        scopes = [scope, *(state.started.scope for state in (old, entered) if state is not None)]
        of = next((item for item in scopes if item is not None), None)
        agent = self._agents.own(agent if agent is not None or old is None else old.started.agent, of)
        moved = self._agents.state(agent)
        if old is None and moved is not None:
            # Folded before the write lock is taken: under it, states are only looked up.
            old, here = self._states.latest(moved.current), moved.current
            of = of if of is not None or old is None else old.started.scope
        if of is None and reason is SwitchReason.NEW:
            of = self._asked_for(agent)
        to = self._states.id_of(self._agents.new_session_name() if name is None else name, of)
        to = to if entered is None else entered.session
        asked = SwitchRequest(
            agent=agent,
            reason=reason,
            from_=left,
            to=to,
            at=None if at is None else self._switch_point(at, reason, to=name and to, left=here),
            title=title and self._visible.log.redaction().text(title),
            scope=of if left is None and left_by(moved, reason=reason, to=to) is None else scope,
        )
        given = current_request_key() if how.get("key") is None else how["key"]
        return partial(
            commands.switch,
            asked=asked,
            states=self._states,
            known_agent=self._agents.known,
            turns=turns,
            in_place=name is None and reason in (SwitchReason.COMPRESS, SwitchReason.REWIND),
            named=name is not None,
            joins=joins,
            key=None if given is None else session.checked_key(given),
        )

    def _asked_for(self, agent: str) -> str:
        """Return the scope of a session that leaves no other one. Raises `InvalidInput` if it has to be given."""
        scope = self._visible.boundary.one(None)
        if not scope and (known := [group.name for group in self._scopes() if group.name]):
            why = f"agent {agent!r} leaves no session to take it from: give one, such as {known[0]!r}, or '' for none"
            raise errors.InvalidInput("scope", why)
        return scope

    def _switch_point(self, at: When, reason: SwitchReason, *, to: str | None, left: str | None) -> Position:
        if left is None or reason not in (SwitchReason.BRANCH, SwitchReason.REWIND):
            return position_at("at", at, self._visible.log)
        return self._visible.place(left, "at", at, rewinds=reason is SwitchReason.REWIND and to in (None, left))


def _check_one_of(turns: int | None, to: When | None) -> None:
    if (turns is None) == (to is None):
        raise errors.InvalidInput("turns", "pass exactly one of `turns` and `to`")
    if turns is not None:
        checked_whole("turns", turns)
