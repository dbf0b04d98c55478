"""The text leg of a recall: BM25 over FTS5, for any query text.

A word that many turns contain says little about each, and costs as much as all rare words together. So candidates come
from the rarest words, up to a total number of turns; the ranking counts the other words too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.values import Position

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.sql.filtering import PositionMask

PLACES_MAX: Final = 10_000
"""Maximum total of turns that contain the candidate words, summed over the words. One word is always used."""


class Counts(NamedTuple):
    """The number of turns, and for each word of a query that occurs, the number of turns that contain it."""

    turns: int
    holding: Mapping[str, int]

    def rarity(self, word: str) -> float:
        """Return BM25's weight of a word: the fewer turns contain it, the higher."""
        holding = self.holding.get(word, 0)
        return math.log(1 + (max(self.turns - holding, 0) + 0.5) / (holding + 0.5))


class Found(NamedTuple):
    """Turns that contain words of a query, best first by BM25."""

    positions: list[Position]
    counts: Counts


NOTHING_FOUND: Final = Found([], Counts(0, {}))


def counts_of(
    connection: sa.Connection, words: Sequence[str], *, upto: Position | None, unindexed: str | None
) -> Counts:
    """Return how many turns there are, and hold each of these words. The parameters are those of `search`."""
    from mnemolog.projections.recall import bm25

    if unindexed is None or upto is None:
        return Counts(bm25.corpus(connection, upto=upto).turns, bm25.turns_with(connection, words, upto=upto))
    texts = bm25.read_texts(connection, words, upto=upto, language=unindexed)
    return Counts(texts.corpus.turns, {word: len(found.turns) for word, found in texts.postings.items()})


def search(
    connection: sa.Connection,
    terms: Sequence[str],
    *,
    k: int,
    upto: Position | None = None,
    allowed: PositionMask | None = None,
    alone: bool = False,
    unindexed: str | None = None,
) -> Found:
    """Return up to `k` turns, best first by BM25; ties by position.

    `terms` are stems (`projections.sql.words`). With `upto`, the result is the one of that time, with statistics of the
    turns up to it. With `allowed`, only these turns are returned; all turns count in the statistics, unless they are to
    count `alone`. `unindexed` is the language of `terms`, where it is not that of the index.
    """
    from mnemolog.projections.recall import bm25

    if not terms:
        return NOTHING_FOUND
    if unindexed is not None and upto is not None:
        texts = bm25.read_texts(connection, terms, upto=upto, language=unindexed)
        corpus, lengths = texts.corpus, texts.lengths
        counts = Counts(corpus.turns, {term: len(found.turns) for term, found in texts.postings.items()})
        chosen = _rarest(counts.holding)
        postings = [texts.postings[term] for term in chosen]
    else:
        corpus, lengths = bm25.corpus(connection, upto=upto), None
        counts = Counts(corpus.turns, bm25.turns_with(connection, terms, upto=upto))
        chosen = _rarest(counts.holding)
        postings = [bm25.postings(connection, term, upto=upto) for term in chosen]
    if alone and allowed is not None:
        corpus = bm25.corpus_of(connection, allowed, lengths=lengths)
        postings = [bm25.held_within(some, allowed) for some in postings]
        held = {term: len(some.turns) for term, some in zip(chosen, postings, strict=True)}
        # Of a word that is too common to be looked for nothing is known; so it is worth as little as one in every turn.
        held = {term: held.get(term, corpus.turns) for term in counts.holding}
        counts = Counts(corpus.turns, {term: count for term, count in held.items() if count})
        postings = [some for some in postings if len(some.turns)]
    if not postings:
        return Found([], counts)
    turns, _ = bm25.best(connection, corpus, postings, k=k, allowed=allowed, lengths=lengths)
    return Found([Position(turn) for turn in turns.tolist()], counts)


def _rarest(holding: Mapping[str, int]) -> list[str]:
    """Return the words to search for candidates, the rarest first."""
    chosen, places = list[str](), 0
    for count, term in sorted((count, term) for term, count in holding.items()):
        places += count
        if chosen and places > PLACES_MAX:
            break
        chosen.append(term)
    return chosen
