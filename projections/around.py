"""The turns that a ranking looks at: what the legs offer, and what stands around them in their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.queries import Filters, conditions, listed
from mnemolog.projections.views import TURNS, WORDS

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


def rows_around(connection: sa.Connection, offered: Iterable[Position], *, filters: Filters) -> list[Row]:
    """Return what is around these turns, and they themselves, by place. No turn that `filters` leave out."""
    own = sa.select(WORDS.c.place).where(WORDS.c.position.in_(listed(list(offered))))
    places = {place + n for (place,) in connection.execute(own) for n in range(-BEFORE, AFTER + 1)}
    columns = (WORDS.c.place, WORDS.c.position, WORDS.c.speaker, WORDS.c.at, WORDS.c.asks, WORDS.c.stems)
    query = sa.select(*columns).where(WORDS.c.place.in_(listed(sorted(places)))).order_by(WORDS.c.place)
    if not filters.leave_everything:
        query = query.where(sa.exists().where(TURNS.c.position == WORDS.c.position, *conditions(filters)))
    return [Row(*row) for row in connection.execute(query)]
