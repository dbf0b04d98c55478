"""Questions to the views: which turns, which sessions, which of them a filter leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.position import Micros, Position, Version
from mnemolog.domain.role import Role
from mnemolog.domain.scope import ROOT, Scope
from mnemolog.domain.spans import Span, Spans
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.views import SESSIONS, TURNS

SPANS_INLINE_MAX: Final = 100
"""More pieces than these are handed over as a list: SQLite takes no more than 1,000 conditions in one OR."""

_END: Final = (1 << 63) - 1
_AFTER_SLASH = "0"  # The character behind "/": a range over it is every path below.


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What a recall may see. A field left at its default leaves everything in."""

    scope: Scope = ROOT
    session: str | None = None
    spans: tuple[Span, ...] | None = None
    """Turns of any of these."""
    roles: tuple[Role, ...] = ()
    since: Micros | None = None
    """Said at this moment or later."""
    until: Micros | None = None
    """Said before this moment."""

    @property
    def leave_everything(self) -> bool:
        """Whether no turn is filtered out."""
        return self == Filters()


def conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    """Return `filters` as conditions on the table of turns."""
    found: list[sa.ColumnElement[bool]] = []
    if filters.scope != ROOT:
        below = sa.and_(TURNS.c.scope >= filters.scope + "/", TURNS.c.scope < filters.scope + _AFTER_SLASH)
        found.append(sa.or_(TURNS.c.scope == filters.scope, below))
    if filters.session is not None:
        found.append(TURNS.c.session == filters.session)
    if filters.spans is not None:
        found.append(_in_any(filters.spans))
    if filters.roles:
        found.append(TURNS.c.role.in_([role.value for role in filters.roles]))
    said_at = sa.func.coalesce(TURNS.c.said_at, TURNS.c.recorded_at)
    if filters.since is not None:
        found.append(said_at >= filters.since)
    if filters.until is not None:
        found.append(said_at < filters.until)
    return found


def positions_left(connection: sa.Connection, filters: Filters) -> list[Position]:
    """Return the positions of the turns that `filters` leave, rising."""
    query = sa.select(TURNS.c.position).where(*conditions(filters)).order_by(TURNS.c.position)
    return [Position(row[0]) for row in connection.execute(query)]


def turns_at(connection: sa.Connection, positions: Sequence[Position]) -> dict[Position, Turn]:
    """Return the turns at `positions`, by position. Positions without a turn are left out."""
    query = sa.select(TURNS).where(TURNS.c.position.in_(positions))
    return {Position(row.position): _turn(row) for row in connection.execute(query)}


def turns_in(
    connection: sa.Connection,
    spans: Spans,
    *,
    after: Position,
    before: Position | None,
    newest_first: bool,
    limit: int,
) -> list[Turn]:
    """Return up to `limit` turns of the spans."""
    query = sa.select(TURNS).where(*conditions(Filters(spans=spans)), TURNS.c.position > after)
    if before is not None:
        query = query.where(TURNS.c.position < before)
    order = TURNS.c.position.desc() if newest_first else TURNS.c.position
    return [_turn(row) for row in connection.execute(query.order_by(order).limit(limit))]


def _in_any(spans: Spans) -> sa.ColumnElement[bool]:
    if len(spans) <= SPANS_INLINE_MAX:
        return sa.or_(sa.false(), *(_in_span(span) for span in spans))
    listed = sa.literal(msgspec.json.encode(spans).decode())
    each = sa.func.json_each(listed).table_valued("value", name="span")
    session, after, upto = (sa.func.json_extract(each.c.value, f"$[{place}]") for place in range(3))
    turns = TURNS.alias()
    inside = sa.and_(
        turns.c.session == session, turns.c.position > after, turns.c.position <= sa.func.ifnull(upto, _END)
    )
    return TURNS.c.position.in_(sa.select(turns.c.position).select_from(each).join(turns, inside))


def _in_span(span: Span) -> sa.ColumnElement[bool]:
    inside = sa.and_(TURNS.c.session == span.session, TURNS.c.position > span.after)
    return inside if span.upto is None else sa.and_(inside, TURNS.c.position <= span.upto)


def sessions(connection: sa.Connection, *, scope: Scope = ROOT) -> list[SessionSummary]:
    """Return the sessions at or below `scope`, in the order they were started."""
    query = sa.select(SESSIONS).order_by(SESSIONS.c.started_position)
    if scope != ROOT:
        below = sa.and_(SESSIONS.c.scope >= scope + "/", SESSIONS.c.scope < scope + _AFTER_SLASH)
        query = query.where(sa.or_(SESSIONS.c.scope == scope, below))
    return [_summary(row) for row in connection.execute(query)]


def sessions_called(connection: sa.Connection, id_or_name: str) -> list[SessionSummary]:
    """Return the session of that id, or else every session of that name."""
    for column in (SESSIONS.c.session, SESSIONS.c.name):
        query = sa.select(SESSIONS).where(column == id_or_name).order_by(SESSIONS.c.started_position)
        if found := [_summary(row) for row in connection.execute(query)]:
            return found
    return []


def counts(connection: sa.Connection) -> tuple[int, int]:
    """Return how many sessions and how many turns the views hold."""
    count = sa.select(sa.func.count())
    return (
        connection.execute(count.select_from(SESSIONS)).scalar_one(),
        connection.execute(count.select_from(TURNS)).scalar_one(),
    )


def _turn(row: sa.Row[Any]) -> Turn:
    extra = msgspec.msgpack.decode(row.extra) if row.extra is not None else {"tool_calls": [], "metadata": {}}
    return Turn(
        position=Position(row.position),
        session=row.session,
        scope=row.scope,
        version=Version(row.version),
        role=Role(row.role),
        text=row.text,
        speaker=row.speaker,
        key=row.key,
        said_at=to_datetime(Micros(row.recorded_at if row.said_at is None else row.said_at)),
        recorded_at=to_datetime(Micros(row.recorded_at)),
        tool_calls=extra["tool_calls"],
        metadata=extra["metadata"],
    )


def _summary(row: sa.Row[Any]) -> SessionSummary:
    return SessionSummary(
        session=row.session,
        name=row.name,
        agent=row.agent,
        scope=row.scope,
        turns=row.turns,
        started_at=to_datetime(Micros(row.started_at)),
        ended_at=None if row.ended_at is None else to_datetime(Micros(row.ended_at)),
        started_position=Position(row.started_position),
        last_position=Position(row.last_position),
    )
