"""A vector lies on disk once: in the cache until a segment has it, then in the segment, where its text finds it.

The embedding cache finds what it was given, and what no text stands for is swept out of it.
"""

import random
import threading
from contextlib import closing

import msgspec
import numpy as np
import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.projections.sql import embeddings
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache, content_hash, pack
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.vectors import generation, projection
from mnemolog.projections.vectors.folders import read_manifest, segment_folders, tag_of, write_manifest
from mnemolog.projections.vectors.segment import CONTENT_BYTES, TextHashes, hashes_of
from mnemolog.projections.vectors.turn_vectors import sweep
from tests.support import WAIT_S, HashEncoder, append, in_thread
from tests.support import start as session

DIMENSION = 16


def opened(folder, encoder):
    return MemoryStore.open(folder, model=encoder, background=False)


@pytest.fixture
def encoder():
    return HashEncoder(dimension=DIMENSION)


@pytest.fixture
def asked(encoder):
    """A function that returns the texts that the model was asked for since it was last called, without `about`."""

    def texts(*about):
        found = sorted({text for batch in encoder.calls for text in batch} - set(about))
        encoder.calls.clear()
        return found

    return texts


@pytest.fixture
def store(folder, encoder, asked):
    """A store with forty turns in one segment."""
    with opened(folder, encoder) as store:
        note(store, range(40))
        asked()
        yield store


def note(store, numbers):
    session = store.start_session(f"s{numbers[0]}")
    for n in numbers:
        session.record("user", f"note number{n}")
    store.admin.catch_up_vectors()


def cached(folder):
    with closing(dbapi2.connect(folder / "projections" / "embeddings.db")) as connection:
        return {content for (content,) in connection.execute("SELECT content FROM embeddings")}


def segments_of(folder):
    return [part for home in folder.glob("projections/vectors/*-0*") for part in segment_folders(home)]


def holders(folder, encoder, text):
    """The names of the files that hold the vector of a text."""
    vector = pack(encoder.encode([text])).tobytes()
    encoder.calls.clear()
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and vector in path.read_bytes())


def answers(store):
    return [(hit.text, hit.similarity) for hit in store.recall("number7", mode="vector", k=60).hits]


def test_a_vector_lies_in_one_file(store, folder, encoder):
    """First in the cache, then in a segment."""
    store.record("s0", "user", "said last")
    store.recall("said", mode="vector")
    store.close()
    assert cached(folder) == {content_hash("said last")}
    assert holders(folder, encoder, "note number7") == ["vectors.q12"]
    assert holders(folder, encoder, "said last") == ["embeddings.db"]
    with opened(folder, encoder) as again:
        again.admin.catch_up_vectors()
        assert encoder.calls == []
    assert cached(folder) == set()
    assert holders(folder, encoder, "said last") == ["vectors.q12"]


def test_a_text_that_was_said_before_needs_no_model(store, folder, encoder, asked):
    """In the process that embedded it, and in one that opens the store."""
    note(store, [7, 100])
    assert asked() == ["note number100"]
    store.close()
    with opened(folder, encoder) as again:
        note(again, [8, 100, 101])
        assert asked() == ["note number101"]


def test_an_answer_never_reaches_less_far_after_a_rebuild_than_before_it(store, folder, encoder, monkeypatch):
    """What was embedded while it ran is taken from the cache before the new generation answers, in each process."""
    note(store, range(100, 140))
    with opened(folder, encoder) as other:
        publish = projection.files.publish_folder

        def embedded_meanwhile(*folders):
            at = store.session("s0").record("user", "said meanwhile").position
            assert [each.recall("said", mode="vector").vectors_cover for each in (store, other)] == [at, at]
            publish(*folders)

        monkeypatch.setattr(projection.files, "publish_folder", embedded_meanwhile)
        store.rebuild("vectors")
        for each in (store, other):
            vectors = each.parts.projections.vectors().projection()
            vectors.refresh()
            assert vectors.covers == store.head().position


