"""Exact nearest neighbours over segments, with or without a filter: groups are scored, turns returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.position import Position
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.members import Members, Positions
from mnemolog.projections.vectors.segment import Segment


class _Found(NamedTuple):
    """A group that may be among the best, with the turns of it to return: at least one, in order."""

    score: float
    id: int
    turns: list[int]


def nearest(
    segments: Sequence[Segment], query: Vectors, *, k: int, allowed: Positions | None
) -> list[tuple[Position, float]]:
    """Return up to `k` positions of turns with the cosine similarity of their group, best first.

    `query` has shape (1, dimension), length 1. `allowed` (rising) restricts the answer to these turns: a
    group without any of them is not scored, and of the others only these turns are returned. None does not
    restrict. The turns of a group follow one another in order; equal scores go to the group of the lower id.
    A group of several chunks counts once, with its best chunk.
    """
    found = [group for segment in segments for group in _nearest_in(segment, query, k=k, allowed=allowed)]
    found.sort(key=lambda group: (-group.score, group.id))
    # Every group has a turn to return, so k groups are enough.
    return [(Position(turn), group.score) for group in found[:k] for turn in group.turns][:k]


def _nearest_in(segment: Segment, query: Vectors, *, k: int, allowed: Positions | None) -> list[_Found]:
    parameters, permitted = None, None
    members, rows = segment.members, len(segment.rows)
    if allowed is not None:
        permitted = np.isin(members.turns, allowed)
        mask = members.with_any(permitted)[segment.rows]
        rows = int(mask.sum())
        bits = np.packbits(mask, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]
        parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
    if rows == 0:
        return []
    wanted = k
    while True:  # Several chunks of one group may crowd out others: ask for more until k groups are there.
        wanted = min(wanted, rows)
        scores, found = segment.faiss_index.search(query, wanted, params=parameters)
        groups = segment.rows[found[0]]
        if wanted == rows or len(np.unique(groups)) >= min(k, rows):
            break
        wanted *= 2
    best: dict[int, float] = {}
    for number, score in zip(groups.tolist(), scores[0].tolist(), strict=True):
        best[number] = max(score, best.get(number, -2.0))
    return [_found(members, number, score, permitted) for number, score in best.items()]


def _found(members: Members, number: int, score: float, permitted: NDArray[np.bool_] | None) -> _Found:
    where = members.turns_of(number)
    turns = members.turns[where]
    return _Found(score, int(turns[-1]), (turns if permitted is None else turns[permitted[where]]).tolist())
