"""Segments: exact rows in blocks, merging within bounds, search with and without an index, one writer at a time.

The lock of who writes vectors is free again whatever went wrong while it was taken.
"""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog import MemoryStore, NewTurn
from mnemolog.domain.errors import EncodingFailed, IndexerBusy
from mnemolog.infra.runtime import files
from mnemolog.projections.sql.embeddings import content_hash, pack, unpack, width_of
from mnemolog.projections.sql.filtering import PositionMask
from mnemolog.projections.vectors import ann_index, generation, segment
from mnemolog.projections.vectors.checked_rows import (
    BLOCK_ROWS,
    PIECE_ROWS,
    MemoryRows,
    StoredRows,
    block_digests,
    bounds,
    floats,
    scores,
)
from mnemolog.projections.vectors.folders import IndexerLock, read_manifest, segment_folders
from mnemolog.projections.vectors.generation import run_to_merge
from mnemolog.projections.vectors.projection import nearest
from mnemolog.projections.vectors.segment import build
from tests.support import HashEncoder, in_thread

DIMENSION = 16


def unit_rows(count, *, seed=0, dimension=DIMENSION):
    rows = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def hashes(turns):
    """A content hash for each turn."""
    return [content_hash(f"note {turn}") for turn in turns]


def in_memory(rows):
    """Rows as a segment in memory holds them."""
    return MemoryRows(pack(rows), rows.shape[1])


def kept_rows(found):
    """All rows of a segment, as they are read piece by piece."""
    return np.concatenate([*(unpack(piece, DIMENSION) for piece in found.pieces()), np.empty((0, DIMENSION))])


@pytest.fixture
def stored(tmp_path):
    """A function that writes rows into a file and opens it."""

    def make(rows):
        path, written = tmp_path / "vectors", pack(rows)
        path.write_bytes(written.tobytes())
        digests = block_digests(written)
        return StoredRows(path, count=len(rows), dimension=rows.shape[1], digests=digests)

    return make


def test_stored_rows_are_the_rows_that_were_written(stored):
    """Whole, piece by piece, and picked: rows alone, rows near each other, the first, the last, and one twice."""
    random = np.random.default_rng(1)
    for count in (0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, PIECE_ROWS + 17, 100 * BLOCK_ROWS):
        packed = pack(unit_rows(count))
        rows, found = unpack(packed, DIMENSION), stored(unit_rows(count))
        assert np.array_equal(kept_rows(found), rows)
        for share in (0, 0.01, 0.1, 0.5, 1):
            picked = np.flatnonzero(random.random(count) < share)
            if count:
                picked = np.sort(np.concatenate(([0, count - 1], picked, picked[:1])))
            assert np.array_equal(found.packed(picked), packed[picked])
            assert np.array_equal(floats(found, picked), rows[picked])
    assert found.path.name not in Path("/proc/self/maps").read_text(), "no part of the file is mapped"


