"""The lineage of sessions: which was branched from which and why, what was taken back, where agents went."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read
from mnemolog.domain.agent import agent_stream
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import SessionSwitched
from mnemolog.domain.position import ORIGIN, Position, Version
from mnemolog.domain.result import Result
from mnemolog.projections.read_models import SessionSummary, Switch
from mnemolog.server.console.lineage_drawing import Drawing, Line, draw
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.console.parameters import position, text
from mnemolog.server.console.session_marks import Mark, marks_of
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

SESSIONS_MAX: Final = 100
"""Sessions of a page."""
SWITCHES_MAX: Final = 100
"""Switches that are listed, the last ones."""
SWITCHES_READ_MAX: Final = 5_000
"""Switches of one agent that are read to find them."""


class LineageRow(Result, frozen=True, kw_only=True):
    """A session in the tree."""

    session: str
    title: str
    agent: str
    scope: str
    reason: str
    """Why it was started: `new`, `branch`, `compress` and so on."""
    parent: str | None
    branched_at: Position | None
    """The last position of the parent that it shares; None if it sees nothing of it."""
    depth: int
    turns: int
    started_at: datetime
    started_position: Position
    last_position: Position
    ended: bool
    marks: tuple[Mark, ...]


class Lineage(Result, frozen=True, kw_only=True):
    """Families of sessions, and how agents moved between them."""

    session: str
    """The session whose family is shown; empty for the newest families."""
    rows: tuple[LineageRow, ...]
    """A parent comes before its children, and each family together."""
    older: Position | None
    """Pass it as `before` for older families; None if there are none."""
    switches: tuple[Switch, ...]
    """The last ones between the sessions shown, or all of them; newest first."""

    @property
    def drawings(self) -> list[Drawing]:
        """A picture of each family."""
        families: list[list[Line]] = []
        for row in self.rows:
            if not row.depth:
                families.append([])
            families[-1].append(
                Line(
                    session=row.session,
                    label=row.title or row.session,
                    parent=row.parent,
                    branched_at=row.branched_at,
                    started=row.started_position,
                    last=row.last_position,
                    ended=row.ended,
                    marks=row.marks,
                )
            )
        return [draw(lines, self.switches) for lines in families]


@page("/lineage", title="Lineage", template="lineage.html")
async def lineage(request: Request, caller: Caller, at: AsOf) -> Lineage:
    """Show the family of one session, or the newest families that have branches."""
    session, scope, before = (
        text(request.query_params, "session"),
        text(request.query_params, "scope"),
        position(request.query_params, "before"),
    )

    def found(store: MemoryStore) -> Lineage:
        families = store.parts.session_list.families(
            session=session, scope="" if session else scope, as_of=at.position, before=before, limit=SESSIONS_MAX
        )
        rows = [_row(store, item, depth, at) for item, depth in _in_tree_order(families.sessions)]
        return Lineage(
            session=session,
            rows=tuple(rows),
            older=families.more,
            switches=tuple(_switches(store, at, of={row.session for row in rows} if session else None)),
        )

    return await read(caller.store, found)


def _row(store: MemoryStore, item: SessionSummary, depth: int, at: AsOf) -> LineageRow:
    marks = marks_of(store, item.session, upto=at.position)
    return LineageRow(
        session=item.session,
        title=item.title,
        agent=item.agent,
        scope=item.scope,
        reason=item.reason,
        parent=item.parent,
        branched_at=item.branched_at,
        depth=depth,
        turns=item.turns,
        started_at=item.started_at,
        started_position=item.started_position,
        last_position=item.last_position,
        ended=item.ended_at is not None,
        marks=marks,
    )


def _in_tree_order(sessions: Iterable[SessionSummary]) -> list[tuple[SessionSummary, int]]:
    """Return sessions with their depths: the newest family first, in it each session before its children."""
    children: dict[str, list[SessionSummary]] = {}
    known: dict[str, SessionSummary] = {}
    roots: list[SessionSummary] = []
    for item in sessions:  # A parent comes before its children.
        known[item.session] = item
        (children.setdefault(item.parent, []) if item.parent in known and item.parent else roots).append(item)
    found: list[tuple[SessionSummary, int]] = []
    left = [(root, 0) for root in roots]
    while left:
        item, depth = left.pop()
        found.append((item, depth))
        left += [(child, depth + 1) for child in reversed(children.get(item.session, []))]
    return found


def _switches(store: MemoryStore, at: AsOf, *, of: set[str] | None) -> list[Switch]:
    """Return the last switches up to a moment, those from or to sessions of `of`, or all; the newest first."""
    found: list[Switch] = []
    log = store.parts.log
    for group in store.parts.session_list.groups("agent", as_of=at.position):
        stream = agent_stream(group.name)
        after = Version(max(log.version(stream) - SWITCHES_READ_MAX, ORIGIN))
        for batch in log.read_stream(stream, after=after, upto=at.position):
            for recorded in batch:
                event = recorded.event
                if (
                    isinstance(event, SessionSwitched)
                    and (of is None or event.from_ in of or event.to in of)
                    and store.parts.sessions.shows(recorded)
                ):
                    found.append(
                        Switch(
                            position=recorded.position,
                            agent=group.name,
                            from_=event.from_,
                            to=event.to,
                            reason=event.reason,
                            at=to_datetime(recorded.recorded_at),
                        )
                    )
    return sorted(found, key=lambda item: -item.position)[:SWITCHES_MAX]
