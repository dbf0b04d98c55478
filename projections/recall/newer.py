"""Find what a user said later about the same thing. It is a pointer, no verdict which of the two holds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.message import Role
from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.context_rows import Rows
from mnemolog.projections.sql import queries

SIMILAR: Final = 0.4
"""The least cosine similarity of the two."""
SIMILAR_IN_PART: Final = 0.3
"""The same, where a part of a turn may be about the same thing."""
CHARACTERS_MAX: Final = 400
"""A longer turn says many things."""


def later_statement(
    rows: Rows,
    offered: Collection[Position],
    near: Callable[[Position, list[Position]], dict[Position, float]],
    connection: sa.Connection,
    position: Position,
    *,
    in_part: bool = False,
) -> Turn | None:
    """Return the most similar statement that the same user made after a turn, if it is similar enough.

    It is one of the `offered` turns, of the same speaker and scope, and no question. With `in_part`, a part of it may
    be similar: less similarity is enough, and it may end with a question. `near` returns how similar turns, ascending,
    are to another one.
    """
    n, user = rows.positions.index(position), Role.USER.value
    if rows.roles[n] != user:
        return None
    speaker, said = rows.speakers[n], rows.said[n]
    columns = zip(rows.positions, rows.said, rows.ask, rows.roles, rows.speakers, rows.stems, strict=True)
    later = [
        at
        for at, when, asks, role, who, stems in columns
        if at > position and at in offered and role == user and who == speaker
        if when >= said and (in_part or not asks) and len(stems) <= CHARACTERS_MAX
    ]
    least = SIMILAR_IN_PART if in_part else SIMILAR
    similar = {at: likeness for at, likeness in sorted(near(position, sorted(later)).items()) if likeness >= least}
    for at in sorted(similar, key=similar.__getitem__, reverse=True):
        turns = queries.turns_at(connection, [position, at])
        if len(turns) < 2 or len(turns[at].text) > CHARACTERS_MAX:
            continue
        if turns[at].scope == turns[position].scope and turns[at].text != turns[position].text:
            return turns[at]
    return None