@pytest.mark.parametrize("dimension", [1, 3, 8, 384])
def test_a_vector_is_stored_in_12_bits_a_component_and_keeps_its_length(dimension):
    """No component is off by more than half a step, which is 1/2040 of the largest; its cosine with itself stays 1."""
    rows = unit_rows(500, dimension=dimension)
    found = unpack(pack(rows), dimension)
    assert pack(rows).nbytes == 500 * width_of(dimension)
    assert width_of(dimension) == dimension + 4 + -(-dimension // 2)
    half_a_step = np.abs(rows).max(axis=1, keepdims=True) / 2040 / 2
    assert (np.abs(found - rows) <= 1.2 * half_a_step + 1e-6).all()
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert (np.round((rows * found).sum(axis=1), 6) >= 0.999999 - 2.0**-18).all()


def test_ratios_of_small_numbers_are_stored_exactly():
    """Components that count words keep their ratios, so turns with equal words still have equal similarities."""
    counts = np.asarray([[6, 5, 4, 3, 2, 1, 0, -6], [1, -1, 1, 0, 0, 1, 0, 1], [2, 1, -1, 0, 0, 2, 0, 0]], dtype="f4")
    rows = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    assert np.allclose(unpack(pack(rows), 8), rows, atol=2e-7, rtol=0)
    assert (pack(np.zeros((2, 8), dtype=np.float32)) == 0).all()


@pytest.mark.parametrize("scale", [1, 0.001])
def test_bounds_never_exclude_a_row_that_may_be_among_the_best(scale):
    """Its bounds hold for rows of any shape: with one large component, of one value, all zero."""
    rows = unit_rows(3 * BLOCK_ROWS + 5, dimension=DIMENSION)
    rows[3, 0], rows[4], rows[5] = 40.0, 0.5, 0.0
    rows *= np.float32(scale)
    made = in_memory(rows)
    query = unit_rows(1, seed=3)
    picked = np.arange(1, len(rows))
    least, most = bounds(made.packed(picked), query)
    exactly = scores(made, query, at=picked)
    assert (least <= exactly).all()
    assert (exactly <= most).all()
    assert np.median(most - least) < 0.1 * scale + 1e-4


def test_equal_texts_have_equal_scores_wherever_they_lie():
    """Sums in another order differ in the last bits, and would order equal turns at random."""
    row = unit_rows(1, dimension=384)
    query = unit_rows(1, seed=3, dimension=384)
    many = in_memory(np.repeat(row, PIECE_ROWS + 13, axis=0))
    assert len(set(scores(many, query).tolist())) == 1
    assert set(scores(many, query, at=np.arange(7)).tolist()) == set(scores(many, query).tolist())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_segments_stay_few_and_little_is_rewritten(batch, seed):
    """10,000 rows and more, in batches of one size or of any: under twelve segments, whatever the order."""
    random = np.random.default_rng(seed)
    sizes, rewritten, total = [], 0, 0
    while total < 12_000:
        size = batch if seed % 2 else int(random.integers(1, batch + 1))
        sizes.append(size)
        total += size
        if run := run_to_merge(sizes):
            merged = sum(sizes[run])
            assert merged <= max(generation.ROWS_FREE, total * generation.SHARE_MAX)
            assert max(sizes[run]) <= generation.UNEVEN_MAX * (merged - max(sizes[run]))
            rewritten += merged
            sizes[run] = [merged]
        assert len(sizes) < 12
    assert rewritten <= 16 * total


@pytest.mark.parametrize(
    "rows", [lambda n: 4, lambda n: 1 + n * 7 % 13, lambda n: 64 if n % 50 == 0 else 1, lambda n: n // 300]
)
def test_a_tail_has_few_parts_and_its_rows_are_seldom_copied(rows):
    """Before it is written, what is embedded lies in memory, step by step."""
    tail, position, copied, said = (), 0, 0, []
    for n in range(600):
        turns = range(position + 1, position + 1 + rows(n))
        vectors = [pack(np.full((1, 2), turn, dtype=np.float32)) for turn in turns]
        upto = position + max(1, len(turns))  # There are events that are no turns.
        part = build(list(turns), vectors, after=position, upto=upto, dimension=2, hashes=hashes(turns))
        tail, position, said = (*tail, part), upto, [*said, *turns]
        before, tail = tail, generation._fewer(tail)
        copied += sum(part.exact.count for part in tail if part not in before)
        assert len(tail) <= 7
    assert [round(float(row[0])) for part in tail for row in floats(part.exact, np.arange(part.exact.count))] == said
    assert tail[-1].upto == position
    assert copied <= 8 * position


def test_turns_embedded_in_one_go_become_one_segment_and_others_are_not_rewritten(folder, monkeypatch):
    """Written in pieces, so that a kill costs little; what comes behind much that is old does not rewrite that."""
    monkeypatch.setattr("mnemolog.projections.vectors.projection.TAIL_ROWS_MAX", 512)
    with MemoryStore.open(folder, model=HashEncoder(dimension=8), synchronous="NORMAL", background=False) as store:
        store.start_session("s")
        home = folder / "projections" / "vectors" / f"{store.parts.projections.vectors().fingerprint[:16]}-0001"
        for count in (2_400, 1_600):
            store.record_many([_turn("s", f"note {count} {n}") for n in range(count)])
            before = segment_folders(home)
            store.admin.catch_up_vectors()
            now = segment_folders(home)
            assert now[:-1] == before
            assert read_manifest(now[-1]).vectors == count


def _turn(session, text):
    return NewTurn(session=session, role="user", text=text)


@pytest.fixture
def indexed(tmp_path):
    """A segment of 3,000 rows with an index, written and read again; rows 0 to 9 belong to one turn of ten chunks."""
    packed = pack(unit_rows(3_000, dimension=64))
    vectors = [packed[:10], *(packed[n : n + 1] for n in range(10, 3_000))]
    made = build(range(10, 3_001), vectors, after=0, upto=5_000, dimension=64, hashes=hashes(range(10, 3_001)))
    description = segment.Description("log", "f" * 64, "model", "recipe", 64, "00")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment, "COARSE_ROWS_MIN", 1_000)
        written = segment.publish([made], tmp_path, description)
    read = segment.load(written.folder, read_manifest(written.folder))
    assert read.coarse is not None
    assert read.coarse.serialised() == written.coarse.serialised()
    return made, read


def test_a_segment_with_an_index_answers_like_a_scan_of_its_rows(indexed):
    """Every score is exact, and nearly all of the best are found, though these rows have no structure at all."""
    plain, read = indexed
    found = 0
    for seed in range(30):
        query = unit_rows(1, seed=seed, dimension=64)
        right = dict(nearest([plain], query, k=10, allowed=None))
        answer = dict(nearest([read], query, k=10, allowed=None))
        assert len(answer) == 10
        found += len(right.keys() & answer.keys())
        assert all(score == right[position] for position, score in answer.items() if position in right)
    assert found >= 0.9 * 300
    assert nearest([read], query, k=5_000, allowed=None) == nearest([plain], query, k=5_000, allowed=None)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.5, 0.95])
