"""The newest events that match filters, as lines of a list, and the page that follows the log (`/v1/tail`)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request

from mnemolog.adapters.support.store_access import boundary_of, events_of, read, session_list_of, visible_of
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of, session_stream
from mnemolog.projections.history.timeline import Moment
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.console.parameters import text
from mnemolog.server.console.rendering import url
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

EVENTS_MAX: Final = 100
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
    def of(cls, moment: Moment) -> EventLine:
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
    def of(cls, query: QueryParams) -> EventFilter:
        """Return the filter that a URL has."""
        return cls(**{name: text(query, name) for name in cls.__struct_fields__})

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


@page("/live", title="Live", template="live.html")
async def live(request: Request, caller: Caller, at: AsOf) -> Live:
    """Show the newest events up to a moment."""
    wanted = EventFilter.of(request.query_params)
    followed = {"after": at.position, "scope": wanted.scope, "session": wanted.session, "topics": wanted.topic}

    def look(store: MemoryStore) -> Live:
        found = newest_events(store, wanted, upto=at.position, limit=EVENTS_MAX)
        return Live(
            events=found.lines,
            looked_from=found.after,
            complete=len(found.lines) == EVENTS_MAX or not found.after,
            tail=url(TAIL, followed) if at.is_now else "",
        )

    return await read(caller.store, look)


def newest_events(store: MemoryStore, wanted: EventFilter, *, upto: Position, limit: int) -> EventsFound:
    """Return the last events up to a position that match, of at most `LOOKED_MAX`.

    Raises `UnknownSession`, and `OutsideScope` for a scope outside of that of the store.
    """
    if wanted.session:
        visible_of(store).state(wanted.session)
    is_whole = not boundary_of(store).scopes
    # The log itself finds the events of a session or a kind; those of a kind only for who may see all of them.
    is_found = bool(wanted.session or (wanted.topic and is_whole))
    within = session_list_of(store).sessions(scope=wanted.scope) if wanted.scope else None
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
    rows = events_of(store).stored_events(after=begin, upto=end, prefix=stream, topics=topics, limit=end - begin)
    for position, name in reversed([(row[0], row[1]) for row in rows]):
        if (not stream or name == stream) and (inside is None or session_of(name) in inside):
            yield from store.audit.timeline(after=position - 1, upto=position)
