"""The lineage of sessions: which was branched from which and why, what was taken back, and what else happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from starlette.requests import Request

from mnemolog.adapters.support.store_access import events_of, read, session_list_of
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointRestored,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    TurnsRewound,
)
from mnemolog.domain.position import Position, to_datetime
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_stream
from mnemolog.projections.read_models import SessionSummary
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import ListPage, limited, page
from mnemolog.server.console.parameters import position, text
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

SESSIONS_MAX: Final = 100
"""Sessions of a page."""


class Mark(Result, frozen=True, kw_only=True):
    """Something that happened to a session."""

    kind: Literal["rewind", "restore", "checkpoint", "end", "resume"]
    position: Position
    at: datetime
    to: Position | None = None
    """Of a rewind or a restore: turns after this position are hidden since."""
    detail: str = ""
    """The name of a checkpoint, the reason of an end."""


def marks_of(store: MemoryStore, session: str, *, upto: Position) -> tuple[Mark, ...]:
    """Return what happened to a session up to a position, in order. Reads its events, without the turns."""

    def add(marks: tuple[Mark, ...] | None, recorded: RecordedEvent, _: object) -> tuple[Mark, ...]:
        found = _mark(recorded)
        return (marks or ()) + ((found,) if found is not None else ())

    return events_of(store).fold(session_stream(session), add, upto=upto).state or ()


def hidden_by(marks: Sequence[Mark], position: Position) -> Mark | None:
    """Return what hid a turn first, None if nothing did."""
    return next((mark for mark in marks if mark.to is not None and mark.to < position < mark.position), None)


def _mark(recorded: RecordedEvent) -> Mark | None:
    position, at = recorded.position, to_datetime(recorded.recorded_at)
    match recorded.event:
        case TurnsRewound(to=to):
            return Mark(kind="rewind", position=position, at=at, to=Position(to))
        case CheckpointRestored(position=to):
            return Mark(kind="restore", position=position, at=at, to=Position(to))
        case CheckpointCreated(name=name):
            return Mark(kind="checkpoint", position=position, at=at, detail=name)
        case SessionEnded(reason=reason):
            return Mark(kind="end", position=position, at=at, detail=reason)
        case SessionResumed(reason=reason):
            return Mark(kind="resume", position=position, at=at, detail=reason or "")
    return None


class LineageRow(Result, frozen=True, kw_only=True):
    """A session in the tree."""

    summary: SessionSummary
    depth: int
    """How many sessions of the tree it descends from."""
    marks: tuple[Mark, ...]


class Lineage(ListPage, frozen=True, kw_only=True):
    """Families of sessions."""

    session: str
    """The session whose family is shown; empty for the newest families."""
    rows: tuple[LineageRow, ...]
    """A parent comes before its children, and each family together."""


@page("/lineage", title="Lineage", template="lineage.html")
async def lineage(request: Request, caller: Caller, at: AsOf) -> Lineage:
    """Show the family of one session, or the newest families that have branches."""
    session, before = text(request.query_params, "session"), position(request.query_params, "before")

    def found(store: MemoryStore) -> Lineage:
        families = session_list_of(store).families(
            session=session, as_of=at.position, before=before, limit=SESSIONS_MAX
        )
        rows = (
            LineageRow(summary=item, depth=depth, marks=marks_of(store, item.session, upto=at.position))
            for item, depth in _in_tree_order(families.sessions)
        )
        return Lineage(session=session, rows=tuple(rows), earlier=families.more)

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
