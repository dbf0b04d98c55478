"""What a caller may see: the sessions inside the scope that a store was opened for, and their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from mnemolog.application import commands
from mnemolog.application.read_audit import ReadsFile
from mnemolog.domain import errors, session
from mnemolog.domain.event import TO_EVENT, TO_SESSION, shown_at, without
from mnemolog.domain.events import ContextServed, RecallServed, RecordedEvent, SessionSwitched, TurnRecorded
from mnemolog.domain.facts import stream_scope
from mnemolog.domain.head import position_at
from mnemolog.domain.position import ORIGIN, Position, Version, When, checked_position, to_datetime
from mnemolog.domain.scope import Boundary, covered
from mnemolog.domain.session import SessionState, Span, Spans, cut, last_seen, unhidden
from mnemolog.domain.spelling import closest
from mnemolog.domain.switching import agent_of
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.history.states import SessionStates

Result = TypeVar("Result")

REFERENCES_AT_ONCE: Final = 1_000
"""Positions that one query of the log looks up."""


class VisibleEvents:
    """The events and sessions of one log, as far as its `boundary` shows them. Each query reads one state."""

    def __init__(
        self,
        log: EventLog,
        states: SessionStates,
        titles: Callable[[], Mapping[str, str]],
        reads: ReadsFile | None = None,
    ) -> None:
        """`titles` returns the titles of all sessions by id. `reads` takes a line for each read, if it is given."""
        self.log = log
        self.states = states
        self.boundary = states.boundary
        self._titles = titles
        self.reads = reads

    def within(self, boundary: Boundary) -> VisibleEvents:
        """Return what is visible inside of a boundary, with the same cache of states."""
        return VisibleEvents(self.log, self.states.within(boundary), self._titles, self.reads)

    def read(
        self, *, after: Position, upto: Position, batch_max: int = 500
    ) -> Iterator[tuple[Position, list[RecordedEvent]]]:
        """Yield the events of `(after, upto]` that may be shown, in batches, each with the position it was read up to.

        They lack references to what lies outside (`admitted`).

        Of other events only the stream is read, so the time taken reveals at most their number.
        """
        if not self.boundary.scopes:
            for batch in self.log.read(after=after, upto=upto, batch_max=batch_max):
                yield batch[-1].position, batch
            return
        while rows := self.log.streams(after=after, upto=upto, limit=batch_max):
            streams = {stream for _, stream in rows}
            shown = {item for item in streams if self.shows_stream(item) or agent_of(item) is not None}
            found = self.log.read_at([position for position, stream in rows if stream in shown])
            after = Position(rows[-1][0])
            yield after, self.admitted([recorded for recorded in found if self.shows(recorded)])

    def admitted(self, answer: Result) -> Result:
        """Return an answer without references to events and sessions that lie outside of the boundary.

        All that leaves a store passes this. What a field refers to is in its type (`mnemolog.domain.event`).
        Raises `LogDamaged` if the log does not have what the answer shows: it may come from projections.
        """
        if shown := shown_at(answer, set()):
            with suppress(errors.LogUnreachable):  # Then projections answer alone.
                self.log.require_recorded(sorted(shown))
        if not self.boundary.scopes:
            return answer
        referred: dict[Any, set[Any]] = {TO_EVENT: set(), TO_SESSION: set()}
        without(answer, lambda mark, item: referred[mark].add(item))
        inside: dict[Any, set[Any]] = {TO_EVENT: self.inside(referred[TO_EVENT])}
        inside[TO_SESSION] = set(filter(self.states.holds, referred[TO_SESSION]))
        return answer if inside == referred else without(answer, lambda mark, item: item not in inside[mark])

    def inside(self, positions: Iterable[int]) -> set[int]:
        """Return the positions whose events may be shown. Their content is not read."""
        wanted, found = sorted(positions), list[tuple[int, str]]()
        for place in range(0, len(wanted), REFERENCES_AT_ONCE):
            found += self.log.streams_at(wanted[place : place + REFERENCES_AT_ONCE])
        return {position for position, stream in found if self.shows_stream(stream)}

    def shows(self, recorded: RecordedEvent) -> bool:
        """Whether an event may be shown: with a boundary, what is inside and switches between what is."""
        event = recorded.event
        if not self.boundary.scopes or not isinstance(event, SessionSwitched):
            return self.shows_stream(recorded.stream)
        return all(self.states.holds(item) for item in (event.from_, event.to) if item is not None)

    def shows_stream(self, stream: str) -> bool:
        """Whether the events of a stream may be shown."""
        if not self.boundary.scopes:
            return True
        if (scope := stream_scope(stream)) is not None:
            return covered(self.boundary.scopes, scope)
        session_id = session.session_of(stream)
        return session_id is not None and self.states.holds(session_id)

    def shows_receipt(self, served: RecallServed | ContextServed) -> bool:
        """Whether the receipt of a question may be shown: with a boundary, if the question was asked inside of it."""
        recall = served.recall if isinstance(served, ContextServed) else served
        sessions = filter(None, (recall.session, getattr(served, "of", None)))
        scopes = [*recall.scopes, *filter(None, (recall.scope,)), *(recall.beside or ())]
        is_limited = bool(scopes) or (recall.session is not None and recall.beside is None)
        return not self.boundary.scopes or (
            is_limited
            and all(covered(self.boundary.scopes, scope) for scope in scopes)
            and all(map(self.states.holds, sessions))
        )

    def check_asked_for(self, asked_in: str | None, turn: int | None) -> None:
        """Raise `InvalidInput` for a question about a turn that the asking session does not have."""
        if turn is None:
            return
        found = self.log.event_at(checked_position("asked_for", turn))
        if found is None or session.session_of(found.stream) != asked_in or not isinstance(found.event, TurnRecorded):
            raise errors.InvalidInput("asked_for", f"position {turn} is no turn of the session that asks")

    def shows_session(self, session_id: str) -> bool:
        """Whether a session that exists may be shown."""
        return not self.boundary.scopes or self.states.holds(session_id)

    def require(self, sessions: Iterable[str], positions: Iterable[int]) -> None:
        """Raise `UnknownSession` or `OutsideScope` for what does not exist or is outside of the scope."""
        for session_id in sessions:
            if not self.version(session_id) or not self.shows_session(session_id):
                raise self.unknown(session_id)
        if not self.boundary.scopes:
            return
        for position in positions:
            found = self.log.event_at(Position(position))
            if found is not None and not self.shows_stream(found.stream):
                raise self.boundary.outside(f"position {position} is outside of it")

    def require_turns(self, tx: Transaction, field: str, positions: Iterable[int]) -> None:
        """Raise `InvalidInput` for a position where no turn is that may be seen."""
        for position in positions:
            stream, version, topic, head = tx.reads.state_head_at(position) or ("", 0, "", b"")
            is_turn = self.shows_stream(stream) and topic == TurnRecorded.topic
            if not is_turn or tx.codec.is_forgotten(stream, version, head):
                raise errors.InvalidInput(field, f"position {position} is no turn, or it was forgotten")

    def unknown(self, session_id: str) -> errors.UnknownSession:
        """Return the error for an id that no session has. It names the closest ids, if they can be read."""
        try:
            titles = {item: title for item, title in self._titles().items() if self.shows_session(item)}
            titled = [other for other, title in titles.items() if title == session_id]
            return errors.UnknownSession(session_id, closest=closest(session_id, titles), titled=titled)
        except Exception:  # Whatever is wrong with the views, the error of the caller is another one.
            return errors.UnknownSession(session_id)

    def transact(self, work: Callable[[Transaction], Result], *, dry_run: bool = False) -> Result:
        """Run `work` in one transaction of the log, with `dry_run` without writing it. See `unknown`."""
        try:
            return self.log.appends.rehearse(work) if dry_run else self.log.appends.transact(work)
        except errors.UnknownSession as error:
            raise self.unknown(error.session) from None

    def id_of(self, given: session.SessionLike, field: str = "session") -> str:
        """Return the id in the log of the session that a caller names. See `SessionStates.id_of`."""
        return self.states.id_of(session.session_id_of(given, field))

    def version(self, session_id: str) -> Version:
        """Return the version of a session's stream."""
        return self.log.version(session.session_stream(session_id))

    def state(self, session_id: str) -> SessionState:
        """Return the current state of a session, given its id or its name. Raises `UnknownSession`."""
        state = self.states.latest(self.states.id_of(session_id))
        if state is None:
            raise self.unknown(session_id)
        return state

    def state_at(self, session_id: str, position: int, *, is_in_log: bool = False) -> SessionState:
        """Return the state of a session at a position, which the caller may know to be in the log.

        Raises `UnknownSession`, `OutsideSession`.
        """
        session_id = self.states.id_of(session_id)
        is_in_log = is_in_log or position <= self.log.head().position
        if is_in_log and (state := self.states.at(session_id, Position(position))) is not None:
            return state
        first = self.state(session_id).started_position
        if position < first:
            raise self._not_begun(session_id, position, first=first)
        raise errors.OutsideSession(session_id, position=position, first=first, last=self.log.head().position)

    def place(self, session_id: str, field: str, when: When, *, rewinds: bool) -> Position:
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
        began, last = to_datetime(self.log.recorded_at(first)), self.log.head().position
        return errors.OutsideSession(session_id, position=position, first=first, last=last, began=began)

    def spans(self, session_id: str, position: int | None = None, *, hidden: bool = False) -> Spans:
        """Return the spans of turns that a session sees, now or at a position; with `hidden` also the hidden ones.

        Raises `UnknownSession`, `OutsideSession`.
        """
        state = self.state(session_id) if position is None else self.state_at(session_id, position, is_in_log=True)
        if not hidden:
            return state.spans
        beginnings = [self.log.first_event(session.session_stream(ancestor)) for ancestor in state.ancestors]
        return unhidden(state, [first for first in beginnings if first is not None])

    def spans_or_own(self, session_id: str) -> Spans:
        """Return the spans of turns that a session sees; of one that inherits from outside, its own turns."""
        state = self.states.latest(session_id)
        return (Span(session_id, ORIGIN),) if state is None else state.spans

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
