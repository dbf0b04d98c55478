"""The ranking `parts/1`, for the receipts that name it. Never change what it computes: today's is in `scoring.py`.

`tests/golden/receipts/parts-1` holds receipts that have to reproduce to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.position import Position
from mnemolog.projections.recall.dates import dates_of
from mnemolog.projections.recall.scoring import Column as Scores
from mnemolog.projections.recall.scoring import Scored, frequencies_in, index_at, nearness_in_time
from mnemolog.projections.recall.weights import Parts1Weights as Weights
from mnemolog.projections.sql.places import PLACES

if TYPE_CHECKING:
    from mnemolog.projections.recall.candidates import Candidates, Ranked
    from mnemolog.projections.recall.text_search import Counts

BEFORE: Final = 2
AFTER: Final = 3
"""How many neighbours of an offered turn are ranked with it."""
K1: Final = 1.2
B: Final = 0.4
LENDS: Final = {-3: 0.4, -2: 0.5, -1: 0.7, 1: 0.5, 2: 0.4}
"""The share of its neighbours' word scores that a turn gets, by their distance in places."""
ANSWERS: Final = 1.0
"""The share from the turn before, if that is a question."""
NEAR_DAYS: Final = 21.0
_DAY: Final = 86_400e6


def score_by_vectors(similarity: float) -> float:
    """Return the score of a turn in the mode `vector`."""
    return similarity


def score(found: Candidates, *, query: str, weights: Weights) -> Scored:
    """Score the candidates' rows: at least one, ordered by place."""
    rows, now, similarity = found.rows, found.now, found.similarity
    terms, speakers, counts = found.terms.stems, found.terms.speakers, found.counts
    places, positions = np.array(rows.places, dtype=np.int64), np.array(rows.positions, dtype=np.int64)
    at, asks = np.array(rows.said, dtype=np.float64), np.array(rows.ask, dtype=np.float64)
    words, direct = _words(rows.stems, places, asks, terms, counts, weights.neighbours)
    parts = {"words": words}
    if similarity is not None and weights.vector:
        parts["vector"] = weights.vector * _near(rows.positions, similarity)
    if speakers and weights.speaker:
        parts["speaker"] = weights.speaker * np.array([float(speaker in speakers) for speaker in rows.speakers])
    if weights.date and (dates := dates_of(query, now=now, first=min(rows.said), last=max(rows.said))):
        parts["date"] = weights.date * nearness_in_time(at, dates, days=NEAR_DAYS)
    if weights.question:
        parts["question"] = -weights.question * asks
    if weights.recency:
        parts["recency"] = weights.recency * np.exp(-np.maximum(now - at, 0) / _DAY / weights.recency_days)
    total = np.sum(list(parts.values()), axis=0)
    if weights.session:
        parts["session"] = weights.session * _best_of_session(places, total)
        total = total + parts["session"]
    return Scored(positions=positions, total=np.round(total, 9), parts=parts, direct=direct)


def reranked(turns: Sequence[Ranked], scores: Sequence[float], weights: Weights) -> list[Ranked]:
    """Order turns by their score plus the reranker's: the best of its scores adds `weights.reranker`, the worst 0."""
    least, most = min(scores), max(scores)
    added = [weights.reranker * (score - least) / (most - least) if most > least else 0.0 for score in scores]
    totals = [turn._replace(score=round(turn.score + part, 9)) for turn, part in zip(turns, added, strict=True)]
    return sorted(totals, key=lambda turn: (-turn.score, turn.position))


def _words(
    stems: Sequence[str], places: NDArray[np.int64], asks: Scores, terms: Sequence[str], counts: Counts, lent: float
) -> tuple[Scores, NDArray[np.bool_]]:
    """Return BM25 scores. For each word, the best of the turn's own score and the shares from its neighbours counts."""
    known = [term for term in terms if term in counts.holding]
    if not known:
        return np.zeros(len(stems)), np.zeros(len(stems), dtype=np.bool_)
    sizes = np.array([len(words) for words in stems], dtype=np.int64)
    frequencies = frequencies_in("".join(stems), np.cumsum(sizes), known)
    # Lengths in characters of stems: as good as counts of words, and no counting is needed.
    lengths = K1 * (1 - B + B * sizes / sizes.mean())
    own = frequencies * (K1 + 1) / (frequencies + lengths[:, None])
    best = own
    if lent:
        for away, share in LENDS.items():
            there, found = index_at(places, away)
            shares = np.where(asks[there] > 0, ANSWERS, share) if away == -1 else share
            best = np.maximum(best, own[there] * (found * shares * min(lent, 1.0))[:, None])
    worth = np.array([_rarity(counts, term) for term in known])
    total: Scores = best @ worth
    return np.divide(total, max(float(total.max()), 1e-9)), np.asarray(frequencies.max(axis=1) > 0)


def _rarity(counts: Counts, term: str) -> float:
    holding = counts.holding[term]
    return math.log(1 + (max(counts.turns - holding, 0) + 0.5) / (holding + 0.5))


def _near(positions: Sequence[Position], similarity: Mapping[Position, float]) -> Scores:
    usual = sum(similarity.values()) / len(similarity) if similarity else 0.0
    found = np.array([similarity.get(position, usual) for position in positions])
    best = found.max()
    scaled: Scores = found / best if best > 0 else found
    return scaled


def _best_of_session(places: NDArray[np.int64], total: Scores) -> Scores:
    _, session = np.unique(places // PLACES, return_inverse=True)
    best = np.full(session.max() + 1, -np.inf)
    np.maximum.at(best, session, total)
    return best[session]
