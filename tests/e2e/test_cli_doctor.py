"""status, doctor and quarantine as an operator meets them: words, JSON, exit codes."""

import json
import re
import shutil

import pytest

from mnemolog import MemoryStore
from tests.e2e.test_cli import refused
from tests.faults.tamper import copy_store
from tests.support import HashEncoder, Picky


@pytest.fixture
def memory(folder):
    """A store with a few turns and a segment, closed."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        store.start_session("trip-1", title="trip")
        for n in range(5):
            store.record("trip-1", "user", f"note number{n}")
        store.recall("number1")
        store.admin.catch_up_vectors()
    return folder


def damage(memory):
    (segment,) = memory.glob("projections/vectors/*/[0-9]*-[0-9]*")
    (segment / "vectors.q12").write_bytes(b"")
    return segment


def test_status_says_what_is_wrong_and_the_command_to_copy(memory, run):
    """In words with the store's own folder, and in JSON with the same fields."""
    assert "Nothing to do" not in run("status", memory).stdout
    damage(memory)
    ran = run("status", memory)
    assert ran.returncode == 0
    assert re.search(r"vectors hash-words \w{8} +damaged +0 +6 ", ran.stdout)
    assert f"`mnemolog doctor {memory} --fix --model hash-words`" in ran.stdout
    (vectors,) = json.loads(run("status", memory, "--json").stdout)["vectors"]
    assert (vectors["state"], vectors["covers"], vectors["segments"]) == ("damaged", 0, 0)
    assert vectors["action"].startswith(f"`mnemolog doctor {memory} --fix")
    assert [segment["state"] for segment in vectors["unused"]] == ["damaged"]


def test_status_tells_of_turns_that_the_model_refused(folder, run):
    """How many in words, which and why in JSON."""
    with MemoryStore.open(folder, model=Picky(), background=False) as store:
        store.start_session("trip-1", title="trip")
        for text in ("fine", "poison", "fine too"):
            store.record("trip-1", "user", text)
        store.rebuild("vectors", skip_bad=True)
    assert "1 turn refused by the model" in run("status", folder).stdout
    (vectors,) = json.loads(run("status", folder, "--json").stdout)["vectors"]
    (refused_turn,) = vectors["skipped"]
    assert refused_turn["position"] == 3
    assert "not this" in refused_turn["why"]


def test_doctor_goes_from_one_to_zero(memory, run):
    """Looks, says what it would do, does it, finds nothing; text and JSON agree. No store is made by a look."""
    for command in (["doctor"], ["quarantine", "list"]):
        refused(run(*command, memory.parent / "nothing"), 1)
    assert run("doctor", memory).returncode == 0
    segment = damage(memory)
    looked = run("doctor", memory)
    assert looked.returncode == 1
    assert "vectors.q12 has 0 bytes" in looked.stdout
    would = run("doctor", memory, "--fix", "--dry-run")
    assert would.returncode == 1
    assert "--fix would fix this" in would.stdout
    assert segment.exists()
    found = json.loads(run("doctor", memory, "--json").stdout)
    assert (found["healthy"], found["log_damaged"]) == (False, False)
    assert [item["state"] for item in found["findings"] if item["severity"] == "problem"] == ["damaged"]
    fixed = run("doctor", memory, "--fix")
    assert fixed.returncode == 0, fixed.stdout
    assert "fixed: moved to quarantine as projections/quarantine/" in fixed.stdout
    assert not segment.exists()
    shown = run("status", memory).stdout  # Of which model they are is still known, though they have yet to be made.
    assert re.search(r"^vectors hash-words [0-9a-f]{8} +behind ", shown, re.M)
    assert f"6 events behind: `mnemolog project {memory} --model hash-words`" in shown
    assert f"`mnemolog project {memory} --model hash-words`" in run("doctor", memory).stdout
    again = run("doctor", "--deep", "--json", store=memory)
    assert again.returncode == 0
    assert json.loads(again.stdout)["healthy"]


@pytest.mark.log_file
def test_doctor_and_verify_exit_with_three_when_the_log_has_lost_history(memory, tmp_path, run):
    """An older copy of log.db under newer vectors: loud everywhere, also after the vectors were set aside."""
    with MemoryStore.open(memory, model=HashEncoder(), background=False) as store:
        older = copy_store(store.parts.log, tmp_path / "older")
        store.record("trip-1", "user", "to be lost")
        store.admin.catch_up_vectors()
    shutil.rmtree(older / "projections")
    shutil.copytree(memory / "projections" / "vectors", older / "projections" / "vectors")
    assert "WARNING: the log has lost history" in run("status", older).stdout
    assert "the log has lost history" in json.loads(run("status", older, "--json").stdout)["warnings"][0]
    for arguments in (("doctor",), ("doctor", "--fix"), ("doctor",), ("verify",)):
        ran = run(arguments[0], older, *arguments[1:])
        assert ran.returncode == 3, (arguments, ran.stdout)
        assert arguments[0] == "verify" or "THE LOG IS DAMAGED" in ran.stdout
        assert "mnemolog backup" not in ran.stdout
    assert run("quarantine", "purge", older, "--yes").returncode == 0
    assert run("doctor", older).returncode == 0


def test_the_quarantine_is_listed_and_purged_only_with_yes(memory, run):
    """Names as listed; nothing goes without --yes."""
    damage(memory)
    run("doctor", memory, "--fix")
    (item,) = json.loads(run("quarantine", "list", memory, "--json").stdout)
    assert (item["state"], item["upto"]) == ("damaged", 6)
    listed = run("quarantine", "list", memory).stdout
    assert item["name"][:20] in listed
    assert "1 item," in listed
    for arguments, code in (((), 1), (("--dry-run", "--yes"), 0)):
        ran = run("quarantine", "purge", memory, *arguments)
        assert ran.returncode == code
        assert len(json.loads(run("quarantine", "list", memory, "--json").stdout)) == 1
    ran = run("quarantine", "purge", "--yes", store=memory)
    assert (ran.returncode, "deleted 1 item" in ran.stdout) == (0, True)
    assert json.loads(run("quarantine", "list", memory, "--json").stdout) == []
