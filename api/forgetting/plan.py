"""Plan a forget request: find the stream versions that contain the content, as of the request."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeVar

from mnemolog.domain import errors
from mnemolog.domain.encrypted_content import CONTENT_TOPICS, SEALED
from mnemolog.domain.events import (
    ContextServed,
    Event,
    ForgetTarget,
    Forgotten,
    RecallServed,
    RecordedEvent,
    SessionStarted,
    TurnRecorded,
    ValueDeleted,
)
from mnemolog.domain.forgetting import ranges_of
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import Version
from mnemolog.domain.scope import Boundary, Scope, parse_scope
from mnemolog.domain.session import SessionLike, session_id_of, session_of, session_stream
from mnemolog.domain.thread_dependencies import copied_from, with_what_is_built_on
from mnemolog.domain.thread_events import ThreadCopied
from mnemolog.domain.threads import thread_of, thread_stream
from mnemolog.infra.keys.keyring import Keyring
from mnemolog.infra.log.engine import RowCursor, StagedRow
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.recall.receipts import RECALLS_STREAM

Receipt = TypeVar("Receipt", bound=Event)


class ForgetSelector(NamedTuple):
    """What a caller wants to forget."""

    sessions: frozenset[str] = frozenset()
    scopes: tuple[Scope, ...] = ()
    """Including all scopes below them."""
    positions: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        session: SessionLike | Sequence[SessionLike],
        positions: int | Iterable[int],
        scope: str | Sequence[str],
        *,
        within: Boundary,
    ) -> ForgetSelector:
        """Return a selector, given one or several of each. Raises `InvalidInput`, `OutsideScope`."""
        sessions = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        scopes = [scope] if isinstance(scope, str) else scope
        places = [positions] if isinstance(positions, int) else positions
        return cls(
            sessions=frozenset(session_id_of(item) for item in sessions),
            scopes=tuple(within.narrow(parse_scope(item)) for item in scopes),
            positions=frozenset(checked_position("positions", item) for item in places),
        )

    def holds_scope(self, scope: str) -> bool:
        """Whether a scope is one of these or below."""
        return any(scope == wanted or scope.startswith(f"{wanted}/") for wanted in self.scopes)


class Plan(NamedTuple):
    """The content to erase. Empty if none of it is left."""

    targets: list[ForgetTarget]
    sessions: tuple[str, ...]
    """Sessions that are erased entirely."""
    dependents: int = 0
    """Events that were not named, but depend on erased ones."""

    @property
    def counts(self) -> Counter[str]:
        """How many events with content, by topic."""
        return sum((Counter(target.counts) for target in self.targets), Counter())


class Planner:
    """Plans within a transaction, so that nothing changes between plan and request."""

    def __init__(self, log: EventLog, keyring: Keyring, tx: Transaction) -> None:
        self._log, self._keyring, self._tx = log, keyring, tx

    def plan(self, selector: ForgetSelector) -> Plan:
        """Return the plan for a selector.

        Raises `UnknownSession`, and `InvalidInput` for a position without content, or with content stored unencrypted.
        """
        sessions = set(selector.sessions)
        for session in selector.sessions:
            if self._tx.version(session_stream(session)) == 0:
                raise errors.UnknownSession(session)
        if selector.scopes:
            sessions |= {session for session, started in self._starts() if selector.holds_scope(started.scope)}
        targets = [self._whole(session_stream(session)) for session in sorted(sessions)]
        singled = self._singled(selector, sessions)
        dependents = self._add_built_on(selector, singled)
        for stream, versions in sorted(singled.items()):
            targets.append(self._target(stream, ranges_of(versions), Counter(versions.values())))
        whole = {target.stream for target in targets if target.counts}
        named = tuple(session for session in sorted(sessions) if session_stream(session) in whole)
        return Plan([target for target in targets if target.counts], named, dependents)

    def _whole(self, stream: str) -> ForgetTarget:
        counts: Counter[str] = Counter()
        with closing(self._tx.reads.state_heads(stream)) as rows:
            for position, version, topic, head in rows:
                if topic in CONTENT_TOPICS and self._is_there(position, stream, version, topic, head):
                    counts[topic] += 1
        counts.update(row[3] for row in self._tx.rows if row[1] == stream and row[3] in CONTENT_TOPICS)
        return self._target(stream, [(1, self._tx.version(stream))], counts)

    def _target(self, stream: str, versions: list[tuple[int, int]], counts: Counter[str]) -> ForgetTarget:
        return ForgetTarget(stream=stream, versions=versions, series=self._keyring.series(stream), counts=dict(counts))

    def _singled(self, selector: ForgetSelector, sessions: set[str]) -> dict[str, dict[int, str]]:
        """Return the topics of single events to forget, by stream and version: those named, and receipts."""
        found: dict[str, dict[int, str]] = {}
        for position in sorted(selector.positions):
            row = self._tx.reads.state_head_at(position)
            stream, version, topic, head = self._checked(position, row)
            if session_of(stream) not in sessions and self._is_there(position, stream, version, topic, head):
                found.setdefault(stream, {})[version] = topic
        if sessions or selector.scopes:
            for version, served in self._receipts(RecallServed):
                if served.session in sessions or selector.holds_scope(served.scope):
                    found.setdefault(RECALLS_STREAM, {})[version] = served.topic
        for version, context in self._receipts(ContextServed):
            if self._shows(context, selector, sessions):
                found.setdefault(RECALLS_STREAM, {})[version] = context.topic
        return found

    def _shows(self, context: ContextServed, selector: ForgetSelector, sessions: set[str]) -> bool:
        """Whether a context names or shows what is to be forgotten. Its digest could be compared with guesses."""
        recall = context.recall
        if {recall.session, context.of, *context.sessions} & sessions or selector.holds_scope(recall.scope):
            return True
        if selector.positions & set(context.turns):
            return True
        rows = (self._tx.reads.state_head_at(position) for position in selector.positions if position <= recall.head)
        return any(session_of(row[0]) == context.of and row[2] != TurnRecorded.topic for row in rows if row is not None)

    def _add_built_on(self, selector: ForgetSelector, singled: dict[str, dict[int, str]]) -> int:
        """Add the events of threads that depend on the named ones. Return how many."""
        rows = [self._tx.reads.state_head_at(position) for position in selector.positions]
        named = {row[0] for row in rows if row is not None and thread_of(row[0]) is not None}
        dependents = 0
        for recorded in with_what_is_built_on(self._of_threads(named), selector.positions):
            singled.setdefault(recorded.stream, {})[recorded.version] = recorded.event.topic
            dependents += recorded.position not in selector.positions
        return dependents

    def _of_threads(self, streams: set[str]) -> Iterator[RecordedEvent]:
        """Yield the events of threads, and of threads copied from them, by ascending position."""
        if not streams:
            return iter(())
        first = thread_stream("")
        rows = self._tx.reads.states_between(first, first[:-1] + chr(ord(first[-1]) + 1), ThreadCopied.topic)
        found = self._decoded(rows, lambda row: row[3] == ThreadCopied.topic)
        copies = [
            (thread_stream(event.source), where) for (where, _), event in found if isinstance(event, ThreadCopied)
        ]
        read = map(self._tx.events, copied_from(streams, copies))
        return heapq.merge(*read, key=attrgetter("position"))

    def _checked(self, position: int, row: tuple[str, int, str, bytes] | None) -> tuple[str, int, str, bytes]:
        if row is None:
            raise errors.InvalidInput("positions", f"nothing is recorded at position {position}")
        topic = row[2]
        if topic not in CONTENT_TOPICS:
            raise errors.InvalidInput("positions", f"position {position} holds no content: it is {topic!r}")
        if topic == ValueDeleted.topic:
            why = f"forgetting the deletion of a value (position {position}) would bring it back; forget the value"
            raise errors.InvalidInput("positions", why)
        return row

    def _is_there(self, position: int, stream: str, version: int, topic: str, head: bytes) -> bool:
        """Whether an event's content is not forgotten yet."""
        if topic == SessionStarted.topic:
            first = self._log.first_event(stream)
            return first is not None and isinstance(first.event, SessionStarted) and bool(first.event.title)
        if not head or head[0] != SEALED:
            why = f"the event at position {position} was stored unencrypted, not by this store"
            raise errors.InvalidInput("positions", why)
        return not self._keyring.is_destroyed(stream, head[2], version)

    def _starts(self) -> Iterator[tuple[str, SessionStarted]]:
        for stream, event in self._decoded(self._tx.reads.first_states(SessionStarted.topic), lambda row: row[2] == 1):
            if isinstance(event, SessionStarted) and (session := session_of(stream[0])) is not None:
                yield session, event

    def _receipts(self, kind: type[Receipt]) -> Iterator[tuple[Version, Receipt]]:
        rows = self._tx.reads.states_between(RECALLS_STREAM, RECALLS_STREAM, kind.topic)
        for (_, version), event in self._decoded(rows, lambda row: row[1] == RECALLS_STREAM and row[3] == kind.topic):
            if isinstance(event, kind):
                yield Version(version), event

    def _decoded(
        self, stored: RowCursor, staged: Callable[[StagedRow], bool]
    ) -> Iterator[tuple[tuple[str, int], Event]]:
        new = ((row[1], row[2], row[3], bytes(row[4])) for row in self._tx.rows if staged(row))
        with closing(stored):
            for stream, version, topic, state in chain(stored, new):
                event = self._log.decode(0, stream, version, topic, state)
                if not isinstance(event, Forgotten):
                    yield (stream, version), event