def test_a_filter_is_exact_where_it_leaves_few_rows_and_excludes_all_others(indexed, monkeypatch, share):
    """Asked of the index or scored one by one, only allowed turns come back, as many as there are."""
    plain, read = indexed
    monkeypatch.setattr("mnemolog.projections.vectors.projection.SCANNED_ROWS", 477)
    allowed = np.sort(np.random.default_rng(7).choice(np.arange(10, 3_001), int(2_991 * share), replace=False))
    bits = np.zeros(3_001, dtype=np.bool_)
    bits[allowed] = True
    mask = PositionMask(bits)
    for seed in range(10):
        query = unit_rows(1, seed=seed, dimension=64)
        right = nearest([plain], query, k=20, allowed=mask)
        answer = nearest([read], query, k=20, allowed=mask)
        assert {position for position, _ in answer} <= set(allowed.tolist())
        assert len(answer) == len(right) == min(20, len(allowed))
        if len(allowed) <= 500:
            assert answer == right


def test_an_index_proposes_the_same_rows_with_a_filter_as_if_the_others_were_left_out_afterwards():
    """However few or many rows a filter leaves, the index is asked for no more rows."""
    made = ann_index.build(in_memory(unit_rows(3_000, dimension=64)), dimension=64)
    again = ann_index.build(in_memory(unit_rows(3_000, dimension=64)), dimension=64)
    assert (again.serialised(), again.effort) == (made.serialised(), made.effort), "nothing in it is random"
    read = ann_index.parse(made.serialised(), made.effort, dimension=64, count=3_000)
    random = np.random.default_rng(7)
    for share in (0.05, 0.5, 1.0):
        among = random.random(3_000) < share
        for seed in range(10):
            query = unit_rows(1, seed=seed, dimension=64)
            in_order = read.candidates(query, 3_000)
            left = in_order[among[in_order]].tolist()
            found = read.candidates(query, 100, among=among).tolist()
            assert len(set(found)) == min(100, len(left))
            # Rough scores are small numbers, and of equal ones any may come first.
            assert set(left[:95]) <= set(found) <= set(left[:105])
    assert read.serialised() == made.serialised()


