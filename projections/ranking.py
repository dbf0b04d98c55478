"""The order of a recall, as far as it is asked for, page by page.

A page further on needs candidates further down, and with them the ranks before could be fused into another
order. So the order is made in stages: what the first candidates give comes first, as it was; behind it comes
what twice as many give and the first did not; and so on, until the legs have no more.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.candidates import Candidates
from mnemolog.projections.fusion import fuse

CANDIDATES_MIN: Final = 100
"""Each leg offers at least this many turns to the fusion, so that one found by both can rise."""

RANKING: Final = "rrf-5/1"
"""Name and version of the order. Receipts carry it: change how hits are ranked, and change this."""


class Ranked(NamedTuple):
    """A turn at its place in the order."""

    position: Position
    score: float
    ranks: dict[str, int]
    similarity: float | None


class Ranking(NamedTuple):
    """The best turns, and what they were chosen from."""

    turns: list[Ranked]
    last: Candidates
    """The candidates of the last stage: which legs answered is the same in all."""
    more: bool
    """Whether there may be turns behind these."""

    def digest(self, count: int) -> bytes:
        """Return 32 bytes that say which turns come first in which order."""
        return sha256(b",".join(b"%d" % turn.position for turn in self.turns[:count])).digest()


def rank(gather: Callable[[int], Candidates], *, candidates: int, count: int) -> Ranking:
    """Return the best `count` turns, or all there are. `gather` gives so many candidates of each leg."""
    turns: list[Ranked] = []
    seen: set[Position] = set()
    while True:
        found = gather(candidates)
        stage = [turn for turn in _fused(found) if turn.position not in seen]
        turns += stage
        seen.update(turn.position for turn in stage)
        full = any(len(leg) >= candidates for leg in found.legs.values())
        if len(turns) >= count or not full:
            return Ranking(turns[:count], found, full or len(turns) > count)
        candidates *= 2


def _fused(found: Candidates) -> list[Ranked]:
    ranks = {leg: {position: rank for rank, position in enumerate(turns, 1)} for leg, turns in found.legs.items()}
    return [
        Ranked(
            position,
            score,
            {leg: places[position] for leg, places in ranks.items() if position in places},
            found.similarity.get(position),
        )
        for position, score in fuse(found.legs)
    ]
