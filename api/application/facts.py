"""Facts of scopes: assert, retract and read them. Sources that are distrusted, and standing statements that end."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, TypedDict, Unpack

import msgspec

from mnemolog.application import commands
from mnemolog.application.tokens import tokens_of
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.choices import NO_RETENTION, Retention, evolve_retention
from mnemolog.domain.encoding import canonical
from mnemolog.domain.events import (
    DISTRUST_STREAM,
    RETENTION_STREAM,
    Event,
    FactAsserted,
    FactRetracted,
    RecordedEvent,
    RetractFact,
    SourceDistrusted,
    SourceTrusted,
    StandingEnded,
    TurnRecorded,
)
from mnemolog.domain.facts import (
    FILES,
    Assertion,
    assertion_of,
    checked_fact_key,
    facts_stream,
    new_fact,
    parse_valid_time,
)
from mnemolog.domain.head import Known, known_at, position_at
from mnemolog.domain.message import Role
from mnemolog.domain.options import Option, with_defaults
from mnemolog.domain.proposals import Proposal
from mnemolog.domain.request import current_request_key
from mnemolog.domain.result import Result, Results, name_of
from mnemolog.domain.scope import Scope, covered, covers, parse_scopes
from mnemolog.domain.spelling import normalized, spelled
from mnemolog.domain.standing import standing_in
from mnemolog.domain.values import (
    Clock,
    Micros,
    Position,
    Time,
    UtcTime,
    Version,
    When,
    checked_label,
    checked_position,
    checked_text,
    to_datetime,
    to_micros,
)
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.sql import distrust as sources
from mnemolog.projections.sql import fact_queries as tables
from mnemolog.projections.sql.database import fetch

_BELOW: Final = "{name} = ?1 OR ({name} >= ?1 || '/' AND {name} < ?1 || '0')"
_SCOPE: Final = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE {_BELOW.format(name='scope')}" for table in ("sessions", "fact_keys")
)
_KEY: Final = f"SELECT 1 FROM fact_keys WHERE scope = ?2 AND ({_BELOW.format(name='key')})"


def retention_at(log: EventLog, as_of: When | None = None) -> Retention:
    """Return the rules and the holds of a log, as they are or were at a position or a time."""
    upto = None if as_of is None else position_at("as_of", as_of, log)
    return log.fold(RETENTION_STREAM, evolve_retention, upto=upto).state or NO_RETENTION


class NamesInUse:
    """The scopes and the keys of facts of a log."""

    def __init__(self, log: EventLog, projections: ProjectionSet) -> None:
        self._log, self._projections = log, projections
        self.people: Callable[[], Iterable[str]] = tuple
        """Returns the scopes of the people whom a server knows."""

    def has_scope(self, name: str) -> bool:
        """Whether a session, a fact, a token, a person, a rule of retention or a hold is in a scope, or below it."""
        tokens = (scope for token in tokens_of(self._log) for scope in token.scopes)
        kept = retention_at(self._log)
        ruled = [rule.scope for rule in kept.rules] + [hold.scope for hold in kept.holds]
        bound = any(covers(Scope(name), Scope(scope)) for scope in (*self.people(), *tokens, *ruled))
        return bound or self._found(_SCOPE, name)

    def has_key(self, scope: str, name: str) -> bool:
        """Whether a fact of a scope has a key, or one below it."""
        return self._found(_KEY, name, scope)

    def _found(self, query: str, *names: str) -> bool:
        with self._projections.to_answer()[0].database.reading() as connection:
            return bool(fetch(connection, f"{query} LIMIT 1", *names))


NEAREST_MAX: Final = 5
SCOPES_KEPT_MAX: Final = 256
"""Scopes whose keys are kept in memory, to name the nearest ones."""
_COMPARED_MAX: Final = 25
_WORD: Final = re.compile(r"[^\W_]+")


class FactHow(TypedDict, total=False):
    """Arguments of `MemoryStore.assert_fact` besides key, value and scope."""

    valid_from: Annotated[
        Time | None, Option("since when it is true (docs/facts.md); None: since `because` was said, else since now")
    ]
    because: Annotated[Sequence[Turn | int], Option("the turns that it rests on, or their positions, up to 100", ())]
    corrects: Annotated[
        Fact | int | None,
        Option("a fact of this key that was wrong: it is retracted in the same append"),
    ]
    reason: Annotated[str, Option("why that was wrong, up to 256 bytes", "")]
    maker: Annotated[str, Option("the program that found it, for `retract_facts`", "")]


class FactWhen(TypedDict, total=False):
    """The subject of a question, and what was known."""

    as_of: Annotated[When | None, Option("what was known at this position or time of recording; None for now")]
    valid_at: Annotated[
        Time | None, Option("what is true at this time, in UTC; None for now, and with `as_of` for that time")
    ]


class _Keys:
    """The keys of one scope, by their words."""

    def __init__(self, keys: Iterable[str], version: Version) -> None:
        self.version, self.all = version, set[str]()
        self._by_word: dict[str, list[str]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Add a key."""
        if key not in self.all:
            self.all.add(key)
            for word in {*_WORD.findall(key.casefold())}:
                self._by_word.setdefault(word, []).append(key)

    def nearest(self, key: str) -> list[str]:
        """Return the keys that share most words with one, of which rare ones say more."""
        having = [found for word in {*_WORD.findall(key.casefold())} if (found := self._by_word.get(word))]
        weights: dict[str, float] = {}
        for found in sorted(having, key=len):
            if len(found) > _COMPARED_MAX and len(weights) >= NEAREST_MAX:
                break
            for other in islice(found, _COMPARED_MAX):
                weights[other] = weights.get(other, 0.0) + 1 / len(found)
        folder = key[: key.rfind("/") + 1]
        ranked = sorted((-weight, not other.startswith(folder), other) for other, weight in weights.items())
        return [other for _, _, other in ranked[:NEAREST_MAX]]