@pytest.mark.parametrize("structured", [True, False])
def test_few_lists_are_probed_only_where_rows_have_a_structure(structured):
    """Of rows without one, the lists say nothing of where the nearest are."""
    random, wide = np.random.default_rng(5), 64
    rows = unit_rows(6_000, seed=1, dimension=wide)
    if structured:
        rows = unit_rows(60, seed=2, dimension=wide)[random.integers(60, size=6_000)] + 0.3 * rows
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    made = ann_index.build(in_memory(rows), dimension=wide)
    assert (made.effort.probes <= 16) is structured
    read = ann_index.parse(made.serialised(), made.effort, dimension=wide, count=6_000)
    assert (read.kind, read.dimension) == (made.kind, wide)
    found = 0.0
    for query in rows[random.integers(6_000, size=50)] + 0.05 * unit_rows(50, seed=3, dimension=wide):
        near = np.argsort(-(rows @ query))[:10]
        got = read.candidates(query[None] / np.linalg.norm(query), read.wanted(10))
        assert len(set(got.tolist())) == len(got)
        found += np.isin(near, got).mean() / 50
    assert found > 0.97


def test_faiss_computes_in_the_calling_thread_and_leaves_the_counts_of_all_threads_alone():
    """Its threads would spin where the machine is busy."""
    seen = []

    class Noting(MemoryRows):
        def pieces(self):
            seen.append((faiss.omp_get_max_threads(), other.submit(faiss.omp_get_max_threads).result()))
            yield from super().pieces()

    with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as indexing:
        other.submit(faiss.omp_set_num_threads, 5).result()
        indexing.submit(faiss.omp_set_num_threads, 3).result()
        made = indexing.submit(ann_index.build, Noting(pack(unit_rows(500)), DIMENSION), dimension=DIMENSION).result()
        indexing.submit(made.candidates, unit_rows(1), 10).result()
        assert indexing.submit(faiss.omp_get_max_threads).result() == 3
    assert set(seen) == {(1, 5)}


def record(store, *texts):
    session = store.start_session("s")
    return [session.record("user", text).position for text in texts]


def test_a_model_that_refuses_everything_skips_nothing(folder):
    """Then it is the model that is to blame, and no text."""
    encoder = HashEncoder(dimension=8)
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        record(store, "one", "two")
        encoder.encode = lambda texts: 1 / 0
        with pytest.raises(EncodingFailed):
            store.rebuild("vectors", skip_bad=True)


