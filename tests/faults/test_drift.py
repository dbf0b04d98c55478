"""Vectors that do not fit their log: each state made for real, told from tags, and never renamed unasked."""

import os
import shutil

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.chain import Kind
from mnemolog.domain.errors import Hint
from mnemolog.projections.maintenance import tables
from mnemolog.projections.quarantine import MEANS, Drift
from mnemolog.projections.vectors import folders
from mnemolog.projections.vectors.folders import generations
from tests.faults.tamper import copy_store, rewrite_manifest
from tests.support import FakeClock, HalfEncoder, HashEncoder, as_typed

pytestmark = pytest.mark.promise("P8")

HEAD = 21


@pytest.fixture
def filled(store, monkeypatch):
    """A store of a session and twenty turns whose vectors are in one segment. What comes later makes a second."""
    monkeypatch.setattr("mnemolog.projections.vectors.generation.ROWS_FREE", 0)
    store.start_session("s")
    record(store, 20)
    store.admin.catch_up_vectors()
    return store


@pytest.fixture
def older(filled, tmp_path):
    """The folder of an older copy of its log, with the vectors of the later one."""
    return with_vectors_of(filled, copy_before(filled, tmp_path / "older"))


def record(store, count, *, text="note"):
    for n in range(count):
        store.record("s", "user", f"{text} number{n}")


def copy_before(store, folder):
    """Copy a store, then let the original go on, its vectors too."""
    copy_store(store.parts.log, folder)
    record(store, 4, text="later")
    store.admin.catch_up_vectors()
    return folder


def with_vectors_of(store, folder):
    """Replace the vectors in a folder by those of a store."""
    shutil.rmtree(folder / "projections" / "vectors", ignore_errors=True)
    shutil.copytree(vectors_of(store.path), folder / "projections" / "vectors")
    return folder


def vectors_of(folder):
    return folder / "projections" / "vectors"


def segments_of(folder):
    return sorted(vectors_of(folder).glob("*/[0-9]*-[0-9]*"))


def status_of(folder):
    with MemoryStore.open(folder, model=None, create=False) as store:
        return store.status()


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")


def test_the_position_decides_between_current_and_behind(filled, folder):
    """A turn more than the segments hold is `behind`, and by how much. Times of files say nothing."""
    for path in vectors_of(folder).rglob("*"):
        os.utime(path, (0, 0))
    (now,) = filled.status().vectors
    assert (now.state, now.covers, now.behind_events, now.segments, now.vectors) == ("current", HEAD, 0, 1, 20)
    assert now.bytes == sum(path.stat().st_size for path in vectors_of(folder).glob("*/*/*"))
    record(filled, 3)
    (then,) = filled.status().vectors
    assert (then.state, then.covers, then.behind_events) == ("behind", HEAD, 3)
    assert f"mnemolog project {folder} --model hash-words" in as_typed(then.action, folder)


UNCOVERED = {
    "ahead": (HEAD, "the log has lost history"),
    "diverged": (HEAD, "history"),
    "other-log": (0, "belong to another store"),
}
"""States of vectors that the log does not cover: up to which position the rest is used, and the warning."""


