"""The embedding cache finds what it was given, in whatever order it is asked."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mnemolog.projections.health import rows_audit
from mnemolog.projections.sql import embeddings
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache, content_hash
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.sql.packed_vectors import pack, width_of

DIMENSION = 4
TEXTS = 2_000


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


@pytest.mark.parametrize("together", [1, 70, 500, 1_200])
def test_every_order_finds_the_same(cache, together, seed):
    """In the order they lie in, backwards, mixed, with gaps, with repeats, and with texts that are not known."""
    rng = random.Random(seed)
    mixed = rng.sample(range(TEXTS), TEXTS)
    repeated = [n if n % 7 else 3 for n in range(TEXTS)]
    unknown = [n if n % 5 else n + TEXTS for n in range(TEXTS)]
    for order in (range(TEXTS), range(TEXTS)[::-1], range(TEXTS)[::3], mixed, repeated, unknown):
        for start in range(0, len(order), together):
            look_up(cache, order[start : start + together])


def test_what_lies_in_the_order_that_it_is_asked_in_is_not_looked_up_one_by_one(cache, monkeypatch):
    """But for the first of them, and for what is said again and lies elsewhere."""
    asked = []

    def fetch(connection, statement, *parameters):
        if "IN (" in statement:
            asked.append(len(parameters) - 1)
        return fetched(connection, statement, *parameters)

    fetched = embeddings.fetch
    monkeypatch.setattr(embeddings, "fetch", fetch)
    for start in range(0, TEXTS, 500):
        look_up(cache, [n if n % 50 else 0 for n in range(start, start + 500)])
    assert asked[0] == 500 - 9
    assert sum(asked[1:]) < TEXTS / 10


def test_a_damaged_row_is_unknown_however_it_is_found(cache, database):
    """Its checksum no longer fits, also where the row was read without being asked for by its content."""
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE embeddings SET vectors = zeroblob(length(vectors)) WHERE rowid % 10 = 0")
    for start in range(0, TEXTS, 500):
        found = cache.look_up([content_hash(f"text {n}") for n in range(start, start + 500)])
        assert 440 <= len(found) <= 460
        assert all(
            made.any() or n == 0 for n in range(TEXTS) if (made := found.get(content_hash(f"text {n}"))) is not None
        )


def test_the_row_of_another_model_is_of_no_use_wherever_an_index_leads(cache, database):
    """A damaged index may say that it is ours. The same text, and whole: only the model is another."""
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM embeddings WHERE fingerprint = 'one'")
        connection.exec_driver_sql("UPDATE embeddings SET fingerprint = 'one'")
    assert cache.look_up([content_hash("text 3")]) == {}
    assert len(rows_audit.invalid_rows(database)) == TEXTS // 10


@pytest.mark.parametrize(
    "change", ["vectors = 'x'", "chunks = 7", "checksum = x'00'", "content = 'x'", "vectors = x''"]
)
def test_a_row_that_was_changed_is_unknown_whatever_it_is_now(cache, database, change):
    """Also of another type, as a flipped bit makes it; the others are found, and it is found to be deleted."""
    content = content_hash("text 5")
    with database.writing() as connection:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.exec_driver_sql("ALTER TABLE embeddings RENAME TO strict")
        connection.exec_driver_sql("CREATE TABLE embeddings AS SELECT * FROM strict")
        where = "WHERE fingerprint = 'one' AND content = ?"
        connection.exec_driver_sql(f"UPDATE embeddings SET {change} {where}", (content,))
    assert content not in cache.look_up([content])
    look_up(cache, [4, 6, 3_000])
    assert len(rows_audit.invalid_rows(database)) == 1


def test_vectors_that_an_earlier_version_stored_as_floats_are_read(cache, database):
    """Nothing has to be embedded again, or converted first; the doctor finds nothing wrong with them."""
    floats = np.asarray([[0.6, 0.8, 0.0, 0.0], [0.5, -0.5, 0.5, 0.5]], dtype="<f4")
    content, blob = content_hash("text 3"), floats.tobytes()
    with database.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE embeddings SET vectors = ?, chunks = 2, checksum = ? WHERE fingerprint = 'one' AND content = ?",
            (blob, embeddings.checksum("one", content, blob), content),
        )
    found = cache.look_up([content_hash(f"text {n}") for n in range(100)])
    np.testing.assert_array_equal(found[content], pack(floats))
    np.testing.assert_array_equal(found[content_hash("text 4")], vector(4))
    assert rows_audit.invalid_rows(database) == []


def test_earlier_vectors_are_converted_in_place_and_after_a_kill_the_rest_is(cache, database, monkeypatch):
    """Row by row, with the same answers; damaged rows and those of other models stay as they are."""
    with database.writing() as connection:
        rows = connection.exec_driver_sql("SELECT rowid, content, chunks FROM embeddings WHERE fingerprint = 'one'")
        floats = np.asarray([0.6, 0.8, 0.0, 0.0] * 3, dtype="<f4").reshape(3, DIMENSION)
        earlier = [(content, chunks, floats[:chunks].tobytes(), rowid) for rowid, content, chunks in rows]
        connection.exec_driver_sql(
            "UPDATE embeddings SET vectors = ?, checksum = ? WHERE rowid = ?",
            [(blob, embeddings.checksum("one", content, blob), rowid) for content, _, blob, rowid in earlier],
        )
        connection.exec_driver_sql("UPDATE embeddings SET checksum = zeroblob(16) WHERE rowid = ?", (earlier[0][3],))
    wanted = cache.look_up(content for content, *_ in earlier)
    convert, calls = embeddings.pack, iter(range(700))

    def killed(vectors):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return convert(vectors)

    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "pack", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.convert()
    assert 0 < TEXTS - 1 - cache.convert() <= 700
    assert cache.convert() == 0
    found = cache.look_up(content for content, *_ in earlier)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[content], vectors) for content, vectors in wanted.items())
    assert len(rows_audit.invalid_rows(database)) == 1
    with database.reading() as connection:
        (longest,) = connection.exec_driver_sql(
            "SELECT max(length(vectors) / chunks) FROM embeddings WHERE rowid <> ?", (earlier[0][3],)
        ).one()
    assert longest == width_of(DIMENSION)


def test_a_cache_of_an_earlier_format_is_begun_anew(cache, database):
    """Its checksums say nothing of the model; until then it is not damaged, only of no use."""
    with database.writing() as connection:
        connection.exec_driver_sql("PRAGMA user_version = 0")
        connection.exec_driver_sql("UPDATE embeddings SET checksum = zeroblob(16)")
    assert rows_audit.invalid_rows(database) == []
    anew = EmbeddingCache(database, fingerprint="one", dimension=DIMENSION)
    assert anew.look_up([content_hash("text 3")]) == {}
    anew.store({content_hash("text 3"): vector(3)})
    look_up(EmbeddingCache(database, fingerprint="one", dimension=DIMENSION), [3])
