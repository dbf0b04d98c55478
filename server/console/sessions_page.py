"""The list of sessions, in pages."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import read, session_list_of
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.read_models import SessionSummary
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.console.parameters import position, text
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

ROWS_MAX: Final = 100
"""Rows of a page."""


class SessionPage(Result, frozen=True, kw_only=True):
    """A page of the list, the session that was started last first."""

    sessions: tuple[SessionSummary, ...]
    newer: Position | None
    """Pass it as `after` for the page with newer sessions; None on the first page."""
    older: Position | None
    """Pass it as `before` for the page with older sessions; None on the last page."""


@page("/sessions", title="Sessions", template="sessions.html")
async def sessions(request: Request, caller: Caller, at: AsOf) -> SessionPage:
    """Show the sessions that had started at a moment, `ROWS_MAX` at a time."""
    before, after = position(request.query_params, "before"), position(request.query_params, "after")
    agent, title, scope = (
        text(request.query_params, "agent"),
        text(request.query_params, "title"),
        text(request.query_params, "scope"),
    )

    def found(store: MemoryStore) -> SessionPage:
        pages = session_list_of(store)
        wanted: dict[str, Any] = {"agent": agent or None, "title": title, "scope": scope, "as_of": at.position}
        rows = pages.page(**wanted, before=before, after=after, limit=ROWS_MAX + 1)
        more, rows = len(rows) > ROWS_MAX, rows[:ROWS_MAX]
        if after is not None:  # Read first to last: what is left over is newer.
            rows.reverse()
        newest, oldest = (rows[0].started_position, rows[-1].started_position) if rows else (None, None)
        has_newer = more if after is not None else before is not None
        has_older = more if after is None else bool(rows)
        return SessionPage(
            sessions=tuple(rows),
            newer=newest if has_newer else None,
            older=oldest if has_older else None,
        )

    return await read(caller.store, found)
