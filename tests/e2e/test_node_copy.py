"""A new node starts from the projections of another one, or empty."""

from __future__ import annotations

import shutil

import pytest

from mnemolog import InvalidInput, MemoryStore, errors
from tests.support import HashEncoder

pytestmark = pytest.mark.local

TURNS = 40


@pytest.fixture
def copied(opened, tmp_path):
    """A copy of a node with vectors in a segment and in the cache, carried to the place of another node."""
    with opened("one") as one:
        for n in range(TURNS):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        one.admin.catch_up_vectors()
        for n in range(TURNS, TURNS + 3):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        assert one.recall(f"ferry {TURNS + 2}", mode="vector").hits
        report = one.admin.copy_node(tmp_path / "copy")
        assert (report.log_id, report.left_out) == (one.status().log_id, ())
        assert "clear text" in report.notes[0]
    shutil.copytree(tmp_path / "copy", tmp_path / "two")
    return tmp_path / "two"


def test_a_new_node_embeds_what_was_recorded_since_and_nothing_again(opened, copied):
    """It is opened as any folder: it knows its log, and is a node of its own. Another model embeds for itself."""
    encoder, other = HashEncoder(), HashEncoder(fingerprint="another/1")
    with MemoryStore.open(copied, model=encoder, background=False) as two:
        assert two.status().views.state == "current"
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == 0
        assert two.recall(f"the ferry number {TURNS + 2} leaves", mode="vector", k=1).hits[0].position == TURNS + 4
        assert len(two.admin.nodes()) == 2
        assert two.admin.doctor(deep=True).healthy
        encoded = encoder.texts_encoded
        with opened("one") as one:
            one.session("trip").record("user", "and comes back at six")
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == encoded + 1
        assert two.recall("comes back").hits[0].text == "and comes back at six"
    with MemoryStore.open(copied, model=other, background=False) as two:
        two.admin.catch_up_vectors()
        assert other.texts_encoded == TURNS + 4


def test_a_new_node_serves_nothing_that_was_forgotten_since(opened, copied):
    """It purges before its first recall, and confirms."""
    with opened("one") as one:
        one.forget(session="trip", reason="asked for")
        with MemoryStore.open(copied, model=HashEncoder(), background=False) as two:
            assert not two.recall("ferry").hits
            assert one.audit.pending_erasures() == []
            files = [path for path in copied.rglob("*") if path.is_file()]
            assert not [path for path in files if b"ferry number" in path.read_bytes()]


def test_what_does_not_fit_the_log_is_rebuilt(opened, copied):
    """As in any folder: each projection says of which log it is, up to where, and with what digest."""
    views = copied / "projections" / "views.db"
    views.write_bytes(views.read_bytes()[:5000])
    with MemoryStore.open(copied, model=HashEncoder(), background=False) as two:
        assert two.recall("ferry 7").hits
        assert [item.was for item in two.admin.quarantine().items()]


@pytest.mark.log_file
def test_only_a_node_can_be_copied_without_its_log(store, tmp_path):
    """A store in a folder is backed up with its log."""
    with pytest.raises(InvalidInput, match="with_projections"):
        store.admin.copy_node(tmp_path / "copy")


def test_a_copy_overwrites_nothing(opened, tmp_path):
    """Its folder is new or empty, and not in the node."""
    with opened("one") as one:
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "file").touch()
        for target in (tmp_path / "taken", one.path / "inside"):
            with pytest.raises(errors.BackupRefused):
                one.admin.copy_node(target)


def test_the_command_copies_a_node(opened, run, tmp_path):
    """`--projections-only` goes with no option that concerns the log."""
    with opened("one", model=None) as one:
        one.session("trip").record("user", "the ferry leaves at noon")
        one.recall("ferry")
    ran = run("backup", one.path, tmp_path / "copy", "--projections-only")
    assert ran.returncode == 0
    assert "a node of log" in ran.stdout
    assert "ferry" in run("recall", tmp_path / "copy", "ferry", "--model", "none").stdout
    assert run("backup", one.path, tmp_path / "other", "--projections-only", "--replace").returncode == 2
    assert run("backup", one.path, tmp_path / "other", "--projections-only", "--json").json["left_out"] == []


def test_init_reads_the_log_into_a_new_node(opened, run, postgres_url, name, tmp_path):
    """With progress on a terminal: an old log takes a while."""
    with opened("one", model=None) as one:
        for n in range(TURNS):
            one.session("trip").record("user", f"the ferry number {n} leaves")
    made = run("init", postgres_url, "--log", name, "--local", tmp_path / "two", "--json").json
    assert (made["views"]["state"], made["turns"]) == ("current", TURNS)
    assert {node["position"] for node in made["nodes"]} >= {TURNS + 1}
