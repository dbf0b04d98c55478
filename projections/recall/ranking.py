"""Rank candidates in stages, so that earlier pages stay stable.

A later page needs more candidates, and more candidates could change the ranks on earlier pages. So the order is built
in stages. The ranking of the first candidates is fixed. Each further stage doubles the number of candidates and appends
only the new ones, until the legs have no more.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import merge
from itertools import chain
from math import exp, isfinite
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.values import Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall.candidates import CANDIDATES_MIN, Candidates, Ranked
from mnemolog.projections.recall.changes import COMPARED_MAX, put_change_first, repetitions_last
from mnemolog.projections.recall.question import DIGEST_BYTES, TEXT, VECTOR, Floor, Mode, Question, floor

RERANKED_MAX: Final = 50
"""Number of turns to rerank, from the best one on. Each costs one pass of the model."""


class Page(NamedTuple):
    """A page of the ranking."""

    k: int
    passed_over: int = 0
    """Hits on the pages before it."""
    candidates: int | None = None
    """How many turns each leg offered for the first page."""

    @property
    def end(self) -> int:
        """How many turns must be ranked for this page and those before it."""
        return self.passed_over + self.k

    def offered(self, mode: Mode) -> int:
        """Return how many turns each leg offers in the first stage."""
        if self.candidates is not None:
            return self.candidates
        # The order of the vectors is final: one extra turn shows whether there is another page.
        return self.k + 1 if mode == VECTOR else max(self.k, CANDIDATES_MIN)


class Ranking:
    """The best `count` turns for a query, built from stages of candidates.

    With `to_be_reranked`, all of the first stage is kept, because a reranker reorders it as a whole.
    """

    def __init__(self, question: Question, *, count: int, to_be_reranked: bool = False) -> None:
        self._question = question
        self._count = count
        self._whole = to_be_reranked
        self.turns: list[Ranked] = []
        """The ranked turns so far. Use no more than `count` of them."""
        self._first_stage = 0
        """How many of them come from the first stage."""
        self.more = False
        """Whether there may be turns after the first `count`."""
        self.left_out = 0
        """How many of the first `count` are missing, because the turns in their place have too little relevance."""
        self.floor: Floor | None = None
        """Known from the first turn on."""
        self._seen: set[Position] = set()
        self.repeated: dict[Position, tuple[Position, ...]] = {}
        """Turns that a turn stands for, because they say the same."""

    def add(
        self, connection: sa.Connection, found: Sequence[Candidates], *, wanted: int, dropped: Container[Position] = ()
    ) -> bool:
        """Rank the candidates of the next stage, without those `dropped`. Return whether it was the last one.

        `found` has those of each window of a long question; a turn counts by the best of its scores.
        `wanted` is how many turns were requested from each leg. A leg that offers fewer has no more.
        """
        first = not self.turns
        rest = False
        below = 0
        alike = {at: same for some in found for at, same in some.alike.items() if self._question.weights.distinct}
        # What was said again is put behind only where one order is kept: that of several windows is by score.
        again_last = self._question.weights.distinct and len(found) == 1
        ordered = (_ordered(connection, some, self._question, dropped, again_last=again_last) for some in found)
        for turn in (
            merge(*ordered, key=lambda turn: (-turn.score, turn.position)) if len(found) > 1 else chain(*ordered)
        ):
            if turn.position in dropped:
                self._seen.add(turn.position)
                continue
            if self.floor is None:
                self.floor = floor(turn.relevance, self._question.min_relevance, self._question.mode)
            same = [at for at in alike.get(turn.position, (turn.position,)) if at not in dropped]
            if not self._seen.isdisjoint(same):
                continue
            enough = turn.relevance >= self.floor.least and len(self.turns) < self.floor.hits_max
            if not self._whole and len(self.turns) + below >= self._count:
                rest = len(self.turns) == self._count and enough
                break
            if not enough:
                below += 1
                continue
            self._seen.update(same)
            if len(same) > 1:
                self.repeated[turn.position] = tuple(at for at in same if at != turn.position)
            self.turns.append(turn)
        if first:
            self._first_stage = len(self.turns)
        full = any(len(leg) >= wanted and self._may_continue(leg) for some in found for leg in some.legs.values())
        self.left_out = min(below, max(self._count - len(self.turns), 0))
        self.more = rest or full or len(self.turns) > self._count
        return len(self.turns) >= self._count or not full

    def _may_continue(self, leg: Sequence[Position]) -> bool:
        """Whether a leg may have more turns of enough relevance: one of the last fifth that it offered has."""
        if self.floor is None:  # All of them were dropped.
            return True
        if len(self.turns) >= self.floor.hits_max:
            return False
        return not self.floor.least or not self._seen.isdisjoint(leg[-max(len(leg) // 5, 1) :])

    @property
    def to_rerank(self) -> list[Position]:
        """The turns that a reranker orders: the best of the first stage."""
        return [turn.position for turn in self.turns[: min(self._first_stage, RERANKED_MAX)]]

    def rerank(self, reranker: Reranker, texts: Mapping[Position, str]) -> str | None:
        """Order the turns in `texts` by a model that reads the query and a turn together. Ties keep their order.

        Turns of the first stage without a text follow. On failure, keep the order and return the reason.
        """
        first = self.turns[: self._first_stage]
        read = [turn for turn in first if turn.position in texts]
        try:
            scores = _scores(reranker, self._question.query, [texts[turn.position] for turn in read])
        except Exception as error:  # Not loaded, out of memory, invalid scores: the answer is complete without it.
            return str(error) or repr(error)
        scored = [turn._replace(score=score) for turn, score in zip(read, scores, strict=True)]
        scored.sort(key=lambda turn: -turn.score)
        self.turns[: self._first_stage] = scored + [turn for turn in first if turn.position not in texts]
        return None

    def digest(self, count: int) -> bytes:
        """Return a digest of the first `count` turns in order, for a cursor."""
        return sha256(b",".join(b"%d" % turn.position for turn in self.turns[:count])).digest()[:DIGEST_BYTES]


def _scores(reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
    """Return a reranker's score of each text. Raises `EncodingFailed` for invalid scores."""
    scores = [float(score) for score in reranker.score(query, texts)] if texts else []
    if len(scores) != len(texts) or not all(map(isfinite, scores)):
        raise errors.EncodingFailed(
            f"reranker {reranker.name!r} gave {len(scores)} scores for {len(texts)} texts, or none that are numbers"
        )
    return scores


