"""What changed between two moments: turns, values, tasks, notes, switches and models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.console import parameters
from mnemolog.adapters.console.event_words import kind_of
from mnemolog.adapters.console.moment import AsOf
from mnemolog.adapters.console.page import page
from mnemolog.adapters.http.access import Caller
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.audit.results import Diff, SessionDiff
from mnemolog.domain.display import counted
from mnemolog.domain.embedding_model import Activation
from mnemolog.domain.moments import When
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.scope import ROOT, Scope, covers, parse_scope
from mnemolog.projections.read_models import Switch

PER_PAGE: Final = 100
"""Sessions on a page, and the most turns that are listed."""
USUAL_EVENTS: Final = 100
"""How many events are compared if the URL does not say since when."""


class DiffAsked(Result, frozen=True, kw_only=True):
    """Which two moments the page compares. JSON names them `from` and `to`, as the URL does."""

    from_: When | None = None
    """None: `USUAL_EVENTS` events before the other."""
    to: When | None = None
    """None: the moment that the page shows."""
    page: int = 1

    @classmethod
    def of(cls, asked: parameters.Asked) -> DiffAsked:
        """Return what a URL asks for. Raises `InvalidInput`."""
        return cls(
            from_=parameters.when(asked, "from"),
            to=parameters.when(asked, "to"),
            page=parameters.whole(asked, "page", 1, least=1, most=1_000_000),
        )


class KindCount(Result, frozen=True, kw_only=True):
    """How many events of one kind lie between the moments."""

    topic: str
    says: str
    events: int


class DiffPage(Result, frozen=True, kw_only=True):
    """The difference of two moments."""

    before: Position
    before_at: datetime
    after: Position
    after_at: datetime
    swapped: bool
    """Whether the later moment was given first: the page shows them in order of time."""
    says: tuple[str, ...]
    """The difference in words."""
    kinds: tuple[KindCount, ...]
    sessions: tuple[SessionDiff, ...]
    """Those of this page."""
    page: int
    pages: int
    sessions_in_all: int
    switches: tuple[Switch, ...]
    activations: tuple[Activation, ...]
    turns_left_out: int
    """Turns that were said in between, and are counted but not listed."""


@page("/diff", title="What changed", template="diff.html")
async def diff(request: Request, caller: Caller, at: AsOf) -> DiffPage:
    """Show what changed between two moments."""
    asked = request.query_params
    scope = parse_scope(parameters.text(asked, "scope"))
    return await diff_page(caller.store, DiffAsked.of(asked), at=at.position, scope=scope)


async def diff_page(store: AsyncMemoryStore, asked: DiffAsked, *, at: Position, scope: Scope = ROOT) -> DiffPage:
    """Compare two moments, by default the last `USUAL_EVENTS` events up to `at`.

    With `scope`, only the sessions at or below it are listed. Raises `InvalidInput` for a position that is not in the
    log.
    """
    later = at if asked.to is None else await _position(store, asked.to)
    earlier = Position(max(later - USUAL_EVENTS, 0)) if asked.from_ is None else await _position(store, asked.from_)
    first, last = sorted((earlier, later))
    found = await store.audit.diff(first, last, turns_max=PER_PAGE)
    sessions = tuple(session for session in found.sessions if covers(scope, parse_scope(session.scope)))
    pages = max(1, -(-len(sessions) // PER_PAGE))
    number = min(asked.page, pages)
    return DiffPage(
        before=found.before.position,
        before_at=found.before_at,
        after=found.after.position,
        after_at=found.after_at,
        swapped=earlier > later,
        says=tuple(_summary(found)),
        kinds=tuple(
            KindCount(topic=topic, says=kind_of(topic), events=events)
            for topic, events in sorted(found.topics.items(), key=lambda item: -item[1])
        ),
        sessions=sessions[(number - 1) * PER_PAGE : number * PER_PAGE],
        page=number,
        pages=pages,
        sessions_in_all=len(sessions),
        switches=found.switches[:PER_PAGE],
        activations=found.activations,
        turns_left_out=found.turns_left_out,
    )


async def _position(store: AsyncMemoryStore, when: When) -> Position:
    return Position(when) if isinstance(when, int) else await store.position_at(when)


def _summary(found: Diff) -> Iterator[str]:
    events = sum(found.topics.values())
    if not events:
        yield "Nothing happened between these two moments: the agent knew the same at both."
        return
    yield f"{counted(events, 'event')} in {counted(len(found.sessions), 'session')} lie between the two moments."
    turns = sum(session.turns_recorded for session in found.sessions)
    started = sum(session.started for session in found.sessions)
    values = sum(len(session.values) for session in found.sessions)
    hidden = sum(len(session.hidden) for session in found.sessions)
    if started:
        yield f"{counted(started, 'session was', 'sessions were')} started."
    if turns:
        yield f"{counted(turns, 'turn was', 'turns were')} said."
    if values:
        yield f"{counted(values, 'value is', 'values are')} not what they were."
    if hidden:
        yield f"{counted(hidden, 'turn is', 'turns are')} hidden now."
    if found.activations:
        yield f"Recalls by meaning use another model since: {found.activations[-1].model}."
