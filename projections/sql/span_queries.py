"""Select turns in spans of sessions: as a condition, and as pages of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.spans import Span
from mnemolog.projections.sql.conversation_views import TURNS
from mnemolog.projections.sql.database import fetch, listed

SPANS_INLINE_MAX: Final = 16
"""Maximum number of spans written into the statement; more are passed as one JSON list.

Written out, they are checked only for turns that match a text search, which helps in a session with 100,000 turns.
The list is evaluated as a whole, but it can hold thousands of spans; SQLite limits the depth of expressions to 1,000.
"""

_POSITIONS: Final = (
    "SELECT position FROM turns WHERE session = ? AND position > ? AND position <= ? ORDER BY position {order} LIMIT ?"
)
_RISING: Final = _POSITIONS.format(order="ASC")
_FALLING: Final = _POSITIONS.format(order="DESC")


class _Range(NamedTuple):
    session: str
    after: int
    upto: int


def in_spans(spans: Sequence[Span]) -> sa.ColumnElement[bool]:
    """Return the condition that a turn lies in one of `spans`, which may overlap. Without spans it is false."""
    if not spans:
        return sa.false()
    if len(spans) > SPANS_INLINE_MAX:
        return TURNS.c.position.in_(_positions(spans))
    return sa.or_(
        *(
            sa.and_(
                TURNS.c.session == span.session,
                TURNS.c.position > span.after,
                TURNS.c.position <= _end(span),
            )
            for span in spans
        )
    )


def _positions(spans: Sequence[Span]) -> sa.Select[tuple[int]]:
    rows = listed([(span.session, span.after, _end(span)) for span in spans])
    each = sa.func.json_each(rows).table_valued("value", name="span")
    part = TURNS.alias("part")
    session, after, upto = (sa.func.json_extract(each.c.value, f"$[{n}]") for n in range(3))
    lies_in = sa.and_(part.c.session == session, part.c.position > after, part.c.position <= upto)
    return sa.select(part.c.position).select_from(each).join(part, lies_in)


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