@pytest.mark.parametrize("state", UNCOVERED)
def test_vectors_that_the_log_does_not_cover_are_reported_and_stay_until_an_operator_moves_them(
    filled, tmp_path, state
):
    """Of a restored older log, of one that continued differently, of another store; only `--fix` moves them."""
    folder, (covers, warning) = tmp_path / state, UNCOVERED[state]
    if state != "other-log":
        copy_before(filled, folder)
    with MemoryStore.open(folder, model=None, clock=FakeClock(step=7)) as other:
        if state == "other-log":
            other.start_session("s")
        record(other, 0 if state == "ahead" else 30, text="another history")
    with_vectors_of(filled, folder)
    with MemoryStore.open(folder, model=None, create=False) as store:
        status = store.status()
        (vectors,) = status.vectors
        assert (vectors.state, vectors.covers, vectors.segments) == (state, covers, 1 if covers else 0)
        assert {unused.state for unused in vectors.unused} == {state}
        assert "`verify()`" in vectors.action or state == "other-log"
        assert warning in status.warnings[0]
        assert generations(vectors_of(folder), store.parts.log, active="f" * 64)[0].state == state
        store.recall("number1")
        before = files_below(vectors_of(folder))
        store.status(), store.verify()
        found = store.admin.doctor(deep=True)
        assert files_below(vectors_of(folder)) == before
        assert found.log_damaged == (state != "other-log")
        (ailment,) = [item for item in found.findings if item.what == "vectors" and item.state == state]
        assert ailment.fixable
        fixed = store.admin.doctor(fix=True)
        assert all(item.fixed for item in fixed.findings if item.state == state)
        assert {item.state for item in store.admin.quarantine().items()} == {state}
        manifests = [name for name in files_below(folder / "projections") if name.endswith("manifest.json")]
        assert len(manifests) == sum(1 for name in before if name.endswith("manifest.json"))
        assert store.status().vectors[0].state in ("current", "behind")
        again = store.admin.doctor()
        assert not [item for item in again.findings if item.state == state]
        assert again.log_damaged == (state != "other-log"), "a quarantined witness still counts"


def empty(segment):
    (segment / "vectors.q12").write_bytes(b"")


def test_status_takes_the_active_model_from_the_log(folder, clock):
    """Its vectors are `missing` where there are none, others `other-model`; an activation turns that around."""
    both = HalfEncoder(0), HalfEncoder(1)
    with MemoryStore.open(folder, model=both[0], models=[both[1]], clock=clock, background=False) as store:
        store.start_session("s")
        record(store, 3)
        store.admin.catch_up_vectors()
        (before,) = store.status().vectors
        assert (before.model, before.state) == ("half-0", "current"), "before any activation each stands for itself"
        store.models.add(both[1])
        assert [item.state for item in store.status().vectors] == ["current", "current"]
        second = store.models.activate("half-1").fingerprint
    with MemoryStore.open(folder, model=None, create=False) as store:
        states = {item.model: item.state for item in store.status().vectors}
        assert states == {"half-0": "other-model", "half-1": "behind"}, "the activation itself is an event"
        (gone,) = vectors_of(folder).glob(f"{second[:16]}-*")
        shutil.rmtree(gone)
        other, missing = store.status().vectors
        assert (other.fingerprint, other.state) == (before.fingerprint, "other-model")
        assert other.action == folders.ACTIONS[Drift.OTHER_MODEL]
        assert (missing.generation, missing.fingerprint, missing.state) == ("", second, "missing")
        assert (missing.covers, missing.behind_events, missing.segments) == (0, store.head().position, 0)
        (problem,) = [item for item in store.admin.doctor().findings if item.severity == "problem"]
        assert (problem.what, problem.state) == ("vectors", "missing")
    with MemoryStore.open(folder, model=both[0], models=[both[1]], clock=clock, background=False) as store:
        store.models.activate(both[0])
        (only,) = store.status().vectors
        assert (only.fingerprint, only.state) == (before.fingerprint, "behind")


def test_a_segment_in_the_folder_of_another_model_is_not_counted(filled, folder):
    """The name of the folder and the manifest have to agree."""
    (segment,) = segments_of(folder)
    rewrite_manifest(segment, fingerprint="e" * 64)
    (vectors,) = filled.status().vectors
    assert (vectors.state, vectors.covers) == ("damaged", 0)
    assert [unused.state for unused in vectors.unused] == ["other-model"]


def test_the_newest_generation_of_a_model_with_usable_segments_is_in_use(filled, folder):
    """An empty or damaged newer one does not hide the one that answers."""
    (first,) = vectors_of(folder).glob("*-0001")
    second, third = (first.with_name(first.name.replace("0001", serial)) for serial in ("0002", "0003"))
    shutil.copytree(first, second)
    third.mkdir()
    states = {item.generation: item.state for item in filled.status().vectors}
    assert states == {first.name: "replaced", second.name: "current", third.name: "behind"}
    empty(segments_of(folder)[1])
    states = {item.generation: item.state for item in filled.status().vectors}
    assert states == {first.name: "current", second.name: "damaged", third.name: "behind"}


