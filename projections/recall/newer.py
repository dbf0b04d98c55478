"""Find what a user said later about the same thing: a pointer to it, and no verdict which of the two holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.position import Position
from mnemolog.domain.role import Role
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.recall.context_rows import Rows
from mnemolog.projections.sql import queries

if TYPE_CHECKING:
    from mnemolog.projections.vectors.projection import VectorAnswer

SIMILAR: Final = 0.4
"""The least cosine similarity of the two. From 0.3 to 0.4 it makes no difference on changed facts."""
CHARACTERS_MAX: Final = 400
"""A longer turn says many things."""


def with_newer(connection: sa.Connection, hits: Sequence[Hit], rows: Rows, vectors: VectorAnswer) -> Iterator[Hit]:
    """Yield hits with `newer`: the most similar later statement of the same user, if it is similar enough.

    It is looked for among the candidates of the recall, of the same speaker and scope. An assistant's turn points
    nowhere.
    """
    for hit in hits:
        if hit.role == Role.USER:
            after, speaker = hit.position, hit.speaker
            later = [n for n, at in enumerate(rows.positions) if at > after and rows.speakers[n] == speaker]
            later = [n for n in later if rows.may_be_hits[n] and not rows.ask[n] and rows.roles[n] == Role.USER]
            statements = sorted(rows.positions[n] for n in later if len(rows.stems[n]) <= CHARACTERS_MAX)
            hit = replace(hit, newer=_most_similar(connection, hit, vectors.near(after, statements)))
        yield hit


def _most_similar(connection: sa.Connection, hit: Hit, near: dict[Position, float]) -> Turn | None:
    for at in sorted((at for at in near if near[at] >= SIMILAR), key=lambda at: (-near[at], at)):
        turn = queries.turns_at(connection, [at]).get(at)
        if turn is None or turn.scope != hit.scope or turn.said_at < hit.said_at or turn.text == hit.text:
            continue
        if len(turn.text) <= CHARACTERS_MAX:
            return turn
    return None
