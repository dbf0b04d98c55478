"""BM25 as of an offset, against FTS5 itself over the turns up to that offset and no others."""

from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pysqlite3 import dbapi2

from mnemolog.projections.recall import bm25, text_search
from mnemolog.projections.sql import position_blocks
from mnemolog.projections.sql.conversation_views import CHOICES, CREATE_TEXT_INDEX, TEXT_INDEX
from mnemolog.projections.sql.position_blocks import BLOCKS
from mnemolog.projections.sql.words import stems_of, terms_of

WORDS = [
    "tea",
    "teas",
    "drinking",
    "drinks",
    "snake_case",
    "a_a",
    "_",
    "the",
    "日本語",
    "café",
    "CAFE",
    "😀",
    "don't",
    "x",
]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), max_size=30)
LONG = "tea " * 20_000 + "the " * 17_000


@contextmanager
def index_of(texts):
    """An index with these texts at positions 2, 4, 6 and so on."""
    engine = sa.create_engine("sqlite+pysqlite://", module=dbapi2)
    with engine.connect() as connection:
        for statement in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(statement)
        BLOCKS.create(connection)
        CHOICES.create(connection)
        for number, text in enumerate(texts, start=1):
            row = (2 * number, " ".join(stems_of(text)))
            connection.exec_driver_sql(f"INSERT INTO {TEXT_INDEX} (rowid, body) VALUES (?, ?)", row)
        yield connection
    engine.dispose()


def scored_by_fts5(texts, query):
    with index_of(texts) as connection:
        matches = sa.text(
            f"SELECT rowid, -bm25({TEXT_INDEX}) FROM {TEXT_INDEX} WHERE {TEXT_INDEX} MATCH :expression"
        ).bindparams(expression=" OR ".join(f'"{term}"' for term in terms_of(query)))
        return {position: score for position, score in connection.execute(matches)}  # noqa: C416


def scores(connection, words, *, upto):
    """What is found up to a position, best first, with its scores."""
    corpus = bm25.corpus(connection, upto=upto)
    held = bm25.turns_with(connection, words, upto=upto)
    postings = [bm25.postings(connection, word, upto=upto) for word in held]
    assert [len(some.turns) for some in postings] == list(held.values())
    if not postings:
        return {}
    turns, found = bm25.best(connection, corpus, postings, k=1_000)
    return dict(zip(turns.tolist(), found.tolist(), strict=True))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.integers(0, 62), st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join))
@example(["tea", LONG, "the"], 4, "tea the")
def test_scores_are_those_of_an_index_that_ends_there(texts, upto, query):
    """To the last bit: words that share a stem, words of several tokens, words that every turn has, no words at all."""
    words = terms_of(query)
    if not words:
        return
    with index_of(texts) as connection:
        found = scores(connection, words, upto=upto)
    assert found == pytest.approx(scored_by_fts5(texts[: upto // 2], query), rel=1e-12)
    scored = scored_by_fts5(texts[: upto // 2], query)
    assert list(found) == sorted(scored, key=lambda position: (-scored[position], position))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2**28, 2**56 - 1, 2**56, 2**63])
def test_numbers_are_read_as_fts5_writes_them(number):
    """SQLite's variable-length integers: seven bits a byte, the ninth byte whole."""
    if number < 1 << 56:
        groups = [number >> shift & 0x7F for shift in range(49, -1, -7)]
        while len(groups) > 1 and not groups[0]:
            del groups[0]
        stored = bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])
    else:
        high = number >> 8
        stored = bytes((high >> shift & 0x7F) | 0x80 for shift in range(49, -1, -7)) + bytes([number & 0xFF])
    assert position_blocks.number_in(stored) == number
    if number < 1 << 56:
        assert bm25.numbers_in(stored + b"\0" + stored).tolist() == [number, 0, number]


def test_a_query_without_words_asks_nothing():
    """As at the head."""
    with index_of(["tea"]) as connection:
        assert text_search.search(connection, terms_of("?!"), k=5, upto=1).positions == []
