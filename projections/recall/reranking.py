"""A second look at the best turns: by a model that reads the query and a turn together, where one is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall.ranking import Ranked

RERANKED_MAX: Final = 50
"""Turns that are looked at a second time: the first of the order. Each costs a pass of the model."""


def rerank(
    reranker: Reranker, query: str, turns: Sequence[Ranked], texts: Mapping[Position, str], *, weight: float
) -> list[Ranked]:
    """Return `turns`, best first, the first of them with what the reranker says of them as one more part.

    The best of these gets `weight` and the worst 0, so that scores of any kind fit. Raises `EncodingFailed` for
    scores that are none.
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
