"""The rules of ranking, by name. A receipt is repeated with the rule that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.projections.recall.weights import Weights, checked_weights

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.recall import parts_1
    from mnemolog.projections.recall.ranking import Ranked
    from mnemolog.projections.recall.scoring import Scored

RANKING: Final = "relevance/2"
"""Name and version of today's rule, stored in receipts and cursors.

Change it whenever the ranking changes, and keep the rule before as a module of its own.
"""
PARTS_1: Final = "parts/1"
"""The rule before, of `parts_1`."""
RANKINGS: Final = (PARTS_1, RANKING)
MIN_RELEVANCE: Final = 0.0
"""Turns below this relevance have nothing to do with the question. The default where an answer goes to a model."""


class Rule(NamedTuple):
    """How turns are ranked."""

    before: int
    after: int
    """How many neighbours of each offered turn are read and ranked with it."""
    score: Callable[..., Scored]
    """Scores rows. Takes the arguments of `scoring.score`."""
    reranked: Callable[..., list[Ranked]] | None = None
    """Orders turns by the scores of a reranker. Takes turns, scores and weights. None: by these scores alone."""


def rule_named(ranking: str) -> Rule:
    """Return the rule with this name, one of `RANKINGS`."""
    if ranking == PARTS_1:
        from mnemolog.projections.recall import parts_1

        return Rule(parts_1.BEFORE, parts_1.AFTER, parts_1.score, parts_1.reranked)
    from mnemolog.projections.recall import context_rows, scoring

    return Rule(context_rows.BEFORE, context_rows.AFTER, scoring.score)


def stored_weights(ranking: str, stored: Mapping[str, Any]) -> Weights | parts_1.Weights:
    """Return the weights of a receipt that names this ranking. Raises `InvalidInput`, also for an unknown ranking."""
    if ranking not in RANKINGS:
        raise InvalidInput("ranking", f"the receipt names {ranking!r}, and this mnemolog has {' and '.join(RANKINGS)}")
    try:
        if ranking == PARTS_1:
            from mnemolog.projections.recall import parts_1

            return msgspec.convert(stored, parts_1.Weights)
        return checked_weights(msgspec.convert(stored, Weights))
    except msgspec.ValidationError as error:
        raise InvalidInput("weights", str(error)) from error
