"""What a ranking is worth against what should be in it. Items are turns or sessions; relevance is yes or no."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from typing import Final

HIT_CUTS: Final = (1, 5, 10)
CUT: Final = 10

METRICS: Final = (*(f"hit@{cut}" for cut in HIT_CUTS), f"evidence recall@{CUT}", f"NDCG@{CUT}")


def hit(ranking: Sequence[str], evidence: frozenset[str], *, cut: int) -> float:
    """Return 1 where any evidence is among the first `cut`, else 0."""
    return float(any(item in evidence for item in ranking[:cut]))


def evidence_recall(ranking: Sequence[str], evidence: frozenset[str], *, cut: int = CUT) -> float:
    """Return which share of all evidence is among the first `cut`."""
    return len(evidence.intersection(ranking[:cut])) / len(evidence)


def ndcg(ranking: Sequence[str], evidence: frozenset[str], *, cut: int = CUT) -> float:
    """Return the discounted gain of the first `cut` over that of the best ranking that the corpus allows.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002, with a
    gain of 1 and a discount of log2(rank + 1). The ideal puts all evidence first, found or not: what a ranking
    lacks is held against it.
    """
    gained = sum(1 / log2(rank + 1) for rank, item in enumerate(ranking[:cut], 1) if item in evidence)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(cut, len(evidence)) + 1))
    return gained / ideal


def session_ranking(sessions_of_turns: Iterable[str]) -> list[str]:
    """Return sessions in the order in which a ranking of turns first comes to each."""
    return list(dict.fromkeys(sessions_of_turns))


def scores(ranking: Sequence[str], evidence: frozenset[str]) -> list[float]:
    """Return every measure, in the order of `METRICS`. A ranking names no item twice; there is evidence."""
    return [
        *(hit(ranking, evidence, cut=cut) for cut in HIT_CUTS),
        evidence_recall(ranking, evidence),
        ndcg(ranking, evidence),
    ]
