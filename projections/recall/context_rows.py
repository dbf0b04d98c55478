"""Rows for the ranking: the offered turns and their neighbours in their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import TURNS, stems_rows
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import Filters, conditions, one_of


class Window(NamedTuple):
    """How many neighbours of each offered turn a ranking reads, and which of them may be hits."""

    before: int
    after: int
    hits_around: int | None
    """How far from an offered turn a hit may be; None if every row may be a hit and the filters exclude neighbours."""


class Row(NamedTuple):
    """A turn as the ranking sees it."""

    place: int
    """The place of the turn. Consecutive turns of a session have consecutive places."""
    position: Position
    role: str
    speaker: str | None
    at: int
    """When it was said, or else recorded, in microseconds since 1970."""
    asks: int
    """1 if it ends with a question mark."""
    stems: str
    """Its stems, separated by spaces, with a leading and a trailing space."""
    may_be_hit: bool = True
    """Whether it may be a hit. Else it is only read to score its neighbours."""


def rows_around(
    connection: sa.Connection,
    offered: Iterable[Position],
    *,
    window: Window,
    filters: Filters,
    upto: Position,
) -> list[Row]:
    """Return these turns and their neighbours, ordered by place, without turns after `upto`.

    A neighbour that `filters` exclude is no hit, but its words count, unless it lies outside of `filters.spans`: what a
    rewind hides is not read.
    """
    chosen = sorted(offered)
    near = {row[0]: row for row in fetch(connection, _SELECT_AROUND, listed(chosen), window.before, window.after)}
    rows = [Row(*near[place]) for place in sorted(near) if near[place][1] <= upto]
    if window.hits_around is None:
        return _left(connection, rows, filters)
    if filters.spans is not None:
        rows = _left(connection, rows, Filters(spans=filters.spans))
    of_legs = frozenset(chosen)
    hits = {
        row.place + away
        for row in rows
        if row.position in of_legs
        for away in range(-window.hits_around, window.hits_around + 1)
    }
    allowed = {row.place for row in _left(connection, [row for row in rows if row.place in hits], filters)}
    return [row if row.place in allowed else row._replace(may_be_hit=False) for row in rows]


def _left(connection: sa.Connection, rows: list[Row], filters: Filters) -> list[Row]:
    """Return the rows that `filters` leave."""
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
    stems = stems_rows([texts[row.position].text for row in rows], language)
    return [row._replace(stems=words) for row, words in zip(rows, stems, strict=True)]


_SELECT_AROUND: Final = (
    "SELECT near.place, near.position, near.role, near.speaker, coalesce(near.said_at, near.recorded_at), near.asks, "
    "near.stems FROM json_each(?) AS offered CROSS JOIN turns AS one ON one.position = offered.value "
    "CROSS JOIN turns AS near ON near.place BETWEEN one.place - ? AND one.place + ?"
)
"""Returns a row once for each turn that it is a neighbour of. `CROSS JOIN` makes SQLite join in the order written."""
