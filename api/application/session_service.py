"""Sessions and the agents in them: start and end, record, switch, rewind, change, list. Every change is one append."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Required, TypedDict, TypeVar, Unpack

import msgspec

from mnemolog.application import commands
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors, session, working_memory
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, TurnRecorded, TurnsRewound
from mnemolog.domain.head import position_at
from mnemolog.domain.message import EXAMPLE
from mnemolog.domain.options import Option
from mnemolog.domain.request import current_actor, current_request_key
from mnemolog.domain.result import Results
from mnemolog.domain.scope import Scope, covers, parse_scopes
from mnemolog.domain.spelling import closest
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
from mnemolog.domain.values import (
    INTEGER_MAX,
    ORIGIN,
    TURNS_PER_CALL_MAX,
    Clock,
    MemoryLimits,
    Micros,
    Position,
    Time,
    Version,
    When,
    check_count,
    checked_label,
    checked_text,
    checked_whole,
    parse_time,
)
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.caller_warnings import warn
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import AgentSummary, ScopeSummary, SessionSummary
from mnemolog.projections.sql import queries
from mnemolog.results import NewTurn

if TYPE_CHECKING:
    from mnemolog.projections.sql.filtering import TurnTimes


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

    def __init__(self, visible: VisibleEvents, agents: Agents, scopes: Callable[[], list[queries.Group]]) -> None:
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
        spans = session.cut(before.spans, upto=done.position)
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

    def _branch_point(self, state: session.SessionState, at: When) -> Position:
        if not isinstance(at, str):
            return self._visible.place(state.session, "at", at, rewinds=False)
        try:
            return working_memory.find_checkpoint(state, at).position
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
        leave, at, turns, title = how.get("session"), how.get("at"), how.get("turns"), how.get("title")
        name = None if target is None else session.checked_session_id(session.session_id_of(target, "to"))
        old = None if leave is None else self._visible.state(session.session_id_of(leave))
        if turns is not None:
            _check_one_of(turns, at)
            if reason is not SwitchReason.REWIND:
                raise errors.SwitchRefused(reason, "leave out `turns`, or use 'rewind'")
        if name is None and reason is SwitchReason.RESUME:
            raise errors.SwitchRefused(reason, "say which session to resume")
        scope = None if how.get("scope") is None else self._visible.boundary.one(how["scope"])
        entered = self._visible.state(name) if name is not None and reason is SwitchReason.RESUME else None
        known = entered if old is None else old
        of = scope if scope is not None or known is None else known.started.scope
        agent, moved, of = self._leaving(how.get("agent"), old, of, reason)
        left = None if old is None else old.session
        here = moved.current if left is None and moved is not None else left
        to = self._states.id_of(self._agents.new_session_name() if name is None else name, of)
        to = to if entered is None else entered.session
        given = current_request_key() if how.get("key") is None else how["key"]
        return partial(
            commands.switch,
            asked=SwitchRequest(
                agent=agent,
                reason=reason,
                from_=left,
                to=to,
                at=None if at is None else self._switch_point(at, reason, to=name and to, left=here),
                title=title and self._visible.log.redaction().text(title),
                scope=of if left is None and left_by(moved, reason=reason, to=to) is None else scope,
            ),
            states=self._states,
            known_agent=self._agents.known,
            turns=turns,
            in_place=name is None and reason in (SwitchReason.COMPRESS, SwitchReason.REWIND),
            named=name is not None,
            joins=joins,
            key=None if given is None else session.checked_key(given),
        )

    def _leaving(
        self, given: str | None, old: session.SessionState | None, scope: str | None, reason: SwitchReason
    ) -> tuple[str, AgentState | None, str | None]:
        """Return the agent that switches, where it is now, and the scope of a session that it starts."""
        agent = self._agents.own(given if given is not None or old is None else old.started.agent, scope)
        moved = self._agents.state(agent)
        if old is None and moved is not None:
            # Folded before the write lock is taken: under it, states are only looked up.
            old = self._states.latest(moved.current)
        if scope is None and old is not None:
            scope = old.started.scope
        if scope is None and reason is SwitchReason.NEW:
            scope = self._asked_for(agent)
        return agent, moved, scope

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


Decision = Callable[[session.SessionState | None, Micros], list[Event]]
"""Returns the events to append, given a session's state and the current time; or raises."""


ATTEMPTS_MAX: Final = 100
Found = TypeVar("Found", bound=Sized)
Result = TypeVar("Result")


class Attributes(TypedDict, total=False):
    """Attributes of a session to get or to start; None for any."""

    agent: str | None
    scope: str | None
    title: str | None
    parent: session.SessionLike | None


class About(TypedDict, total=False):
    """What is recorded with a turn besides role and text."""

    speaker: str | None
    said_at: Time | None
    tool_calls: Sequence[Any]
    metadata: Mapping[str, Any] | None