class FactKeys:
    """The keys of facts, kept in memory to name the nearest ones to a new key. Safe for many threads."""

    def __init__(self, projections: ProjectionSet) -> None:
        self._projections = projections
        self._kept: LruCache[str, _Keys] = LruCache(SCOPES_KEPT_MAX)
        self._lock = fork_guard.lock()

    def nearest(self, scope: str, appended: Sequence[RecordedEvent]) -> list[str]:
        """Return the nearest keys there are to that of the last of the events, if it is new."""
        last = appended[-1]
        if not isinstance(last.event, FactAsserted) or last.event.key.startswith(FILES):
            return []
        key, before = last.event.key, last.version - len(appended)
        with self._lock:
            kept = self._kept.get(scope)
            if kept is not None and key in kept.all:
                kept.version = last.version if kept.version == before else kept.version
                return []
            if kept is None or kept.version < before:  # What forgets facts appends to their stream, too.
                with self._projections.current_views().database.reading() as connection:
                    keys = tables.keys_before(connection, scope, last.position)
                kept = _Keys(keys, last.version)
                self._kept.put(scope, kept)
            found = [] if key in kept.all else kept.nearest(key)
            kept.add(key)
            kept.version = max(kept.version, last.version)
            return found


class Facts:
    """The facts of one log, as far as its boundary shows them."""

    def __init__(
        self, visible: VisibleEvents, projections: ProjectionSet, keys: FactKeys, names: NamesInUse, *, clock: Clock
    ) -> None:
        self._visible = visible
        self._projections = projections
        self._clock = clock
        self._known_keys = keys
        self._names = names
        self._log, self._boundary = visible.log, visible.boundary

    def assert_fact(
        self, key: str, value: Any, *, scope: str | None, session: str | None = None, **how: Unpack[FactHow]
    ) -> Fact:
        """Append an assertion, and with `corrects` the retractions before it. See `MemoryStore.assert_fact`."""
        of, work = self.asserting(key, value, scope=scope, session=session, **how)
        made = self._visible.transact(work)
        asserted = assertion_of(made[-1])
        if asserted is None:
            raise errors.DuplicateKey(stream=made[-1].stream, key=made[-1].key or "", position=made[-1].position)
        nearest: list[str] = []
        with suppress(errors.MnemologError):  # It is recorded, whatever is wrong with the views.
            nearest = self._known_keys.nearest(of, made)
        return tables.as_fact(asserted, "asserted", nearest=nearest)

    def asserting(
        self,
        key: str,
        value: Any,
        *,
        scope: str | None,
        session: str | None = None,
        proposal: Proposal | None = None,
        **how: Unpack[FactHow],
    ) -> tuple[Scope, Callable[[Transaction], list[RecordedEvent]]]:
        """Return the scope of an assertion, and the work that appends it: of a proposal, if it is none of the caller's.

        That raises `SupersededProposal` where the key was given another value since then.
        """
        of = self._boundary.one(scope) if session is None else Scope(scope or "")  # That of a session is inside.
        given, key = with_defaults(FactHow, how), self._key(of, key)
        turns = [item.position if isinstance(item, Turn) else item for item in given["because"]]
        event = new_fact(
            key=key, value=value, valid_from=given["valid_from"], because=turns, maker=given["maker"], session=session
        )
        if event.because:
            event = msgspec.structs.replace(event, said_at=self._said_at(given["because"]))
        if proposal is not None:
            event = msgspec.structs.replace(event, proposal=proposal.position, proposed_by=proposal.proposed_by)
        wrong: list[FactRetracted] = []
        if (corrects := given["corrects"]) is not None:
            for row in self._rows("corrects", corrects):
                if (row.scope, row.key) != (of, key):
                    why = f"the fact at position {row.position} is not of {key!r} in the scope {of!r}"
                    raise errors.InvalidInput("corrects", f"{why}; retract that one, then assert this")
                if row.retracted is None:
                    wrong.append(_retraction(row.position, given["reason"]))
        stream, request = facts_stream(of), current_request_key()

        def work(tx: Transaction) -> list[RecordedEvent]:
            self._visible.require_turns(tx, "because", event.because)
            if proposal is not None:
                self._require_latest(tx, stream, event, since=proposal.position)
            return commands.append_once(tx, stream, lambda: [*wrong, event], key=request)

        return of, work

    def _require_latest(self, tx: Transaction, stream: str, wanted: FactAsserted, *, since: int) -> None:
        """Raise `SupersededProposal` if a key was given another value since a position, or one was taken back."""
        for item in tx.events(stream, since=since):
            if isinstance(item.event, FactAsserted) and item.event.key == wanted.key:
                if canonical(item.event.value) != canonical(wanted.value):
                    why = f"{wanted.key!r} was given another value at position {item.position}"
                    raise errors.SupersededProposal(why, position=since, newer=item.event.value)
            elif isinstance(item.event, FactRetracted):
                before = self._log.event_at(Position(item.event.fact))
                if before is not None and getattr(before.event, "key", "") == wanted.key:
                    why = f"the fact at position {item.event.fact} was retracted at position {item.position}"
                    raise errors.SupersededProposal(why, position=since)

    def retract(self, fact: Fact | int, *, reason: str) -> int:
        """Retract a fact. Return how many assertions that were. See `MemoryStore.retract_fact`."""
        return self._visible.transact(self._retracting(self._rows("fact", fact), reason=reason))

    def retract_made_by(self, maker: str, *, scope: str | Sequence[str], reason: str) -> int:
        """Retract what a maker asserted. See `MemoryStore.retract_facts`."""
        checked_label("maker", maker)
        within = self._boundary.narrow(parse_scopes(scope))
        with self._projections.current_views().database.reading() as connection:
            rows = [row for row in tables.made_by(connection, maker) if covered(within, row.scope)]
        return self._visible.transact(self._retracting(rows, reason=reason)) if rows else 0

    def find(self, key: str, *, scope: str | None, **when: Unpack[FactWhen]) -> Fact | None:
        """Return the fact of a key. See `MemoryStore.fact`."""
        of = self._boundary.one(scope)
        key = self._key(of, key)
        with self.reading(when) as (connection, known, _):
            return tables.fact(connection, of, key, known)

    def all(self, pattern: str, *, scope: str | Sequence[str], **when: Unpack[FactWhen]) -> Results[Fact]:
        """Return the facts that hold, by key. See `MemoryStore.facts`."""
        within = self._boundary.narrow(parse_scopes(scope))
        checked_label("pattern", pattern)
        with self.reading(when) as (connection, known, stale):
            found = Results[Fact]()
            for wanted in dict.fromkeys((pattern, normalized("NFC", pattern))):
                prefix, matches = re.split(r"[*?\[]", wanted)[0], partial(fnmatchcase, pat=wanted)
                found = found or Results(tables.facts(connection, within, known, prefix=prefix, chosen=matches))
        found.stale = stale
        return found

    def history(self, key: str, *, scope: str | None, **when: Unpack[FactWhen]) -> Results[Fact]:
        """Return every assertion of a key. See `MemoryStore.fact_history`."""
        of = self._boundary.one(scope)
        key = self._key(of, key)
        with self.reading(when) as (connection, known, stale):
            found = Results(tables.history(connection, of, key, known))
        found.stale = stale
        return found

    def _key(self, scope: str, key: str) -> str:
        """Return a key as the facts of a scope spell it. Raises `InvalidInput`."""
        return spelled(checked_fact_key(key), partial(self._names.has_key, scope))

    @contextmanager
    def reading(self, when: FactWhen) -> Iterator[tuple[Any, Known, Any]]:
        """Yield a connection to the views, up to date, and the position and the time of a read."""
        as_of, valid_at = when.get("as_of"), when.get("valid_at")
        at = None if valid_at is None else parse_valid_time("valid_at", valid_at)
        known = None if as_of is None else known_at("as_of", as_of, self._log)
        views, reached, stale = self._projections.to_answer()
        with views.database.reading() as connection:
            known = known or tables.known_now(connection, reached, self._clock)
            yield connection, known if at is None else known._replace(valid_at=at), stale

    def _rows(self, field: str, given: Fact | int) -> list[Assertion]:
        """Return the assertions that a fact or a position stands for. Raises `InvalidInput`."""
        positions = given.assertions if isinstance(given, Fact) else (checked_position(field, given),)
        with self._projections.current_views().database.reading() as connection:
            rows = [row for row in tables.at(connection, positions) if covered(self._boundary.scopes, row.scope)]
        for position in sorted({*positions} - {row.position for row in rows}):
            raise errors.InvalidInput(field, f"position {position} is no fact, or it was forgotten")
        return rows

    def _said_at(self, because: Sequence[Turn | int]) -> Micros | None:
        """Return when the newest of these turns was said."""
        times = [to_micros("because", item.said_at) for item in because if isinstance(item, Turn)]
        positions = [item for item in because if isinstance(item, int)]
        if self._boundary.scopes:
            positions = sorted(self._visible.inside(positions))
        for found in self._log.read_at(positions) if positions else ():
            if isinstance(found.event, TurnRecorded):
                said_at = found.event.said_at
                times.append(found.recorded_at if said_at is None else Micros(said_at))
        return max(times, default=None)

    def retracting(self, act: RetractFact, proposal: Position) -> Callable[[Transaction], int]:
        """Return the work that does what was proposed, and raises `SupersededProposal` where it was done before."""
        rows = [row for position in act.assertions for row in self._rows("assertions", position)]
        retract = self._retracting(rows, reason=act.reason, proposal=proposal)

        def work(tx: Transaction) -> int:
            for stream in {facts_stream(row.scope) for row in rows}:
                for item in tx.events(stream, since=min(act.assertions)):
                    if isinstance(item.event, FactRetracted) and item.event.fact in act.assertions:
                        why = f"the fact at position {item.event.fact} was retracted at position {item.position}"
                        raise errors.SupersededProposal(why, position=proposal)
            return retract(tx)

        return work

    def _retracting(
        self, rows: Sequence[Assertion], *, reason: str, proposal: Position | None = None
    ) -> Callable[[Transaction], int]:
        """Return the work that retracts assertions, and returns how many of them are retracted then.

        A retry of a request appends nothing.
        """
        wrong: dict[str, list[Event]] = {facts_stream(row.scope): [] for row in rows}
        for row in rows:
            if row.retracted is None:
                wrong[facts_stream(row.scope)].append(_retraction(row.position, reason, proposal))
        key = current_request_key()

        def work(tx: Transaction) -> int:
            for stream in wrong:
                if key is not None and tx.find(stream, key) is not None:
                    (made,) = commands.append_once(tx, stream, list, key=key)
                    return sum(row.position < made.position for row in rows)
            for stream, events in wrong.items():
                commands.append_once(tx, stream, partial(list, events), key=key)
            return len(rows)

        return work


