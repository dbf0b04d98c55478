"""Whether the relevance of a hit means something: calibration, and questions that nothing answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from benchmarks.quality.intervals import Interval, auroc_interval

BINS: Final = 10
THRESHOLDS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Hits of about the same relevance."""

    low: float
    high: float
    hits: int
    relevance: float
    """Their mean relevance."""
    evidence: float
    """The share of them that is evidence."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """What `min_relevance` at this value does."""

    min_relevance: float
    answered: float
    """The share of the evidence among the first ten that is kept."""
    off_topic: float | None
    """The share of off-topic questions that still get a hit."""
    near_miss: float | None
    """The same of unanswerable questions about the conversation itself."""


class Relevance(msgspec.Struct, frozen=True, kw_only=True):
    """What the relevance of the first ten hits is worth."""

    bins: tuple[Bin, ...]
    calibration_error: float
    """The mean distance between relevance and share of evidence, weighted by hits (Naeini et al., AAAI 2015)."""
    brier: float
    """The mean squared distance between relevance and 1 for evidence, 0 for other hits (Brier, 1950)."""
    off_topic: Interval | None
    """AUROC by the best hit: questions of this set against questions of other sources."""
    near_miss: Interval | None
    """The same against questions about this set that nothing answers."""
    right: Interval | None
    """AUROC by the best hit: whether it is evidence."""
    off_topic_questions: int
    near_miss_questions: int
    thresholds: tuple[Threshold, ...]
    best: dict[str, list[int]]
    """How many questions have a best hit of each tenth of relevance, by kind: `own`, `off-topic`, `near miss`."""


class Graded(msgspec.Struct, frozen=True):
    """The answer to a question: how relevant each hit is said to be, and whether it is evidence."""

    relevance: tuple[float, ...]
    is_evidence: tuple[bool, ...]

    @property
    def best(self) -> float:
        """The relevance of the best hit, 0 without any."""
        return self.relevance[0] if self.relevance else 0.0


def measure(own: Sequence[Graded], off_topic: Sequence[Graded], near_miss: Sequence[Graded]) -> Relevance:
    """Return what relevance is worth: of answerable questions, off-topic ones and unanswerable ones."""
    said = np.array([value for item in own for value in item.relevance])
    true = np.array([value for item in own for value in item.is_evidence], dtype=float)
    bins = tuple(_bins(said, true))
    error = sum(part.hits * abs(part.relevance - part.evidence) for part in bins) / max(len(said), 1)
    best = [item.best for item in own]
    right = [item.best for item in own if any(item.is_evidence[:1])]
    wrong = [item.best for item in own if not any(item.is_evidence[:1])]
    kinds = {"own": own, "off-topic": off_topic, "near miss": near_miss}
    return Relevance(
        bins=bins,
        calibration_error=round(float(error), 4),
        brier=round(float(np.mean((said - true) ** 2)) if len(said) else 0.0, 4),
        off_topic=_apart(best, [item.best for item in off_topic]),
        near_miss=_apart(best, [item.best for item in near_miss]),
        right=_apart(right, wrong),
        off_topic_questions=len(off_topic),
        near_miss_questions=len(near_miss),
        thresholds=tuple(_threshold(value, own, off_topic, near_miss) for value in THRESHOLDS),
        best={
            kind: np.histogram([item.best for item in items], BINS, (0, 1))[0].tolist() for kind, items in kinds.items()
        },
    )


def _bins(said: np.ndarray, true: np.ndarray) -> list[Bin]:
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    return [
        Bin(
            low=number / BINS,
            high=(number + 1) / BINS,
            hits=int(chosen.sum()),
            relevance=round(float(said[chosen].mean()), 4),
            evidence=round(float(true[chosen].mean()), 4),
        )
        for number in range(BINS)
        if (chosen := place == number).any()
    ]


def _apart(higher: Sequence[float], lower: Sequence[float]) -> Interval | None:
    return auroc_interval(higher, lower) if higher and lower else None


def _threshold(
    value: float, own: Sequence[Graded], off_topic: Sequence[Graded], near_miss: Sequence[Graded]
) -> Threshold:
    found = [said for item in own for said, is_right in zip(item.relevance, item.is_evidence, strict=True) if is_right]

    def answered(items: Sequence[Graded]) -> float | None:
        return round(sum(item.best >= value for item in items) / len(items), 4) if items else None

    return Threshold(
        min_relevance=value,
        answered=round(sum(said >= value for said in found) / len(found), 4) if found else 0.0,
        off_topic=answered(off_topic),
        near_miss=answered(near_miss),
    )
