"""One event of the log as it is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request

from mnemolog.audit.results import StoredEvent
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.projections.history.event_descriptions import describe
from mnemolog.server.console import parameters
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.http.access import Caller


class EventView(Result, frozen=True, kw_only=True):
    """An event, its place in the log, and the proof that it is unchanged."""

    position: Position
    head: Position
    what: str
    """What happened, in words."""
    at: datetime | None
    topic: str
    stream: str
    session: str | None
    version: int
    actor: str
    """Who appended it; empty if nobody was named."""
    key: str | None
    stored_bytes: int
    digest: str
    previous_digest: str | None
    link_holds: bool
    """Whether the digest is that of the stored bytes and the digest before it."""
    event: Any
    """The fields of the event; None if it cannot be read."""
    unreadable: str | None


@page("/event/{position}", title="Event", template="event.html")
async def event(request: Request, caller: Caller, at: AsOf) -> EventView:
    """Show the event at a position."""
    found = await caller.store.audit.event(parameters.position_in_path(request))
    return view_of(found, head=at.head)


def view_of(found: StoredEvent, *, head: Position) -> EventView:
    """Return an event as the page shows it."""
    return EventView(
        position=found.position,
        head=head,
        what=describe(found.event) if found.event is not None else "",
        at=found.at,
        topic=found.topic,
        stream=found.stream,
        session=session_of(found.stream),
        version=found.version,
        actor=getattr(found.event, "actor", ""),
        key=found.key,
        stored_bytes=len(found.state),
        digest=found.digest,
        previous_digest=found.previous_digest,
        link_holds=found.link_holds,
        event=None if found.event is None else msgspec.to_builtins(found.event, enc_hook=repr),
        unreadable=found.unreadable,
    )
