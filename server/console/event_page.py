"""One event of the log as it is stored."""

from __future__ import annotations

from starlette.requests import Request

from mnemolog.audit.results import StoredEvent
from mnemolog.domain.events import ContextServed, FactAsserted, RecallJudged, RecallServed, TurnRecorded
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.projections.history.event_descriptions import describe
from mnemolog.server.console import parameters
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.http.access import Caller


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


@page("/event/{position}", title="Event", template="event.html")
async def event(request: Request, caller: Caller, at: AsOf) -> EventPage:
    """Show the event at a position."""
    found = await caller.store.audit.event(parameters.position_in_path(request))
    event, turns, receipt = found.event, list[int](), None
    match event:
        case RecallServed() | ContextServed():
            turns, receipt = event.turns if isinstance(event, ContextServed) else event.hits, found.position
        case RecallJudged():
            turns, receipt = [*event.good, *event.bad], Position(event.receipt)
        case FactAsserted():
            turns = list(event.because)
    return EventPage(
        stored=found,
        head=at.head,
        what=describe(event) if event is not None else "",
        session=session_of(found.stream),
        actor=getattr(event, "actor", ""),
        is_turn=isinstance(event, TurnRecorded),
        receipt=receipt,
        turns=tuple(map(Position, turns)),
        fact=(facts_scope(found.stream) or "", event.key) if isinstance(event, FactAsserted) else None,
    )