def test_a_rebuild_takes_every_vector_from_the_segments(store, folder, asked):
    """Also what it has to look up by text: the turns of a segment in which the model refused one."""
    before = answers(store)
    assert store.rebuild("vectors", dry_run=True)[0].encoded_texts == 0
    (report,) = store.rebuild("vectors")
    assert (report.complete, report.encoded_texts, asked("number7")) == (True, 0, [])
    assert answers(store) == before
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(projection.VectorProjection, "_whole_segments", lambda *_: [])
        assert store.rebuild("vectors")[0].encoded_texts == 0
    assert answers(store) == before
    assert store.admin.doctor(deep=True).healthy


def test_a_kill_before_the_cache_is_emptied_loses_nothing_and_the_next_writer_empties_it(
    folder, encoder, asked, monkeypatch
):
    """Both have the vectors meanwhile, which harms nothing."""

    def killed(self):
        raise KeyboardInterrupt

    with opened(folder, encoder) as store, monkeypatch.context() as patched:
        patched.setattr(generation.Generation, "settle", killed)
        with pytest.raises(KeyboardInterrupt):
            note(store, range(40))
    asked()
    assert (len(cached(folder)), len(segments_of(folder))) == (40, 1)
    with opened(folder, encoder) as store:
        assert answers(store)[0][0] == "note number7"
        note(store, [7, 50])
        assert asked("number7") == ["note number50"]
        assert store.admin.doctor(deep=True).healthy
    assert cached(folder) == set()


@pytest.mark.parametrize("damage", ["flipped", "missing", "numbered wrongly", "cut"])
def test_damaged_text_hashes_never_lead_to_a_wrong_vector(store, folder, encoder, asked, damage):
    """Texts said again cost the model; a rebuild calls none, because the log says which text each turn has."""
    before = answers(store)
    store.close()
    (part,) = segments_of(folder)
    path, data = part / "contents.bin", bytearray((part / "contents.bin").read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        data[3] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-4])
    else:
        data[-4:] = data[-8:-4]
        path.write_bytes(data)
        tag = read_manifest(part)
        (part / "manifest.json").unlink()
        write_manifest(part, msgspec.structs.replace(tag, files=tag.files | {"contents.bin": tag_of(bytes(data))}))
    with opened(folder, encoder) as store:
        assert not store.admin.doctor(deep=True).healthy
        assert answers(store) == before
        note(store, [7, 60])
        assert asked("number7") == ["note number60", "note number7"]
        (report,) = store.rebuild("vectors")
        assert (report.complete, asked()) == (True, [])
        note(store, [8, 61])
        assert asked() == ["note number61"]
        assert store.admin.doctor(deep=True).healthy


@pytest.mark.parametrize("what", ["recall", "doctor", "rebuild"])
def test_a_flipped_bit_costs_only_the_texts_of_its_block(folder, encoder, asked, monkeypatch, what):
    """The segments that follow the damaged one keep their vectors, though nothing leads up to them."""
    monkeypatch.setattr("mnemolog.projections.vectors.generation.ROWS_FREE", 0)
    monkeypatch.setattr("mnemolog.projections.vectors.generation.SHARE_MAX", 0)
    with opened(folder, encoder) as store:
        for start in (0, 40, 80):
            note(store, range(start, start + 40))
        before = answers(store)
    asked()
    parts = segments_of(folder)
    assert len(parts) == 3
    flip(parts[1] / "vectors.q12")
    lost = sorted(f"note number{n}" for n in range(56, 72))
    with opened(folder, encoder) as store:
        if what == "doctor":
            found = store.admin.doctor(deep=True)
            assert ["The model has to embed up to 40 texts" in item.matters for item in found.findings].count(True) == 1
            fixed = store.admin.doctor(deep=True, fix=True).findings
            assert all(item.fixed for item in fixed if item.what == "vectors")
        elif what == "rebuild":
            assert store.rebuild("vectors")[0].encoded_texts == 16
        assert answers(store) == before
        store.admin.catch_up_vectors()
        assert asked("number7") == lost
        assert answers(store) == before
        assert (store.status().quarantine.items, cached(folder)) == (1, set())


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_forgetting_with_a_damaged_segment_salvages_no_forgotten_vector(store, folder, asked):
    """The vectors of the other turns are kept; only those of the damaged block need the model."""
    gone = store.turns("s0")[3].position
    flip(segments_of(folder)[0] / "vectors.q12")
    assert store.forget(positions=[gone]).complete
    assert content_hash("note number3") not in cached(folder)
    store.admin.catch_up_vectors()
    assert asked() == sorted(f"note number{n}" for n in range(16, 32))
    assert store.admin.doctor(deep=True).healthy