class Sessions:
    """The sessions of one log."""

    def __init__(self, visible: VisibleEvents, agents: Agents, *, clock: Clock, limits: MemoryLimits) -> None:
        self._visible = visible
        self._states = visible.states
        self._agents = agents
        self._transact = visible.transact
        self.clock = clock
        self.limits = limits

    def start(self, given: session.SessionLike | None, **about: Unpack[Attributes]) -> tuple[str, SessionStarted]:
        """Start a session; return its id, random if none is given, and its start. Raises `SessionExists`."""
        chosen, started = self._startable(given, about)

        stream, key = session.session_stream(chosen), current_request_key()

        def start(tx: Transaction) -> SessionStarted:
            state = commands.new_state_in(tx, chosen, self._states)
            if state is not None and key is not None and tx.find(stream, key) is not None:
                return session.agreeing(
                    chosen,
                    state.started,
                    title=started.title or None,
                    agent=started.agent,
                    scope=started.scope,
                    parent=started.parent,
                )
            for event in session.start(chosen, state, started=started):
                tx.append(stream, event, key=key)
            return started

        return chosen, self._transact(start)

    def get_or_start(
        self, given: session.SessionLike | None, *, joins: bool = False, **about: Unpack[Attributes]
    ) -> tuple[str, SessionStarted]:
        """Return the id and the start of a session; start it if there is none: one append.

        Raises `SessionDiffers` for a session with other attributes, unless the caller `joins` it.
        """
        if title := about.get("title"):
            about["title"] = self._visible.log.redaction().text(title)
        if about.get("scope") is not None:
            about["scope"] = self._visible.boundary.one(about["scope"])
        if (parent := about.get("parent")) is not None:
            about["parent"] = self._visible.id_of(parent, "parent")

        def agreeing(state: session.SessionState) -> SessionStarted:
            if state.started.agent in self._visible.boundary.forms(about.get("agent") or ""):
                about["agent"] = state.started.agent
            return session.agreeing(state.session, self._visible.admitted(state.started), **({} if joins else about))

        if given is not None:
            known = self._states.id_of(session.session_id_of(given, "id"), about.get("scope"))
            if (state := self._states.latest(known)) is not None:
                return known, agreeing(state)
        chosen, wanted = self._startable(given, about)

        def get_or_start(tx: Transaction) -> SessionStarted:
            if (state := commands.new_state_in(tx, chosen, self._states)) is not None:
                return agreeing(state)  # Another process was faster.
            tx.append(session.session_stream(chosen), wanted)
            return wanted

        return chosen, self._transact(get_or_start)

    def _startable(self, given: session.SessionLike | None, about: Attributes) -> tuple[str, SessionStarted]:
        scope, parent = self._visible.boundary.one(about.get("scope")), about.get("parent")
        name = self._agents.new_session_name() if given is None else session.session_id_of(given, "id")
        chosen = session.checked_session_id(self._states.id_of(session.checked_session_id(name), scope))
        started = session.new_session(
            title=about.get("title") or "",
            agent=self._agents.own(about.get("agent"), scope),
            scope=scope,
            parent=None if parent is None else self._visible.state(session.session_id_of(parent, "parent")).session,
        )
        return chosen, self._visible.log.redaction().event(started)

    def end(self, session_id: str, *, reason: str) -> None:
        """End a session; ending it again changes nothing."""
        checked_text("reason", reason)
        self.decide(session_id, lambda state, _: session.end(session_id, state, reason=reason))

    def decide(self, session_id: str, decision: Decision) -> list[RecordedEvent]:
        """Append the events that `decision` returns for a session's state and the current time."""
        return self._transact(
            partial(
                commands.decide,
                session_id=self._states.id_of(session_id),
                states=self._states,
                decision=lambda state: decision(state, self.clock.now()),
                key=current_request_key(),
            )
        )

    def record(
        self,
        session_id: str,
        role: str | Mapping[str, Any],
        text: str | Sequence[Any] | None,
        *,
        key: str | None,
        **about: Unpack[About],
    ) -> commands.Recorded:
        """Record a turn, given as a role and a text or as one message. See `Session.record`."""
        session_id, key = self._states.id_of(session_id), current_request_key() if key is None else key
        if not isinstance(role, str):
            return self._transact(self._recording(NewTurn.of(role, session=session_id, text=text, key=key, **about)))
        if text is None and not about.get("tool_calls"):
            raise errors.InvalidInput("text", f'missing; write record("user", "Hello") or record({EXAMPLE})')
        turn = session.new_turn(role=role, text=text or "", **about)
        if key is not None:
            session.checked_key(key)
        return self._transact(
            partial(commands.record_turn, session_id=session_id, turn=turn, states=self._states, key=key)
        )

    def record_many(
        self,
        messages: Sequence[NewTurn | Mapping[str, Any]],
        *,
        session_id: str | None = None,
        reopen_ended: bool = False,
    ) -> list[commands.Recorded]:
        """Record messages of any sessions, in the order given, in one transaction. See `MemoryStore.record_many`.

        With `reopen_ended`, ended sessions are resumed for their turns and ended again.
        """
        check_count("messages", len(messages), limit=TURNS_PER_CALL_MAX, unit="messages")
        works: list[tuple[str, Callable[[Transaction], commands.Recorded]]] = []
        key = current_request_key()
        for place, message in enumerate(messages):
            try:
                new = NewTurn.of(message, session=session_id)
                if key is not None and new.key is None:
                    new = msgspec.structs.replace(new, key=f"{key}/{place}")
                works.append((self._visible.id_of(new.session), self._recording(new)))
            except errors.InvalidInput as error:
                error.at_place(f"messages[{place}]")
                raise
        if reopen_ended:
            return self._transact(lambda tx: commands.record_late(tx, works, self._states))
        return self._transact(lambda tx: [work(tx) for _, work in works])

    def rewrite(self, session_id: str, turns: Sequence[NewTurn]) -> None:
        """Hide all turns that a session sees and record these in their place, in one transaction."""
        works = [self._recording(new) for new in turns]

        def rewrite(tx: Transaction) -> None:
            commands.rewind(tx, session_id, self._states, to=None, turns=INTEGER_MAX)
            for work in works:
                work(tx)

        self._transact(rewrite)

    def _recording(self, new: NewTurn) -> Callable[[Transaction], commands.Recorded]:
        turn, key = checked_turn(new)
        return partial(
            commands.record_turn, session_id=self._visible.id_of(new.session), turn=turn, states=self._states, key=key
        )

    def record_behind(
        self, session_id: str, turns: Sequence[tuple[TurnRecorded, str | None]], *, expected: Version
    ) -> list[commands.Recorded]:
        """Record turns if the stream is still at version `expected`. Raises `WrongExpectedVersion`."""
        return self._transact(lambda tx: commands.record_behind(tx, session_id, turns, self._states, expected=expected))


