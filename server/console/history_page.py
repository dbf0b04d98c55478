"""The history: its newest events, the audit of the chain, one event, and what changed between two moments."""

from collections.abc import Container, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from starlette.responses import Response

from mnemolog.audit.diff import Diff, SessionDiff
from mnemolog.audit.verification import StoredEvent
from mnemolog.domain.choices import Activation
from mnemolog.domain.display import counted
from mnemolog.domain.events import ContextServed, FactAsserted, RecallJudged, RecallServed, TurnRecorded
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of, session_stream
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.operations.backup_files import noted_witnesses
from mnemolog.projections.history.timeline import Moment, describe
from mnemolog.projections.history.verify import witnesses_of
from mnemolog.projections.read_models import FactChange, Switch
from mnemolog.server.console.jobs import start_job
from mnemolog.server.console.moment import as_of
from mnemolog.server.console.page import ConsoleRequest, ListPage, PageRequest, Refused, action, view
from mnemolog.server.console.rendering import in_words, url
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
"""Events, or sessions, of a page; and the most turns of a difference that are listed."""
TAIL: Final = "/v1/tail"
WINDOW: Final = 1_000
"""Positions that are looked through together; more and more where the log itself finds the events."""
LOOKED_MAX: Final = 5_000
"""Events that one search looks at. Where a filter leaves few, the next search continues there."""


class EventLine(Result, frozen=True, kw_only=True):
    """An event in words."""

    position: Position
    at: datetime
    session: str | None
    who: str
    """The title of the session, or its id, or the agent, or else the stream."""
    actor: str
    """Who acted; empty if that was not recorded."""
    topic: str
    what: str

    @classmethod
    def of(cls, moment: Moment) -> "EventLine":
        """Return a moment of the timeline as a line."""
        return cls(**{name: getattr(moment, name) for name in cls.__struct_fields__})


class EventFilter(Result, frozen=True, kw_only=True):
    """Which events to look for. An empty field leaves nothing out."""

    topic: str = ""
    session: str = ""
    actor: str = ""
    scope: str = ""
    """Only events of sessions at or below it."""

    @classmethod
    def of(cls, asked: ConsoleRequest) -> "EventFilter":
        """Return the filter that a URL has."""
        return cls(**{name: asked.text(name) for name in cls.__struct_fields__})

    def takes(self, moment: Moment, inside: Container[str] | None) -> bool:
        """Whether an event matches. `inside` has the sessions of the scope, if there is one."""
        return (
            (inside is None or moment.session in inside)
            and (not self.topic or moment.topic == self.topic)
            and (not self.session or moment.session == self.session)
            and (not self.actor or moment.actor == self.actor)
        )


class EventsFound(NamedTuple):
    """What a search found."""

    lines: tuple[EventLine, ...]
    """Newest first."""
    after: Position
    """All events after this position were looked at."""
    actors: Mapping[str, int]
    """How much each actor did in the events that were looked at."""


class Live(Result, frozen=True, kw_only=True):
    """The newest events that match the filters, newest first."""

    events: tuple[EventLine, ...]
    looked_from: Position
    """Events up to this position were not looked through."""
    complete: bool
    """Whether enough events were found, or there are no more."""
    tail: str
    """Where events that are recorded from now on come from; empty for a page as of an earlier moment."""


@view("/live", title="Live", template="live.html")
def live(store: MemoryStore, asked: PageRequest) -> Live:
    """Show the newest events up to a moment."""
    wanted, at = EventFilter.of(asked), asked.at
    followed = {"after": at.position, "scope": wanted.scope, "session": wanted.session, "topics": wanted.topic}
    found = newest_events(store, wanted, upto=at.position, limit=PER_PAGE)
    return Live(
        events=found.lines,
        looked_from=found.after,
        complete=len(found.lines) == PER_PAGE or not found.after,
        tail=url(TAIL, followed) if at.is_now else "",
    )


