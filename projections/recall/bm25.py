"""BM25 as of a position, from statistics of the turns up to there only. The present is a position like any other.

The score is that of FTS5 (`fts5_aux.c`: k1 = 1.2, b = 0.75), word by word in the same order. FTS5 itself computes it
several times slower, because it looks up the length of every turn, and only for the whole index, later turns included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position
from mnemolog.projections.sql import position_blocks
from mnemolog.projections.sql.conversation_views import PLACES_OF_WORDS, TEXT_INDEX, VOCABULARY, languages_at
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.filtering import PositionMask
from mnemolog.projections.sql.words import stems_of

K1: Final = 1.2
B: Final = 0.75
IDF_MIN: Final = 1e-6
"""The weight that FTS5 gives to a word that more than half of the turns contain."""

Positions = NDArray[np.int64]
Lengths = NDArray[np.int64]

_KEPT: Final = "lengths of turns"
_LENGTHS: Final = f"SELECT id, sz FROM {TEXT_INDEX}_docsize WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"

_DOCUMENTS: Final = msgspec.json.Decoder(list[int])


class Corpus(NamedTuple):
    """Statistics of the turns up to a position, for BM25."""

    turns: int
    tokens: int


class Postings(NamedTuple):
    """The turns that contain a word, ascending, and how often each does. Shapes (n,)."""

    turns: Positions
    frequencies: NDArray[np.int64]


class _Kept(NamedTuple):
    """Lengths of turns by position plus one, as the index of a language counts them."""

    language: str
    lengths: NDArray[np.uint16]


_NOTHING_KEPT: Final = _Kept("", np.empty(0, dtype=np.uint16))


def corpus(connection: sa.Connection, *, upto: Position | None) -> Corpus:
    """Return the number of turns up to `upto` (None for all), and of the words in them."""
    end = INTEGER_MAX if upto is None else upto + 1
    count = min(position_blocks.closed_to(connection), end) // position_blocks.BLOCK
    query = "SELECT coalesce(sum(turns), 0), coalesce(sum(words), 0) FROM blocks WHERE block < ?"
    ((turns, tokens),) = fetch(connection, query, count)
    query = f"SELECT count(*), CAST(group_concat(sz, '') AS BLOB) FROM {TEXT_INDEX}_docsize WHERE id >= ? AND id < ?"
    ((more, sizes),) = fetch(connection, query, count * position_blocks.BLOCK, end)
    return Corpus(turns + more, tokens + int(numbers_in(sizes or b"").sum()))


def numbers_in(stored: bytes) -> NDArray[np.int64]:
    """Return numbers below 2^56 that FTS5 stores one after the other: SQLite's variable-length integers."""
    parts = np.frombuffer(stored, dtype=np.uint8).astype(np.int64)
    ends, places = np.flatnonzero(parts < 0x80), np.arange(len(parts))
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    bits = (parts & 0x7F) << 7 * (ends[np.searchsorted(ends, places)] - places)
    return np.add.reduceat(bits, starts) if len(parts) else parts


def turns_with(connection: sa.Connection, words: Sequence[str], *, upto: Position | None) -> dict[str, int]:
    """Return how many turns up to `upto` (None for all) contain each of `words`; words of no turn are left out."""
    if upto is None:
        query = f"SELECT term, doc FROM {VOCABULARY} WHERE term IN (SELECT value FROM json_each(?))"
        found = dict(fetch(connection, query, listed(words)))
    else:
        query = f"SELECT count(*) FROM {TEXT_INDEX} WHERE {TEXT_INDEX} MATCH ? AND rowid <= ?"
        found = {word: fetch(connection, query, f'"{word}"', upto)[0][0] for word in words}
    return {word: found[word] for word in words if found.get(word)}


def postings(connection: sa.Connection, word: str, *, upto: Position | None) -> Postings:
    """Return the turns up to `upto` (None for all) that contain a word."""
    query = f"SELECT json_group_array(doc) FROM {PLACES_OF_WORDS} WHERE term = ?"
    ((found,),) = fetch(connection, query, word)
    places = np.array(_DOCUMENTS.decode(found), dtype=np.int64)
    if upto is not None:
        places = places[: np.searchsorted(places, upto, side="right")]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    return Postings(places[starts], np.diff(starts, append=len(places)))


def corpus_of(connection: sa.Connection, allowed: PositionMask, *, lengths: Mapping[Position, int] | None) -> Corpus:
    """Return the number of turns in a set, and of the words in them. `lengths` as in `best`."""
    turns = allowed.positions()
    if lengths is None:
        return Corpus(len(turns), int(_lengths(connection, turns).sum()))
    return Corpus(len(turns), sum(lengths.get(Position(turn), 0) for turn in turns.tolist()))


def held_within(found: Postings, allowed: PositionMask) -> Postings:
    """Return which turns of a set contain a word."""
    kept = allowed.holds(found.turns)
    return Postings(found.turns[kept], found.frequencies[kept])


class Texts(NamedTuple):
    """The turns up to a position in a language that the index no longer has."""

    corpus: Corpus
    postings: Mapping[str, Postings]
    lengths: Mapping[Position, int]