def checked_turn(new: NewTurn) -> tuple[TurnRecorded, str | None]:
    """Return the event that records a turn, and its key. Raises `InvalidInput`, `LimitExceeded`."""
    turn = session.new_turn(
        role=new.role,
        text=new.text,
        speaker=new.speaker,
        said_at=new.said_at,
        tool_calls=new.tool_calls,
        metadata=new.metadata,
        original=new.original,
    )
    return turn, None if new.key is None else session.checked_key(new.key)


def retry_on_conflict(attempt: Callable[[], Result]) -> Result:
    """Return what `attempt` returns. `WrongExpectedVersion` is retried; that of the last attempt is raised."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except errors.WrongExpectedVersion:
            continue
    return attempt()


_SILENT: Final[ContextVar[bool]] = ContextVar("mnemolog_no_scope_warnings", default=False)


@contextmanager
def without_scope_warnings() -> Iterator[None]:
    """Give no `ScopeWarning` within the block: for a server, whose callers see that nothing was found."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


class SessionList:
    """Lists sessions, as far as the store's own scope shows them."""

    def __init__(self, projections: ProjectionSet, visible: VisibleEvents, agents: Agents) -> None:
        self._projections = projections
        self._visible = visible
        self._agents = agents

    def sessions(
        self,
        *,
        scope: str | Sequence[str] = "",
        agent: str | None = None,
        title: str | None = None,
        since: Time | None = None,
    ) -> Results[SessionSummary]:
        """Return the sessions that match all filters. See `MemoryStore.sessions`."""
        within = self._visible.boundary.narrow(parse_scopes(scope))
        of = None if agent is None else self._visible.boundary.forms(checked_label("agent", agent))
        part = "" if title is None else checked_text("title", title).casefold()
        started = None if since is None else parse_time("since", since)
        views, _, stale = self._projections.to_answer()
        with views.database.reading() as connection:
            found = queries.sessions(connection, scopes=within, agents=of, since=started)
        shown = Results(
            item for item in found if part in item.title.casefold() and self._visible.shows_session(item.session)
        )
        shown.stale = stale
        return shown

    def page(
        self,
        *,
        agent: str | None = None,
        title: str = "",
        as_of: When | None = None,
        before: Position | None = None,
        after: Position | None = None,
        limit: int,
    ) -> list[SessionSummary]:
        """Return up to `limit` sessions that had started at `as_of`, a position or a time; the last ones first.

        They started before the position `before`; or with `after` they are the first ones that started after it, first
        to last. Numbers of turns are those of the moment. Raises `InvalidInput`.
        """
        which = queries.Which(
            scopes=self._visible.boundary.scopes,
            agents=None if agent is None else self._visible.boundary.forms(checked_label("agent", agent)),
            title=title and checked_text("title", title),
        )
        views, _, _ = self._projections.to_answer()
        moment = self._moment(as_of)
        with views.database.reading() as connection:
            # Sessions that the store's own scope does not show are read past, so a page is full all the same.
            found = queries.session_page(connection, which, as_of=moment, before=before, after=after, limit=INTEGER_MAX)
            shown = list(islice((item for item in found if self._visible.shows_session(item.session)), limit))
            return queries.with_said(connection, shown, upto=moment.position)

    def groups(self, by: queries.By, *, as_of: When | None = None) -> list[queries.Group]:
        """Return the numbers of sessions and turns at `as_of`, by scope or by agent. Raises `InvalidInput`."""
        within = self._visible.boundary.scopes
        if within:  # Without sessions that inherit from outside.
            items = _grouped(self.page(as_of=as_of, limit=INTEGER_MAX), attrgetter(by))
            return [
                queries.Group(name=name, sessions=len(of), turns=sum(one.turns for one in of)) for name, of in items
            ]
        views, _, _ = self._projections.to_answer()
        upto = self._moment(as_of).position
        with views.database.reading() as connection:
            return queries.groups(connection, by=by, scopes=within, upto=upto)

    def families(
        self,
        *,
        session: str = "",
        as_of: When | None = None,
        before: Position | None = None,
        limit: int,
    ) -> queries.Families:
        """Return sessions that are related by their parents, as of a moment: those of `session`, or the newest.

        See `queries.families`. Raises `InvalidInput`, `UnknownSession`.
        """
        within = self._visible.boundary.scopes
        if session:
            self._visible.state(session)
        views, _, _ = self._projections.to_answer()
        moment = self._moment(as_of)
        with views.database.reading() as connection:
            if session:
                found = queries.family(connection, session, as_of=moment, limit=limit)
            else:
                found = queries.families(connection, scopes=within, as_of=moment, before=before, limit=limit)
        return found._replace(sessions=[item for item in found.sessions if self._visible.shows_session(item.session)])

    @contextmanager
    def turn_times(self) -> Iterator[TurnTimes]:
        """Yield the turns that the store's own scope shows, with the times when they were recorded."""
        from mnemolog.projections.sql.filtering import TurnTimes  # Imports numpy.

        views, _, _ = self._projections.to_answer()
        with views.database.reading() as connection:
            yield TurnTimes(connection, self._visible.boundary.scopes)

    def _moment(self, as_of: When | None) -> queries.AsOf:
        log = self._visible.log
        position = log.head().position if as_of is None else position_at("as_of", as_of, log)
        return queries.AsOf(position, log.recorded_at(position))

    def scopes(self) -> Results[ScopeSummary]:
        """Return each scope with its sessions and turns. See `MemoryStore.scopes`."""
        sessions = self.sessions()
        found = Results(
            ScopeSummary(scope=scope, sessions=len(items), turns=sum(item.turns for item in items))
            for scope, items in _grouped(sessions, lambda item: item.scope)
        )
        found.stale = sessions.stale
        return found

    def agents(self) -> Results[AgentSummary]:
        """Return each agent with its sessions and turns. See `MemoryStore.agents`."""
        return Results(
            AgentSummary(
                agent=agent,
                sessions=len(items),
                turns=sum(item.turns for item in items),
                current=self._current(agent),
            )
            for agent, items in _grouped(self.sessions(), lambda item: item.agent)
        )

    def _current(self, agent: str) -> str | None:
        state = self._agents.state(agent)
        return state.current if state is not None and self._visible.shows_session(state.current) else None

    def warned(self, found: Found, scopes: str | Sequence[str]) -> Found:
        """Return what was found. If that is nothing, warn the caller of each scope that no session is at or below."""
        if found or _SILENT.get() or not scopes:
            return found
        with self._projections.to_answer()[0].database.reading() as connection:
            known = queries.scopes(connection, self._visible.boundary.scopes)
        for scope in parse_scopes(scopes):
            if not any(covers(scope, Scope(item)) for item in known):
                warn(scope_warning(scope, known))
        return found


def scope_warning(scope: str, scopes: Iterable[str]) -> errors.ScopeWarning:
    """Return the warning that no session is at or below `scope`; it names the closest of the `scopes` there are."""
    known = [item for item in scopes if item]
    there = f"the closest scopes: {', '.join(closest(scope, known))}" if known else "no session has a scope"
    return errors.ScopeWarning(f"no session is at or below the scope {scope!r}; {there}")


def _grouped(
    items: Iterable[SessionSummary], by: Callable[[SessionSummary], str]
) -> list[tuple[str, list[SessionSummary]]]:
    groups: dict[str, list[SessionSummary]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return sorted(groups.items())