def _retraction(position: int, reason: str, proposal: Position | None = None) -> FactRetracted:
    why = checked_text("reason", reason) if reason else ""
    return FactRetracted(fact=position, reason=why, proposal=proposal)


class Distrust(Result, frozen=True, kw_only=True):
    """Sources of which nothing is shown as an answer."""

    called_by = "position"

    position: Position | None
    """Of its event; None for one that was only tried (`dry_run`)."""
    at: UtcTime
    source: SourceDistrusted
    """The event: turns, sessions, `appended_by` (an actor), maker, scopes, reason, and the actor who distrusts."""
    covers: int
    """How many turns and facts are from these sources, without facts that only rest on them."""
    undone: Position | None = None
    """Where it ended; None while it lasts."""


class Distrusts:
    """What is distrusted in one log, as far as its boundary shows it."""

    def __init__(self, visible: VisibleEvents, projections: ProjectionSet) -> None:
        self._visible = visible
        self._projections = projections
        self._log = visible.log

    def distrust(
        self, turns: Iterable[int], sessions: Iterable[str], *, actor: str, maker: str, reason: str, dry_run: bool
    ) -> Distrust:
        """Append that sources are distrusted. See `MemoryStore.distrust`."""
        source, work = self.distrusting(turns, sessions, actor=actor, maker=maker, reason=reason)
        made = self._visible.transact(work, dry_run=dry_run)
        return Distrust(
            position=None if dry_run else made.position,
            at=to_datetime(made.recorded_at),
            source=source,
            covers=self.covers(source),
        )

    def covers(self, source: SourceDistrusted) -> int:
        """Return how many turns and facts are of a source."""
        with self._projections.current_views().database.reading() as connection:
            return len(sources.covered(connection, source))

    def distrusting(
        self,
        turns: Iterable[int],
        sessions: Iterable[str],
        *,
        actor: str,
        maker: str,
        reason: str,
        proposal: Position | None = None,
    ) -> tuple[SourceDistrusted, Callable[[Transaction], RecordedEvent]]:
        """Return the event of a distrust, and the work that appends it."""
        source = SourceDistrusted(
            turns=sorted({checked_position("positions", position) for position in turns}),
            sessions=sorted(set(sessions)),
            appended_by=checked_label("actor", actor) if actor else "",
            maker=checked_label("maker", maker) if maker else "",
            scopes=list(self._visible.boundary.scopes),
            reason=checked_text("reason", reason),
            proposal=proposal,
        )
        if not (source.turns or source.sessions or actor or maker):
            raise errors.InvalidInput("positions", "say what to distrust: turns, sessions, an actor or a maker")
        self._visible.require(source.sessions, ())

        def work(tx: Transaction) -> RecordedEvent:
            self._visible.require_turns(tx, "positions", source.turns)
            return tx.append(DISTRUST_STREAM, source)

        return source, work

    def trust_again(self, distrust: Distrust | int, *, reason: str) -> Distrust:
        """Append that a distrust has ended. See `MemoryStore.trust_again`."""
        position = checked_position("distrust", name_of(distrust, Distrust, "distrust"))
        found = next((item for item in self.all() if item.position == position), None)
        if found is None:
            raise errors.InvalidInput("distrust", f"position {position} distrusts nothing")
        if found.undone is not None:
            return found
        ended = SourceTrusted(distrust=position, reason=reason and checked_text("reason", reason))
        return msgspec.structs.replace(
            found, undone=self._visible.transact(lambda tx: tx.append(DISTRUST_STREAM, ended)).position
        )

    def all(self) -> Iterator[Distrust]:
        """Yield every distrust that was made within the boundary, in order."""
        with self._projections.current_views().database.reading() as connection:
            states = sources.states(connection)
        within = self._visible.boundary.scopes
        for recorded in self._log.read_at(list(states)):
            position, source = recorded.position, recorded.event
            if isinstance(source, SourceDistrusted) and all(covered(within, item) for item in source.scopes or [""]):
                at, (undone, covers) = to_datetime(recorded.recorded_at), states[position]
                yield Distrust(position=position, at=at, source=source, covers=covers, undone=undone)

    def among(self, events: Sequence[RecordedEvent]) -> set[Position]:
        """Return the positions of those of these turns that are distrusted now."""
        if not self._log.version(DISTRUST_STREAM):
            return set()
        with self._projections.current_views().database.reading() as connection:
            return sources.among(connection, [item.position for item in events], self._log.head().position)


def ending(
    visible: VisibleEvents, position: int, *, reason: str, proposal: Position | None = None
) -> Callable[[Transaction], bool]:
    """Return the work that ends the standing statements of a turn, and returns whether they stood."""
    ended = StandingEnded(turn=position, reason=checked_text("reason", reason), proposal=proposal)
    found = visible.log.event_at(Position(position))
    if found is not None and isinstance(found.event, FactAsserted) and visible.shows_stream(found.stream):
        why = f"position {position} asserts the fact {found.event.key!r}; retract_fact takes it back"
        raise errors.InvalidInput("position", why)

    def work(tx: Transaction) -> bool:
        visible.require_turns(tx, "position", [position])
        turn = None if found is None else found.event
        says = isinstance(turn, TurnRecorded) and turn.role == Role.USER and any(standing_in(turn.text))
        if found is None or not says:
            raise errors.InvalidInput("position", f"what position {position} says is said of no other answer")
        before = (item.event for item in tx.events(found.stream, since=position))
        known = any(isinstance(event, StandingEnded) and event.turn == position for event in before)
        new: list[Event] = [] if known else [ended]
        return bool(commands.append_once(tx, found.stream, lambda: new, key=current_request_key()))

    return work
