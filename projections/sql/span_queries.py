"""Select turns in spans of sessions: as a condition, and as pages of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.state import Span
from mnemolog.projections.sql.conversation_views import SESSIONS, TURNS
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.turn_places import PLACES, places_of

SPANS_INLINE_MAX: Final = 16
"""Maximum number of spans written into the statement; more are passed as one JSON list.

Written out, they are checked only for turns that match a text search, which helps in a session with 100,000 turns.
The list is evaluated as a whole, but it can hold thousands of spans; SQLite limits the depth of expressions to 1,000.
"""

_POSITION_AT: Final = (
    f"coalesce((SELECT position FROM turns WHERE place BETWEEN first + (low + high) / 2 AND first + high - 1 "
    f"ORDER BY place LIMIT 1), {INTEGER_MAX})"
)
_BISECT: Final = (
    "{name}(low, high) AS (SELECT 0, turns FROM of UNION ALL "
    f"SELECT iif({_POSITION_AT} <= {{limit}}, (low + high) / 2 + 1, low), "
    f"iif({_POSITION_AT} <= {{limit}}, high, (low + high) / 2) FROM {{name}}, of WHERE low < high)"
)
_POSITIONS: Final = (
    f"WITH RECURSIVE of(first, turns) AS (SELECT started_position * {PLACES}, turns FROM sessions WHERE session = ?1), "
    f"{_BISECT.format(name='begin', limit='?2')}, {_BISECT.format(name='stop', limit='?3')} "
    "SELECT position FROM turns WHERE place >= (SELECT first + low FROM begin, of WHERE low = high) "
    "AND place < (SELECT first + low FROM stop, of WHERE low = high) ORDER BY place {order} LIMIT ?4"
)
"""The turns of a session in a range of positions. Positions increase with places, so both ends are found by bisection:
a page costs the same in a session of any length."""
_COUNT: Final = (
    f"WITH RECURSIVE of(first, turns) AS (SELECT started_position * {PLACES}, turns FROM sessions WHERE session = ?1), "
    f"{_BISECT.format(name='stop', limit='?2')} SELECT low, first, (SELECT forgotten FROM sessions WHERE session = ?1) "
    "FROM stop, of WHERE low = high"
)
_PRESENT: Final = "SELECT count(*) FROM turns WHERE place >= ? AND place < ?"
_RISING: Final = _POSITIONS.replace("{order}", "ASC")
_FALLING: Final = _POSITIONS.replace("{order}", "DESC")


class _Range(NamedTuple):
    session: str
    after: int
    upto: int


def in_spans(spans: Sequence[Span]) -> sa.ColumnElement[bool]:
    """Return the condition that a turn lies in one of `spans`, which may overlap. Without spans it is false."""
    if not spans:
        return sa.false()
    if len(spans) > SPANS_INLINE_MAX:
        return TURNS.c.position.in_(one_by_one(spans))
    return sa.or_(
        *(
            sa.and_(
                in_session(span.session),
                TURNS.c.position + 0 > span.after,  # Plus 0: SQLite is to read the session, not the index of positions.
                TURNS.c.position + 0 <= _end(span),
            )
            for span in spans
        )
    )


def in_session(session: str) -> sa.ColumnElement[bool]:
    """Return the condition that a turn is of a session."""
    start = sa.select(SESSIONS.c.started_position).where(SESSIONS.c.session == session).scalar_subquery()
    return TURNS.c.place.between(*places_of(start))


def one_by_one(spans: Sequence[Span]) -> sa.Select[tuple[int]]:
    """Return the positions of the turns in `spans` as a subquery that reads each span's session."""
    rows = listed([(span.session, span.after, _end(span)) for span in spans])
    each = sa.func.json_each(rows).table_valued("value", name="span")
    part = TURNS.alias("part")
    session, after, upto = (sa.func.json_extract(each.c.value, f"$[{n}]") for n in range(3))
    found = sa.select(part.c.position).select_from(each).join(SESSIONS, SESSIONS.c.session == session)
    lies_in = sa.and_(
        part.c.place.between(*places_of(SESSIONS.c.started_position)),
        part.c.position + 0 > after,
        part.c.position + 0 <= upto,
    )
    return found.join(part, lies_in)


def positions_in(
    connection: sa.Connection,
    spans: Sequence[Span],
    *,
    after: Position = ORIGIN,
    before: Position | None = None,
    newest_first: bool = False,
    limit: int,
) -> list[Position]:
    """Return up to `limit` positions of turns in any of `spans`, after `after` and before `before`.

    The oldest ones, ascending; with `newest_first` the newest ones, descending. Spans beyond a full page
    are not read, so the cost depends on the page and not on the length of the history.
    """
    if limit < 1:
        return []
    found: list[int] = []
    statement = _FALLING if newest_first else _RISING
    for part in _ranges(spans, after=after, before=before, newest_first=newest_first):
        if len(found) >= limit:
            found = sorted(set(found), reverse=newest_first)[:limit]
            if len(found) == limit and (part.upto <= found[-1] if newest_first else part.after >= found[-1]):
                break
        found.extend(row[0] for row in fetch(connection, statement, *part, limit))
    return [Position(position) for position in sorted(set(found), reverse=newest_first)[:limit]]


def turns_until(connection: sa.Connection, session: str, upto: Position) -> int:
    """Return the number of a session's own turns up to a position, without forgotten ones.

    Costs the same in a session of any length, unless turns of it were forgotten: then those left are counted.
    """
    ((number, first, forgotten),) = fetch(connection, _COUNT, session, upto)
    return int(fetch(connection, _PRESENT, first, first + number)[0][0]) if forgotten else int(number)


def _ranges(spans: Sequence[Span], *, after: Position, before: Position | None, newest_first: bool) -> list[_Range]:
    """Return the spans cut to `(after, before)`, in the order in which pages are filled."""
    last = INTEGER_MAX if before is None else before - 1
    cut = [_Range(span.session, max(span.after, after), min(_end(span), last)) for span in spans]
    ranges = [part for part in cut if part.after < part.upto]
    if newest_first:
        return sorted(ranges, key=lambda part: -part.upto)
    return sorted(ranges, key=lambda part: part.after)


def _end(span: Span) -> int:
    return INTEGER_MAX if span.upto is None else span.upto
