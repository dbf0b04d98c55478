"""What changed between two moments: turns, values, tasks, notes, facts, switches and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from starlette.requests import Request

from mnemolog.adapters.support.store_access import boundary_of, events_of, read, visible_of
from mnemolog.audit.diff import session_diff, switch_of
from mnemolog.audit.results import Diff, SessionDiff
from mnemolog.domain.display import counted
from mnemolog.domain.embedding_model import Activation, activation_of
from mnemolog.domain.events import EVENT_TYPES, ModelActivated, SessionSwitched, TurnRecorded
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of, session_stream
from mnemolog.projections.read_models import FactChange, Switch
from mnemolog.server.console.event_words import in_words
from mnemolog.server.console.moment import AsOf, as_of, recorded_at
from mnemolog.server.console.page import limited, page
from mnemolog.server.console.parameters import text, whole
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
"""Sessions on a page, and the most turns that are listed."""
FAR_EVENTS: Final = 5_000
"""From this distance on, turns are counted and not read: only what the sessions of the page held is compared."""
USUAL_EVENTS: Final = 100
"""How many events are compared if the URL does not say since when."""
OTHER_EVENTS_MAX: Final = 100_000
"""Events other than turns that are counted between moments that are far apart."""
_OTHER_TOPICS: Final = tuple(topic for topic in EVENT_TYPES if topic != TurnRecorded.topic)
_STORE_TOPICS: Final = frozenset({SessionSwitched.topic, ModelActivated.topic})


class DiffPage(Result, frozen=True, kw_only=True):
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
    """Those of this page."""
    page: int
    pages: int
    sessions_in_all: int
    facts: tuple[FactChange, ...] = ()
    """At most `PER_PAGE`; none between moments that are far apart."""
    switches: tuple[Switch, ...]
    activations: tuple[Activation, ...]
    turns_left_out: int
    """Turns that were said in between, and are counted but not listed."""


@page("/diff", title="What changed", template="diff.html")
async def diff(request: Request, caller: Caller, at: AsOf) -> DiffPage:
    """Show what changed between two moments: by default the last `USUAL_EVENTS` events up to the moment of the page."""
    query = request.query_params
    start, end = text(query, "from"), text(query, "to")
    number = whole(query, "page", 1, least=1, most=1_000_000)

    def ends(store: MemoryStore) -> tuple[AsOf, AsOf]:
        later = as_of(store, end, field="To") if end else at
        usual = str(max(later.position - USUAL_EVENTS, 0))
        return as_of(store, start or usual, field="From", begins=True), later

    def look(store: MemoryStore) -> DiffPage:
        found = compare(store, first.position, last.position, number=number)
        asked = {"before_at": first.time or first.recorded_at, "after_at": last.time or last.recorded_at}
        return msgspec.structs.replace(found, **asked, swapped=first is not moments[0])

    moments = await read(caller.store, ends)
    first, last = sorted(moments, key=lambda moment: moment.position)
    return await read(limited(caller, request), look)


def compare(store: MemoryStore, before: Position, after: Position, *, number: int = 1) -> DiffPage:
    """Return a page of what changed between two moments, within the scopes of the store.

    With more than `FAR_EVENTS` events in between, turns are counted and not read.
    """
    if after - before > FAR_EVENTS:
        return _far_apart(store, before, after, number=number)
    found = store.audit.diff(before, after, turns_max=PER_PAGE)
    number, pages = _paged(len(found.sessions), number)
    return DiffPage(
        before=before,
        before_at=recorded_at(store, before),
        after=after,
        after_at=recorded_at(store, after),
        says=tuple(_summary(found)),
        kinds=in_words(found.topics),
        sessions=found.sessions[(number - 1) * PER_PAGE : number * PER_PAGE],
        page=number,
        pages=pages,
        sessions_in_all=len(found.sessions),
        facts=found.facts[:PER_PAGE],
        switches=found.switches[:PER_PAGE],
        activations=found.activations,
        turns_left_out=found.turns_left_out,
    )


def _summary(found: Diff) -> Iterator[str]:
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


def _paged(items: int, number: int) -> tuple[int, int]:
    """Return the number of the page that is shown, and of all pages."""
    pages = max(1, -(-items // PER_PAGE))
    return min(number, pages), pages


def _far_apart(store: MemoryStore, before: Position, after: Position, *, number: int) -> DiffPage:
    log = events_of(store)
    said = Counter(log.streams_with(TurnRecorded.topic, after=before, upto=after))
    rows = log.stored_events(after=before, upto=after, prefix="", topics=_OTHER_TOPICS, limit=OTHER_EVENTS_MAX)
    inside = {item.session for item in store.sessions()} if boundary_of(store).scopes else None
    sessions = [name for stream in dict.fromkeys((*said, *(row[1] for row in rows))) if (name := session_of(stream))]
    names = sessions if inside is None else [name for name in sessions if name in inside]
    number, pages = _paged(len(names), number)
    turns = sum(said[session_stream(name)] for name in names)
    # Events that belong to no session are shown to those who see everything.
    kinds = Counter(row[3] for row in rows) if inside is None else Counter()
    chosen = [row[0] for row in rows if inside is None and row[3] in _STORE_TOPICS][-PER_PAGE:]
    recorded = [item for position in chosen if (item := log.event_at(Position(position))) is not None]
    return DiffPage(
        before=before,
        before_at=recorded_at(store, before),
        after=after,
        after_at=recorded_at(store, after),
        says=tuple(_far_summary(turns, len(names))),
        kinds=in_words({TurnRecorded.topic: turns, **kinds}),
        sessions=tuple(_held(store, names[(number - 1) * PER_PAGE : number * PER_PAGE], said, before, after)),
        page=number,
        pages=pages,
        sessions_in_all=len(names),
        switches=tuple(switch_of(item, item.event) for item in recorded if isinstance(item.event, SessionSwitched)),
        activations=tuple(found for item in recorded if (found := activation_of(item)) is not None),
        turns_left_out=turns,
    )


def _held(
    store: MemoryStore, names: list[str], said: Counter[str], before: Position, after: Position
) -> Iterator[SessionDiff]:
    """Yield what sessions held before and after, without their turns."""
    log, states = events_of(store), visible_of(store).states
    then, now = log.recorded_at(before), log.recorded_at(after)
    for name in names:
        if (new := states.at(name, after)) is not None:
            yield session_diff(
                log,
                states.at(name, before),
                new,
                before=before,
                after=after,
                then=then,
                now=now,
                recorded=said[session_stream(name)],
                turns=[],
            )


def _far_summary(turns: int, sessions: int) -> Iterator[str]:
    yield f"Much happened between these two moments: {counted(turns, 'turn was', 'turns were')} said."
    yield f"{counted(sessions, 'session')} took part. What each of them held before and after is below."
    yield "The turns and facts themselves are shown where the moments are closer together."
