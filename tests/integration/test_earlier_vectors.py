"""Vectors that earlier versions left: those of single turns answer, those of groups of turns are ignored."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain.embedding_model import MODELS_STREAM
from mnemolog.domain.events import ModelActivated
from mnemolog.domain.position import ORIGIN
from mnemolog.projections.sql import checked_json
from mnemolog.projections.vectors import generation, publish
from mnemolog.projections.vectors.checked_rows import BLOCK_ROWS, block_digest
from mnemolog.projections.vectors.manifest import EARLIER_FORMAT, FORMAT, FileTag, read_manifest, segment_name, tag_of
from mnemolog.projections.vectors.rendering import RECIPE
from tests.golden.make_store import encoder as golden_encoder
from tests.support import HashEncoder

GOLDEN = Path(__file__).parents[1] / "golden"
GROUPED = "ab" * 32
DIMENSION = 16


class EarlierManifest(msgspec.Struct, kw_only=True):
    """The manifest of a version whose vectors could stand for several turns."""

    format: int = EARLIER_FORMAT
    log_id: str
    fingerprint: str = GROUPED
    model: str = "hash-words"
    recipe: str = f"{RECIPE} group/1 every 2"
    dimension: int = DIMENSION
    metric: str = "inner-product"
    after: int = 0
    upto: int
    digest_at_upto: str
    turns: int
    groups: int
    vectors: int
    open_turns: int
    skipped: tuple[str, ...] = ()
    index: str = "exact"
    probes: int = 0
    candidates: int = 0
    block_rows: int = BLOCK_ROWS
    files: dict[str, FileTag]
    faiss_version: str = "1"


def leave_groups(folder, log):
    """Write a segment of pairs of turns, with the last turn still open, as an earlier version did."""
    turns = [
        item.position
        for events in log.read(after=ORIGIN, upto=log.head().position)
        for item in events
        if item.stream.startswith("session/")
    ][1:]
    pairs, still_open = turns[: len(turns) // 2 * 2], turns[len(turns) // 2 * 2 :]
    ids = np.repeat(pairs[1::2], 2)
    rows = np.full((len(pairs) // 2, DIMENSION), 0.25, dtype="<f4")
    head = log.head()
    segment = folder / "projections" / "vectors" / f"{GROUPED[:16]}-0001" / segment_name(0, head.position)
    segment.mkdir(parents=True)
    files = {
        "blocks.bin": b"".join(block_digest(rows[n : n + BLOCK_ROWS]) for n in range(0, len(rows), BLOCK_ROWS)),
        "rows.i64": np.asarray(pairs[1::2], dtype="<i8").tobytes(),
        "members.i64": np.column_stack((pairs, ids)).astype("<i8").tobytes(),
        "open.i64": np.asarray(still_open, dtype="<i8").tobytes(),
    }
    for name, data in files.items():
        (segment / name).write_bytes(data)
    (segment / "vectors.f32").write_bytes(rows.tobytes())
    exact = FileTag(sha256=tag_of(files["blocks.bin"]).sha256, size_bytes=rows.nbytes)
    manifest = EarlierManifest(
        log_id=log.log_id,
        upto=head.position,
        digest_at_upto=head.digest,
        turns=len(pairs),
        groups=len(rows),
        vectors=len(rows),
        open_turns=len(still_open),
        files={"vectors.f32": exact} | {name: tag_of(data) for name, data in files.items()},
    )
    (segment / "manifest.json").write_bytes(checked_json.encode(manifest))
    return segment


@pytest.fixture
def left(folder):
    """The folder of a store of nine turns with vectors of its own and of groups."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION), background=False) as store:
        session = store.start_session("s")
        for n in range(9):
            session.record("user", f"note number{n}")
        store.admin.catch_up_vectors()
        leave_groups(folder, store.parts.log)
    return folder


def reopened(folder, model=None):
    return MemoryStore.open(folder, model=model or HashEncoder(dimension=DIMENSION), background=False)


def segments(folder):
    return list((folder / "projections" / "vectors").glob(f"{GROUPED[:16]}-*/0*"))


@pytest.mark.parametrize("release", ["0.1", "0.1-plain"])
def test_vectors_of_single_turns_answer_and_nothing_is_embedded_again(release, tmp_path):
    """The fingerprint is the same; the empty list of open turns is ignored."""
    folder, model = Path(shutil.copytree(GOLDEN / release / "store", tmp_path / "copy")), golden_encoder()
    assert list(folder.glob("projections/vectors/*/*/open.i64"))
    (folder / "projections" / "embeddings.db").unlink()
    with MemoryStore.open(folder, model=model, create=False, background=False) as store:
        assert store.recall("Noted: Lisbon.", mode="vector", k=1).hits[0].text == "Noted: Lisbon."
        assert model.calls == [["Noted: Lisbon."]]
        assert (store.admin.doctor(deep=True).healthy, store.status().quarantined) == (True, 0)


