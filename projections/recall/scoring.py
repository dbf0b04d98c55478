"""Score turns for a question: the log-odds that a turn answers it.

A linear model over `FEATURES`, the same for every kind of conversation. A feature of a turn depends on the question,
the turn and the turns up to `NEAR_PLACES` places away, on nothing else that was found. So a turn has the same relevance
whatever else an answer holds. `make fit-recall` writes the coefficients (docs/reports/recall-quality.md, ADR 32).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.message import Role
from mnemolog.domain.values import DAY
from mnemolog.projections.recall.candidates import NEAR_PLACES
from mnemolog.projections.recall.dates import Dates, dates_of
from mnemolog.projections.recall.question import AHEAD, RANKING, Weights, Whose

if TYPE_CHECKING:
    from mnemolog.projections.recall.candidates import Candidates, QueryTerms
    from mnemolog.projections.recall.text_search import Counts

K1: Final = 1.2
B: Final = 0.75
"""BM25's constants (Robertson and Zaragoza, 2009)."""
USUAL_CHARACTERS: Final = 400
"""The length of stems at which BM25 corrects nothing. A constant, so that no score depends on the other turns."""
LENDS: Final = {-2: 0.5, -1: 0.7, 1: 0.5, 2: 0.4}
"""The share of its neighbours' word scores that a turn gets, by their distance, at most `NEAR_PLACES`."""
ANSWERS: Final = 1.0
"""The share from the turn before, if that is a question."""
NUMBER_BEHIND_MAX: Final = 3.0
"""How much log-odds turns with the number or id that is asked for may be behind others, to be put before them."""
NEAR_DAYS: Final = 21.0
"""Distance in time from the requested span at which the date feature falls to 1 / e."""

RARE_WORD: Final = 1.6
"""How much log-odds a word as rare as one of no other turn adds, where a query is one of several."""
RARE_WORDS: Final = 1.1
"""How many such words an answer holds, so that it is as relevant as if it was asked for alone."""

_NUMBER: Final = re.compile(r"(?!(?:19|20)\d\d(?:\d{4})?$)(?=.*\d)(?:\d{3,}|[a-z0-9]*[a-z][a-z0-9]*)")
"""A number or an id that is no year, day, or small number."""

FEATURES: Final = {
    "words_present": "words",
    "words": "words",
    "words_near": "neighbours",
    "meaning": "vector",
    "meaning_near": "neighbours",
    "speaker": "speaker",
    "date": "date",
    "assistant_if_user": "role",
    "assistant_if_mine": "role",
    "assistant_if_open": "role",
    "user_if_assistant": "role",
    "user_if_advice": "role",
}
"""The features, and the part of the score that each belongs to: a name of `Weights`."""

Column = NDArray[np.float64]
Beside = Mapping[int, tuple[NDArray[np.int64], Column]]
"""By distance in places: what `index_at` returns for it."""


class Coefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A linear model: log-odds are `offset` plus the features times their coefficients."""

    offset: float
    features: dict[str, float]


class Fitted(msgspec.Struct, frozen=True):
    """The fitted models of a ranking, from its file."""

    ranking: str
    with_vectors: Coefficients
    without_vectors: Coefficients
    """For turns without a vector, and where no vectors answer."""
    vectors_alone: Coefficients
    """For the mode `vector`."""


_DECODER: Final = msgspec.json.Decoder(Fitted)


@cache
def fitted() -> Fitted:
    """Return the models that the package ships."""
    file = resources.files("mnemolog.projections.recall").joinpath(f"{RANKING.replace('/', '_')}.json")
    return _DECODER.decode(file.read_bytes())


class Scored(NamedTuple):
    """Scores of rows, in total and by part. Shape (rows,)."""

    positions: NDArray[np.int64]
    total: Column
    """Log-odds."""
    parts: dict[str, Column]
    direct: NDArray[np.bool_]
    """Whether any word of the query is in the turn itself."""

    def order(self) -> list[int]:
        """Return the indexes of the rows, best first; ties by position."""
        numbers: list[int] = np.lexsort((self.positions, -self.total)).tolist()
        return numbers


class Features(NamedTuple):
    """The features of rows. Each column has the shape (rows,); a feature that is 0 for all is left out."""

    columns: dict[str, Column]
    embedded: NDArray[np.bool_]
    """Whether the row has a vector."""
    direct: NDArray[np.bool_]
    """Whether any word of the query is in the row itself."""
    numbers: Column
    """1 where the row has a number or an id that is asked for, -1 where it has another one like it, else 0."""
    rare: Column
    """How many words of the query the row holds, each counted by its rarity, 1 at most."""


def score(found: Candidates, *, query: str, weights: Weights, one_of_several: bool = False) -> Scored:
    """Score the candidates' rows: at least one, ordered by place.

    "Last week" is relative to `found.offer.now`. If the query is one of several, words that few turns hold tell which
    of them is answered: a share of the words says little where a question has few.
    """
    features, models = features_of(found, query), fitted()
    parts: dict[str, Column] = {}
    for name, column in features.columns.items():
        part = FEATURES[name]
        if weight := getattr(weights, part):
            embedded, bare = (model.features.get(name, 0.0) for model in (models.with_vectors, models.without_vectors))
            scored = weight * np.where(features.embedded, embedded, bare) * column
            parts[part] = parts[part] + scored if part in parts else scored
    if one_of_several and weights.words:
        parts["words"] = parts.get("words", 0.0) + weights.words * RARE_WORD * (features.rare - RARE_WORDS)
    parts["base"] = np.where(features.embedded, models.with_vectors.offset, models.without_vectors.offset)
    total = np.round(np.sum(list(parts.values()), axis=0), 9)
    asked, others = (np.array(found.rows.may_be_hits) & (features.numbers == held) for held in (1, -1))
    if weights.words and asked.any() and others.any():
        behind = total[others].max() - total[asked].max()
        if 0 <= behind <= NUMBER_BEHIND_MAX:
            parts["words"] = parts["words"] + asked * (behind + AHEAD)
            total = total + asked * (behind + AHEAD)
    positions = np.array(found.rows.positions, dtype=np.int64)
    return Scored(positions, total, parts, features.direct)


def score_by_vectors(similarity: float) -> float:
    """Return the log-odds of a turn from its cosine similarity alone."""
    model = fitted().vectors_alone
    return round(model.offset + model.features["meaning"] * similarity, 9)


def features_of(found: Candidates, query: str) -> Features:
    """Return the features of the candidates' rows: at least one, ordered by place."""
    rows = found.rows
    places, asks = np.array(rows.places, dtype=np.int64), np.array(rows.ask, dtype=np.float64)
    beside = {away: index_at(places, away) for away in LENDS}
    columns, direct, numbers, rare = _words(rows.stems, beside, asks, found.offer.terms, found.offer.found.counts)
    embedded = np.zeros(len(places), dtype=np.bool_)
    if found.similarity is not None:
        near = np.array(list(map(found.similarity.get, rows.positions, repeat(np.nan))))
        embedded = ~np.isnan(near)
        columns["meaning"] = np.where(embedded, near, 0.0)
        columns["meaning_near"] = np.where(embedded, _best_near(beside, np.where(embedded, near, -1.0)), 0.0)
    if found.offer.terms.speakers:
        columns["speaker"] = np.array(
            [speaker in found.offer.terms.speakers for speaker in rows.speakers], dtype=np.float64
        )
    if dates := dates_of(query, now=found.offer.now, first=min(rows.said), last=max(rows.said)):
        columns["date"] = nearness_in_time(np.array(rows.said, dtype=np.float64), dates, days=NEAR_DAYS)
    whose = found.offer.terms.request.whose
    other = (Role.USER if whose in (Whose.ASSISTANT, Whose.ADVICE) else Role.ASSISTANT).value
    columns[f"{other}_if_{whose}"] = np.array([role == other for role in rows.roles], dtype=np.float64)
    return Features(columns, embedded, direct, numbers, rare)


