"""Files of projections, damaged in every way: refused before FAISS parses them, and made anew."""

import os
import shutil

import pytest

from mnemolog import MemoryStore
from mnemolog.projections.vectors.generation import Generation
from mnemolog.projections.vectors.projection import VectorProjection
from tests.children.vector_workers import DIMENSION, answering, judging
from tests.support import WAIT_S, HashEncoder

pytestmark = pytest.mark.promise("P9")

TURNS = 120
PER_CHILD = 100
"""Damages that one process is confronted with, one after the other, so that its death names few."""


def store_of(folder, *, fingerprint="hash-words/1", word="note"):
    """A closed store with vectors in two segments, one of them with an index."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION, fingerprint=fingerprint)) as store:
        session = store.start_session("s")
        for start, end in ((0, TURNS - 20), (TURNS - 20, TURNS)):
            for n in range(start, end):
                session.record("user", f"{word} number{n} on topic{n % 5}")
            store.admin.catch_up_vectors()
    return folder


@pytest.fixture
def stage(tmp_path, monkeypatch):
    for name, value in (("generation.ROWS_FREE", 8), ("segment.COARSE_ROWS_MIN", 64)):
        monkeypatch.setattr(f"mnemolog.projections.vectors.{name}", value)
    return store_of(tmp_path / "stage")


def projection_files(folder):
    """Every file of the vectors, and the cache they are made from."""
    files = sorted(path for path in folder.glob("projections/vectors/*/*/*") if path.is_file())
    assert {path.suffix for path in files} >= {".q12", ".bin", ".i64", ".json", ".faiss"}
    return [*files, folder / "projections" / "embeddings.db"]


@pytest.fixture
def confront(processes, stage, tmp_path, record_property):
    """A function that has children open the store after each damage. A child that dies is named by what it left."""

    def confront(damages):
        record_property("tried", len(damages))
        for start in range(0, len(damages), PER_CHILD):
            some = damages[start : start + PER_CHILD]
            process, pipe = processes.start(judging, str(stage), str(tmp_path / "damaged"), some)
            for damage in some:
                assert pipe.poll(WAIT_S), f"no answer to {damage}"
                verdict = pipe.recv()
                assert verdict == "right", f"{damage}: {verdict}"
            process.join(WAIT_S)
            assert process.exitcode == 0

    return confront


@pytest.mark.timeout(7200)
@pytest.mark.promise("P9", "flips")
def test_no_flipped_bit_is_ever_served(confront, stage, rng, tries):
    """One bit in any byte of any file: the process lives, FAISS sees only what was written, answers are right."""
    files = projection_files(stage)
    sizes = [path.stat().st_size for path in files]
    damages = []
    for n in range(tries):
        # Each file in turn, however small it is beside the others.
        path, size = files[n % len(files)], sizes[n % len(files)]
        damages.append(("flip", str(path.relative_to(stage)), rng.randrange(8 * size) if size else 0))
    confront(damages)


@pytest.mark.timeout(7200)
@pytest.mark.promise("P9", "cuts")
def test_no_truncated_file_is_ever_served(confront, stage, rng, tries):
    """Cut anywhere, also to nothing; each file and the folder it lies in may be gone altogether."""
    files = projection_files(stage)
    damages = []
    for n in range(tries):
        path = files[n % len(files)]
        damages.append(("cut", str(path.relative_to(stage)), rng.randrange(max(1, path.stat().st_size))))
    damages += [("cut", str(path.relative_to(stage)), 0) for path in files]
    damages += [("remove", str(path.relative_to(stage)), 0) for path in files]
    segments = {path.parent for path in files if path.suffix == ".json"}
    damages += [
        ("remove", str(path.relative_to(stage)), 0) for path in sorted(segments | {path.parent for path in segments})
    ]
    confront(damages)


def test_files_of_others_are_never_served(confront, stage, tmp_path):
    """Swapped between segments, another store's, another model's, the same one older and with a new time."""
    files = [path for path in projection_files(stage) if path.suffix != ".db"]
    other_log = store_of(tmp_path / "other-log", word="lie")
    other_model = store_of(tmp_path / "other-model", fingerprint="hash-words/2")
    damages = []
    for path in files:
        inner = str(path.relative_to(stage))
        twins = [other for other in files if other.name == path.name and other != path]
        damages += [("replace", inner, str(twin)) for twin in twins]
        for other in (other_log, other_model):
            damages += [("replace", inner, str(twin)) for twin in other.glob(f"projections/vectors/*/*/{path.name}")]
        damages.append(("touch", inner, ""))
    confront(damages)


@pytest.mark.parametrize("what", ["another store's", "another model's"])
def test_folders_of_others_are_never_served(stage, tmp_path, what):
    """A whole folder of vectors under our name: its tags say what it is, whatever its time says."""
    (generation,) = (path for path in stage.glob("projections/vectors/*-*") if path.is_dir())
    expected = judged_answers(stage)
    shutil.rmtree(generation)
    old = store_of(tmp_path / "old", fingerprint="hash-words/2" if "model" in what else "hash-words/1", word="lie")
    (foreign,) = (path for path in old.glob("projections/vectors/*-*") if path.is_dir())
    shutil.copytree(foreign, generation)
    os.utime(generation)
    assert judged_answers(stage) == expected
    with MemoryStore.open(stage, model=HashEncoder(dimension=DIMENSION)) as store:
        assert store.rebuild("vectors")[0].complete
    assert judged_answers(stage) == expected


def judged_answers(folder):
    return answering(folder)[0]


def flip_all_over(path):
    """Flip bits all over a file, in its place."""
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 64):
        data[at] ^= 0x10
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.parametrize("damage", [flip_all_over, lambda path: os.truncate(path, 100)], ids=["flipped", "cut"])
def test_damage_under_an_open_store_ends_nothing_and_is_never_served(stage, damage):
    """Missing mapped pages would raise a signal. A write changes the time of a file, and earlier checks end."""
    with MemoryStore.open(stage, model=HashEncoder(dimension=DIMENSION)) as store:
        before = store.recall("number7", k=20, mode="vector").hits
        for path in stage.glob("projections/vectors/*/*/vectors.q12"):
            damage(path)
        right = {turn.position: turn.text for turn in store.turns("s", limit=TURNS)}
        first = store.recall("number7", k=20, mode="vector")
        assert all(right[hit.position] == hit.text for hit in first.hits)
        assert {hit.similarity for hit in first.hits if hit in before} <= {hit.similarity for hit in before}
        after = store.recall("number7", k=20, mode="vector", min_position=store.head().position)
        assert (after.hits, after.vectors_cover) == (before, after.head)
        assert store.status().quarantine.items >= 1


def test_a_damaged_cache_keeps_no_vectors_from_answering(stage):
    """What is new has to wait until a doctor has been asked, and the answer says so; the others are found."""
    path = stage / "projections" / "embeddings.db"
    path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\xff"))
    with MemoryStore.open(stage, model=HashEncoder(dimension=DIMENSION), background=False) as store:
        store.record("s", "user", "note number999 on topic9")
        found = store.recall("number7", k=20)
        assert found.legs == ("text", "vector")
        assert found.vectors_cover == found.head - 1
        assert "embeddings.db" in found.vectors_lag
        assert "admin.doctor(fix=True)" in found.vectors_lag
        assert all(item.fixed for item in store.admin.doctor(fix=True).findings if item.severity != "note")
        mended = store.recall("number7", k=20)
        assert (mended.vectors_cover, mended.vectors_lag) == (mended.head, None)


@pytest.mark.parametrize("what", ["catch_up", "add_model"])
def test_a_merge_that_finds_damage_first_quarantines_it_and_continues(stage, monkeypatch, what):
    """Without recalls, a segment is first read when it is merged: damage found then is handled too."""
    expected = judged_answers(stage)
    damaged = sorted(stage.glob("projections/vectors/*/*/vectors.q12"))[0]
    flip_all_over(damaged)
    encoder = HashEncoder(dimension=DIMENSION)
    monkeypatch.setattr("mnemolog.projections.vectors.generation.run_to_merge", merge_all)
    with MemoryStore.open(stage, model=encoder, background=False) as store:
        more = store.record("s", "user", "one more, to have something to write").position
        report = store.admin.catch_up_vectors() if what == "catch_up" else store.models.add(encoder)
        assert report.upto == more
        (aside,) = store.admin.quarantine().items()
        assert aside.reason == "rows from 0 on are not those that were written"
        assert not damaged.exists()
    for found, hits in zip(judged_answers(stage), expected, strict=True):
        assert [hit for hit in found if hit[0] != more] == hits[: len(hits) - (more in dict(found))]


def merge_all(sizes, **_):
    return slice(0, len(sizes)) if len(sizes) > 1 else None


def test_a_rebuild_that_was_cut_off_and_damaged_since_is_gone_on_with(stage, monkeypatch):
    """What the first try has written is used by the second one only as far as it is whole."""
    monkeypatch.setattr("mnemolog.projections.vectors.projection.BUILD_ROWS", 30)
    expected = judged_answers(stage)

    def cut_off(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, MemoryStore.open(stage, model=HashEncoder(dimension=DIMENSION)) as store:
        patch.setattr(Generation, "write_as_one", cut_off)
        patch.setattr(VectorProjection, "_whole_segments", lambda *_: [])
        with pytest.raises(KeyboardInterrupt):
            store.rebuild("vectors")
    (building,) = (path for path in stage.glob("projections/vectors/.*") if path.is_dir())
    for path in sorted(building.glob("*/vectors.q12"))[1:2]:
        path.write_bytes(bytes(path.stat().st_size))
    with MemoryStore.open(stage, model=HashEncoder(dimension=DIMENSION)) as store:
        assert store.rebuild("vectors")[0].complete
        assert store.status().quarantine.items == 1
    assert judged_answers(stage) == expected
