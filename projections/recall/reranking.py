"""Rerank the best turns with a model that reads the query and a turn together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall.ranking import Ranked

RERANKED_MAX: Final = 50
"""Number of turns to rerank, from the best one on. Each costs one pass of the model."""


def rerank(
    reranker: Reranker, query: str, turns: Sequence[Ranked], texts: Mapping[Position, str], *, weight: float
) -> list[Ranked]:
    """Return `turns`, best first. The first ones have the reranker's score as an additional part.

    The reranker's scores are scaled: the best is `weight`, the worst 0. So any range of scores works. Raises
    `EncodingFailed` for invalid scores.
    """
    looked_at = [turn for turn in turns[:RERANKED_MAX] if turn.position in texts]
    if not looked_at:
        return list(turns)
    scores = [float(score) for score in reranker.score(query, [texts[turn.position] for turn in looked_at])]
    if len(scores) != len(looked_at) or not all(map(isfinite, scores)):
        why = (
            f"reranker {reranker.name!r} gave {len(scores)} scores for {len(looked_at)} texts, or none that are numbers"
        )
        raise errors.EncodingFailed(why)
    least, most = min(scores), max(scores)
    found = {}
    for turn, score in zip(looked_at, scores, strict=True):
        part = weight * (score - least) / (most - least) if most > least else 0.0
        total = round(turn.score + part, 9)
        found[turn.position] = turn._replace(score=total, parts=turn.parts | {"reranker": round(part, 6)})
    return sorted((found.get(turn.position, turn) for turn in turns), key=lambda turn: (-turn.score, turn.position))
