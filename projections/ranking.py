"""The order of a recall, as far as it is asked for, page by page.

A page further on needs candidates further down, and with them the ranks before could come in another
order. So the order is made in stages: what the first candidates give comes first, as it was; behind it comes
what twice as many give and the first did not; and so on, until the legs have no more.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.candidates import TEXT, VECTOR, Candidates
from mnemolog.projections.weights import Weights

CANDIDATES_MIN: Final = 50
"""Each leg offers at least this many turns. With twice as many LoCoMo's answers were not measurably better."""

RANKING: Final = "parts/1"
"""Name and version of the order. Receipts carry it: change how hits are ranked, and change this."""


class Ranked(NamedTuple):
    """A turn at its place in the order."""

    position: Position
    score: float
    ranks: dict[str, int]
    similarity: float | None
    parts: dict[str, float]
    """What its score is made of; empty where that is the similarity."""


class _Placed(NamedTuple):
    """A turn at its place in one stage, with its words where duplicates are to be told by them."""

    turn: Ranked
    words: str | None


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


def rank(gather: Callable[[int], Candidates], *, query: str, weights: Weights, candidates: int, count: int) -> Ranking:
    """Return the best `count` turns, or all there are. `gather` gives so many candidates of each leg."""
    turns: list[Ranked] = []
    seen: set[Position] = set()
    told: set[str] = set()
    while True:
        found = gather(candidates)
        for turn, words in _ordered(found, query, weights):
            if turn.position in seen:
                continue
            seen.add(turn.position)
            if weights.distinct and words is not None:
                if words in told:
                    continue
                told.add(words)
            turns.append(turn)
        full = any(len(leg) >= candidates for leg in found.legs.values())
        if len(turns) >= count or not full:
            return Ranking(turns[:count], found, full or len(turns) > count)
        candidates *= 2


def _ordered(found: Candidates, query: str, weights: Weights) -> list[_Placed]:
    """Return what was found, best first; ties by position."""
    ranks = {leg: {position: rank for rank, position in enumerate(turns, 1)} for leg, turns in found.legs.items()}

    def placed(position: Position, score: float, parts: dict[str, float], words: str | None) -> _Placed:
        places = {leg: where[position] for leg, where in ranks.items() if position in where}
        return _Placed(Ranked(position, score, places, (found.similarity or {}).get(position), parts), words)

    if TEXT not in found.legs:
        similarity = found.similarity or {}
        return [placed(position, similarity[position], {}, None) for position in found.legs.get(VECTOR, ())]
    if not found.rows:
        return []
    from mnemolog.projections.scoring import score  # It needs numpy, which a store that is not asked does not.

    scored = score(
        found.rows,
        query=query,
        terms=found.asked.terms,
        speakers=found.asked.speakers,
        counts=found.counts,
        similarity=found.similarity if VECTOR in found.legs else None,
        now=found.now,
        weights=weights,
    )
    # Words alone: only turns that hold one, not those that stand beside them.
    kept = [n for n in range(len(found.rows)) if VECTOR in found.legs or scored.direct[n]]
    kept.sort(key=lambda n: (-scored.total[n], found.rows[n].position))
    return [
        placed(
            (row := found.rows[n]).position,
            float(scored.total[n]),
            {name: round(float(part[n]), 6) + 0.0 for name, part in scored.parts.items()},
            row.stems,
        )
        for n in kept
    ]
