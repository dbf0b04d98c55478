"""The rules of ranking, by name. A receipt is repeated with the rule that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from mnemolog.projections.recall.candidates import Ranked
from mnemolog.projections.recall.context_rows import Window
from mnemolog.projections.recall.weights import PARTS_1

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.recall.scoring import Scored

MIN_RELEVANCE: Final = 0.1
"""Turns below this relevance mostly have nothing to do with the question. The default where an answer goes to a model.

docs/reports/recall-quality.md has what share of questions, about a conversation and about others, have a hit above it.
"""


class Rule(NamedTuple):
    """How turns are ranked."""

    window: Window
    score: Callable[..., Scored]
    """Scores candidates. Takes the arguments of `scoring.score`."""
    score_by_vectors: Callable[[float], float]
    """Returns the score of a turn in the mode `vector` from its similarity."""
    reranked: Callable[..., list[Ranked]] | None = None
    """Orders turns by the scores of a reranker. Takes turns, scores and weights. None: by these scores alone."""


def rule_named(ranking: str) -> Rule:
    """Return the rule with this name, one of `RANKINGS`."""
    if ranking == PARTS_1:
        from mnemolog.projections.recall import parts_1

        window = Window(parts_1.BEFORE, parts_1.AFTER, None)
        return Rule(window, parts_1.score, parts_1.score_by_vectors, parts_1.reranked)
    from mnemolog.projections.recall import scoring

    window = Window(scoring.AROUND, scoring.AROUND, scoring.HITS_AROUND)
    return Rule(window, scoring.score, scoring.score_by_vectors)
