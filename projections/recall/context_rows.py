"""The turns that a ranking looks at: what the legs offer, and what stands around them in their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.sql.conversation_views import TURNS
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import Filters, conditions, one_of

BEFORE: Final = 2
AFTER: Final = 3
"""Turns around one that a leg offers: questions before it, answers after it."""


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
    """Between spaces, one before the first and one after the last."""


def rows_around(
    connection: sa.Connection, offered: Iterable[Position], *, filters: Filters, upto: Position
) -> list[Row]:
    """Return what is around these turns, and they themselves, by place.

    Excludes turns that `filters` exclude, and turns after `upto`.
    """
    near = {row[0]: row for row in fetch(connection, _SELECT_AROUND, listed(sorted(offered)))}
    rows = [Row._make(near[place]) for place in sorted(near) if near[place][1] <= upto]
    if filters.leave_everything:
        return rows
    positions = [row.position for row in rows]
    query = sa.select(TURNS.c.position).where(TURNS.c.position.in_(one_of(positions)), *conditions(filters))
    left = set(connection.execute(query).scalars())
    return [row for row in rows if row.position in left]


_SELECT_AROUND: Final = (
    "SELECT near.place, near.position, near.speaker, near.at, near.asks, near.stems FROM json_each(?) AS offered "
    "CROSS JOIN words AS one ON one.position = offered.value "
    f"CROSS JOIN words AS near ON near.place BETWEEN one.place - {BEFORE} AND one.place + {AFTER}"
)
"""A row once for every turn that it is around. SQLite joins in the order written (`CROSS JOIN`)."""