def test_of_overlapping_segments_the_longest_chain_is_used(filled, folder):
    """A damaged segment whose offsets another covers is no loss; what nothing leads to is not counted."""
    (first,) = segments_of(folder)
    record(filled, 5)
    filled.admin.catch_up_vectors()
    copy = first.with_name(f"{first.name[:-8]}0a1b2c3d")
    shutil.copytree(first, copy)
    empty(first)
    (vectors,) = filled.status().vectors
    assert (vectors.state, vectors.covers, vectors.segments) == ("current", HEAD + 5, 2)
    assert [(segment.name, segment.state) for segment in vectors.unused] == [(first.name, "damaged")]
    empty(copy)
    (vectors,) = filled.status().vectors
    assert (vectors.state, vectors.covers) == ("damaged", 0)
    assert vectors.unused[-1].why == "nothing leads up to it"


def test_a_segment_merged_away_during_status_is_not_reported_as_damage(filled, folder, monkeypatch):
    """Another process merges: the folder is listed again."""
    from mnemolog.projections.vectors import folders

    (segment,) = segments_of(folder)
    doomed = segment.with_name("000000000000-000000000007-0a1b2c3d")
    shutil.copytree(segment, doomed)
    read = folders.read_manifest

    looked_at = []

    def vanishing(part):
        looked_at.append(part)
        if part == doomed:
            shutil.rmtree(doomed)
        return read(part)

    monkeypatch.setattr(folders, "read_manifest", vanishing)
    (vectors,) = filled.status().vectors
    assert (vectors.state, vectors.unused) == ("current", ())
    assert sorted(looked_at) == sorted([doomed, segment, segment])


def test_what_is_ahead_is_a_witness_until_its_loss_is_accepted(older):
    """A segment that is ahead is the only trace of the lost tail. It stays in quarantine when it is one no more."""
    with MemoryStore.open(older, model=None, create=False) as store:
        assert [(finding.kind, finding.position) for finding in store.verify().findings] == [(Kind.WITNESS, HEAD + 1)]
        store.admin.doctor(accept_loss=True, reason="an older copy")
        (item,) = store.admin.quarantine().items()
        assert (item.state, item.after, item.upto) == ("ahead", HEAD, HEAD + 4)
        verified = store.verify()
        assert (verified.sound, len(verified.accepted)) == (True, 1)


def test_every_state_has_a_meaning_and_an_action():
    """A state without an action would leave an operator alone."""
    for state in Drift:
        assert MEANS[state].endswith(".")
        kinds = (tables.VIEWS_ACTIONS, tables.ACTIONS, tables.CACHE_ACTIONS, folders.ACTIONS)
        actions = [kind[state] for kind in kinds if state in kind]
        assert actions, state
        assert all(isinstance(text, Hint) or text.startswith("Nothing to do") for text in actions)


def test_a_full_quarantine_is_reported_and_damaged_files_stay_and_are_not_used(filled, folder, monkeypatch):
    """Else they would go unnoticed. Answers stay right: the segment is read from the cache, in memory if need be."""
    from mnemolog.projections import quarantine

    before = filled.recall("number7", mode="vector").hits
    monkeypatch.setattr(quarantine, "ITEMS_MAX", 1)
    aside = filled.admin.quarantine()
    aside.folder.mkdir(parents=True)
    (aside.folder / "something").write_text("x")
    (warning,) = filled.status().warnings
    assert warning.startswith("the quarantine is full")
    (segment,) = segments_of(folder)
    empty(segment)
    found = filled.admin.doctor(fix=True)
    (damaged,) = [item for item in found.findings if item.state == "damaged"]
    assert not damaged.fixed
    assert "the quarantine is full" in damaged.outcome
    assert not found.healthy
    assert [item.state for item in found.findings if item.what == "quarantine"] == ["full"]
    filled.close()
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as again:
        assert again.recall("number7", mode="vector").hits == before
    assert segment.exists()
