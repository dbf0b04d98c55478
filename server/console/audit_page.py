"""The audit: the chain of digests and its witnesses, verification, who did what, and one event as it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import boundary_of, events_of, read
from mnemolog.audit.results import StoredEvent
from mnemolog.domain.events import ContextServed, FactAsserted, RecallJudged, RecallServed, TurnRecorded
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.head import Head
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.operations.backup_files import noted_witnesses
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.history.verify import witnesses_of
from mnemolog.server.console.jobs import jobs_of
from mnemolog.server.console.live_page import EventFilter, EventLine, newest_events
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import ListPage, action, page
from mnemolog.server.console.parameters import position, position_in_path, text
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
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


@page("/audit", title="Audit", template="audit.html")
async def audit(request: Request, caller: Caller, at: AsOf) -> AuditPage:
    """Show the chain, its witnesses, and the timeline up to the moment, newest first."""
    wanted, before = EventFilter.of(request.query_params), position(request.query_params, "before")

    def look(store: MemoryStore) -> AuditPage:
        last = at.position if before is None else Position(min(max(before - 1, ORIGIN), at.position))
        found = newest_events(store, wanted, upto=last, limit=PER_PAGE)
        whole = not boundary_of(store).scopes
        return AuditPage(
            head=events_of(store).head_at(at.position) if whole else None,
            log_id=events_of(store).log_id if whole else "",
            witnesses=tuple(islice(_witnesses(store), WITNESSES_MAX)) if whole else (),
            events=found.lines,
            earlier=Position(found.after + 1) if found.after else None,
            looked_from=found.after,
            looked_to=last,
            actors=dict(sorted(found.actors.items())),
        )

    return await read(caller.store, look)


def _witnesses(store: MemoryStore) -> Iterator[ShownWitness]:
    log = events_of(store)
    for witness in (*noted_witnesses(store.path, log.log_id), *witnesses_of(store.path, log)):
        agrees = log.digest_at(witness.head.position) == witness.head.digest_bytes
        yield ShownWitness(name=witness.name, position=witness.head.position, agrees=agrees)


@action("/audit/verify", title="Verify", verb="read", needs_write=False, whole=True)
async def verify(request: Request, caller: Caller, form: QueryParams) -> Response:
    """Check every digest, version and witness, in the background. Changes nothing."""
    expected, contents = text(form, "expect_head") or None, bool(text(form, "contents"))
    work = partial(caller.store.verify, expect_head=expected, contents=contents)
    return await jobs_of(request).start(request, caller, "Verifying the history", work, back="/audit")


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
    found = await caller.store.audit.event(position_in_path(request))
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
        head=at.head,
        what=describe(event) if event is not None else "",
        session=session_of(found.stream),
        actor=getattr(event, "actor", ""),
        is_turn=isinstance(event, TurnRecorded),
        receipt=receipt,
        turns=tuple(map(Position, turns)),
        fact=(facts_scope(found.stream) or "", event.key) if isinstance(event, FactAsserted) else None,
    )