def formats(folder):
    """The formats of the segments of single turns."""
    manifests = sorted(path for path in folder.glob("projections/vectors/*/0*/manifest.json"))
    return [read_manifest(path.parent).format for path in manifests if GROUPED[:16] not in str(path)]


@pytest.mark.parametrize("release", ["0.1", "0.1-plain"])
def test_vectors_of_an_earlier_format_are_converted_when_vectors_are_next_written(release, tmp_path):
    """Segment by segment, from the vectors they hold: a kill in between leaves the others, and no model is called.

    The cache had a copy of each, which is deleted.
    """
    folder, model = Path(shutil.copytree(GOLDEN / release / "store", tmp_path / "copy")), golden_encoder()
    assert formats(folder) == [EARLIER_FORMAT, EARLIER_FORMAT]
    assert cached_texts(folder) > 0
    with MemoryStore.open(folder, model=model, create=False, background=False) as store:
        before = store.recall("Noted: Lisbon.", mode="vector", k=9).hits
        assert formats(folder) == [EARLIER_FORMAT, EARLIER_FORMAT], "a recall converts nothing"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generation, "publish", killed_after(1, publish.publish))
            with pytest.raises(KeyboardInterrupt):
                store.admin.catch_up_vectors()
    assert sorted(formats(folder)) == [EARLIER_FORMAT, FORMAT]
    with MemoryStore.open(folder, model=model, create=False, background=False) as store:
        store.admin.catch_up_vectors()
        assert set(formats(folder)) == {FORMAT}
        assert cached_texts(folder) == 0
        assert store.recall("Noted: Lisbon.", mode="vector", k=9).hits == before
        assert model.calls == [["Noted: Lisbon."]] * 2
        assert (store.admin.doctor(deep=True).healthy, store.status().quarantined) == (True, 0)


def cached_texts(folder):
    """How many texts the cache has."""
    with closing(dbapi2.connect(folder / "projections" / "embeddings.db")) as connection:
        return connection.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def killed_after(count, function):
    """Call `function` so often, then be interrupted."""
    calls = iter(range(count))

    def call(*arguments, **options):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return call


def test_groups_are_listed_as_another_model_s_and_harm_nothing(left):
    """Neither recall nor doctor touches them, also in a store without a model; they can be dropped."""
    with reopened(left) as store:
        assert store.recall("number7", mode="vector", k=1).hits[0].text == "note number7"
        (found,) = [item for item in store.status().vectors if item.fingerprint == GROUPED]
        assert (found.state, found.vectors) == ("other-model", 4)
        assert store.admin.doctor(deep=True).healthy
    with MemoryStore.open(left, model=None, background=False) as store:
        assert [item.state for item in store.status().vectors if item.fingerprint == GROUPED] == ["other-model"]
        assert store.admin.doctor(deep=True).healthy
        assert store.status().quarantined == 0
        assert segments(left) != []
        store.models.drop(GROUPED)
    assert segments(left) == []


def test_forgetting_removes_groups_that_may_hold_the_turn(left):
    """Their vectors cannot be taken apart; the vectors of single turns are rewritten as ever."""
    with reopened(left) as store:
        gone = store.turns("s")[3].position
        assert store.forget(positions=[gone]).complete
        assert segments(left) == []
        assert len(store.recall("number3", mode="vector", k=50).hits) == 8
        assert store.admin.doctor(deep=True).healthy
        assert store.status().quarantined == 0


def test_a_log_that_activated_groups_answers_by_text_until_another_model_is_activated(left):
    """The activation is a fact of the log; it names a model that no process has any more."""
    wanted = ModelActivated(fingerprint=GROUPED, model="hash-words", dimension=DIMENSION, retain_every_n_turns=2)
    with reopened(left) as store:
        store.parts.log.transact(lambda tx: [tx.append(MODELS_STREAM, wanted).position])
        answer = store.recall("number7")
        assert (answer.legs, answer.hits[0].text) == (("text",), "note number7")
        assert "hash-words" in answer.unavailable_legs["vector"]
        store.models.activate(HashEncoder(dimension=DIMENSION))
        assert store.recall("number7", mode="vector", k=1).hits[0].text == "note number7"
