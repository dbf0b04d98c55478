"""The turns that a ranking looks at: what the legs offer, and what stands around them in their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.database import fetch, listed
from mnemolog.projections.queries import Filters, conditions, one_of
from mnemolog.projections.views import TURNS

BEFORE: Final = 2
AFTER: Final = 3
"""Turns around one that a leg offers: what was asked before it, what was answered behind it."""


class Row(NamedTuple):
    """A turn as the ranking sees it."""

    place: int
    """Turns that follow one another in a session have places that do."""
    position: Position
    speaker: str | None
    at: int
    """When it was said, else recorded: microseconds since 1970."""
    asks: int
    """1 where it ends with a question mark."""
    stems: str
    """Between spaces, one before the first and one behind the last."""


def rows_around(
    connection: sa.Connection, offered: Iterable[Position], *, filters: Filters, upto: Position
) -> list[Row]:
    """Return what is around these turns, and they themselves, by place.

    No turn that `filters` leave out, and none behind `upto`.
    """
    places = fetch(connection, _SELECT_PLACES, listed(sorted(offered)))
    near = {place + n for (place,) in places for n in range(-BEFORE, AFTER + 1)}
    rows = [Row(*row) for row in fetch(connection, _SELECT_ROWS, listed(sorted(near))) if row[1] <= upto]
    if filters.leave_everything:
        return rows
    positions = [row.position for row in rows]
    query = sa.select(TURNS.c.position).where(TURNS.c.position.in_(one_of(positions)), *conditions(filters))
    left = set(connection.execute(query).scalars())
    return [row for row in rows if row.position in left]


_SELECT_PLACES: Final = "SELECT place FROM words WHERE position IN (SELECT value FROM json_each(?))"
_SELECT_ROWS: Final = (
    "SELECT place, position, speaker, at, asks, stems FROM words "
    "WHERE place IN (SELECT value FROM json_each(?)) ORDER BY place"
)
