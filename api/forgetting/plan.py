"""Plan a forget request: find the stream versions that contain the content, as of the request."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.choices import evolve_retention
from mnemolog.domain.display import dated
from mnemolog.domain.event import TO_SESSION, without
from mnemolog.domain.events import (
    CONTENT_TOPICS,
    RECALLS_STREAM,
    RETENTION_STREAM,
    SEALED,
    ContextServed,
    Event,
    FactAsserted,
    FactRetracted,
    ForgetTarget,
    Forgotten,
    ProposalDecided,
    ProposalMade,
    RecallServed,
    RecordedEvent,
    SessionStarted,
    StandingEnded,
    TurnRecorded,
    ValueDeleted,
)
from mnemolog.domain.facts import (
    Assertion,
    assertion_of,
    believed,
    facts_scope,
    facts_stream,
    latest_first,
    stream_scope,
)
from mnemolog.domain.forgetting import NOTHING_OUTSIDE, Positions, copied_from, ranges_of, with_what_is_built_on
from mnemolog.domain.scope import ROOT, Scope, Scopes, covered, parse_scopes
from mnemolog.domain.session import SessionLike, session_of, session_stream
from mnemolog.domain.threads import ThreadCopied, thread_of, thread_stream
from mnemolog.domain.values import (
    INTEGER_MAX,
    Micros,
    Position,
    Version,
    checked_position,
    to_datetime,
    within_calendar,
)
from mnemolog.forgetting.history import AskedQuestion, ForgetReport
from mnemolog.infra.keys.keyring import Keyring
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.reader import EventRow
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.recall.service import recall_of, scopes_of

Kind = TypeVar("Kind", bound=Event)


ASKED_MAX: Final = 100
"""How many questions a preview lists; the others are counted."""


_ENDED: Final = {
    ValueDeleted.topic: "value",
    StandingEnded.topic: "standing statement",
    ProposalDecided.topic: "proposal",
}
"""The topics of what ends something, which would be there again without it."""


class ForgetSelector(NamedTuple):
    """What a caller wants to forget."""

    visible: VisibleEvents
    """What the caller sees. Nothing else is reached."""
    sessions: frozenset[str] = frozenset()
    scopes: tuple[Scope, ...] = ()
    """Including all scopes below them."""
    positions: frozenset[int] = frozenset()
    questions: bool = True
    """Whether receipts of questions asked above or beside it, which may quote it, go along."""
    now: Micros = Micros(0)
    keep_facts: bool = False
    """Whether facts that hold now stay, also where all turns go that they rest on."""
    despite_minimum: str = ""
    """Why it is forgotten although a minimum age has not passed; empty to refuse that."""

    @classmethod
    def of(
        cls,
        session: SessionLike | Sequence[SessionLike],
        positions: int | Iterable[int],
        scope: str | Sequence[str],
        *,
        questions: bool,
        despite_minimum: str,
        now: Micros,
        visible: VisibleEvents,
    ) -> ForgetSelector:
        """Return a selector, given one or several of each. Raises `InvalidInput`, `OutsideScope`."""
        sessions = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        scopes = [scope] if isinstance(scope, str) else scope
        places = [positions] if isinstance(positions, int) else positions
        narrow = visible.boundary.narrow
        return cls(
            visible=visible,
            sessions=frozenset(visible.id_of(item) for item in sessions),
            scopes=tuple(chain.from_iterable(narrow(parse_scopes(item)) or (ROOT,) for item in scopes)),
            positions=frozenset(checked_position("positions", item) for item in places),
            questions=questions,
            despite_minimum=despite_minimum,
            now=now,
        )

    def holds_scope(self, scope: str) -> bool:
        """Whether a scope is one of these or below."""
        return any(scope == wanted or scope.startswith(f"{wanted}/") for wanted in self.scopes)


class _Erased(NamedTuple):
    """What is to be erased, as the receipt of an answer may have shown it."""

    sessions: set[str]
    """Sessions that are erased entirely."""
    gone: Positions
    """The events."""
    titles: set[str]
    """Other sessions that lose their name."""
    titled: Positions
    """The events of these: a hit shows the name of its session."""
    memory: dict[str, int]
    """The first named event of the working memory of each session: a context shows it, also that of a branch."""


def _behind(prefix: str) -> str:
    """Return the first name behind all that begin with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _holding(facts: Sequence[RecordedEvent], at: Micros) -> frozenset[Position]:
    """Return the positions of the assertions that hold at a moment, or that begin to hold later."""
    retracted = {item.event.fact: item.position for item in facts if isinstance(item.event, FactRetracted)}
    keys: dict[tuple[str, str], list[Assertion]] = {}
    for item in filter(None, map(assertion_of, facts)):
        keys.setdefault((item.scope, item.key), []).append(item._replace(retracted=retracted.get(item.position)))
    held: set[Position] = set()
    for items in keys.values():
        belief = believed(latest_first(items, valid_at=at, upto=INTEGER_MAX))
        held.update(item.position for item in items if item.valid_from > at)
        held.update(() if belief is None else belief.positions)
    return frozenset(held)


