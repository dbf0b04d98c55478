"""Intervals of confidence by drawing questions anew.

The percentile method of Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979;
Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. What varies is which questions are asked;
the conversations are taken as given.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 1_000
CONFIDENCE: Final = 0.95
SEED: Final = 20_260_101

Values = NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    """A mean, and where 95 % of the means of resampled questions lie."""

    mean: float
    low: float
    high: float

    @property
    def leaves_out_zero(self) -> bool:
        """Whether a difference of this size is more than the choice of questions explains."""
        return self.low > 0 or self.high < 0


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
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return [
        Interval(round(float(mean), 4), round(float(least), 4), round(float(most), 4))
        for mean, least, most in zip(rows.mean(axis=0), low, high, strict=True)
    ]
