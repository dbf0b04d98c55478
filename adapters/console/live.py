"""The live tail: the newest events, and with a script those recorded from now on (`/v1/tail`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.console.event_words import KINDS
from mnemolog.adapters.console.moment import AsOf
from mnemolog.adapters.console.overview import Happened, happened
from mnemolog.adapters.console.page import page, query
from mnemolog.adapters.console.rendering import url
from mnemolog.adapters.http.access import Caller
from mnemolog.adapters.support.store_access import read
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scope, covers, parse_scope
from mnemolog.projections.history.timeline import Moment
from mnemolog.store import MemoryStore

EVENTS_MAX: Final = 100
READ_MAX: Final = 5_000
"""Events that are read, at most, to find so many that match the filters."""
READ_AT_ONCE: Final = 1_000
TAIL: Final = "/v1/tail"


class Live(Result, frozen=True, kw_only=True):
    """The newest events that match the filters, newest first."""

    events: tuple[Happened, ...]
    read: int
    """How many events were read to find them."""
    complete: bool
    """Whether all events up to the moment were read, or enough were found."""
    scope: str
    session: str
    topic: str
    tail: str
    """Where events that are recorded from now on come from; empty for a page as of an earlier moment."""

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """The kinds of events by topic, in words."""
        return sorted(KINDS.items(), key=lambda item: item[1])


@page("/live", title="Live", template="live.html")
async def live(request: Request, caller: Caller, at: AsOf) -> Live:
    """Show the newest events up to a moment."""
    scope, session, topic = (query(request, name) for name in ("scope", "session", "topic"))
    filters = {"after": at.position, "scope": scope, "session": session, "topics": topic}

    def found(store: MemoryStore) -> Live:
        if session:
            store.parts.sessions.state(session)
        events: list[Happened] = []
        seen = 0
        for batch in _backwards(store, at.position, session):
            seen += READ_AT_ONCE
            matching = [item for item in batch if _matches(store, item, parse_scope(scope), topic)]
            events += happened(reversed(matching), limit=EVENTS_MAX - len(events))
            if len(events) == EVENTS_MAX:
                break
        seen = min(seen, at.position)
        return Live(
            events=tuple(events),
            read=seen,
            complete=len(events) == EVENTS_MAX or seen == at.position,
            scope=scope,
            session=session,
            topic=topic,
            tail=url(TAIL, filters) if at.is_now else "",
        )

    return await read(caller.store, found)


def _backwards(store: MemoryStore, end: Position, session: str) -> Iterator[list[Moment]]:
    for upto in range(end, max(end - READ_MAX, ORIGIN), -READ_AT_ONCE):
        after = max(upto - READ_AT_ONCE, ORIGIN)
        yield list(store.audit.timeline(after=after, upto=upto, session=session or None))


def _matches(store: MemoryStore, moment: Moment, scope: Scope, topic: str) -> bool:
    if topic and moment.topic != topic:
        return False
    if not scope:
        return True
    state = None if moment.session is None else store.parts.sessions.states.latest(moment.session)
    return state is not None and covers(scope, Scope(state.started.scope))
