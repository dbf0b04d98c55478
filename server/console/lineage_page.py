"""The lineage of sessions: which was branched from which and why, what was taken back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read, session_list_of
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.read_models import SessionSummary
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import limited, page
from mnemolog.server.console.parameters import position, text
from mnemolog.server.console.session_marks import Mark, marks_of
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

SESSIONS_MAX: Final = 100
"""Sessions of a page."""


class LineageRow(Result, frozen=True, kw_only=True):
    """A session in the tree."""

    summary: SessionSummary
    depth: int
    """How many sessions of the tree it descends from."""
    marks: tuple[Mark, ...]


class Lineage(Result, frozen=True, kw_only=True):
    """Families of sessions."""

    session: str
    """The session whose family is shown; empty for the newest families."""
    rows: tuple[LineageRow, ...]
    """A parent comes before its children, and each family together."""
    older: Position | None
    """Pass it as `before` for older families; None if there are none."""


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