def read_texts(connection: sa.Connection, words: Sequence[str], *, upto: Position, language: str) -> Texts:
    """Return statistics of the turns up to `upto` in another language than that of the index.

    Reads the texts of all those turns. Needed only for positions before the language of the store was changed.
    """
    frequencies: dict[str, dict[int, int]] = {word: {} for word in words}
    lengths: dict[Position, int] = {}
    query = "SELECT position, text FROM turns WHERE position <= ? ORDER BY position"
    for position, text in connection.exec_driver_sql(query, (upto,)):
        stems = stems_of(text, language)
        lengths[position] = len(stems)
        held = Counter(stems)
        for word in frequencies.keys() & held.keys():
            frequencies[word][position] = held[word]
    held_by = {
        word: Postings(np.array(list(found), dtype=np.int64), np.array(list(found.values()), dtype=np.int64))
        for word, found in frequencies.items()
        if found
    }
    return Texts(Corpus(len(lengths), sum(lengths.values())), held_by, lengths)


def best(
    connection: sa.Connection,
    of: Corpus,
    found: Sequence[Postings],
    *,
    k: int,
    allowed: PositionMask | None = None,
    lengths: Mapping[Position, int] | None = None,
) -> tuple[Positions, NDArray[np.float64]]:
    """Return the best `k` turns that contain any of the words, with their scores; of equal scores the earlier first.

    Only turns in `allowed` are returned; None allows all. `lengths` are those of the turns, None for those of the
    index. The sum adds the words in the given order; FTS5 adds them in the order of the query.
    """
    kept = [np.ones(len(some.turns), np.bool_) if allowed is None else allowed.holds(some.turns) for some in found]
    turns = np.concatenate([some.turns[left] for some, left in zip(found, kept, strict=True)])
    turns.sort(kind="stable")  # Each word's turns are in order already.
    turns = turns[np.flatnonzero(np.diff(turns, prepend=-1))]
    if not len(turns):
        return turns, np.empty(0)
    sizes = (
        _lengths(connection, turns)
        if lengths is None
        else np.array([lengths[Position(turn)] for turn in turns.tolist()], dtype=np.int64)
    )
    average = of.tokens / of.turns if of.turns else 0.0
    norms = 1 - B + B * sizes / average
    total = np.zeros(len(turns))
    for some, left in zip(found, kept, strict=True):
        holding = len(some.turns)
        idf = log((of.turns - holding + 0.5) / (holding + 0.5))
        idf = idf if idf > 0.0 else IDF_MIN
        at, frequencies = np.searchsorted(turns, some.turns[left]), some.frequencies[left]
        total[at] += idf * (frequencies * (K1 + 1.0) / (frequencies + K1 * norms[at]))
    if len(turns) > k:
        floor = np.partition(total, len(total) - k)[len(total) - k]
        high = np.flatnonzero(total >= floor)
        turns, total = turns[high], total[high]
    order = np.lexsort((turns, -total))[:k]
    return turns[order], total[order]


def _lengths(connection: sa.Connection, turns: Positions) -> Lengths:
    """Return the lengths of turns (ascending) in words, as the text index counts them.

    Raises `ProjectionUnreadable` for a turn whose length is missing.
    """
    lengths = np.full(len(turns), position_blocks.LENGTH_MAX, dtype=np.int64)
    stored = _stored_lengths(connection)
    closed = int(np.searchsorted(turns, len(stored)))
    lengths[:closed] = stored[turns[:closed]]
    lengths -= 1
    unknown = np.flatnonzero(lengths == position_blocks.LENGTH_MAX - 1)
    if len(unknown):
        lengths[unknown] = _indexed_lengths(connection, turns[unknown].tolist())
    return lengths


def _indexed_lengths(connection: sa.Connection, turns: Sequence[int]) -> Lengths:
    """Return the lengths of turns (ascending) from the text index. Raises `ProjectionUnreadable`."""
    rows = fetch(connection, _LENGTHS, listed(turns))
    lengths = numbers_in(b"".join([size for _, size in rows]))
    if len(rows) != len(turns) or len(lengths) != len(turns):
        missing = sorted(set(turns).difference([position for position, _ in rows]))
        why = f"has no length of turn {missing[0]}" if missing else "has lengths that are no numbers"
        raise errors.ProjectionUnreadable(Path(connection.engine.url.database or "views.db"), f"its text index {why}")
    return lengths


def _stored_lengths(connection: sa.Connection) -> NDArray[np.uint16]:
    """Return the column `lengths` of all blocks. The connection keeps it: two bytes for each position.

    A block never changes while the index has the same language, but for turns that were forgotten, which no word has
    any more.
    """
    language = languages_at(connection, ORIGIN).indexed
    kept: _Kept = connection.info.get(_KEPT, _NOTHING_KEPT)
    if kept.language != language:
        kept = _NOTHING_KEPT
    query = "SELECT lengths FROM blocks WHERE block >= ? ORDER BY block"
    if rows := fetch(connection, query, len(kept.lengths) // position_blocks.BLOCK):
        fresh = np.frombuffer(b"".join(row for (row,) in rows), dtype="<u2")
        kept = _Kept(language, np.concatenate((kept.lengths, fresh)))
        connection.info[_KEPT] = kept
    return kept.lengths
