"""The labels that most resemble one that does not exist."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from typing import Final

COMPARED_MAX: Final = 10_000
"""Comparing more would take seconds."""
MEASURED_MAX: Final = 100
CHARACTERS_MAX: Final = 128
"""How many labels are measured, and how much of each: that takes up to the cube of the length."""


def closest(given: str, labels: Iterable[str], *, count: int = 3) -> list[str]:
    """Return up to `count` of the labels, those that begin like `given` first, then the most similar ones."""
    wanted = given.casefold()
    matcher = SequenceMatcher(b=wanted[:CHARACTERS_MAX], autojunk=False)

    def likeness(label: str, measure: Callable[[], float]) -> tuple[bool, float]:
        folded = label.casefold()
        matcher.set_seq1(folded[:CHARACTERS_MAX])
        return folded.startswith(wanted) or wanted.startswith(folded), measure()

    # By the characters that they share, which is cheap to count; then by their order.
    likely = heapq.nlargest(
        max(count, MEASURED_MAX), islice(labels, COMPARED_MAX), key=partial(likeness, measure=matcher.quick_ratio)
    )
    return heapq.nlargest(count, likely, key=partial(likeness, measure=matcher.ratio))
