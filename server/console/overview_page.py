"""The first page: what this memory holds, how it grew, and whether it is well."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read, session_list_of
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.errors import OutsideScope
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.sql.session_pages import Group
from mnemolog.results import Model
from mnemolog.server.console.event_search import EventFilter, EventLine, newest_events
from mnemolog.server.console.health_page import Part, parts_of
from mnemolog.server.console.moment import AsOf, time_bar
from mnemolog.server.console.page import page
from mnemolog.server.console.parameters import text
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

GROUPS_MAX: Final = 12
"""Scopes, and agents, that are listed: those with the most turns."""
LATEST_MAX: Final = 10


class Growth(Result, frozen=True, kw_only=True):
    """How much there was at a time."""

    at: datetime
    events: int
    """Events of the log; for a caller who sees only a part of the store, the turns of that."""


class HealthSummary(Result, frozen=True, kw_only=True):
    """The health of the whole store, now."""

    warnings: tuple[str, ...]
    stale: tuple[Part, ...]
    """What cannot be used as it is, with what mends it."""
    behind: tuple[Part, ...]
    """What has not read the newest events yet."""
    models: tuple[Model, ...]


class Overview(Result, frozen=True, kw_only=True):
    """What the store held at a moment."""

    position: Position
    head: Position
    digest: str
    """The log's digest at its head."""
    sessions: int
    turns: int
    scopes: tuple[Group, ...]
    scopes_left_out: int
    agents: tuple[Group, ...]
    agents_left_out: int
    growth: tuple[Growth, ...]
    latest: tuple[EventLine, ...]
    """Newest first."""
    health: HealthSummary | None
    """None for a caller who sees only a part of the store."""

    @property
    def growth_of(self) -> str:
        """What the growth counts."""
        return "Turns" if self.health is None else "Events"

    @property
    def chart(self) -> dict[str, Any]:
        """The growth as the script draws it."""
        return {
            "x": [item.at.timestamp() for item in self.growth],
            "series": [{"label": self.growth_of, "values": [item.events for item in self.growth]}],
        }


@page("/", title="Overview", template="overview.html")
async def overview(request: Request, caller: Caller, at: AsOf) -> Overview:
    """Show what the store held at a moment, in numbers and in words."""
    scope, health = text(request.query_params, "scope"), await _health(caller.store)

    def found(store: MemoryStore) -> Overview:
        pages = session_list_of(store)
        scopes = pages.groups("scope", scope=scope, as_of=at.position)
        agents = pages.groups("agent", scope=scope, as_of=at.position)
        bar = time_bar(store, at)
        growth = [] if bar is None else bar.growth
        return Overview(
            position=at.position,
            head=at.head,
            digest=store.head().digest,
            sessions=sum(item.sessions for item in scopes),
            turns=sum(item.turns for item in scopes),
            scopes=_largest(scopes),
            scopes_left_out=max(len(scopes) - GROUPS_MAX, 0),
            agents=_largest(agents),
            agents_left_out=max(len(agents) - GROUPS_MAX, 0),
            growth=tuple(Growth(at=time, events=events) for time, events in growth),
            latest=newest_events(store, EventFilter(), upto=at.position, limit=LATEST_MAX).lines,
            health=health,
        )

    return await read(caller.store, found)


def _largest(groups: Sequence[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda item: (-item.turns, item.name))[:GROUPS_MAX])


async def _health(store: AsyncMemoryStore) -> HealthSummary | None:
    try:
        status, models = await store.status(), await store.models.list()
    except OutsideScope:
        return None
    parts = tuple(parts_of(status))
    return HealthSummary(
        warnings=status.warnings,
        stale=tuple(part for part in parts if not part.good),
        behind=tuple(part for part in parts if part.good and part.behind_events),
        models=tuple(models),
    )
