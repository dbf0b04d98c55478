"""What plays a part in the order of a recall, and how much of one."""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

from mnemolog.domain import errors

WEIGHT_MAX: Final = 100.0
DAYS_MAX: Final = 36_500.0


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much each ingredient of a recall counts, beside the words of the query, which count 1. 0 switches one off.

    The defaults were chosen on five conversations of LoCoMo; docs/recall.md shows what each gives and costs.
    """

    vector: float = 1.0
    """Similarity of the turn's vector to the query's, the best one being 1."""
    neighbours: float = 1.0
    """Words that stand in the turns around it: an answer seldom repeats the words of its question."""
    speaker: float = 0.5
    """The query names its speaker."""
    date: float = 1.0
    """Said when the query asks for, or near it."""
    question: float = 0.2
    """Taken off a turn that asks something itself."""
    session: float = 0.2
    """A share of the best score in its session."""
    reranker: float = 2.0
    """What the reranker says, where the store was opened with one: as much as words and similarity together."""
    recency: float = 0.0
    """Recorded recently: this much for the present, divided by e for every `recency_days`."""
    recency_days: float = 30.0
    distinct: bool = False
    """Whether of turns with the same words only the best one is returned."""


DEFAULT: Final = Weights()


def checked_weights(weights: Weights) -> Weights:
    """Return `weights` if they can be counted with. Raises `InvalidInput`."""
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