class Planner:
    """Plans within a transaction, so that nothing changes between plan and request."""

    def __init__(self, log: EventLog, keyring: Keyring, tx: Transaction) -> None:
        self._log = log
        self._keyring = keyring
        self._tx = tx
        self._started: dict[str, SessionStarted | None] = {}
        """Of sessions, as far as they were needed."""
        self._newest: dict[Scope, Position] = {}
        """The newest event of what was named, in each of its scopes."""
        self._facts_kept = 0

    def plan(self, selector: ForgetSelector) -> tuple[list[ForgetTarget], ForgetReport]:
        """Return the content to erase, empty if none of it is left, and the report of a dry run.

        Raises `UnknownSession`, `OnHold`, and `InvalidInput` for a position without content, for content stored
        unencrypted, and for what is younger than its minimum age.
        """
        sessions = set(selector.sessions)
        for session in selector.sessions:
            if self._tx.version(session_stream(session)) == 0:
                raise errors.UnknownSession(session)
        if selector.scopes:
            begun = self._events(SessionStarted, self._tx.reads.beginnings(SessionStarted.topic))
            sessions |= {session_of(item[1]) or "" for item in begun if selector.holds_scope(item[-1].scope)}
        gone = Positions(self._tx.head)
        targets = [self._whole(session_stream(session), gone) for session in sorted(sessions)]
        singled = self._singled(selector, sessions)
        for position in selector.positions:
            gone.add(position)
        since = 0 if sessions or selector.scopes or selector.keep_facts else min(selector.positions)
        facts = [item for item in self._of_facts(since=since) if selector.visible.shows_stream(item.stream)]
        scopes = sorted({item.stream for item in facts if selector.holds_scope(str(stream_scope(item.stream)))})
        targets += [self._whole(stream, gone) for stream in scopes]
        dependents = self._add_facts(facts, selector, sessions, gone, singled, whole={*scopes})
        rows = {position: self._tx.reads.state_head_at(position) or ("", 0, "", b"") for position in selector.positions}
        streams = {*map(session_stream, sessions), *scopes, *singled, *(row[0] for row in rows.values())}
        erased = self._erased(sessions, gone, {position: (row[0], row[2]) for position, row in rows.items()})
        asked, questions = self._add_receipts(selector, erased, streams, singled)
        dependents += self._add_built_on(selector, singled)
        for stream, versions in sorted(singled.items()):
            targets.append(self._target(stream, ranges_of(versions), Counter(versions.values())))
        whole = {target.stream for target in targets if target.counts}
        named = tuple(session for session in sorted(sessions) if session_stream(session) in whole)
        targets = [target for target in targets if target.counts]
        self._require_allowed(targets, selector)
        counts = sum((Counter(target.counts) for target in targets), Counter[str]())
        return targets, ForgetReport(
            request=None,
            position=None,
            dry_run=True,
            sessions=named,
            events=counts.total(),
            counts=dict(sorted(counts.items())),
            dependents=dependents,
            questions=questions[True],
            questions_left=questions[False],
            facts_kept=self._facts_kept,
            asked=asked,
            outside=NOTHING_OUTSIDE if selector.visible.boundary.scopes else "",
        )

    def _require_allowed(self, targets: Sequence[ForgetTarget], selector: ForgetSelector) -> None:
        """Raise `OnHold`, and `InvalidInput` for what was named and is younger than the minimum age of its scope.

        A caller that is bound to scopes gets the scope and the reason of holds inside of them only.
        """
        kept = self._tx.fold(RETENTION_STREAM, evolve_retention)
        if kept is None:
            return
        scopes = {self._scope_of_stream(target.stream) for target in targets if target.stream != RECALLS_STREAM}
        if holds := kept.holds_on(scopes, selector.scopes):
            shown = [hold for hold in holds if covered(selector.visible.boundary.scopes, hold.scope)]
            named = [f"on {hold.scope or '/'} (position {hold.position}): {hold.reason}" for hold in shown]
            why = "; ".join(["a hold stands in the way", *named])
            raise errors.OnHold(why, holds=[hold.position for hold in shown])
        for scope, position in () if selector.despite_minimum else self._newest.items():
            staged = position > self._log.head().position
            recorded_at = selector.now if staged else self._log.recorded_at(position)
            until = within_calendar(recorded_at + kept.min_age_of(scope))
            if until > selector.now:
                why = f"what is in scope {scope or '/'} is kept until {dated(to_datetime(until))}, its minimum age"
                raise errors.InvalidInput("despite_minimum", f"{why}; say why it is to be forgotten before")

    def _whole(self, stream: str, gone: Positions) -> ForgetTarget:
        """Return all content of a stream that is left, and add the positions of all that it ever had to `gone`."""
        counts: Counter[str] = Counter()
        newest = 0
        for position, version, topic, head in self._tx.reads.state_heads(stream):
            gone.add(position)
            if topic in CONTENT_TOPICS and self._is_there(position, stream, version, topic, head):
                counts[topic] += 1
                newest = position
        if newest:
            self._note(stream, newest)
        counts.update(row[3] for row in self._tx.rows if row[1] == stream and row[3] in CONTENT_TOPICS)
        return self._target(stream, [(1, self._tx.version(stream))], counts)

    def _note(self, stream: str, position: int) -> None:
        scope = self._scope_of_stream(stream)
        self._newest[scope] = Position(max(position, self._newest.get(scope, 0)))

    def _target(self, stream: str, versions: list[tuple[int, int]], counts: Counter[str]) -> ForgetTarget:
        return ForgetTarget(stream=stream, versions=versions, series=self._keyring.series(stream), counts=dict(counts))

    def _singled(self, selector: ForgetSelector, sessions: set[str]) -> dict[str, dict[int, str]]:
        """Return the topics of the single events that were named, by stream and version."""
        found: dict[str, dict[int, str]] = {}
        for position in sorted(selector.positions):
            row = self._tx.reads.state_head_at(position)
            stream, version, topic, head = self._checked(position, row)
            if session_of(stream) not in sessions and self._is_there(position, stream, version, topic, head):
                found.setdefault(stream, {})[version] = topic
                self._note(stream, position)
        return found

    def _add_receipts(
        self,
        selector: ForgetSelector,
        erased: _Erased,
        streams: set[str],
        singled: dict[str, dict[int, str]],
    ) -> tuple[tuple[AskedQuestion, ...], Counter[bool]]:
        """Add the receipts that go along to the single events.

        Return those that may quote what is to be forgotten: the first, and how many go along (True) and stay (False).
        """
        first: list[tuple[Position, RecallServed, bool]] = []
        counts: Counter[bool] = Counter()
        of = {self._scope_of_stream(stream) for stream in streams if stream != RECALLS_STREAM}
        above = {scope[:end] for scope in of for end in (0, len(scope), *(i for i, c in enumerate(scope) if c == "/"))}
        kinds: tuple[type[RecallServed | ContextServed], ...] = (RecallServed, ContextServed)
        for position, _, version, receipt in chain.from_iterable(
            self._events(kind, self._tx.reads.between(RECALLS_STREAM, RECALLS_STREAM, kind.topic)) for kind in kinds
        ):
            if version in singled.get(RECALLS_STREAM, {}) or not selector.visible.shows_receipt(receipt):
                continue
            recall = recall_of(receipt)
            if not (goes := self._shows(receipt, selector, erased)):
                if above.isdisjoint(self._asked_in(recall)):
                    continue
                goes = selector.questions
                counts[goes] += 1
                first.append((position, recall, goes))
                first = heapq.nsmallest(ASKED_MAX, first) if len(first) > 2 * ASKED_MAX else first
            if goes:
                singled.setdefault(RECALLS_STREAM, {})[version] = receipt.topic
        head = self._log.head().position
        listed = (
            AskedQuestion(
                position=position,
                asked_at=to_datetime(self._log.recorded_at(position)),
                scope=", ".join(self._asked_in(recall)),
                session=recall.session,
                query=recall.query,
                stays=not goes,
            )
            for position, recall, goes in heapq.nsmallest(ASKED_MAX, first)
            if position <= head
        )
        return tuple(listed), counts

    def _shows(self, receipt: RecallServed | ContextServed, selector: ForgetSelector, erased: _Erased) -> bool:
        """Whether a receipt names or shows what is to be forgotten. Its digest could be compared with guesses."""
        recall, sessions = recall_of(receipt), erased.sessions
        is_within = any(map(selector.holds_scope, scopes_of(recall) or (ROOT,)))
        found = (*recall.hits, *recall.around, *filter(None, (recall.asked_for,)))
        if (
            is_within
            or not sessions.isdisjoint({recall.session, recall.asked_in})
            or any(turn in erased.gone for turn in found)
        ):
            return True
        if isinstance(receipt, RecallServed):
            return any(hit in erased.titled for hit in recall.hits)
        memory = self._lineage(receipt.of)
        titles = memory | {*receipt.sessions}
        return (
            not titles.isdisjoint(sessions | erased.titles)
            or any(shown in erased.gone for shown in (*receipt.turns, *receipt.facts))
            or any(erased.memory.get(session, recall.head + 1) <= recall.head for session in memory)
        )

    def _erased(self, sessions: set[str], gone: Positions, named: dict[int, tuple[str, str]]) -> _Erased:
        """Return what is to be erased as receipts may show it, given the streams and topics of the named events."""
        titles: set[str] = set()
        memory: dict[str, int] = {}
        titled = Positions(self._tx.head)
        for position, (stream, topic) in sorted(named.items()):
            session = session_of(stream)
            if session is not None and topic == SessionStarted.topic:
                titles.add(session)
                for row in self._tx.reads.state_heads(stream):
                    titled.add(row[0])
            elif session is not None and topic != TurnRecorded.topic:
                memory.setdefault(session, position)
        return _Erased(sessions, gone, titles, titled, memory)

    def _asked_in(self, recall: RecallServed) -> Scopes:
        """Return the scopes in which turns could answer; the root for everything."""
        if recall.beside is None and recall.session is not None:
            return (self._scope_of(recall.session),)
        return scopes_of(recall) or tuple(map(Scope, recall.beside or ())) or (ROOT,)

    def _lineage(self, session: str | None) -> set[str]:
        """Return a session and all whose working memory it inherits."""
        found: set[str] = set()
        while session is not None and session not in found:
            found.add(session)
            started = self._start_of(session)
            session = None if started is None or started.branched_at is None else started.parent
        return found

    def _scope_of(self, session: str | None) -> Scope:
        """Return a session's scope. What is in none, as items and threads, may be quoted by questions at the root."""
        started = None if session is None else self._start_of(session)
        return ROOT if started is None else Scope(started.scope)

    def _scope_of_stream(self, stream: str) -> Scope:
        scope = stream_scope(stream)
        return self._scope_of(session_of(stream)) if scope is None else Scope(scope)

    def _start_of(self, session: str) -> SessionStarted | None:
        if session not in self._started:
            first = self._log.first_event(session_stream(session))
            started = None if first is None else first.event
            self._started[session] = started if isinstance(started, SessionStarted) else None
        return self._started[session]

    def _add_built_on(self, selector: ForgetSelector, singled: dict[str, dict[int, str]]) -> int:
        """Add the events of threads that depend on the named ones. Return how many."""
        rows = [self._tx.reads.state_head_at(position) for position in selector.positions]
        named = {row[0] for row in rows if row is not None and thread_of(row[0]) is not None}
        dependents, first, copies = 0, thread_stream(""), list[tuple[str, str]]()
        if named:
            found = self._events(ThreadCopied, self._tx.reads.between(first, _behind(first), ThreadCopied.topic))
            copies = [(thread_stream(event.source), where) for _, where, _, event in found]
        read = heapq.merge(*map(self._tx.events, copied_from(named, copies)), key=attrgetter("position"))
        for recorded in with_what_is_built_on(read, selector.positions):
            singled.setdefault(recorded.stream, {})[recorded.version] = recorded.event.topic
            dependents += recorded.position not in selector.positions
        return dependents

    def _of_facts(self, *, since: int) -> list[RecordedEvent]:
        """Return the assertions and retractions of facts that are not forgotten, in the order of each scope.

        With the position `since`, those from there on: a fact comes after what it rests on. Then come all proposals,
        with what was decided on them.
        """
        first = facts_stream("")
        rows = self._tx.reads.between(first, _behind(first), FactAsserted.topic)
        rows = chain(rows, self._tx.reads.beginnings(ProposalMade.topic))
        streams = {row[1] for row in rows} | {row[1] for row in self._tx.rows if stream_scope(row[1]) is not None}
        found = chain.from_iterable(
            self._tx.events(stream, since=0 if facts_scope(stream) is None else since) for stream in sorted(streams)
        )
        return [item for item in found if not isinstance(item.event, Forgotten)]

    def _add_facts(
        self,
        facts: Sequence[RecordedEvent],
        selector: ForgetSelector,
        sessions: set[str],
        gone: Positions,
        singled: dict[str, dict[int, str]],
        *,
        whole: set[str],
    ) -> int:
        """Add the facts that rest on what goes alone, and the retractions of facts that go. Return how many.

        A fact without evidence goes with the session that it was asserted in. Proposals go with anything that they rest
        on, name, or led to. Raises `InvalidInput` for a retraction of a fact that stays, which would be believed again.
        """
        added, sources = 0, set[int | None]()

        def names_gone(mark: Any, item: Any) -> bool:
            return item in sessions if mark is TO_SESSION else item in gone

        kept = _holding(facts, selector.now) if selector.keep_facts else frozenset()
        for recorded in facts:
            event = recorded.event
            position = recorded.position
            stream = recorded.stream
            goes = False
            if isinstance(event, FactRetracted):
                goes = event.fact in gone
                if position in selector.positions and not goes:
                    why = f"forgetting the retraction of a fact (position {position}) would bring it back"
                    raise errors.InvalidInput("positions", f"{why}; forget the fact, position {event.fact}")
            elif isinstance(event, FactAsserted) and event.because:
                goes = any(turn in gone for turn in event.because) and all(
                    turn in gone or not self._is_content(turn, selector.visible) for turn in event.because
                )
                if goes and position in kept:
                    goes = False
                    self._facts_kept += 1
            elif isinstance(event, FactAsserted):
                goes = event.session in sessions
            elif isinstance(event, ProposalMade):
                goes = position in sources or without(event, names_gone) is not event
            elif isinstance(event, ProposalDecided):
                goes = event.proposal in gone
            if goes and position not in gone and stream not in whole:
                gone.add(position)
                singled.setdefault(stream, {})[recorded.version] = event.topic
                added += 1
            if position in gone:
                sources.add(getattr(event, "proposal", None))
        return added

    def _is_content(self, position: int, visible: VisibleEvents) -> bool:
        """Whether the content of an event is visible and not forgotten yet."""
        row = self._tx.reads.state_head_at(position)
        return row is None or (visible.shows_stream(row[0]) and self._is_there(position, *row))

    def _checked(self, position: int, row: tuple[str, int, str, bytes] | None) -> tuple[str, int, str, bytes]:
        if row is None:
            raise errors.InvalidInput("positions", f"nothing is recorded at position {position}")
        topic = row[2]
        if topic not in CONTENT_TOPICS:
            raise errors.InvalidInput("positions", f"position {position} holds no content: it is {topic!r}")
        if what := _ENDED.get(topic):
            why = f"forgetting the end of a {what} (position {position}) would bring it back; forget the {what}"
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

    def _events(self, kind: type[Kind], stored: Iterable[EventRow]) -> Iterator[tuple[Position, str, Version, Kind]]:
        """Yield position, stream, version and event of a kind: of what is stored, and of all that is staged."""
        for position, stream, version, topic, state, *_ in chain(stored, self._tx.rows):
            if topic == kind.topic:
                event = self._log.decode(position, stream, version, topic, bytes(state))
                if isinstance(event, kind):
                    yield Position(position), stream, Version(version), event
