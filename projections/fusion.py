"""Joining the legs of a recall by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mnemolog.domain.position import Position

RANK_CONSTANT: Final = 60
"""Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", SIGIR 2009: 60 worked over all their collections."""


def fuse(legs: Mapping[str, Sequence[Position]], *, k: int) -> list[tuple[Position, float]]:
    """Return the best `k` positions with their scores: the sum of 1 / (60 + rank) over the legs.

    Ranks start at 1. A score depends on ranks only, so scores compare within one result, not across
    results. Ties go to the earlier position.
    """
    scores: dict[Position, float] = {}
    for positions in legs.values():
        for rank, position in enumerate(positions, start=1):
            scores[position] = scores.get(position, 0.0) + 1.0 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
