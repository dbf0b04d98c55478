"""Session use cases. Every query reads one consistent state; every change is one append."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Required, TypedDict, TypeVar, Unpack

import msgspec

from mnemolog.application import commands
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors, pending_undo, session
from mnemolog.domain.agent import AgentState, agent_of, agent_stream
from mnemolog.domain.checkpoints import find_checkpoint
from mnemolog.domain.clock import Clock, local_time, to_datetime
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, SessionSwitched, TurnRecorded, TurnsRewound
from mnemolog.domain.idempotency import current_request_key
from mnemolog.domain.limits import (
    INTEGER_MAX,
    LABEL_BYTES_MAX,
    TURNS_PER_CALL_MAX,
    MemoryLimits,
    checked_label,
    checked_text,
)
from mnemolog.domain.lineage import last_seen, unhidden
from mnemolog.domain.message import EXAMPLE
from mnemolog.domain.moments import Time, When, checked_position, position_at
from mnemolog.domain.options import Option
from mnemolog.domain.position import ORIGIN, Micros, Position, Version
from mnemolog.domain.scope import ROOT, Boundary, parse_scope
from mnemolog.domain.similar_labels import closest
from mnemolog.domain.spans import Span, Spans, cut
from mnemolog.domain.state import SessionState
from mnemolog.domain.stream_fold import FoldedState
from mnemolog.domain.switching import INHERITING, SwitchReason, SwitchRequest, parse_switch_reason
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.history.states import SessionStates
from mnemolog.results import NewTurn

Decision = Callable[[SessionState | None, Micros], list[Event]]
"""Returns the events to append, given a session's state and the current time; or raises."""

AGENTS_KEPT_MAX: Final = 1_000
Result = TypeVar("Result")


class Attributes(TypedDict, total=False):
    """Attributes of a session to get or to start; None for any."""

    agent: str | None
    scope: str | None
    title: str | None
    parent: session.SessionLike | None


Work = Callable[[Transaction], commands.Switched]


class About(TypedDict, total=False):
    """What is recorded with a turn besides role and text."""

    speaker: str | None
    said_at: Time | None
    tool_calls: Sequence[Any]
    metadata: Mapping[str, Any] | None


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
    title: Annotated[str | None, Option("title of a session that is started; None for that of the session left")]
    scope: Annotated[str | None, Option("scope of a session that is started; None for that of the session left")]
    key: Annotated[str | None, Option("makes a retry safe: repeating the switch under the same key writes nothing")]


