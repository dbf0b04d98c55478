"""A vector lies on disk once: in the cache until a segment has it, then in the segment, where its text finds it."""

from contextlib import closing

import msgspec
import numpy as np
import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.projections.sql.embeddings import content_hash, pack
from mnemolog.projections.vectors import generation, projection
from mnemolog.projections.vectors.folders import read_manifest, segment_folders, tag_of, write_manifest
from mnemolog.projections.vectors.segment import CONTENT_BYTES, TextHashes, hashes_of
from tests.support import HashEncoder

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
