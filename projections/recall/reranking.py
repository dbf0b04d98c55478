"""Order the best turns by a model that reads the query and a turn together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall.candidates import Ranked
from mnemolog.projections.recall.question import Question
from mnemolog.projections.recall.rules import Rule

RERANKED_MAX: Final = 50
"""Number of turns to rerank, from the best one on. Each costs one pass of the model."""


def rerank(
    reranker: Reranker, question: Question, rule: Rule, turns: Sequence[Ranked], texts: Mapping[Position, str]
) -> list[Ranked]:
    """Return `turns`, the first ones in the order of the reranker, whose ties keep their order.

    Turns without a text follow. Raises `EncodingFailed` for invalid scores.
    """
    looked_at = [turn for turn in turns[:RERANKED_MAX] if turn.position in texts]
    if not looked_at:
        return list(turns)
    scores = [float(score) for score in reranker.score(question.query, [texts[turn.position] for turn in looked_at])]
    if len(scores) != len(looked_at) or not all(map(isfinite, scores)):
        why = (
            f"reranker {reranker.name!r} gave {len(scores)} scores for {len(looked_at)} texts, or none that are numbers"
        )
        raise errors.EncodingFailed(why)
    if rule.reranked is not None:
        best = rule.reranked(looked_at, scores, question.weights)
    else:
        scored = [turn._replace(score=score) for turn, score in zip(looked_at, scores, strict=True)]
        best = sorted(scored, key=lambda turn: -turn.score)
    seen = {turn.position for turn in looked_at}
    return best + [turn for turn in turns if turn.position not in seen]