def newest_events(store: MemoryStore, wanted: EventFilter, *, upto: Position, limit: int) -> EventsFound:
    """Return the last events up to a position that match, of at most `LOOKED_MAX`.

    Raises `UnknownSession`, and `OutsideScope` for a scope outside of that of the store.
    """
    if wanted.session:
        store.parts.visible.state(wanted.session)
    is_whole = not store.parts.boundary.scopes
    # The log itself finds the events of a session or a kind; those of a kind only for who may see all of them.
    is_found = bool(wanted.session or (wanted.topic and is_whole))
    within = store.parts.session_list.sessions(scope=wanted.scope) if wanted.scope else None
    inside = None if within is None else {item.session: item for item in within}
    found: list[EventLine] = []
    actors: dict[str, int] = {}
    end = int(upto)
    looked = 0
    window = WINDOW if wanted != EventFilter() or not is_whole else limit
    while end > ORIGIN and len(found) < limit and looked < LOOKED_MAX:
        if inside is not None:  # Nothing is read where none of them did anything.
            active = (min(item.last_position, end) for item in inside.values() if item.started_position <= end)
            end = max(active, default=ORIGIN)
        begin = max(end - (window if is_found else min(window, LOOKED_MAX - looked)), ORIGIN)
        moments = (
            _found(store, wanted, inside, begin, end)
            if is_found
            else reversed(list(store.audit.timeline(after=begin, upto=end)))
        )
        for moment in moments:
            looked += is_found
            if moment.actor:
                actors[moment.actor] = actors.get(moment.actor, 0) + 1
            if wanted.takes(moment, inside):
                found.append(EventLine.of(moment))
            if len(found) == limit or looked == LOOKED_MAX:
                return EventsFound(tuple(found), Position(moment.position - 1), actors)
        looked += 0 if is_found else end - begin  # Also what this store does not show: it must not cost more.
        end = begin
        window *= 4 if is_found else 1
    return EventsFound(tuple(found), Position(end), actors)


def _found(
    store: MemoryStore, wanted: EventFilter, inside: Container[str] | None, begin: int, end: int
) -> Iterator[Moment]:
    """Yield the events of a session or a kind between two positions, newest first, found without decoding others."""
    stream = session_stream(wanted.session) if wanted.session else ""
    topics = (wanted.topic,) if wanted.topic else ()
    rows = store.parts.log.stored_events(after=begin, upto=end, prefix=stream, topics=topics, limit=end - begin)
    for place, name in reversed([(row[0], row[1]) for row in rows]):
        if (not stream or name == stream) and (inside is None or session_of(name) in inside):
            yield from store.audit.timeline(after=place - 1, upto=place)


WITNESSES_MAX: Final = 100


class ShownWitness(Result, frozen=True, kw_only=True):
    """Something outside of the log that remembers a digest of it."""

    name: str
    position: Position
    agrees: bool


class AuditPage(ListPage, frozen=True, kw_only=True):
    """The audit."""

    head: Head | None
    """Position and digest at the moment; None for a store that is open for one scope."""
    log_id: str
    witnesses: tuple[ShownWitness, ...]
    events: tuple[EventLine, ...]
    """Newest first."""
    looked_from: Position
    """The events of the page are after this position, up to `looked_to`."""
    looked_to: Position
    actors: dict[str, int]
    """How much each actor did in the events that were looked through. Empty where none was recorded."""


@view("/audit", title="Audit", template="audit.html")
def audit(store: MemoryStore, asked: PageRequest) -> AuditPage:
    """Show the chain, its witnesses, and the timeline up to the moment, newest first."""
    last = asked.last_before()
    found = newest_events(store, EventFilter.of(asked), upto=last, limit=PER_PAGE)
    whole = not store.parts.boundary.scopes
    return AuditPage(
        head=store.parts.log.head_at(asked.at.position) if whole else None,
        log_id=store.parts.log.log_id if whole else "",
        witnesses=tuple(islice(_witnesses(store), WITNESSES_MAX)) if whole else (),
        events=found.lines,
        earlier=Position(found.after + 1) if found.after else None,
        looked_from=found.after,
        looked_to=last,
        actors=dict(sorted(found.actors.items())),
    )


def _witnesses(store: MemoryStore) -> Iterator[ShownWitness]:
    log = store.parts.log
    for witness in (*noted_witnesses(store.path, log.log_id), *witnesses_of(store.path, log)):
        agrees = log.digest_at(witness.head.position) == witness.head.digest_bytes
        yield ShownWitness(name=witness.name, position=witness.head.position, agrees=agrees)


@action("/audit/verify", title="Verify", verb="read", needs_write=False, whole=True)
async def verify(asked: ConsoleRequest) -> Response:
    """Check every digest, version and witness, in the background. Changes nothing."""
    expected, contents = asked.text("expect_head") or None, bool(asked.text("contents"))
    work = partial(asked.caller.store.verify, expect_head=expected, contents=contents)
    return await start_job(asked, "Verifying the history", work, back="/audit")


class EventPage(Result, frozen=True, kw_only=True):
    """An event, its place in the log, and the proof that it is unchanged."""

    stored: StoredEvent
    head: Position
    what: str
    """What happened, in words; empty if the event cannot be read."""
    session: str | None
    actor: str
    """Who appended it; empty if none was given."""
    is_turn: bool
    receipt: Position | None
    """The receipt that it is, or that it judges."""
    turns: tuple[Position, ...]
    """The turns that it refers to."""
    fact: tuple[str, str] | None
    """Scope and key of the fact that it asserts."""


