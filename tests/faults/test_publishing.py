"""Writing vectors, cut off anywhere: the old answers or the new, never a mix, and the next run completes."""

import shutil

import pytest

from mnemolog import MemoryStore
from mnemolog.projections.vectors.folders import read_manifest, segment_folders
from tests.children.vector_workers import DIMENSION, QUERIES, answering, answers, hindered, killed, small_parts
from tests.support import WAIT_S, HashEncoder, as_stored

pytestmark = pytest.mark.promise("P8")

TURNS = 150
TAIL = 30


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A folder with a store of `TURNS` embedded turns in a few segments, and `TAIL` turns behind them."""
    for name, value in (("generation.ROWS_FREE", 8), ("projection.BUILD_ROWS", 60), ("segment.COARSE_ROWS_MIN", 64)):
        monkeypatch.setattr(f"mnemolog.projections.vectors.{name}", value)
    folder = tmp_path / "stage"
    with MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION)) as store:
        session = store.start_session("s")
        for start in range(0, TURNS, 25):
            for n in range(start, start + 25):
                session.record("user", f"note number{n} on topic{n % 5}")
            store.admin.catch_up_vectors()
        for n in range(TURNS, TURNS + TAIL):
            session.record("user", f"note number{n} on topic{n % 5}")
        store.recall(QUERIES[0])  # All texts are in the cache from here on.
    return folder


@pytest.fixture
def expected(stage):
    """The right answers, by looking at every turn."""
    return brute_force(stage)


def brute_force(folder):
    encoder = HashEncoder(dimension=DIMENSION)
    with MemoryStore.open(folder, model=None) as store:
        turns = store.turns("s", limit=10_000)
    matrix = as_stored(encoder.encode([turn.text for turn in turns]))
    found = []
    for query in QUERIES:
        scores = matrix @ encoder.encode([query])[0]
        order = sorted(range(len(turns)), key=lambda n: (-round(float(scores[n]), 6), turns[n].position))[:10]
        found.append([(turns[n].position, scores[n]) for n in order])
    return found


def same(found, expected):
    """Whether positions agree, and scores within rounding."""
    assert [[position for position, _ in hits] for hits in found] == [[p for p, _ in hits] for hits in expected]
    for hits, wanted in zip(found, expected, strict=True):
        assert [score for _, score in hits] == pytest.approx([score for _, score in wanted], abs=2e-5)


def told_by(processes, function, *arguments):
    """What a child says, None if it was killed before."""
    process, pipe = processes.start(function, *arguments)
    try:
        assert pipe.poll(WAIT_S), "the child says nothing"
        return pipe.recv()
    except EOFError:
        return None
    finally:
        process.join(WAIT_S)


def accounted_for(folder):
    """How many turns the segments of the newest generation hold, each once; their files fit their manifests."""
    generation = max(folder.glob("projections/vectors/[0-9a-f]*-[0-9]*"))
    manifests = sorted((read_manifest(part) for part in segment_folders(generation)), key=lambda m: m.after)
    reached = 0
    for manifest in manifests:
        assert manifest.after == reached, "segments overlap or leave a hole after a completed run"
        reached = manifest.upto
    return sum(manifest.vectors for manifest in manifests)


@pytest.mark.parametrize("what", ["catch_up", "rebuild"])
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
def test_a_failing_file_operation_leaves_the_old_or_the_new(
    stage, expected, processes, tmp_path, record_property, scale, rng, what, for_ever
):
    """The first, the second, and so on until it succeeds: our error or none, right answers at once and later.

    At the smaller scale every fifth of them, and which is up to the seed.
    """
    failed = 0
    for at in range(1, 10_000) if scale == "nightly" else range(rng.randint(1, 5), 10_000, 5):
        folder = tmp_path / f"{what}{at}"
        shutil.copytree(stage, folder)
        outcome, count, found = told_by(processes, hindered, str(folder), what, at, for_ever)
        same(found, expected)
        assert outcome in ("done", "ProjectionUnreadable", "StorageFull", "IndexerBusy")
        failed += outcome != "done"
        again, texts = answering(folder)
        same(again, expected)
        assert texts == [], "the model was asked for what the cache has"
        completed(folder, what, expected)
        shutil.rmtree(folder)
        if count < at:
            break
    assert failed > (10 if scale == "nightly" else 3)
    record_property("tried", failed)


def completed(folder, what, expected):
    """The next run does it all, and leaves nothing behind."""
    small_parts()
    encoder = HashEncoder(dimension=DIMENSION)
    with MemoryStore.open(folder, model=encoder) as store:
        report = store.rebuild("vectors")[0] if what == "rebuild" else store.admin.catch_up_vectors()
        assert report.complete
        same(answers(store), expected)
        (status,) = [item for item in store.status().vectors if item.state == "current"]
        assert status.vectors == TURNS + TAIL == accounted_for(folder)
    assert {text for batch in encoder.calls for text in batch} <= set(QUERIES)
    hidden = [path.name for path in folder.glob("projections/vectors/**/.*") if path.is_dir()]
    assert hidden == []


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "what",
    [
        pytest.param("catch_up", marks=pytest.mark.promise("P8", "kills within a write")),
        pytest.param("rebuild", marks=pytest.mark.promise("P7", "kills within a rebuild")),
    ],
)
def test_a_kill_at_any_file_operation_leaves_the_old_or_the_new(stage, expected, processes, tmp_path, rng, tries, what):
    """From the first to the last: the next process answers right without the model, and the next run completes."""
    operations = told_by(processes, killed, str(shutil.copytree(stage, tmp_path / "count")), what, 0)
    assert operations > 20
    step = max(1, operations // tries)
    points = [n * step % operations + 1 for n in range(tries)]
    folder = tmp_path / "killed"
    shutil.copytree(stage, folder)
    for n, at in enumerate(points):
        assert told_by(processes, killed, str(folder), what, at) is None or what == "catch_up" or at > 20
        found, texts = answering(folder)
        same(found, expected)
        assert texts == [], "the model was asked for what the cache has"
        if rng.random() < 0.2 or n == len(points) - 1:
            completed(folder, what, expected)
            shutil.rmtree(folder)
            shutil.copytree(stage, folder)
