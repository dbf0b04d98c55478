"""The weights of the parts of a recall's score."""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

from mnemolog.domain import errors

WEIGHT_MAX: Final = 100.0
DAYS_MAX: Final = 36_500.0


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weight of each part of the score. The words of the query have weight 1. 0 switches a part off.

    The defaults were chosen on five conversations of LoCoMo; docs/recall.md shows what each gives and costs.
    """

    vector: float = 1.0
    """Similarity of the turn's vector to the query's, the best one being 1."""
    neighbours: float = 1.0
    """Words of the query in neighbouring turns: an answer seldom repeats the words of its question."""
    speaker: float = 0.5
    """The query names the speaker of the turn."""
    date: float = 1.0
    """Said at or near the date that the query names."""
    question: float = 0.2
    """Subtracted from a turn that is itself a question."""
    session: float = 0.2
    """A share of the best score in its session."""
    recency: float = 0.0
    """Recently recorded: this much for the present, divided by e for every `recency_days`."""
    recency_days: float = 30.0
    distinct: bool = False
    """Of several turns with the same words, return only the best."""


DEFAULT: Final = Weights()


def checked_weights(weights: Weights) -> Weights:
    """Return `weights` if they are valid numbers. Raises `InvalidInput`."""
    if not isinstance(weights, Weights):
        raise errors.InvalidInput("weights", f"expected Weights, got {type(weights).__name__}")
    for name in weights.__struct_fields__:
        value = getattr(weights, name)
        if name == "distinct":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise errors.InvalidInput(f"weights.{name}", f"expected a number, got {value!r}")
        least, most = (0.01, DAYS_MAX) if name == "recency_days" else (0, WEIGHT_MAX)
        if not least <= value <= most:
            raise errors.InvalidInput(f"weights.{name}", f"{value:g} is not between {least:g} and {most:g}")
    return weights
