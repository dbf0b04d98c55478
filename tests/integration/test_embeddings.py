"""The embedding cache finds what it was given, and what no text stands for is swept out of it."""

import random
import threading

import numpy as np
import pytest

from mnemolog.projections.sql import embeddings
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache, content_hash, pack
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.vectors.turn_vectors import sweep
from tests.support import WAIT_S, append, in_thread
from tests.support import start as session

DIMENSION = 4
TEXTS = 2_000
GRACE_S = 0.3
"""How long the sweep gets to do what it must not do yet."""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "embeddings.db"
    return ProjectionDatabase(open_engine(path), path)


def vector(number, model=0):
    return pack(np.full((1 + number % 3, DIMENSION), number + model / 2, dtype=np.float32))


@pytest.fixture
def cache(database):
    """Two thousand texts, rows of another model between them."""
    cache = EmbeddingCache(database, fingerprint="one", dimension=DIMENSION)
    other = EmbeddingCache(database, fingerprint="two", dimension=DIMENSION)
    for start in range(0, TEXTS, 100):
        some = range(start, start + 100)
        cache.store({content_hash(f"text {n}"): vector(n) for n in some})
        other.store({content_hash(f"text {n}"): vector(n, model=1) for n in range(start, start + 10)})
    return cache


def look_up(cache, numbers):
    found = cache.look_up([content_hash(f"text {n}") for n in numbers])
    assert found.keys() == {content_hash(f"text {n}") for n in numbers if n < TEXTS}
    for n in numbers:
        if n < TEXTS:
            np.testing.assert_array_equal(found[content_hash(f"text {n}")], vector(n))


def test_every_order_finds_the_same(cache, seed):
    """In the order they lie in, backwards, mixed, with gaps, with repeats, and with texts that are not known."""
    mixed = random.Random(seed).sample(range(TEXTS), TEXTS)
    repeated = [n if n % 7 else 3 for n in range(TEXTS)]
    unknown = [n if n % 5 else n + TEXTS for n in range(TEXTS)]
    for order in (range(TEXTS), range(TEXTS)[::-1], range(TEXTS)[::3], mixed, repeated, unknown):
        for together in (70, 1_200):
            for start in range(0, len(order), together):
                look_up(cache, order[start : start + together])
        for number in order[:100]:
            look_up(cache, [number])


def test_a_damaged_row_counts_as_missing_in_every_lookup(cache, database):
    """Its checksum no longer fits, also where the row was read without being asked for by its content."""
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE embeddings SET vectors = zeroblob(length(vectors)) WHERE rowid % 10 = 0")
    for start in range(0, TEXTS, 500):
        found = cache.look_up([content_hash(f"text {n}") for n in range(start, start + 500)])
        assert 440 <= len(found) <= 460
        assert all(
            made.any() or n == 0 for n in range(TEXTS) if (made := found.get(content_hash(f"text {n}"))) is not None
        )


def test_a_row_of_another_model_is_never_returned_through_a_damaged_index(cache, database):
    """The index leads to an undamaged row of the same text, but of another model."""
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM embeddings WHERE fingerprint = 'one'")
        connection.exec_driver_sql("UPDATE embeddings SET fingerprint = 'one'")
    assert cache.look_up([content_hash("text 3")]) == {}


@pytest.mark.parametrize(
    "change", ["vectors = 'x'", "chunks = 7", "checksum = x'00'", "content = 'x'", "vectors = x''"]
)
def test_a_changed_row_counts_as_missing(cache, database, change):
    """Also of another type, as a flipped bit makes it; the others are found."""
    content = content_hash("text 5")
    with database.writing() as connection:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.exec_driver_sql("ALTER TABLE embeddings RENAME TO strict")
        connection.exec_driver_sql("CREATE TABLE embeddings AS SELECT * FROM strict")
        where = "WHERE fingerprint = 'one' AND content = ?"
        connection.exec_driver_sql(f"UPDATE embeddings SET {change} {where}", (content,))
    assert content not in cache.look_up([content])
    look_up(cache, [4, 6, 3_000])