def _words(
    stems: Sequence[str], beside: Beside, asks: Column, terms: QueryTerms, counts: Counts
) -> tuple[dict[str, Column], NDArray[np.bool_], Column, Column]:
    """Return the features of words, as shares of what all words of the query are worth; `direct`, `numbers`, `rare`.

    A word that no turn holds is part of the whole: a turn with one of two words holds less of the question if the other
    occurs nowhere. An emoji that occurs nowhere does not count. A name that occurs nowhere counts as its parts, and a
    turn that holds a name holds its parts. `words_near` is what neighbours add: for each word, the best of the turn's
    own score and of the shares lent counts.
    """
    known = [term for term in terms.stems if term in counts.holding]
    if not known:
        return {}, np.zeros(len(stems), dtype=np.bool_), np.zeros(len(stems)), np.zeros(len(stems))
    sizes = np.array([row.find("  ") + 1 or len(row) for row in stems])  # Without the spellings of numbers.
    frequencies = frequencies_in("".join(stems), np.cumsum(list(map(len, stems))), known)
    for part, whole in terms.wholes.items():
        if part in counts.holding and whole in counts.holding:
            of_part = frequencies[:, known.index(part)]
            np.maximum(of_part, frequencies[:, known.index(whole)], out=of_part)
    # Lengths in characters of stems: as good as counts of words, and no counting is needed.
    lengths = K1 * (1 - B + B * sizes / USUAL_CHARACTERS)
    own = frequencies * (K1 + 1) / (frequencies + lengths[:, None])
    best = own
    for away, share in LENDS.items():
        there, found = beside[away]
        shares = np.where(asks[there] > 0, ANSWERS, share) if away == -1 else share
        best = np.maximum(best, own[there] * (found * shares)[:, None])
    optional = {*terms.wholes.values(), *(part for part, whole in terms.wholes.items() if whole in counts.holding)}
    rarity = {term: counts.rarity(term) for term in terms.stems if term in counts.holding or term not in optional}
    worth = np.array([rarity[term] for term in known]) / sum(rarity.values())
    scored = own @ worth
    present = frequencies > 0
    columns = {"words_present": present @ worth, "words": scored, "words_near": best @ worth - scored}
    keys = [
        n for n, term in enumerate(known) if _NUMBER.fullmatch(term) and terms.wholes.get(term, term) not in known[:n]
    ]
    numbers = _numbers(stems, present[:, keys], [known[n] for n in keys])
    rare = present @ worth * sum(rarity.values()) / counts.rarity("")
    return columns, np.asarray(present.any(axis=1)), numbers, rare


def _numbers(stems: Sequence[str], held: NDArray[np.bool_], numbers: Sequence[str]) -> Column:
    """Return 1 for rows that hold any of these numbers and ids, -1 for others that hold one with the same letters."""
    if not numbers:
        return np.zeros(len(stems))
    shapes = {r"\d{3,}" if number.isdigit() else re.sub(r"\d+", r"\\d+", number) for number in numbers}
    shaped = re.compile(f" (?:{'|'.join(sorted(shapes))}) ").search
    return np.where(held.any(axis=1), 1.0, [-float(shaped(row) is not None) for row in stems])


def frequencies_in(text: str, ends: NDArray[np.int64], terms: Sequence[str]) -> Column:
    """Return how often each row, concatenated in `text`, contains each term. Shape (rows, terms)."""
    places = [_find(text, f" {term} ") for term in terms]
    rows = np.searchsorted(ends, np.concatenate([np.empty(0, np.int64), *places]), "right")
    columns = np.repeat(np.arange(len(terms)), [len(some) for some in places])
    counted = np.bincount(rows * len(terms) + columns, minlength=len(ends) * len(terms))
    return counted.reshape(len(ends), len(terms)).astype(np.float64)


def _find(text: str, word: str) -> NDArray[np.int64]:
    """Return every place of a word, with one pass in C for all rows instead of one per row."""
    found, at = array("q"), text.find(word)  # Not a list: a long text may have millions.
    while at >= 0:
        found.append(at)
        at = text.find(word, at + len(word) - 1)
    return np.frombuffer(found, np.int64)


def nearness_in_time(at: Column, dates: Dates, *, days: float) -> Column:
    """Return 1 within the requested spans of time, and less with distance: 1 / e at `days` away."""
    away = np.full(len(at), np.inf)
    for start, end in dates:
        away = np.minimum(away, np.where(at < start, start - at, np.maximum(at - end, 0)))
    near: Column = np.exp(-away / DAY / days)
    return near


def _best_near(beside: Beside, values: Column) -> Column:
    """Return for each row the highest value among it and the rows up to `NEAR_PLACES` away."""
    best = values
    for away in range(1, NEAR_PLACES + 1):
        for there, found in (beside[away], beside[-away]):
            best = np.maximum(best, np.where(found > 0, values[there], -np.inf))
    return best


def index_at(places: NDArray[np.int64], away: int) -> tuple[NDArray[np.int64], Column]:
    """Return for each row the index of the row that is `away` places away, and 1 if it exists, else 0."""
    where = np.minimum(np.searchsorted(places, places + away), len(places) - 1)
    return where, (places[where] == places + away).astype(np.float64)
