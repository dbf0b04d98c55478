"""The name of the ranking, and the weights of the parts of its scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.limits import checked_number

RANKING: Final = "relevance/7"
"""Name and version of the ranking, stored in receipts and cursors. Change it whenever the ranking changes."""

WEIGHT_MAX: Final = 100
AHEAD: Final = 1e-4
"""How much log-odds a turn is put ahead of another that it has to come before."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of each part of the score counts: 1 as fitted, 0 not at all.

    The fit and what each part gives are on docs/reports/recall-quality.md.
    """

    words: float = 1.0
    """Words of the query in the turn."""
    neighbours: float = 1.0
    """Words and meaning of the turns next to it: an answer seldom repeats the words of its question."""
    vector: float = 1.0
    """Similarity of the turn's vector to the query's."""
    speaker: float = 1.0
    """The query names the speaker of the turn."""
    date: float = 1.0
    """Said at or near the date that the query names."""
    role: float = 1.0
    """Subtracted from a turn of the role whose words the query does not ask for ("What did I…", "What did you…")."""
    currency: float = 3.0
    """A later statement about a change comes before what it changes, if it is at most so far behind."""
    distinct: bool = True
    """Return what was repeated word for word once, and what was said in nearly the same words after other turns."""


DEFAULT: Final = Weights()


def checked_weights(weights: Weights) -> Weights:
    """Return `weights` if they are valid numbers. Raises `InvalidInput`."""
    if not isinstance(weights, Weights):
        raise errors.InvalidInput("weights", f"expected Weights, got {type(weights).__name__}")
    for name in weights.__struct_fields__:
        if name != "distinct":
            checked_number(f"weights.{name}", getattr(weights, name), most=WEIGHT_MAX)
    return weights


def stored_weights(ranking: str, stored: Mapping[str, Any]) -> Weights:
    """Return the weights of a receipt that names this ranking. Raises `InvalidInput`, also for another ranking."""
    if ranking != RANKING:
        raise errors.InvalidInput("ranking", f"the receipt names {ranking!r}, and this mnemolog has {RANKING!r}")
    try:
        return checked_weights(msgspec.convert(stored, Weights))
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("weights", str(error)) from error