def test_planted_rows_vanish_in_a_rebuild(folder):
    """A sound segment that says too much: its tags fit, and only the log knows better."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=8), background=False) as store:
        record(store, *(f"note number{n}" for n in range(10)))
        store.admin.catch_up_vectors()
        (part,) = segment_folders(next(folder.glob("projections/vectors/*-0001")))
    manifest = read_manifest(part)
    sound = segment.load(part, manifest)
    ghost = build(
        [900],
        [pack(unit_rows(1, dimension=8))],
        after=manifest.upto,
        upto=manifest.upto,
        dimension=8,
        hashes=hashes([900]),
    )
    description = segment.Description(
        manifest.log_id, manifest.fingerprint, manifest.model, manifest.recipe, 8, manifest.digest_at_upto
    )
    assert isinstance(segment.publish([sound, ghost], part.parent, description).folder, Path)
    shutil.rmtree(part)
    with MemoryStore.open(folder, model=HashEncoder(dimension=8), background=False) as store:
        assert store.status().vectors[0].vectors == 11
        (report,) = store.rebuild("vectors")
        assert report.built_turns == 10
        assert store.status().vectors[0].vectors == 10
        assert 900 not in {
            p for p, _ in store.parts.projections.vectors().projection().answer("ghost", k=50, allowed=None).found
        }


def test_searches_beside_a_writer_see_whole_snapshots(folder):
    """Three threads ask while turns are added, written, merged and rebuilt: never a turn twice, never one lost."""
    encoder = HashEncoder(dimension=16)
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        record(store, *(f"note number{n}" for n in range(200)))
        store.admin.catch_up_vectors()
        leg, done = store.parts.projections.vectors().projection(), []

        def ask(number):
            asked = 0
            while not done or asked < 20:
                answer = leg.answer(f"number{(number * 31 + asked) % 200}", k=1_000, allowed=None)
                positions = [position for position, _ in answer.found]
                assert len(positions) == len(set(positions))
                assert len([p for p in positions if p <= answer.covers]) == answer.covers - 1
                asked += 1
            return asked

        threads = [in_thread(lambda number=number: ask(number)) for number in range(3)]
        try:
            for step in range(8):
                store.record_many([_turn("s", f"more {step} {n}") for n in range(20)])
                store.rebuild("vectors") if step % 4 == 3 else store.admin.catch_up_vectors()
        finally:
            done.append(True)
        assert all(thread.result() >= 20 for thread in threads)


def test_segments_of_another_process_are_used_without_reopening(folder):
    """A reader with a tail of its own gives it up for what the writer has written, and answers the same."""
    with (
        MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False) as writer,
        MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False) as reader,
    ):
        record(writer, *(f"note number{n}" for n in range(50)))
        first = reader.recall("number7", mode="vector", k=50)
        writer.admin.catch_up_vectors()
        assert reader.recall("number7", mode="vector", k=50).hits == first.hits
        snapshot = reader.parts.projections.vectors().projection()._generation.snapshot
        assert (len(snapshot.written), snapshot.tail) == (1, ())
        writer.rebuild("vectors")
        assert reader.recall("number7", mode="vector", k=50).hits == first.hits
        assert reader.parts.projections.vectors().projection()._generation.folder.name.endswith("-0002")


def test_an_index_with_impossible_numbers_is_refused_before_it_is_parsed():
    """FAISS trusts the numbers in the bytes, and their digest is right: a manifest may come from somebody else."""
    made = ann_index.build(in_memory(unit_rows(600, dimension=64)), dimension=64)
    sound = made.serialised()
    assert ann_index.parse(sound, made.effort, dimension=64, count=600).serialised() == sound
    for at in range(37):  # The kind, components, rows, two constants, whether it is trained, metric.
        for number in (0, 7, 1 << 40, (1 << 64) - 1):
            other = bytearray(sound)
            other[at : at + 8] = number.to_bytes(8, "little")
            if other != sound:
                with pytest.raises(ValueError, match=r"index|buffer"):
                    ann_index.parse(bytes(other), made.effort, dimension=64, count=600)
    for cut in (b"", sound[:36], sound[: len(sound) // 2], sound + b"x"):
        with pytest.raises(ValueError, match=r"index|buffer"):
            ann_index.parse(cut, made.effort, dimension=64, count=600)
    for rows in ({"dimension": 65, "count": 600}, {"dimension": 64, "count": 601}):
        with pytest.raises(ValueError, match="index"):
            ann_index.parse(sound, made.effort, **rows)


def test_a_note_that_cannot_be_written_does_not_keep_the_lock(tmp_path, monkeypatch):
    """Found by a sweep over file descriptors: the lock was taken, the note failed, and nobody could index any more."""

    def fail(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_unsynced", fail)
        with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
            assert IndexerLock(tmp_path, "f" * 64).holder() == "another process"
    with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
        pass


def test_a_held_lock_names_its_holder_and_is_released_without_a_note(tmp_path):
    """Of another thread as of another process."""
    one, two = (IndexerLock(tmp_path, "f" * 64) for _ in range(2))
    with one.held():
        (note,) = tmp_path.glob("*.holder.json")
        with pytest.raises(IndexerBusy, match=f"process {os.getpid()}") as caught, two.held(wait_s=0):
            pass
        assert f"process {os.getpid()}" in caught.value.holder
        with pytest.raises(IndexerBusy), one.held(wait_s=0):
            pass
    assert not note.exists()
    with two.held(wait_s=0), IndexerLock(tmp_path, "e" * 64).held(wait_s=0):
        pass
