"""What changed between two moments: turns, values, tasks, notes, facts, switches and models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read
from mnemolog.audit.results import Diff, SessionDiff
from mnemolog.domain.choices import Activation
from mnemolog.domain.display import counted
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.read_models import FactChange, Switch
from mnemolog.server.console.moment import AsOf, as_of
from mnemolog.server.console.page import ListPage, Refused, limited, page
from mnemolog.server.console.parameters import position, text
from mnemolog.server.console.rendering import in_words
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
"""Sessions on a page, and the most turns that are listed."""
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


@page("/diff", title="What changed", template="diff.html")
async def diff(request: Request, caller: Caller, at: AsOf) -> DiffPage:
    """Show what changed between two moments: by default the last `USUAL_EVENTS` events up to the moment of the page."""
    query = request.query_params
    start, end = text(query, "from"), text(query, "to")
    before, skipped = position(query, "before"), position(query, "after") or ORIGIN
    if before is not None:
        skipped = Position(max(before - 1 - PER_PAGE, 0))

    def ends(store: MemoryStore) -> tuple[AsOf, AsOf]:
        later = as_of(store, end, name="to") if end else at
        usual = str(max(later.position - USUAL_EVENTS, 0))
        return as_of(store, start or usual, name="from"), later

    moments = await read(caller.store, ends)
    first, last = sorted(moments, key=lambda moment: moment.position)
    is_swapped = first is not moments[0]
    return await read(
        limited(caller, request), lambda store: compare(store, first, last, skipped=skipped, swapped=is_swapped)
    )


def compare(store: MemoryStore, first: AsOf, last: AsOf, *, skipped: Position, swapped: bool) -> DiffPage:
    """Return a page of what changed between two moments, without the first `skipped` sessions. Raises `Refused`."""
    before, after = first.position, last.position
    if after - before > FAR_EVENTS:
        what = f"{after - before:,} events lie between them; a page compares up to {FAR_EVENTS:,}."
        raise Refused(400, "These moments are too far apart", what, "Choose closer ones, or use `mnemolog diff`.")
    found = store.audit.diff(before, after, turns_max=PER_PAGE)
    end = Position(skipped + PER_PAGE)
    return DiffPage(
        before=before,
        before_at=first.time or first.recorded_at,
        after=after,
        after_at=last.time or last.recorded_at,
        swapped=swapped,
        says=tuple(_summary(found)),
        kinds=in_words(found.topics),
        sessions=found.sessions[skipped:end],
        earlier=Position(skipped + 1) if skipped else None,
        later=end if end < len(found.sessions) else None,
        sessions_in_all=len(found.sessions),
        facts=found.facts[:PER_PAGE],
        switches=found.switches[:PER_PAGE],
        activations=found.activations,
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
