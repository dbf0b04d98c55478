"""The labels that most resemble one that does not exist."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

COMPARED_MAX: Final = 10_000
"""Comparing more would take seconds."""


def closest(given: str, labels: Iterable[str], *, count: int = 3) -> list[str]:
    """Return up to `count` of the labels, those that begin like `given` first, then the most similar ones."""
    wanted = given.casefold()
    matcher = SequenceMatcher(b=wanted, autojunk=False)

    def likeness(label: str) -> tuple[bool, float]:
        folded = label.casefold()
        matcher.set_seq1(folded)
        return folded.startswith(wanted) or wanted.startswith(folded), matcher.ratio()

    return heapq.nlargest(count, islice(labels, COMPARED_MAX), key=likeness)
