"""The lineage of sessions: which was branched from which and why, what was taken back, where agents went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import events_of, read, session_list_of, visible_of
from mnemolog.audit.diff import switch_of
from mnemolog.domain.agent import agent_stream
from mnemolog.domain.events import SessionSwitched
from mnemolog.domain.position import ORIGIN, Position, Version
from mnemolog.domain.result import Result
from mnemolog.projections.read_models import SessionSummary, Switch
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import limited, page
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

    summary: SessionSummary
    depth: int
    """How many sessions of the tree it descends from."""
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


@page("/lineage", title="Lineage", template="lineage.html")
async def lineage(request: Request, caller: Caller, at: AsOf) -> Lineage:
    """Show the family of one session, or the newest families that have branches."""
    session, before = text(request.query_params, "session"), position(request.query_params, "before")

    def found(store: MemoryStore) -> Lineage:
        families = session_list_of(store).families(
            session=session, as_of=at.position, before=before, limit=SESSIONS_MAX
        )
        rows = [
            LineageRow(summary=item, depth=depth, marks=marks_of(store, item.session, upto=at.position))
            for item, depth in _in_tree_order(families.sessions)
        ]
        return Lineage(
            session=session,
            rows=tuple(rows),
            older=families.more,
            switches=tuple(_switches(store, at, of={row.summary.session for row in rows} if session else None)),
        )

    return await read(caller.store if session else limited(caller, request), found)


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
    log = events_of(store)
    for group in session_list_of(store).groups("agent", as_of=at.position):
        stream = agent_stream(group.name)
        after = Version(max(log.version(stream) - SWITCHES_READ_MAX, ORIGIN))
        for batch in log.read_stream(stream, after=after, upto=at.position):
            for recorded in batch:
                event = recorded.event
                if (
                    isinstance(event, SessionSwitched)
                    and (of is None or event.from_ in of or event.to in of)
                    and visible_of(store).shows(recorded)
                ):
                    found.append(switch_of(recorded, event))
    return sorted(found, key=lambda item: -item.position)[:SWITCHES_MAX]