def test_text_hashes_find_every_text_also_after_being_written(rng):
    """Also of texts that two turns have, and hashes that end in zeros."""
    contents = [content_hash(str(n % 90)) for n in range(100)] + [bytes(32), bytes(15) + b"\1" * 17]
    read = TextHashes.parse(TextHashes.of(hashes_of(contents)).serialised(), turns=102)
    np.testing.assert_array_equal(read.by_turn(), hashes_of(contents))
    found = read.numbers_of([*contents, content_hash("unknown"), b"", b"short"])
    assert found.keys() >= set(contents)
    assert all(
        contents[number][:CONTENT_BYTES] == content[:CONTENT_BYTES]
        for content, number in found.items()
        if len(content) == 32
    )
    assert content_hash("unknown") not in found


COMPONENTS = 4
TEXTS = 2_000
GRACE_S = 0.3
"""How long the sweep gets to do what it must not do yet."""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "embeddings.db"
    return ProjectionDatabase(open_engine(path), path)


def vector(number, model=0):
    return pack(np.full((1 + number % 3, COMPONENTS), number + model / 2, dtype=np.float32))


@pytest.fixture
def cache(database):
    """Two thousand texts, rows of another model between them."""
    cache = EmbeddingCache(database, fingerprint="one", dimension=COMPONENTS)
    other = EmbeddingCache(database, fingerprint="two", dimension=COMPONENTS)
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


def found_in(database, *texts):
    cache = EmbeddingCache(database, fingerprint="f", dimension=4)
    return [text for text in texts if cache.look_up([content_hash(text)])]


def test_texts_of_turns_stay_and_all_others_are_deleted(database, log):
    """A text counts as a whole: a part of a turn, or two turns together, is no text of a turn."""
    log.appends.transact(session("s"))
    log.appends.transact(append("s", "one", "two", "three"))
    texts = ("one", "three", "one\ntwo", "four", "thre")
    EmbeddingCache(database, fingerprint="f", dimension=4).store(vectors(*texts))
    assert sweep(database, log, upto=log.head().position) == 3
    assert found_in(database, *texts) == ["one", "three"]


def test_a_sweep_reads_no_further_back_than_segments_have_vectors(database, log):
    """What they have is deleted, what only later turns have stays; of a model without segments all turns count."""
    log.appends.transact(session("s"))
    log.appends.transact(append("s", "one", "two", "three"))
    for model in ("f", "g"):
        EmbeddingCache(database, fingerprint=model, dimension=4).store(vectors("two", "three", "four"))
    upto = log.head().position
    assert sweep(database, log, upto=upto, covered={"f": upto - 1}) == 2
    assert sweep(database, log, upto=upto, covered={"f": upto - 1, "g": upto}) == 2
    assert found_in(database, "two", "three", "four") == ["three"]
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
    assert found_in(database, "forgotten", "alive") == ["alive"]


def test_a_text_read_in_an_earlier_epoch_is_not_stored(database):
    """Whoever forgets has raised it by then."""
    cache = EmbeddingCache(database, fingerprint="f", dimension=4, epoch=lambda: 2)
    cache.store(vectors("early"), read_in=1)
    cache.store(vectors("late"), read_in=2)
    assert found_in(database, "early", "late") == ["late"]
