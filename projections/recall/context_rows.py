"""Rows for the ranking: the offered turns and their neighbours in their sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.session import Span
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import TURNS
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import in_spans
from mnemolog.projections.sql.words import stems_of_each

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.sql.position_mask import PositionMask


NEAR_PLACES: Final = 2
"""How far away the turns are that count for the score of a turn."""
HITS_AROUND: Final = 1
"""How far from a turn that a leg offers a hit may be."""
AROUND: Final = HITS_AROUND + NEAR_PLACES
"""How many neighbours of an offered turn are read, before it and after it."""


class Rows(NamedTuple):
    """Turns as the ranking sees them, in columns of one length, ordered by place."""

    places: Sequence[int] = ()
    """The places of the turns. Consecutive turns of a session have consecutive places."""
    positions: Sequence[Position] = ()
    roles: Sequence[str] = ()
    speakers: Sequence[str | None] = ()
    said: Sequence[Micros] = ()
    """When they were said, or else recorded."""
    ask: Sequence[int] = ()
    """1 where a turn ends with a question mark."""
    stems: Sequence[str] = ()
    """Their stems, separated by spaces, with a leading and a trailing space."""
    may_be_hits: Sequence[bool] = ()
    """Whether a turn may be a hit. Else it is only read to score its neighbours."""

    def without(self, positions: Set[Position]) -> Rows:
        """Return the rows without the turns at these positions."""
        kept = [position not in positions for position in self.positions]
        columns: Sequence[Any] = [list(compress(column, kept)) for column in self]
        return Rows(*columns)


def rows_around(
    connection: sa.Connection,
    offered: Sequence[Position],
    *,
    spans: Sequence[Span] | None,
    allowed: PositionMask | None,
    upto: Position,
) -> Rows:
    """Return these turns and their neighbours, without turns after `upto`.

    A neighbour that the filters exclude is no hit, but its words count, unless it lies outside of `spans`: what a
    rewind hides is not read. `allowed` are the turns that the filters leave; None for all.
    """
    of_legs = [row[0] for row in fetch(connection, _SELECT_PLACES, listed(offered))]
    ((near,),) = fetch(connection, _SELECT_NEAR, listed(_runs(of_legs)), upto)
    rows = Rows(*_COLUMNS.decode(near))
    hits = {place + away for place in of_legs for away in range(-HITS_AROUND, HITS_AROUND + 1)}
    rows = rows._replace(may_be_hits=[place in hits for place in rows.places])
    if allowed is not None:
        left = allowed.among(list(compress(rows.positions, rows.may_be_hits)))
        rows = rows._replace(may_be_hits=[position in left for position in rows.positions])
    return rows if spans is None else _in_spans(connection, rows, spans)


def _runs(places: Iterable[int]) -> list[list[int]]:
    """Return the first and the last place of each run of places that turns at `places` or their neighbours have."""
    runs: list[list[int]] = []
    for place in sorted(places):
        if runs and place - AROUND <= runs[-1][1] + 1:
            runs[-1][1] = place + AROUND
        else:
            runs.append([place - AROUND, place + AROUND])
    return runs


def _in_spans(connection: sa.Connection, rows: Rows, spans: Sequence[Span]) -> Rows:
    """Return the rows whose turns are in any of `spans`."""
    query = sa.select(TURNS.c.position).where(
        TURNS.c.position.in_(queries.one_of(sorted(rows.positions))), in_spans(spans)
    )
    left = set(connection.execute(query).scalars())
    return rows.without(set(rows.positions) - left)


def in_language(connection: sa.Connection, rows: Rows, language: str) -> Rows:
    """Return rows with the stems of another language than that of the text index."""
    texts = queries.turns_at(connection, rows.positions)
    return rows._replace(stems=stems_of_each([texts[position].text for position in rows.positions], language))


_SELECT_PLACES: Final = "SELECT place FROM turns WHERE position IN (SELECT value FROM json_each(?))"
_NEAR: Final = ("place", "position", "role", "speaker", "coalesce(said_at, recorded_at)", "asks", "stems")
_SELECT_NEAR: Final = (
    f"SELECT json_array({', '.join(f'json_group_array({column})' for column in _NEAR)}) FROM json_each(?) AS run "
    "CROSS JOIN turns ON place BETWEEN run.value ->> 0 AND run.value ->> 1 WHERE +position <= ?"
)
"""`CROSS JOIN` makes SQLite read the runs in the order written, and `+` keeps it from the index of positions.

JSON is read in a third of the time of as many rows."""
_COLUMNS: Final = msgspec.json.Decoder(list[list[Any]])