def _ordered(
    connection: sa.Connection, found: Candidates, question: Question, dropped: Container[Position], *, again_last: bool
) -> Iterator[Ranked]:
    """Yield ranked turns, best first, ties by position."""
    from mnemolog.projections.recall import scoring  # Imports numpy: load it only for a recall.

    ranks = {leg: {position: rank for rank, position in enumerate(turns, 1)} for leg, turns in found.legs.items()}
    similarity = found.similarity or {}
    if TEXT not in found.legs:
        for position, rank in ranks.get(VECTOR, {}).items():
            near = similarity[position]
            total = scoring.score_by_vectors(near)
            yield Ranked(position, total, _relevance(total), {VECTOR: rank}, near, {})
        return
    rows = found.rows
    if not rows.positions:
        return
    scored = scoring.score(found, query=found.terms.query, weights=question.weights)
    if found.terms.request.present and question.weights.currency:
        put_change_first(connection, found, found.terms.query, scored, behind_max=question.weights.currency)
    # Text only: a neighbour that contains no word of the query is no hit.
    order = [n for n in scored.order() if rows.may_be_hits[n] and (VECTOR in found.legs or scored.direct[n])]
    if again_last and order:
        best = next((n for n in order if rows.positions[n] not in dropped), order[0])
        least = floor(_relevance(scored.total[best]), question.min_relevance, question.mode).least
        enough = bisect(order[:COMPARED_MAX], False, key=lambda n: _relevance(float(scored.total[n])) < least)
        placed, relevant = repetitions_last(connection, rows, order[:COMPARED_MAX]), {*order[:enough]}
        order[:COMPARED_MAX] = [n for n in placed if n in relevant] + [n for n in placed if n not in relevant]
    for n in order:
        position = rows.positions[n]
        ranked = {leg: places[position] for leg, places in ranks.items() if position in places}
        parts = {name: round(float(part[n]), 6) + 0.0 for name, part in scored.parts.items()}
        total = float(scored.total[n])
        yield Ranked(position, total, _relevance(total), ranked, similarity.get(position), parts)


def _relevance(log_odds: float) -> float:
    return round(1.0 / (1.0 + exp(-max(-50.0, min(50.0, log_odds)))), 6)
