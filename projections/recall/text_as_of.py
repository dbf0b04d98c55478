"""BM25 as of an earlier position, from statistics of the turns up to there only.

FTS5 keeps statistics of the whole index, later turns included. This module recounts them and computes the score of FTS5
(`fts5_aux.c`), term by term in the same order. So it returns the same turns in the same order as were found then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.projections.sql.conversation_views import TEXT_INDEX, TOKENIZER
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import stems_of

K1: Final = 1.2
B: Final = 0.75
IDF_MIN: Final = 1e-6
"""The weight that FTS5 gives to a word that more than half of the turns contain."""

_WORDS, _WORD_TOKENS, _POSTINGS = "temp.then_words", "temp.then_word_tokens", "temp.then_postings"


class Corpus(NamedTuple):
    """Statistics of the turns up to a position, for BM25."""

    turns: int
    tokens: int


def count(
    connection: sa.Connection, words: Sequence[str], *, upto: Position
) -> tuple[Corpus, dict[str, dict[Position, int]]]:
    """Return statistics of the turns up to `upto`, and how often each turn contains each of `words`.

    Reads the lengths of those turns and all places of these words. That is slower than a search at the head, because no
    statistics of the past are stored.
    """
    with _vocabulary(connection, words) as phrases:
        found = {word: _frequencies(connection, phrase, upto) for word, phrase in zip(words, phrases, strict=True)}
    return _corpus(connection, upto), found


def count_in_texts(
    connection: sa.Connection, words: Sequence[str], *, upto: Position, language: str
) -> tuple[Corpus, dict[str, dict[Position, int]], dict[Position, int]]:
    """Return the same as `count` for a language that the index no longer has, and the lengths of the turns.

    Reads the texts of all those turns. Needed only for positions before the language of the store was changed.
    """
    frequencies: dict[str, dict[Position, int]] = {word: {} for word in words}
    lengths: dict[Position, int] = {}
    for position, text in connection.exec_driver_sql("SELECT position, text FROM turns WHERE position <= ?", (upto,)):
        stems = stems_of(text, language)
        lengths[position] = len(stems)
        held = Counter(stems)
        for word in frequencies.keys() & held.keys():
            frequencies[word][position] = held[word]
    return Corpus(len(lengths), sum(lengths.values())), frequencies, lengths


def scores(
    connection: sa.Connection,
    corpus: Corpus,
    found: Sequence[Mapping[Position, int]],
    *,
    lengths: Mapping[Position, int] | None = None,
) -> dict[Position, float]:
    """Return the BM25 score of every turn that contains any of the words. `found` has their frequencies.

    Higher is better. The sum adds the words in the given order; FTS5 adds them in the order of the query.
    """
    if lengths is None:
        lengths = _lengths(connection, set().union(*found))
    total: dict[Position, float] = {}
    for frequencies in found:
        idf = log((corpus.turns - len(frequencies) + 0.5) / (len(frequencies) + 0.5))
        idf = idf if idf > 0.0 else IDF_MIN
        average = corpus.tokens / corpus.turns if corpus.turns else 0.0
        for position, frequency in frequencies.items():
            length = 1 - B + B * lengths[position] / average
            score = idf * (frequency * (K1 + 1.0) / (frequency + K1 * length))
            total[position] = total.get(position, 0.0) + score
    return total


@contextmanager
def _vocabulary(connection: sa.Connection, words: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield the tokens of the index for each word, while the table of token places exists."""
    for made in (
        f"CREATE VIRTUAL TABLE {_WORDS} USING fts5(body, content='', tokenize=\"{TOKENIZER}\")",
        f"CREATE VIRTUAL TABLE {_WORD_TOKENS} USING fts5vocab(temp, then_words, instance)",
        f"CREATE VIRTUAL TABLE {_POSTINGS} USING fts5vocab(main, {TEXT_INDEX}, instance)",
    ):
        connection.exec_driver_sql(made)
    try:
        numbered = list(enumerate(words, start=1))
        connection.exec_driver_sql(f"INSERT INTO {_WORDS} (rowid, body) VALUES (?, ?)", numbered)
        phrases: list[list[str]] = [[] for _ in words]
        for number, token in connection.exec_driver_sql(f'SELECT doc, term FROM {_WORD_TOKENS} ORDER BY doc, "offset"'):
            phrases[number - 1].append(token)
        yield phrases
    finally:
        for made in (_POSTINGS, _WORD_TOKENS, _WORDS):
            connection.exec_driver_sql(f"DROP TABLE {made}")


def _frequencies(connection: sa.Connection, phrase: list[str], upto: Position) -> dict[Position, int]:
    """Return how often each turn up to `upto` contains these tokens in sequence."""
    if len(phrase) == 1:
        query = f"SELECT doc, count(*) FROM {_POSTINGS} WHERE term = ? AND doc <= ? GROUP BY doc"
        return {row[0]: row[1] for row in connection.exec_driver_sql(query, (phrase[0], upto))}
    places: set[tuple[int, int]] | None = None
    for number, token in enumerate(phrase):
        query = f'SELECT doc, "offset" FROM {_POSTINGS} WHERE term = ? AND doc <= ?'
        here = {(doc, place - number) for doc, place in connection.exec_driver_sql(query, (token, upto))}
        places = here if places is None else places & here
    return {Position(doc): count for doc, count in Counter(doc for doc, _ in places or ()).items()}


def _corpus(connection: sa.Connection, upto: Position) -> Corpus:
    query = f"SELECT sz, count(*) FROM {TEXT_INDEX}_docsize WHERE id <= ? GROUP BY sz"
    sizes = [(_number(size), count) for size, count in connection.exec_driver_sql(query, (upto,))]
    return Corpus(sum(count for _, count in sizes), sum(size * count for size, count in sizes))


def _lengths(connection: sa.Connection, positions: Iterable[Position]) -> dict[Position, int]:
    query = f"SELECT id, sz FROM {TEXT_INDEX}_docsize WHERE id IN (SELECT value FROM json_each(?))"
    return {position: _number(size) for position, size in fetch(connection, query, listed(sorted(positions)))}


def _number(stored: bytes) -> int:
    """Return the first number of an FTS5 record, which stores SQLite's variable-length integers."""
    number = 0
    for byte in stored[:8]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number
    return number << 8 | stored[8]