class Sessions:
    """The sessions of one log."""

    def __init__(
        self,
        log: EventLog,
        states: SessionStates,
        *,
        clock: Clock,
        limits: MemoryLimits,
        titles: Callable[[], Mapping[str, str]],
    ) -> None:
        """`titles` returns the titles of all sessions by id."""
        self.log, self.states, self.clock, self.limits, self._titles = log, states, clock, limits, titles
        self._agents: dict[str, FoldedState[AgentState]] = {}

    def within(self, boundary: Boundary) -> Sessions:
        """Return the sessions inside of a boundary, with the same caches of states."""
        states = self.states.within(boundary)
        return Sessions(self.log, states, clock=self.clock, limits=self.limits, titles=self._titles)

    @property
    def boundary(self) -> Boundary:
        """The scope that the store was opened for."""
        return self.states.boundary

    def read(
        self, *, after: Position, upto: Position, batch_max: int = 500
    ) -> Iterator[tuple[Position, list[RecordedEvent]]]:
        """Yield the events of `(after, upto]` that may be shown, in batches, each with the position it was read up to.

        Of other events only the stream is read, so the time taken reveals at most their number.
        """
        if self.boundary.scope == ROOT:
            for batch in self.log.read(after=after, upto=upto, batch_max=batch_max):
                yield batch[-1].position, batch
            return
        while rows := self.log.streams(after=after, upto=upto, limit=batch_max):
            streams = {stream for _, stream in rows}
            shown = {item for item in streams if self.shows_stream(item) or agent_of(item) is not None}
            found = self.log.read_at([position for position, stream in rows if stream in shown])
            after = Position(rows[-1][0])
            yield after, [recorded for recorded in found if self.shows(recorded)]

    def shows(self, recorded: RecordedEvent) -> bool:
        """Whether an event may be shown: with a boundary, those of sessions inside, and switches between them."""
        event = recorded.event
        if self.boundary.scope == ROOT or not isinstance(event, SessionSwitched):
            return self.shows_stream(recorded.stream)
        return all(self.states.holds(item) for item in (event.from_, event.to) if item is not None)

    def shows_stream(self, stream: str) -> bool:
        """Whether the events of a stream may be shown."""
        if self.boundary.scope == ROOT:
            return True
        session_id = session.session_of(stream)
        return session_id is not None and self.states.holds(session_id)

    def shows_session(self, session_id: str) -> bool:
        """Whether a session that exists may be shown."""
        return self.boundary.scope == ROOT or self.states.holds(session_id)

    def require(self, sessions: Iterable[str], positions: Iterable[int]) -> None:
        """Raise `UnknownSession` or `OutsideScope` for what does not exist or is outside of the scope."""
        for session_id in sessions:
            if not self.version(session_id) or not self.shows_session(session_id):
                raise self.unknown(session_id)
        if self.boundary.scope == ROOT:
            return
        for position in positions:
            found = self.log.event_at(Position(position))
            if found is not None and not self.shows_stream(found.stream):
                raise errors.OutsideScope(f"position {position} is outside of it", scope=self.boundary.scope)

    def state(self, session_id: str) -> SessionState:
        """Return the current state of a session. Raises `UnknownSession`."""
        state = self.states.latest(session_id)
        if state is None:
            raise self.unknown(session_id)
        return state

    def unknown(self, session_id: str) -> errors.UnknownSession:
        """Return the error for an id that no session has. It names the closest ids, if they can be read."""
        try:
            titles = {item: title for item, title in self._titles().items() if self.shows_session(item)}
            titled = [other for other, title in titles.items() if title == session_id]
            return errors.UnknownSession(session_id, closest=closest(session_id, titles), titled=titled)
        except Exception:  # Whatever is wrong with the views, the error of the caller is another one.
            return errors.UnknownSession(session_id)

    def _transact(self, work: Callable[[Transaction], Result], *, dry_run: bool = False) -> Result:
        try:
            return self.log.appends.rehearse(work) if dry_run else self.log.appends.transact(work)
        except errors.UnknownSession as error:
            raise self.unknown(error.session) from None

    def exists(self, session_id: str) -> bool:
        """Return whether a session was ever started."""
        return self.states.latest(session_id) is not None

    def state_at(self, session_id: str, position: int) -> SessionState:
        """Return the state of a session at a position. Raises `UnknownSession`, `OutsideSession`."""
        first, head = self.state(session_id).started_position, self.log.head().position
        if position < first:
            raise self._not_begun(session_id, position, first=first)
        state = self.states.at(session_id, Position(position)) if position <= head else None
        if state is None:
            raise errors.OutsideSession(session_id, position=position, first=first, last=head)
        return state

    def _place(self, session_id: str, field: str, when: When, *, rewinds: bool) -> Position:
        """Return where to branch from a session, or to rewind it to: a position, or a time.

        A rewind to a time is one to the last position that the session sees at that time. Raises `UnknownSession`,
        `InvalidInput`, and `OutsideSession` for a session that did not exist then.
        """
        # Whether a position is in the log is decided in the transaction, with what others have staged before it.
        position = checked_position(field, when) if isinstance(when, int) else position_at(field, when, self.log)
        state = self.state(session_id)
        first = state.spans[0].after if rewinds else state.started_position
        if position < first:
            raise self._not_begun(session_id, position, first=first)
        if isinstance(when, int) or not rewinds:
            return position
        last = self.log.last_event(session.session_stream(session_id))
        return last_seen(state, position, head=position if last is None else last.position)

    def _not_begun(self, session_id: str, position: int, *, first: Position) -> errors.OutsideSession:
        began, last = local_time(to_datetime(self.log.recorded_at(first))), self.log.head().position
        return errors.OutsideSession(session_id, position=position, first=first, last=last, began=began)

    def spans(self, session_id: str, *, hidden: bool = False) -> Spans:
        """Return the spans of turns that a session sees; with `hidden` also the hidden ones."""
        return self._spans(self.state(session_id), hidden=hidden)

    def spans_or_own(self, session_id: str) -> Spans:
        """Return the spans of turns that a session sees; of one that inherits from outside, its own turns."""
        state = self.states.latest(session_id)
        return (Span(session_id, ORIGIN),) if state is None else state.spans

    def spans_at(self, session_id: str, position: int, *, hidden: bool = False) -> Spans:
        """Return the spans of turns that a session saw at a position. Raises `UnknownSession`, `OutsideSession`."""
        return self._spans(self.state_at(session_id, position), hidden=hidden)

    def _spans(self, state: SessionState, *, hidden: bool) -> Spans:
        if not hidden:
            return state.spans
        beginnings = [self.log.first_event(session.session_stream(ancestor)) for ancestor in state.ancestors]
        return unhidden(state, [first for first in beginnings if first is not None])

    def seen(self, session_id: str, *, limit: int | None = None) -> list[RecordedEvent]:
        """Return the last `limit` turns that a session sees, or all, in order, as events of the log.

        The result is as of one position, even if turns are hidden or recorded meanwhile. Raises `UnknownSession`.
        """
        head = self.log.head().position
        self.state(session_id)
        state = self.states.at(session_id, head)
        if state is None:
            raise self.unknown(session_id)
        return commands.last_visible(self.log, cut(state.spans, upto=head), count=limit)[::-1]

    def agent(self, agent: str) -> AgentState | None:
        """Return an agent's current session and number of switches; None before any switch."""
        stream = agent_stream(agent)
        if len(self._agents) >= AGENTS_KEPT_MAX:
            self._agents.clear()
        folded = self._agents[stream] = self.log.fold(stream, commands.evolve_agent_stream, known=self._known_agent)
        return folded.state

    def own_agent(self, agent: str | None) -> str:
        """Return the name of an agent that this store may use, the default for none. Raises `InvalidInput`."""
        if agent is None or (agent == DEFAULT_AGENT and self.boundary.own_names):
            return self.boundary.own(DEFAULT_AGENT)
        if not self.boundary.is_own(checked_label("agent", agent)):
            raise self.boundary.not_own("agent", agent)
        return agent

    def _new_id(self) -> str:
        return self.boundary.own(new_session_id())

    def _known_agent(self, stream: str, position: Position | None) -> FoldedState[AgentState] | None:
        return self._agents.get(stream) if position is None else None

    def generation(self, session_id: str) -> Position:
        """Return the position of the last event that changed what a session sees, or of a switch from or to it.

        Raises `UnknownSession`.
        """
        state = self.state(session_id)
        agent = self.agent(state.started.agent)
        touched = None if agent is None else agent.touched.get(session_id)
        return max(state.spans[-1].after, touched or Position(0))

    def version(self, session_id: str) -> Version:
        """Return the version of a session's stream."""
        return self.log.version(session.session_stream(session_id))

    def start(self, given: session.SessionLike | None, **about: Unpack[Attributes]) -> tuple[str, SessionStarted]:
        """Start a session; return its id, random if none is given, and its start. Raises `SessionExists`."""
        chosen, started = self._startable(given, about)

        stream, key = session.session_stream(chosen), current_request_key()

        def start(tx: Transaction) -> SessionStarted:
            state = commands.new_state_in(tx, chosen, self.states)
            if state is not None and key is not None and tx.find(stream, key) is not None:
                return state.started
            for event in session.start(chosen, state, started=started):
                tx.append(stream, event, key=key)
            return started

        return chosen, self._transact(start)

    def get_or_start(
        self, given: session.SessionLike | None, **about: Unpack[Attributes]
    ) -> tuple[str, SessionStarted]:
        """Return the id and the start of a session; start it if there is none. Raises `SessionDiffers`."""
        if (scope := about.get("scope")) is not None:
            about["scope"] = self.boundary.narrow(parse_scope(scope))
        if given is not None and (state := self.states.latest(session.session_id_of(given, "id"))) is not None:
            return state.session, session.agreeing(state.session, state.started, **about)
        chosen, wanted = self._startable(given, about)

        def get_or_start(tx: Transaction) -> SessionStarted:
            if (state := commands.new_state_in(tx, chosen, self.states)) is not None:
                return session.agreeing(chosen, state.started, **about)  # Another process was faster.
            tx.append(session.session_stream(chosen), wanted)
            return wanted

        return chosen, self._transact(get_or_start)

    def _startable(self, given: session.SessionLike | None, about: Attributes) -> tuple[str, SessionStarted]:
        agent, parent = about.get("agent"), about.get("parent")
        return (
            self._new_id() if given is None else session.checked_session_id(session.session_id_of(given, "id")),
            session.new_session(
                title=about.get("title") or "",
                agent=self.own_agent(agent),
                scope=self.boundary.narrow(parse_scope(about.get("scope") or "")),
                parent=None if parent is None else self.state(session.session_id_of(parent, "parent")).session,
            ),
        )

    def end(self, session_id: str, *, reason: str) -> None:
        """End a session; ending it again changes nothing."""
        checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
        self.decide(session_id, lambda state, _: session.end(session_id, state, reason=reason))

    def decide(self, session_id: str, decision: Decision) -> list[RecordedEvent]:
        """Append the events that `decision` returns for a session's state and the current time."""
        return self._transact(
            partial(
                commands.decide,
                session_id=session_id,
                states=self.states,
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
        key = current_request_key() if key is None else key
        if not isinstance(role, str):
            return self._transact(self._recording(NewTurn.of(role, session=session_id, text=text, key=key, **about)))
        if text is None:
            raise errors.InvalidInput("text", f'missing; write record("user", "Hello") or record({EXAMPLE})')
        turn = session.new_turn(role=role, text=text, **about)
        if key is not None:
            session.checked_key(key)
        return self._transact(
            partial(commands.record_turn, session_id=session_id, turn=turn, states=self.states, key=key)
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
        if len(messages) > TURNS_PER_CALL_MAX:
            raise errors.LimitExceeded("messages", limit=TURNS_PER_CALL_MAX, actual=len(messages), unit="messages")
        works: list[tuple[str, Callable[[Transaction], commands.Recorded]]] = []
        key = current_request_key()
        for place, message in enumerate(messages):
            try:
                new = NewTurn.of(message, session=session_id)
                if key is not None and new.key is None:
                    new = msgspec.structs.replace(new, key=f"{key}/{place}")
                works.append((session.session_id_of(new.session), self._recording(new)))
            except errors.InvalidInput as error:
                error.at_place(f"messages[{place}]")
                raise
        if reopen_ended:
            return self._transact(partial(commands.record_late, turns=works, states=self.states))
        return self._transact(lambda tx: [work(tx) for _, work in works])

    def rewrite(self, session_id: str, turns: Sequence[NewTurn]) -> None:
        """Hide all turns that a session sees and record these in their place, in one transaction."""
        works = [self._recording(new) for new in turns]

        def rewrite(tx: Transaction) -> None:
            commands.rewind(tx, session_id, self.states, to=None, turns=INTEGER_MAX)
            for work in works:
                work(tx)

        self._transact(rewrite)

    def _recording(self, new: NewTurn) -> Callable[[Transaction], commands.Recorded]:
        turn, key = checked_turn(new)
        session_id = session.session_id_of(new.session)
        return partial(commands.record_turn, session_id=session_id, turn=turn, states=self.states, key=key)

    def record_behind(
        self, session_id: str, turns: Sequence[tuple[TurnRecorded, str | None]], *, expected: Version
    ) -> list[commands.Recorded]:
        """Record turns if the stream is still at version `expected`. Raises `WrongExpectedVersion`."""
        return self._transact(
            partial(commands.record_behind, session_id=session_id, states=self.states, turns=turns, expected=expected)
        )

    def rewind(self, session_id: str, *, turns: int | None, to: When | None, dry_run: bool = False) -> int:
        """Hide turns of a session, and return how many; with `dry_run` only count them."""
        _check_one_of(turns, to)
        target = None if to is None else self._place(session_id, "to", to, rewinds=True)
        stream, key = session.session_stream(session_id), None if dry_run else current_request_key()
        rewind = self._rewind(session_id, to=target, turns=turns, key=key)
        made: list[RecordedEvent] = []

        def rewind_once(tx: Transaction) -> list[Position]:
            before = None if key is None else tx.find(stream, key)
            made[:] = [] if before is None else [before]
            return [] if made else rewind(tx)

        hidden = self._transact(rewind_once, dry_run=dry_run)
        return self._hidden_by(session_id, made[0]) if made else len(hidden)

    def _hidden_by(self, session_id: str, made: RecordedEvent) -> int:
        """Return how many turns a rewind made before has hidden."""
        before = self.states.at(session_id, Position(made.position - 1))
        if before is None or not isinstance(made.event, TurnsRewound):
            raise self.unknown(session_id)
        spans, target = cut(before.spans, upto=made.position), Position(made.event.to)
        return len(commands.last_visible(self.log, spans, after=target))

    def _rewind(
        self, session_id: str, *, to: int | None, turns: int | None, key: str | None = None
    ) -> Callable[[Transaction], list[Position]]:
        return partial(commands.rewind, session_id=session_id, states=self.states, to=to, turns=turns, key=key)

    def flag_pending_undo(self, session_id: str, *, agent: str) -> None:
        """Resume a session for `agent`, and record that some of its turns were undone, not yet known which."""
        resume = self._switch(session_id, reason=SwitchReason.RESUME, session=session_id, agent=agent)
        decision = partial(pending_undo.flag, session_id)

        def flag(tx: Transaction) -> None:
            resume(tx)
            commands.decide(tx, session_id, self.states, decision)

        self._transact(flag)

    def resolve_pending_undo(self, session_id: str, *, turns: int, expected: Version) -> None:
        """Hide the last `turns` turns and clear the flag. Raises `WrongExpectedVersion`."""
        self._transact(
            partial(
                commands.resolve_pending_undo,
                session_id=session_id,
                states=self.states,
                turns=turns,
                expected=expected,
            )
        )

    def take_back(self, session_id: str) -> RecordedEvent | None:
        """Hide the last turn that a session sees, and return it; None if it sees none. No two callers get the same."""
        work = self._rewind(session_id, to=None, turns=1)
        while hidden := self._transact(work):
            taken = self.log.event_at(hidden[0])
            if taken is not None and isinstance(taken.event, TurnRecorded):  # Otherwise it was forgotten meanwhile.
                return taken
        return None

    def preview_restore(self, session_id: str, checkpoint: str) -> commands.Restored:
        """Return what a restore of a session's checkpoint would change."""
        restore = partial(commands.restore, session_id=session_id, states=self.states, checkpoint=checkpoint)
        return self._transact(restore, dry_run=True)

    def branch(self, session_id: str, to: str | None, *, at: When | None, title: str | None) -> commands.Switched:
        """Start a session that continues from another; no agent moves. As text, `at` is a checkpoint or else a time."""
        state = self.state(session_id)
        asked = SwitchRequest(
            agent=state.started.agent,
            reason=SwitchReason.BRANCH,
            from_=session_id,
            to=to or self._new_id(),
            at=None if at is None else self._branch_point(state, at),
            title=title,
        )
        return self._transact(partial(commands.branch, asked=asked, states=self.states, key=current_request_key()))

    def _branch_point(self, state: SessionState, at: When) -> Position:
        if not isinstance(at, str):
            return self._place(state.session, "at", at, rewinds=False)
        try:
            return find_checkpoint(state, at).position
        except errors.UnknownCheckpoint as unknown:
            try:
                return self._place(state.session, "at", at, rewinds=False)
            except errors.InvalidInput:
                raise unknown from None

    def switch(self, to: session.SessionLike | None, **how: Unpack[SwitchHow]) -> commands.Switched:
        """Switch an agent to another session. See `MemoryStore.switch`."""
        return self._transact(self._switch(to, **how))

    def preview_switch(self, to: session.SessionLike | None, **how: Unpack[SwitchHow]) -> commands.Switched:
        """Return what a switch would append."""
        return self._transact(self._switch(to, **how), dry_run=True)

    def _switch(self, target: session.SessionLike | None, **how: Unpack[SwitchHow]) -> Work:
        reason, agent, leave = parse_switch_reason(how["reason"]), how.get("agent"), how.get("session")
        to = None if target is None else session.session_id_of(target, "to")
        left = None if leave is None else session.session_id_of(leave)
        at, turns, scope = how.get("at"), how.get("turns"), how.get("scope")
        if turns is not None:
            _check_one_of(turns, at)
            if reason is not SwitchReason.REWIND:
                raise errors.SwitchRefused(reason, "leave out `turns`, or use 'rewind'")
        if agent is None and left is not None and not self.boundary.own_names:
            agent = self.state(left).started.agent
        agent = self.own_agent(agent)
        if to is None and reason is SwitchReason.RESUME:
            raise errors.SwitchRefused(reason, "say which session to resume")
        asked = SwitchRequest(
            agent=agent,
            reason=reason,
            from_=left,
            to=self._new_id() if to is None else to,
            at=None if at is None else self._switch_point(at, reason, to=to, left=left, agent=agent),
            title=how.get("title"),
            scope=None if scope is None else self.boundary.narrow(parse_scope(scope)),
        )
        self._keep_states_of(asked)
        in_place = to is None and reason in (SwitchReason.COMPRESS, SwitchReason.REWIND)
        given = current_request_key() if how.get("key") is None else how["key"]
        key = None if given is None else session.checked_key(given)
        return partial(
            commands.switch,
            asked=asked,
            states=self.states,
            known_agent=self._known_agent,
            turns=turns,
            in_place=in_place,
            named=to is not None,
            key=key,
        )

    def _switch_point(
        self, at: When, reason: SwitchReason, *, to: str | None, left: str | None, agent: str
    ) -> Position:
        if left is None and (state := self.agent(agent)) is not None:
            left = state.current
        if left is None or reason not in (SwitchReason.BRANCH, SwitchReason.REWIND):
            return position_at("at", at, self.log)
        return self._place(left, "at", at, rewinds=reason is SwitchReason.REWIND and to in (None, left))

    def _keep_states_of(self, asked: SwitchRequest) -> None:
        """Fold the states a switch needs before taking the write lock: under it they are only looked up."""
        if asked.reason in INHERITING:
            state = self.agent(asked.agent) if asked.from_ is None else None
            left = asked.from_ if state is None else state.current
            if left is not None:
                self.states.latest(left)


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


def new_session_id() -> str:
    """Return an id for a session: a random one, or for a request with a key one that a retry gets again."""
    key = current_request_key()
    return secrets.token_hex(8) if key is None else hashlib.sha256(key.encode()).hexdigest()[:16]


def _check_one_of(turns: int | None, to: When | None) -> None:
    if (turns is None) == (to is None):
        raise errors.InvalidInput("turns", "pass exactly one of `turns` and `to`")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        raise errors.InvalidInput("turns", f"expected a number of turns from 1 on, got {turns!r}")
