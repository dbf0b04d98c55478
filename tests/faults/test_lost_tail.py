"""A log in a file that lost its newest events: it is refused until an operator accepts that; no healthy store is."""

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import httpx2
import pytest

from mnemolog import MemoryStore, acting_as, copy_store, errors, restore_backup
from mnemolog.infra.log import seen_head
from mnemolog.infra.log.sqlite import wal_checkpointer
from tests.e2e.conftest import run  # noqa: F401
from tests.server.serving import server
from tests.support import wait_until

pytestmark = pytest.mark.promise("P29", "tails that were cut")
HOW = {"model": None, "background": False}
ENDS = "the log ends at position 4; this node has seen position 7"


@pytest.fixture
def memory(tmp_path):
    """A store of seven events that was read, and is closed."""
    with MemoryStore.open(tmp_path / "memory", **HOW) as store:
        record(store, 6)
        store.recall("limit")
    return tmp_path / "memory"


def record(store, count):
    chat = store.session("a")
    for number in range(count):
        chat.record("user", f"limit {number}")


def kill(path, count):
    """Record and recall in a process that is killed, so that it closes nothing."""
    code = (
        f"import os; from mnemolog import MemoryStore; store = MemoryStore.open({str(path)!r}, model=None); "
        f"chat = store.session('a'); [chat.record('user', f'limit {{n}}') for n in range({count})]; "
        "store.recall('limit'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def cut(path, *, seq="UPDATE sqlite_sequence SET seq = 4 WHERE name = 'events'"):
    """Delete the events after position 4, as somebody would who leaves no trace in the file."""
    with closing(sqlite3.connect(path / "log.db")) as log:
        triggers = log.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        drops = "; ".join(f'DROP TRIGGER "{name}"' for name, _ in triggers)
        log.executescript(f"{drops}; DELETE FROM events WHERE position > 4; {seq}")
        log.executescript("; ".join(sql for _, sql in triggers))


def assert_refused(store, message):
    """Nothing is read or recorded; what reports answers, and says why."""
    for call in (store.head, lambda: store.recall("limit"), lambda: store.session("a"), store.scopes):
        with pytest.raises(errors.HistoryLost, match=message):
            call()
    assert message in store.status().warnings[0]
    assert not store.verify().sound
    found = store.admin.doctor(fix=True).findings[0]
    assert (found.severity, found.fixable, message in found.why) == ("log", False, True)
    assert not store.admin.quarantine().items(), "evidence stays where it is"


def assert_refused_when_opened(path, message, **how):
    """Also a second time: the first opening destroys no witness."""
    for _ in range(2):
        with MemoryStore.open(path, **HOW, **how) as store:
            assert_refused(store, message)


def rewrite(path):
    """Cut the end off, and record more without the note of what was there."""
    cut(path)
    noted = (path / "head.json").rename(path.parent / "noted")
    with MemoryStore.open(path, **HOW) as store:
        record(store, 5)
    noted.rename(path / "head.json")


LOST = {
    "read": (lambda path: kill(path, 0), cut, ENDS),
    "only recorded": (lambda path: None, cut, ENDS),
    "killed": (lambda path: kill(path, 1), cut, "seen position 8"),
    "counter left": (lambda path: (path / "head.json").unlink(), lambda path: cut(path, seq=""), "up to 7 were given"),
    "rewritten": (lambda path: None, rewrite, "the log has another event at position 7"),
    "note gone": (
        lambda path: [kill(path, 0), (path / "head.json").unlink()],
        cut,
        "has seen position 7; the log ends at 4",
    ),
}


@pytest.mark.parametrize("was", LOST)
def test_a_log_that_lost_its_tail_is_refused_until_that_is_accepted(tmp_path, was):
    """Whatever the folder still has; afterwards `verify` says what was accepted, by whom, and is sound."""
    path, (before, lose, message) = tmp_path / "memory", LOST[was]
    with MemoryStore.open(path, **HOW) as store:
        record(store, 6)
    before(path)
    lose(path)
    assert_refused_when_opened(path, message)
    with MemoryStore.open(path, **HOW) as store:
        with pytest.raises(errors.InvalidInput, match="reason"):
            store.admin.doctor(accept_loss=True)
        with acting_as("ada"):
            assert store.admin.doctor(accept_loss=True, reason="the disk is gone").healthy
        with pytest.raises(errors.InvalidInput, match="lost nothing"):
            store.admin.doctor(accept_loss=True, reason="twice")
        store.session("a").record("user", "goes on")
    with MemoryStore.open(path, **HOW) as store:
        *_, loss, goes_on = store.events()
        assert (loss.event.actor, loss.event.reason) == ("ada", "the disk is gone")
        assert store.recall("goes")[0].position == goes_on.position == 11 if was == "rewritten" else 6
        assert store.verify().sound
        assert f"position {loss.position}: loss" in store.verify().accepted[0]
        assert not store.status().warnings


def test_a_tail_that_is_cut_under_an_open_store_is_refused(memory):
    """It is not accepted by that process, which remembers what is lost."""
    with MemoryStore.open(memory, **HOW) as store:
        store.head()
        code = f"from pathlib import Path; from {__name__} import cut; cut(Path({str(memory)!r}))"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert_refused(store, ENDS)
        with pytest.raises(errors.HistoryLost):
            store.admin.doctor(accept_loss=True, reason="no")


def test_the_commands_and_a_server_say_what_is_lost(memory, run):  # noqa: F811
    """A server starts, and answers 503 with the reason to all but health, status, verify and metrics."""
    cut(memory)
    store = str(memory)
    for command in (("recall", store, "limit"), ("record", store, "a", "text"), ("verify", store), ("doctor", store)):
        assert run(*command).returncode == 3
    assert ENDS in json.loads(run("status", store, "--json").stdout)["warnings"][0]
    with server(memory) as (url, _), httpx2.Client(base_url=url, headers={"accept": "text/html"}) as http:
        paths = "/v1/head", "/v1/sessions", "/", "/readyz", "/healthz", "/v1/status", "/health"
        assert [http.get(path).status_code for path in paths] == [503] * 4 + [200] * 3
        assert ENDS in http.get("/v1/head").json()["detail"]
        assert ENDS in http.get("/health").text
        assert not http.post("/v1/verify", json={}).json()["sound"]
        assert "mnemolog_log_damaged{" in http.get("/metrics").text
    assert run("doctor", store, "--accept-loss").returncode == 2
    assert run("doctor", store, "--accept-loss", "--reason", "gone", "--actor", "ada").returncode == 0
    assert "accepted" in run("verify", store).stdout


def test_damage_that_was_met_is_said(memory):
    """The store answers for the rest."""
    with MemoryStore.open(memory, **HOW) as store:
        with pytest.raises(errors.LogDamaged), store.parts.log.reading():
            raise errors.LogDamaged("its digest does not follow", position=3)
        assert "position 3: its digest does not follow" in store.status().warnings[0]
        assert store.recall("limit")


def give_views(store, path):
    """Put the projections of a store, which has gone on, into the folder of another one."""
    record(store, 9)
    store.recall("limit")
    shutil.rmtree(path / "projections", ignore_errors=True)
    shutil.copytree(store.path / "projections", path / "projections")


HEALTHY = {
    "moved": lambda store, path: None,
    "read-only": lambda store, path: None,
    "killed": lambda store, path: kill(store.path, 1),
    "forgotten": lambda store, path: store.forget(session="a"),
    "no note": lambda store, path: (store.path / "head.json").unlink(),
    "empty": lambda store, path: MemoryStore.open(path, **HOW).close(),
    "copied": lambda store, path: copy_store(store.path, path),
    "views of a copy": lambda store, path: [shutil.copytree(store.path, path), give_views(store, path)],
    "views of a plain store": lambda store, path: [
        MemoryStore.open(path, **HOW, encrypt=False).close(),
        give_views(store, path),
    ],
    "restored": lambda store, path: [
        store.backup(path.parent / "b", keys=path.parent / "k"),
        record(store, 3),
        restore_backup(path.parent / "b", path, keys=path.parent / "k"),
    ],
}


@pytest.mark.parametrize("how", HEALTHY)
def test_a_healthy_store_is_not_refused(memory, tmp_path, how):
    """Whatever its folder went through; views that know more than the noted head were copied in from elsewhere."""
    path = tmp_path / "other"
    with MemoryStore.open(memory, **HOW) as store:
        HEALTHY[how](store, path)
    _ = path.exists() or memory.rename(path)
    for _ in range(2):
        with MemoryStore.open(path, **HOW, read_only=how == "read-only") as store:
            store.recall("limit")
            assert not store.status().warnings
            assert store.verify().sound
            _ = how == "read-only" or record(store, 1)


def test_a_reader_behind_a_writer_is_not_refused(memory):
    """The witness is read before the head: another process may append and catch its views up in between."""
    noted = seen_head.noted_head
    with MemoryStore.open(memory, **HOW) as writer, pytest.MonkeyPatch.context() as patched:
        patched.setattr(seen_head, "noted_head", lambda folder: (noted(folder), record(writer, 1))[0])
        with MemoryStore.open(memory, **HOW) as reader:
            assert reader.recall("limit")


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside"])
def test_a_power_cut_refuses_only_where_nothing_acknowledged_may_be_lost(memory, synchronous, other):
    """The log is without its last commits, the views with them. With NORMAL, by any process ever, that may happen."""
    before = (memory / "log.db").read_bytes()
    with MemoryStore.open(memory, **HOW, synchronous=synchronous) as store:
        record(store, 3)
        store.recall("limit")
    if other:
        with MemoryStore.open(memory, **HOW) as store:
            store.recall("limit")
    for part in ("-wal", "-shm"):
        (memory / f"log.db{part}").unlink(missing_ok=True)
    (memory / "log.db").write_bytes(before)
    if synchronous == "FULL":
        assert_refused_when_opened(memory, "this node has seen position 10")
    with MemoryStore.open(memory, **HOW, synchronous="NORMAL") as store:
        record(store, 1)
    with MemoryStore.open(memory, **HOW) as store:
        assert store.recall("limit")
        assert re.search("after 7:.* to 10:.* a power cut", store.status().warnings[0])
        assert store.verify().findings[0].detail == store.status().warnings[0]
        store.admin.doctor(accept_loss=True, reason="the power cut of today")
        assert store.verify().sound
        assert not store.status().warnings


def test_a_store_that_only_records_notes_its_head_now_and_then(memory, tmp_path, monkeypatch):
    """In its folder and in the file outside, from a thread."""
    monkeypatch.setattr(wal_checkpointer, "NOTE_EVERY_S", -1)
    witness = tmp_path / "elsewhere.jsonl"
    with MemoryStore.open(memory, **HOW, witness=witness) as store:
        record(store, 1)
        wait_until(lambda: witness.exists() and seen_head.noted_head(memory).position == 8, what="the notes")


def test_a_witness_outside_refuses_a_folder_that_was_rolled_back(memory, tmp_path, run):  # noqa: F811
    """Its file has a head for each opening that appended. What it cannot take is said, and loses no turn."""
    witness, old = tmp_path / "elsewhere.jsonl", tmp_path / "old"
    for count in (1, 1, 0):
        with MemoryStore.open(memory, **HOW, witness=witness) as store:
            record(store, count)
        _ = old.exists() or shutil.copytree(memory, old)
    assert [json.loads(line)["position"] for line in witness.read_text().splitlines()] == [8, 9]
    with MemoryStore.open(old, **HOW) as store:
        assert store.recall("limit"), "nothing in the folder tells"
    assert_refused_when_opened(old, "has seen position 9; the log ends at 8", witness=witness)
    refused = run("--witness", str(witness), "recall", str(old), "limit").exited(3)
    accept = "doctor", str(old), "--accept-loss", "--reason", "rolled back"
    assert f"`mnemolog --witness {witness} doctor {old} --accept-loss --reason REASON`" in refused.stderr
    assert run("--witness", str(witness), *accept).returncode == 0
    with MemoryStore.open(old, **HOW, witness=witness) as store:
        record(store, 1)
    with pytest.raises(errors.WitnessUnreadable, match="it is of log"):
        MemoryStore.open(tmp_path / "new", **HOW, witness=witness)
    unwritable = tmp_path / "nowhere" / "heads.jsonl"
    with MemoryStore.open(old, **HOW, witness=unwritable) as store:
        record(store, 1)
        store.parts.wal_keeper._note()
        assert str(unwritable) in store.status().warnings[0]