def test_vectors_that_a_segment_has_are_deleted_and_the_file_is_shrunk(cache, database, monkeypatch):
    """In small transactions: after a kill, the next call deletes the rest. Other texts and other models' rows stay."""
    monkeypatch.setattr(embeddings, "DELETED_TOGETHER_MAX", 300)
    monkeypatch.setattr(embeddings, "FREE_PAGES_MAX", 0)
    in_segments, asked = {content_hash(f"text {n}") for n in range(TEXTS) if n % 10}, iter(range(3))

    def held(contents):
        assert len(contents) <= 300
        return in_segments.intersection(contents)

    def killed(contents):
        if next(asked, None) is None:
            raise KeyboardInterrupt
        return held(contents)

    size = pages(database)
    with pytest.raises(KeyboardInterrupt):
        cache.delete_held(killed)
    assert 900 - 2 * 300 < TEXTS * 9 // 10 - cache.delete_held(held) <= 900
    assert cache.delete_held(held) == 0
    assert len(cache.look_up([content_hash(f"text {n}") for n in range(TEXTS)])) == TEXTS // 10
    look_up(cache, range(0, TEXTS, 10))
    assert embeddings.delete(database, set, model="two", dry_run=True) == TEXTS // 10
    assert pages(database) < size / 2


def pages(database):
    with database.reading() as connection:
        return connection.exec_driver_sql("PRAGMA page_count").scalar_one()


def vectors(*texts):
    return {content_hash(text): pack(np.ones((1, 4), dtype=np.float32)) for text in texts}


def cached(database, *texts):
    cache = EmbeddingCache(database, fingerprint="f", dimension=4)
    return [text for text in texts if cache.look_up([content_hash(text)])]


def test_texts_of_turns_stay_and_all_others_are_deleted(database, log):
    """A text counts as a whole: a part of a turn, or two turns together, is no text of a turn."""
    log.appends.transact(session("s"))
    log.appends.transact(append("s", "one", "two", "three"))
    texts = ("one", "three", "one\ntwo", "four", "thre")
    EmbeddingCache(database, fingerprint="f", dimension=4).store(vectors(*texts))
    assert sweep(database, log, upto=log.head().position) == 3
    assert cached(database, *texts) == ["one", "three"]


def test_a_sweep_reads_no_further_back_than_segments_have_vectors(database, log):
    """What they have is deleted, what only later turns have stays; of a model without segments all turns count."""
    log.appends.transact(session("s"))
    log.appends.transact(append("s", "one", "two", "three"))
    for model in ("f", "g"):
        EmbeddingCache(database, fingerprint=model, dimension=4).store(vectors("two", "three", "four"))
    upto = log.head().position
    assert sweep(database, log, upto=upto, covered={"f": upto - 1}) == 2
    assert sweep(database, log, upto=upto, covered={"f": upto - 1, "g": upto}) == 2
    assert cached(database, "two", "three", "four") == ["three"]
    assert sweep(database, log, upto=upto, covered={"f": upto, "g": upto}) == 2
    assert sweep(database, None, upto=upto) == 0


def test_a_text_stored_while_the_sweep_begins_is_swept_too(database, log):
    """Its writer saw the old epoch; the sweep waits for it before it looks how far the table goes."""
    log.appends.transact(session("s"))
    log.appends.transact(append("s", "alive"))
    sampled, sweeping = threading.Event(), []

    class Telling:
        """The log, telling when the sweep has looked how far the table goes."""

        def read(self, **how):
            sampled.set()
            return log.read(**how)

    def epoch():
        sweeping.append(in_thread(lambda: sweep(database, Telling(), upto=log.head().position)))
        sampled.wait(GRACE_S)
        return 0

    EmbeddingCache(database, fingerprint="f", dimension=4, epoch=epoch).store(vectors("forgotten", "alive"))
    assert sweeping[0].result() == 1
    assert sampled.wait(WAIT_S)
    assert cached(database, "forgotten", "alive") == ["alive"]


def test_a_text_read_in_an_earlier_epoch_is_not_stored(database):
    """Whoever forgets has raised it by then."""
    cache = EmbeddingCache(database, fingerprint="f", dimension=4, epoch=lambda: 2)
    cache.store(vectors("early"), read_in=1)
    cache.store(vectors("late"), read_in=2)
    assert cached(database, "early", "late") == ["late"]
