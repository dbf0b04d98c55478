"""Intervals of confidence by drawing questions again.

The percentile method of Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979;
Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. What varies is the choice of questions;
the conversations are taken as given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.metrics import auroc

RESAMPLES: Final = 1_000
CONFIDENCE: Final = 0.95
SEED: Final = 20_260_101

Values = NDArray[np.float64]
_ENDS: Final = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]


class Interval(msgspec.Struct, frozen=True):
    """A figure, and where 95 % of the figures of resampled questions lie."""

    mean: float
    low: float
    high: float


def intervals(values: Any, *, seed: int = SEED, resamples: int = RESAMPLES) -> list[Interval]:
    """Return an interval for every column of `values`, a row for each question.

    All columns share the resamples, and so do two calls with as many questions: intervals of differences are
    paired when `values` are differences, question by question.
    """
    rows: Values = np.asarray(values, dtype=np.float64)
    count = len(rows)
    # How often each question is drawn: a multinomial is n draws with replacement.
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    means = drawn @ rows / count
    low, high = np.quantile(means, _ENDS, axis=0)
    return [_interval(*figures) for figures in zip(rows.mean(axis=0), low, high, strict=True)]


def auroc_interval(
    higher: Sequence[float], lower: Sequence[float], *, seed: int = SEED, resamples: int = RESAMPLES
) -> Interval:
    """Return the interval of `auroc`. Both kinds of questions are drawn again, each from its own. Neither is empty."""
    above, below = np.asarray(higher, dtype=np.float64), np.asarray(lower, dtype=np.float64)
    random = np.random.default_rng(seed)
    drawn = [
        auroc(random.choice(above, size=len(above)), random.choice(below, size=len(below))) for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, _ENDS)
    return _interval(auroc(higher, lower), low, high)


def _interval(mean: Any, low: Any, high: Any) -> Interval:
    return Interval(round(float(mean), 4), round(float(low), 4), round(float(high), 4))
