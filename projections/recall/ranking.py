"""The order of a recall, as far as it is asked for, page by page.

A page further on needs candidates further down, and with them the ranks before could come in another
order. So the order is made in stages: what the first candidates give comes first, as it was; behind it comes
what twice as many give and the first did not; and so on, until the legs have no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.recall.candidates import TEXT, VECTOR, Candidates
from mnemolog.projections.recall.weights import Weights

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


def rank(
    gather: Callable[[int], Candidates],
    *,
    query: str,
    weights: Weights,
    candidates: int,
    count: int,
    second_look: Callable[[list[Ranked]], list[Ranked]] | None = None,
) -> Ranking:
    """Return the best `count` turns, or all there are. `gather` gives so many candidates of each leg.

    `second_look` may bring what the first candidates give into another order.
    """
    turns: list[Ranked] = []
    seen: set[Position] = set()
    told: set[str] = set()
    while True:
        found, stage, behind = gather(candidates), list[Ranked](), False
        for turn, words in _ordered(found, query, weights):
            if turn.position in seen:
                continue
            if second_look is None and len(turns) + len(stage) == count:
                behind = True  # The rest is made when it is asked for.
                break
            seen.add(turn.position)
            if weights.distinct and words is not None:
                if words in told:
                    continue
                told.add(words)
            stage.append(turn)
        turns += stage if turns or second_look is None else second_look(stage)
        full = any(len(leg) >= candidates for leg in found.legs.values())
        if len(turns) >= count or not full:
            return Ranking(turns[:count], found, behind or full or len(turns) > count)
        candidates *= 2


def _ordered(found: Candidates, query: str, weights: Weights) -> Iterator[_Placed]:
    """Yield what was found, best first; ties by position."""
    ranks = {leg: {position: rank for rank, position in enumerate(turns, 1)} for leg, turns in found.legs.items()}
    similarity = found.similarity or {}

    def placed(position: Position, score: float, parts: dict[str, float], words: str | None) -> _Placed:
        places = {leg: where[position] for leg, where in ranks.items() if position in where}
        return _Placed(Ranked(position, score, places, similarity.get(position), parts), words)

    if TEXT not in found.legs:
        yield from (placed(position, similarity[position], {}, None) for position in found.legs.get(VECTOR, ()))
        return
    if not found.rows:
        return
    from mnemolog.projections.recall.scoring import score  # It needs numpy, which a store that is not asked does not.

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
    for n in scored.order():
        if VECTOR not in found.legs and not scored.direct[n]:
            continue  # Words alone: only turns that hold one, not those that stand beside them.
        row = found.rows[n]
        parts = {name: round(float(part[n]), 6) + 0.0 for name, part in scored.parts.items()}
        yield placed(row.position, float(scored.total[n]), parts, row.stems)