@view("/event/{position}", title="Event", template="event.html")
def event(store: MemoryStore, asked: PageRequest) -> EventPage:
    """Show the event at a position."""
    found = store.audit.event(asked.position_in_path())
    event = found.event
    turns = list[int]()
    receipt = None
    match event:
        case RecallServed() | ContextServed():
            turns, receipt = event.turns if isinstance(event, ContextServed) else event.hits, found.position
        case RecallJudged():
            turns, receipt = [*event.good, *event.bad], Position(event.receipt)
        case FactAsserted():
            turns = list(event.because)
    return EventPage(
        stored=found,
        head=asked.at.head,
        what=describe(event) if event is not None else "",
        session=session_of(found.stream),
        actor=getattr(event, "actor", ""),
        is_turn=isinstance(event, TurnRecorded),
        receipt=receipt,
        turns=tuple(map(Position, turns)),
        fact=(facts_scope(found.stream) or "", event.key) if isinstance(event, FactAsserted) else None,
    )


FAR_EVENTS: Final = 20_000
"""Moments with more events in between are not compared."""
USUAL_EVENTS: Final = 100
"""How many events are compared if the URL does not say since when."""


class DiffPage(ListPage, frozen=True, kw_only=True):
    """The difference of two moments."""

    before: Position
    before_at: datetime | None
    """None before the first event, and for an event outside of what the caller may see."""
    after: Position
    after_at: datetime | None
    swapped: bool = False
    """Whether the later moment was given first: the page shows them in order of time."""
    says: tuple[str, ...]
    """The difference in words."""
    kinds: dict[str, int]
    """How many events of each kind lie between the moments, by their words."""
    sessions: tuple[SessionDiff, ...]
    """By their numbers in the list, from 1."""
    sessions_in_all: int
    facts: tuple[FactChange, ...] = ()
    """At most `PER_PAGE`."""
    switches: tuple[Switch, ...]
    activations: tuple[Activation, ...]


@view("/diff", title="What changed", template="diff.html")
def diff(store: MemoryStore, asked: PageRequest) -> DiffPage:
    """Show what changed between two moments: by default the last `USUAL_EVENTS` events up to the moment of the page."""
    start, until = asked.text("from"), asked.text("to")
    before, skipped = asked.position("before"), asked.position("after") or ORIGIN
    if before is not None:
        skipped = Position(max(before - 1 - PER_PAGE, 0))
    later = as_of(store, until, name="to") if until else asked.at
    earlier = as_of(store, start or str(max(later.position - USUAL_EVENTS, 0)), name="from")
    first, last = sorted((earlier, later), key=lambda moment: moment.position)
    if (apart := last.position - first.position) > FAR_EVENTS:
        what = f"{apart:,} events lie between them; a page compares up to {FAR_EVENTS:,}."
        raise Refused(400, "These moments are too far apart", what, "Choose closer ones, or use `mnemolog diff`.")
    found = asked.limited(store).audit.diff(first.position, last.position, turns_max=PER_PAGE)
    end = Position(skipped + PER_PAGE)
    return DiffPage(
        before=first.position,
        before_at=first.time or first.recorded_at,
        after=last.position,
        after_at=last.time or last.recorded_at,
        swapped=first is not earlier,
        says=tuple(_differences(found)),
        kinds=in_words(found.topics),
        sessions=found.sessions[skipped:end],
        earlier=Position(skipped + 1) if skipped else None,
        later=end if end < len(found.sessions) else None,
        sessions_in_all=len(found.sessions),
        facts=found.facts[:PER_PAGE],
        switches=found.switches[:PER_PAGE],
        activations=found.activations,
    )


def _differences(found: Diff) -> Iterator[str]:
    events = sum(found.topics.values())
    if not events:
        yield "Nothing happened between these two moments: the agent knew the same at both."
        return
    yield f"{counted(events, 'event')} in {counted(len(found.sessions), 'session')} lie between the two moments."
    values = sum(len(session.values) for session in found.sessions)
    hidden = sum(len(session.hidden) for session in found.sessions)
    if values:
        yield f"{counted(values, 'value is not what it was', 'values are not what they were')}."
    if found.facts:
        yield f"{counted(len(found.facts), 'fact is not what it was', 'facts are not what they were')}."
    if hidden:
        yield f"{counted(hidden, 'turn is', 'turns are')} hidden now."
    if found.activations:
        yield f"Recalls by meaning use another model since: {found.activations[-1].model}."
