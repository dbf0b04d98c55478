"""Rows for the ranking: the offered turns and their neighbours in their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import TURNS, stems_row
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import Filters, conditions, one_of

BEFORE: Final = 2
AFTER: Final = 3
"""Number of neighbours of an offered turn to read: questions before it, answers after it."""


class Row(NamedTuple):
    """A turn as the ranking sees it."""

    place: int
    """The place of the turn. Consecutive turns of a session have consecutive places."""
    position: Position
    speaker: str | None
    at: int
    """When it was said, or else recorded, in microseconds since 1970."""
    asks: int
    """1 if it ends with a question mark."""
    stems: str
    """Its stems, separated by spaces, with a leading and a trailing space."""


def rows_around(
    connection: sa.Connection,
    offered: Iterable[Position],
    *,
    before: int,
    after: int,
    filters: Filters,
    upto: Position,
) -> list[Row]:
    """Return these turns and so many neighbours before and after each, ordered by place.

    Excludes turns that `filters` exclude, and turns after `upto`.
    """
    near = {row[0]: row for row in fetch(connection, _SELECT_AROUND, listed(sorted(offered)), before, after)}
    rows = [Row._make(near[place]) for place in sorted(near) if near[place][1] <= upto]
    if filters.leave_everything:
        return rows
    positions = [row.position for row in rows]
    query = sa.select(TURNS.c.position).where(TURNS.c.position.in_(one_of(positions)), *conditions(filters))
    left = set(connection.execute(query).scalars())
    return [row for row in rows if row.position in left]


def in_language(connection: sa.Connection, rows: Iterable[Row], language: str) -> list[Row]:
    """Return rows with the stems of another language than that of the text index."""
    rows = list(rows)
    texts = queries.turns_at(connection, [row.position for row in rows])
    return [row._replace(stems=stems_row(texts[row.position].text, language)) for row in rows]


_SELECT_AROUND: Final = (
    "SELECT near.place, near.position, near.speaker, near.at, near.asks, near.stems FROM json_each(?) AS offered "
    "CROSS JOIN words AS one ON one.position = offered.value "
    "CROSS JOIN words AS near ON near.place BETWEEN one.place - ? AND one.place + ?"
)
"""Returns a row once for each turn that it is a neighbour of. `CROSS JOIN` makes SQLite join in the order written."""
