"""What a ranking is worth against what should be in it. Items are turns or sessions; each is evidence or not."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import log2
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Figures = Sequence[float] | NDArray[np.float64]

HIT_CUTS: Final = (1, 5)
CUT: Final = 10


def _cuts(cut: int) -> tuple[int, ...]:
    return (*(place for place in HIT_CUTS if place < cut), cut)


def metric_names(cut: int = CUT) -> tuple[str, ...]:
    """Return the names of what `scores` returns, in its order."""
    return (*(f"hit@{place}" for place in _cuts(cut)), f"evidence recall@{cut}", f"NDCG@{cut}")


METRICS: Final = metric_names()


def hit(ranking: Sequence[Item], evidence: AbstractSet[Item], *, cut: int) -> float:
    """Return 1 where any evidence is among the first `cut`, else 0."""
    return float(any(item in evidence for item in ranking[:cut]))


def evidence_recall(ranking: Sequence[Item], evidence: AbstractSet[Item], *, cut: int = CUT) -> float:
    """Return which share of all evidence is among the first `cut`."""
    return len(evidence & set(ranking[:cut])) / len(evidence)


def ndcg(ranking: Sequence[Item], evidence: AbstractSet[Item], *, cut: int = CUT) -> float:
    """Return the discounted gain of the first `cut` over that of the best ranking that the corpus allows.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002, with a
    gain of 1 and a discount of log2(rank + 1). The ideal puts all evidence first, found or not: what a ranking
    lacks is held against it.
    """
    gained = sum(1 / log2(rank + 1) for rank, item in enumerate(ranking[:cut], 1) if item in evidence)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(cut, len(evidence)) + 1))
    return gained / ideal


def scores(ranking: Sequence[Item], evidence: AbstractSet[Item], *, cut: int = CUT) -> list[float]:
    """Return every measure, in the order of `metric_names`. A ranking names no item twice; there is evidence."""
    return [
        *(hit(ranking, evidence, cut=place) for place in _cuts(cut)),
        evidence_recall(ranking, evidence, cut=cut),
        ndcg(ranking, evidence, cut=cut),
    ]


def auroc(higher: Figures, lower: Figures) -> float:
    """Return the chance that one of `higher` is above one of `lower`; a tie counts half. Neither is empty.

    The area under the ROC curve: Hanley and McNeil, "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve", Radiology 143(1), 1982. 1 tells both apart without error, 0.5 is chance.
    """
    ordered = np.sort(np.asarray(lower, dtype=np.float64))
    below = np.searchsorted(ordered, higher, side="left") + np.searchsorted(ordered, higher, side="right")
    return float(below.mean() / 2 / len(ordered))
