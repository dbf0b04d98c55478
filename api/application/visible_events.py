"""What a caller may see, and the gate: what leaves a store is inside of its scopes, and leaves a line in an audit.

The audit is a file that is not part of the store: a line for each call that shows content.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from inspect import isfunction
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mnemolog.application import commands
from mnemolog.domain import errors, session
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.event import TO_EVENT, TO_SESSION, shown_at, without
from mnemolog.domain.events import ContextServed, Event, RecallServed, RecordedEvent, SessionSwitched, TurnRecorded
from mnemolog.domain.facts import stream_scope
from mnemolog.domain.head import position_at
from mnemolog.domain.request import current_actor
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Boundary, covered
from mnemolog.domain.spelling import closest
from mnemolog.domain.switching import agent_of
from mnemolog.domain.values import ORIGIN, Position, Version, When, checked_position, to_datetime
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import mapped_to_store_errors, open_descriptor
from mnemolog.projections.history.states import SessionStates

Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=type)
Method = TypeVar("Method", bound=Callable[..., Any])
SHOW_NOTHING: Final = {
    *(None, "None", "Self", "bool", "int", "Position", "Head", "SessionAt", "Ticket"),
    *("Verification", "Status", "BackupReport", "Results[RebuildReport]"),
}
"""Types of answers that hold no content and no names of sessions. Every other type shows something."""


class Read(Result, frozen=True, kw_only=True):
    """A line of the file: one call. It holds no text of the store, and none that was asked."""

    at: datetime
    actor: str
    operation: str
    """As in the table of operations; `console` and its path for a page."""
    scope: tuple[str, ...]
    """Where: as asked, else what the caller may see. Empty for everywhere."""
    positions: tuple[tuple[int, int], ...] = ()
    """Log positions that were shown, as ranges, both ends included."""
    refused: str = ""
    """The error that the caller got instead of an answer; empty if it was answered."""


_HOLD_NOTHING: Final = frozenset((str, int, float, bool, bytes, datetime))


class Shown:
    """The positions that a call has shown, as ranges."""

    def __init__(self, ranges: list[tuple[int, int]] | None = None, *, silent: bool = False) -> None:
        self.silent = silent
        """Whether the call shows nothing, and leaves no line."""
        self.ranges = [] if ranges is None else ranges

    def add(self, first: int, last: int) -> None:
        """Add a range. One that continues the last one makes that longer."""
        if self.ranges and self.ranges[-1][0] <= first <= self.ranges[-1][1] + 1:
            first, last = self.ranges[-1][0], max(last, self.ranges.pop()[1])
        self.ranges.append((first, last))

    def collect(self, answer: Any) -> None:
        """Add every position in an answer, and those that its fields are marked to show."""
        for position in shown_at(answer, set()):
            self.add(position, position)
        self._collect(answer)

    def _collect(self, answer: Any) -> None:
        """Add every position. Events refer to positions that they do not show."""
        items: Iterable[Any] = ()
        if isinstance(answer, list | tuple):
            items = answer
        elif isinstance(answer, dict):
            items = answer.values()
        elif isinstance(answer, msgspec.Struct) and not isinstance(answer, Event):
            if (position := getattr(answer, "position", None)) is not None:
                self.add(position, position)
            items = [getattr(answer, name) for name in answer.__struct_fields__]
        for item in items:
            if item and type(item) not in _HOLD_NOTHING:
                self._collect(item)


class ReadsFile:
    """The file. It is opened for each line, so the host may move it away: the next line makes it again."""

    def __init__(self, path: Path) -> None:
        """Raises `StoreNotWritable`."""
        self._path = path.absolute()
        self.require_writable()

    def require_writable(self) -> None:
        """Raise `StoreNotWritable` if no line can be appended: then the call is not made."""
        self._append(b"")

    def write(self, read: Read) -> None:
        """Append a line. Raises `StoreNotWritable`, `StorageFull`: then the caller gets no answer."""
        self._append(to_printable_json(read) + b"\n")

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with (
            mapped_to_store_errors(self._path),
            os.fdopen(open_descriptor(self._path, flags, follow=True), "ab", buffering=0) as file,
        ):
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_SHOWN: Final[ContextVar[Shown | None]] = ContextVar("mnemolog_shown", default=None)
"""Of the call that the line is about: what is called for it adds to that."""


@contextmanager
def reading(
    visible: "VisibleEvents", operation: str, *, scope: str | Sequence[str] = (), silent: bool = False
) -> Iterator[Shown]:
    """Write a line at the end of the block, with what it adds to `Shown`; within another such block, add to that.

    A `silent` block shows nothing: it leaves a line only if it is refused with an error that may name sessions.
    """
    outer = _SHOWN.get()
    shown = Shown(silent=silent)
    refused = ""
    if visible.reads is None or outer is not None:
        yield shown if outer is None else Shown(outer.ranges)
        return
    if not silent:
        visible.reads.require_writable()
    token = _SHOWN.set(shown)
    try:
        yield shown
    except Exception as error:
        refused = type(error).__name__
        shown.silent = silent and not isinstance(error, errors.SessionError)
        raise
    finally:
        _SHOWN.reset(token)
        if not shown.silent:
            _write(visible, operation, shown, scope, refused)


def _write(
    visible: "VisibleEvents", operation: str, shown: Shown, scope: str | Sequence[str], refused: str = ""
) -> None:
    merged = Shown()
    for first, last in sorted(shown.ranges):
        merged.add(first, last)
    if visible.reads is not None:
        line = Read(
            at=to_datetime(SystemClock().now()),
            actor=current_actor(),
            operation=operation,
            scope=((scope,) if isinstance(scope, str) else tuple(scope)) if scope else visible.boundary.scopes,
            positions=tuple(merged.ranges),
            refused=refused,
        )
        visible.reads.write(line)


def gives_back(method: Method) -> Method:
    """Mark a write whose answer is what its caller gave: it leaves no line. A title that others gave does."""
    vars(method)["gives_back"] = True
    return method


def gated(prefix: str) -> Callable[[Kind], Kind]:
    """Have the answers of all public methods of a class pass the one gate.

    What lies outside of the scopes of the store is taken out (`VisibleEvents.admitted`), and a line is written for what
    is shown: the type of the answer decides that, or `gives_back`. The class has `_visible`. `prefix` begins the names
    of its operations.
    """
    return _each_method(prefix, _gated)


def of_whole_store(prefix: str) -> Callable[[Kind], Kind]:
    """Refuse all public methods of a class in a store for scopes: they concern all of it. The class has `_boundary`."""
    return _each_method(prefix, _of_whole_store)


def _each_method(
    prefix: str, change: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Kind], Kind]:
    def decorate(kind: Kind) -> Kind:
        for name, method in list(vars(kind).items()):
            if isfunction(method) and not name.startswith("_"):
                setattr(kind, name, change(prefix + name, method))
        return kind

    return decorate


def _of_whole_store(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *args: Any, **given: Any) -> Any:
        self._boundary.require_none(operation)
        return method(self, *args, **given)

    return call


def _gated(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    gives, returns = "gives_back" in vars(method), method.__annotations__.get("return")
    silent = gives or getattr(returns, "__name__", returns) in SHOW_NOTHING  # A type where options were read.

    @wraps(method)
    def call(self: Any, /, *args: Any, **given: Any) -> Any:
        visible: VisibleEvents | None = getattr(self, "_visible", None)
        if visible is None:
            return method(self, *args, **given)
        if not (visible.reads or visible.boundary.scopes):
            answer = method(self, *args, **given)
            return answer if silent or isinstance(answer, Iterator) else visible.admitted(answer)
        scope: Any = given.get("scope") or getattr(self, "scope", "")
        with reading(visible, operation, scope=scope, silent=silent) as shown:
            answer = method(self, *args, **given)
            if not isinstance(answer, Iterator):
                answer = visible.admitted(answer)
                shown.collect(answer)
                if gives:
                    shown.silent = getattr(answer, "title", "") in ("", given.get("title"))
                return answer
        return _followed(answer, visible, operation, scope)

    return call


def _followed(
    items: Iterator[Any], visible: "VisibleEvents", operation: str, scope: str | Sequence[str]
) -> Iterator[Any]:
    """Yield items; a line at the end has their positions. The line before the first one says that they were asked for.

    The caller's own calls come in between, so this is no block of `reading`. The items are inside of the scopes:
    `VisibleEvents.read` looks up what a batch of events refers to, where here each item would be asked about alone.
    """
    outer = _SHOWN.get()
    shown = outer or Shown()
    try:
        for item in items:
            shown.collect(item)
            yield item
    finally:
        if outer is None:
            _write(visible, operation, shown, scope)


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

    def within(self, boundary: Boundary) -> "VisibleEvents":
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

    def admitted(self, answer: Answer) -> Answer:
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
            return errors.UnknownSession(
                session_id,
                closest=closest(session_id, titles),
                titled=[other for other, title in titles.items() if title == session_id],
            )
        except Exception:  # Whatever is wrong with the views, the error of the caller is another one.
            return errors.UnknownSession(session_id)

    def transact(self, work: Callable[[Transaction], Answer], *, dry_run: bool = False) -> Answer:
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

    def state(self, session_id: str) -> session.SessionState:
        """Return the current state of a session, given its id or its name. Raises `UnknownSession`."""
        state = self.states.latest(self.states.id_of(session_id))
        if state is None:
            raise self.unknown(session_id)
        return state

    def state_at(self, session_id: str, position: int, *, is_in_log: bool = False) -> session.SessionState:
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
        return session.last_seen(state, position, head=position if last is None else last.position)

    def _not_begun(self, session_id: str, position: int, *, first: Position) -> errors.OutsideSession:
        return errors.OutsideSession(
            session_id,
            position=position,
            first=first,
            last=self.log.head().position,
            began=to_datetime(self.log.recorded_at(first)),
        )

    def spans(self, session_id: str, position: int | None = None, *, hidden: bool = False) -> session.Spans:
        """Return the spans of turns that a session sees, now or at a position; with `hidden` also the hidden ones.

        Raises `UnknownSession`, `OutsideSession`.
        """
        state = self.state(session_id) if position is None else self.state_at(session_id, position, is_in_log=True)
        if not hidden:
            return state.spans
        beginnings = [self.log.first_event(session.session_stream(ancestor)) for ancestor in state.ancestors]
        return session.unhidden(state, [first for first in beginnings if first is not None])

    def spans_or_own(self, session_id: str) -> session.Spans:
        """Return the spans of turns that a session sees; of one that inherits from outside, its own turns."""
        state = self.states.latest(session_id)
        return (session.Span(session_id, ORIGIN),) if state is None else state.spans

    def seen(self, session_id: str, *, limit: int | None = None) -> list[RecordedEvent]:
        """Return the last `limit` turns that a session sees, or all, in order, as events of the log.

        The result is as of one position, even if turns are hidden or recorded meanwhile. Raises `UnknownSession`.
        """
        head = self.log.head().position
        self.state(session_id)
        state = self.states.at(session_id, head)
        if state is None:
            raise self.unknown(session_id)
        return commands.last_visible(self.log, session.cut(state.spans, upto=head), count=limit)[::-1]
