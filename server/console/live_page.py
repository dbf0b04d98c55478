"""The live tail: the newest events, and with a script those recorded from now on (`/v1/tail`)."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.server.console.event_search import EventFilter, EventLine, newest_events
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.console.rendering import url
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

EVENTS_MAX: Final = 100
TAIL: Final = "/v1/tail"


class Live(Result, frozen=True, kw_only=True):
    """The newest events that match the filters, newest first."""

    events: tuple[EventLine, ...]
    looked_from: Position
    """Events up to this position were not looked through."""
    complete: bool
    """Whether enough events were found, or there are no more."""
    filter: EventFilter
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
            filter=wanted,
            tail=url(TAIL, followed) if at.is_now else "",
        )

    return await read(caller.store, look)
