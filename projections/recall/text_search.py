"""The text leg of a recall: BM25 over FTS5, for any query text.

A word that many turns contain says little about each, and costs as much as all rare words together. So candidates come
from the rarest words, up to a total number of turns; the ranking counts the other words too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.position import Position
from mnemolog.projections.recall import text_as_of
from mnemolog.projections.sql.conversation_views import TEXT_INDEX, TURNS, VOCABULARY
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import Filters, conditions, positions_left

PLACES_MAX: Final = 10_000
"""Maximum total of turns that contain the candidate words, summed over the words. One word is always used."""

_MATCHES: Final = sa.table(TEXT_INDEX, sa.column("rowid"))
_BEST: Final = f"SELECT rowid FROM {TEXT_INDEX} WHERE {TEXT_INDEX} MATCH ? ORDER BY bm25({TEXT_INDEX}), rowid LIMIT ?"


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


def search(
    connection: sa.Connection, terms: Sequence[str], *, k: int, filters: Filters, unindexed: str | None = None
) -> Found:
    """Return up to `k` turns, best first by BM25 (FTS5: k1 = 1.2, b = 0.75); ties by position.

    `terms` are stems (`projections.sql.words`). With `filters.upto`, the result is the one of that time, with
    statistics of the turns up to it. `unindexed` is the language of `terms`, where it is not that of the index.
    """
    if not terms:
        return NOTHING_FOUND
    if filters.upto is not None:
        return _search_then(connection, terms, k=k, filters=filters, upto=filters.upto, unindexed=unindexed)
    counts = _counts(connection, terms)
    expression = " OR ".join(f'"{term}"' for term in _rarest(counts.holding))
    if not expression:
        return Found([], counts)
    if filters.leave_everything:
        return Found([Position(row[0]) for row in fetch(connection, _BEST, expression, k)], counts)
    # Not a join, because SQLite may reverse it and query the text index once for every turn of a session.
    left = sa.exists().where(TURNS.c.position == _MATCHES.c.rowid, *conditions(filters))
    matches = sa.text(f"{TEXT_INDEX} MATCH :expression").bindparams(expression=expression)
    score: sa.ColumnElement[float] = sa.literal_column(f"bm25({TEXT_INDEX})")
    statement = sa.select(_MATCHES.c.rowid).where(matches, left).order_by(score, _MATCHES.c.rowid).limit(k)
    return Found([Position(row[0]) for row in connection.execute(statement)], counts)


def _counts(connection: sa.Connection, terms: Sequence[str]) -> Counts:
    query = f"SELECT term, doc FROM {VOCABULARY} WHERE term IN (SELECT value FROM json_each(?))"
    holding: dict[str, int] = dict(fetch(connection, query, listed(terms)))
    ((turns,),) = fetch(connection, "SELECT coalesce(sum(turns - forgotten), 0) FROM sessions")
    return Counts(turns, {term: holding[term] for term in terms if term in holding})


def _rarest(holding: Mapping[str, int]) -> list[str]:
    """Return the words to search for candidates, the rarest first."""
    chosen, places = list[str](), 0
    for count, term in sorted((count, term) for term, count in holding.items()):
        places += count
        if chosen and places > PLACES_MAX:
            break
        chosen.append(term)
    return chosen


def _search_then(
    connection: sa.Connection,
    terms: Sequence[str],
    *,
    k: int,
    filters: Filters,
    upto: Position,
    unindexed: str | None,
) -> Found:
    if unindexed is None:
        corpus, frequencies = text_as_of.count(connection, terms, upto=upto)
        lengths = None
    else:
        corpus, frequencies, lengths = text_as_of.count_in_texts(connection, terms, upto=upto, language=unindexed)
    counts = Counts(corpus.turns, {term: len(found) for term, found in frequencies.items() if found})
    scored = text_as_of.scores(
        connection, corpus, [frequencies[term] for term in _rarest(counts.holding)], lengths=lengths
    )
    if scored and replace(filters, upto=None) != Filters():
        left = set(positions_left(connection, filters))
        scored = {position: score for position, score in scored.items() if position in left}
    return Found(sorted(scored, key=lambda position: (-scored[position], position))[:k], counts)
