"""Forgetting that waits, is interrupted or undone by older keys is carried out; P37: beside backups too."""

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, copy_store, restore_backup
from mnemolog.domain.events import ForgetCompleted
from mnemolog.forgetting import service
from mnemolog.forgetting import service as purging
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.sqlite.engine import SqliteEngine
from mnemolog.operations import backup_files, copies
from tests.postgres import put_log_in_postgres
from tests.support import wait_until


@pytest.fixture
def told(folder):
    """The folder of a store with two sessions, closed."""
    with MemoryStore.open(folder, model=None) as store:
        for name in ("ann", "bob"):
            store.session(name).record("user", f"the quokka of {name} sleeps")
    return folder


def reopened(folder):
    return MemoryStore.open(folder, model=None, background=False, busy_timeout_s=0.2)


def readable(store):
    """The sessions whose turn can be read in the log."""
    events = str([item.event for item in store.events()])
    return [name for name in ("ann", "bob") if f"the quokka of {name} sleeps" in events]


def reader(path):
    """A connection that has begun to read a database."""
    reading = dbapi2.connect(path, isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM nodes").fetchone()
    return closing(reading)


def put_back(kept, folder):
    """Put an older copy of the keys in the place of those of a closed store."""
    for part in ("-wal", "-shm"):
        (folder / f"keys.db{part}").unlink(missing_ok=True)
    shutil.copy(kept, folder / "keys.db")


@pytest.mark.promise("P15")
@pytest.mark.local
@pytest.mark.log_file
def test_each_of_the_requests_that_one_event_completes_is_repeated_for_older_keys(told, tmp_path, monkeypatch):
    """Keys that know of the first of them are too old for the second."""
    monkeypatch.setattr(service, "retry_delay_s", lambda _: 0.0)
    with reader(told / "keys.db"), reopened(told) as store:
        assert store.forget(session="ann").pending
    shutil.copy(told / "keys.db", tmp_path / "older.db")
    with reader(told / "keys.db") as reading, reopened(told) as store:
        assert store.forget(session="bob").pending
        assert len(store.status().forgetting.pending) == 2
        reading.close()
        wait_until(lambda: store.recall("x") is not None and not store.status().forgetting.pending, what="the wipe")
        done = [item.event.requests for item in store.events() if isinstance(item.event, ForgetCompleted)]
        assert [len(requests) for requests in done] == [2]
    put_back(tmp_path / "older.db", told)
    with reopened(told) as store:
        assert readable(store) == []
        assert store.status().forgetting.pending == ()


@pytest.mark.promise("P15")
@pytest.mark.local
@pytest.mark.log_file
def test_what_is_repeated_for_older_keys_counts_as_pending_until_it_is_completed_again(told, tmp_path, monkeypatch):
    """Also where the process ends in between: the next one goes on from there."""
    shutil.copy(told / "keys.db", tmp_path / "older.db")
    with reopened(told) as store:
        request = store.forget(session="ann").request
    put_back(tmp_path / "older.db", told)

    def ends(step):
        if step == "recorded":
            raise OSError("the process ends here")

    monkeypatch.setattr(Forgetting, "reached", staticmethod(ends))
    with reopened(told) as store:
        assert readable(store) == ["bob"]
        assert store.status().forgetting.pending == (request,)
        assert [item.complete for item in store.audit.pending_erasures()] == [False]
    monkeypatch.undo()
    with reopened(told) as store:
        assert store.status().forgetting.pending == ()
        (*_, last) = (item.event for item in store.events())
        assert isinstance(last, ForgetCompleted)
        assert last.requests == [request]


@pytest.mark.promise("P15")
@pytest.mark.local
@pytest.mark.log_file
def test_what_another_process_forgets_is_left_to_it_for_a_while(told, monkeypatch):
    """Answers would wait for both. After that time it is carried on."""
    real, tries = purging.alone, []

    def alone(*given, **how):
        tries.append(given)
        return real(*given, **how)

    with reader(told / "keys.db") as reading, reopened(told) as store, reopened(told) as other:
        assert store.forget(session="ann").pending
        monkeypatch.setattr(purging, "alone", alone)
        assert (other.recall("quokka", mode="text").hits[0].session, tries) == ("bob", [])
        reading.close()
        other.parts.forgetting._retry_at = 0.0
        wait_until(lambda: other.recall("x") is not None and not other.status().forgetting.pending, what="the wipe")
        assert tries


STEPS = (
    *((copies, name) for name in ("_write_manifest", "verify_copy", "publish_keys", "remember_backup", "publish")),
    *((backup_files, name) for name in ("check", "replace_file")),
    *((SqliteEngine, "copy_to"), (SqliteKeys, "wipe")),
)
"""Functions that a backup calls, with keys to copy."""


def forgotten_within(store, other, sessions, monkeypatch, times, back_up):
    """Forget sessions by another handle, before and after each step. Return those, and the report."""
    left, gone = list(sessions), []

    def forget(at):
        if at:
            at.pop()
            gone.append(left.pop())
            assert other.forget(session=gone[-1]).complete

    def between(real):
        before, after = [1] * times(), [1] * times()

        def step(*given, **options):
            if given and getattr(given[0], "path", None) == store.path / "keys.db":  # A step of `forget` itself.
                return real(*given, **options)
            forget(before)
            try:
                return real(*given, **options)
            finally:
                forget(after)

        return step

    for of, name in STEPS:
        monkeypatch.setattr(of, name, between(getattr(of, name)))
    made = back_up()
    monkeypatch.undo()
    return gone, made


@pytest.mark.timeout(7_200)
@pytest.mark.promise("P37", "backups")
@pytest.mark.parametrize("where", ["a folder", "PostgreSQL"])
def test_what_is_forgotten_before_a_backup_ends_cannot_be_read_from_it(
    folder, tmp_path, monkeypatch, request, rng, tries, where
):
    """Forgotten at every step, and again when the keys are copied again; after the first backup at some of them."""
    keys = tmp_path / "keys"
    if where == "PostgreSQL":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    for number in range(tries):
        here = tmp_path / str(number)
        here.mkdir()
        sessions = [f"s{number}-{n}" for n in range(4 * len(STEPS))]
        with MemoryStore.open(folder, model=None) as store, MemoryStore.open(folder, model=None) as other:
            for session in (*sessions, "stays"):
                store.session(session).record("user", f"the quokka of {session} sleeps")
            times = partial(rng.randint, 0, 2) if number else lambda: 2
            back_up = partial(store.backup, here / "b", keys=keys)
            gone, made = forgotten_within(store, other, sessions, monkeypatch, times, back_up)
        assert number or len(gone) >= 2 * len(STEPS)
        assert [path.name for path in keys.glob("*.db")] == [Path(made.keys).name]
        restore_backup(here / "b", here / "r", keys=keys)
        with MemoryStore.open(here / "r", model=None) as again:
            there = {session for session in sessions if again.turns(session)}
            assert there == set(sessions) - set(gone)
            assert again.verify(contents=True).sound
        found = b"".join(path.read_bytes() for path in (here / "r").rglob("*") if path.is_file())
        readable = [session for session in ("stays", *gone) if f"the quokka of {session} sleeps".encode() in found]
        assert readable == ["stays"]


@pytest.mark.promise("P37", "copies and restores")
@pytest.mark.parametrize("what", ["a copy", "a restore"])
def test_what_is_forgotten_while_a_copy_is_verified_cannot_be_read_from_it(folder, tmp_path, monkeypatch, tries, what):
    """A copy of a store, and a restore with the keys of a store that is in use."""
    for number in range(tries):
        here = tmp_path / str(number)
        here.mkdir()
        gone, text = f"gone-{number}", f"the quokka of {number} sleeps"
        with MemoryStore.open(folder, model=None) as store:
            store.session(gone).record("user", text)
            store.session(f"stays-{number}").record("user", "it stays")
            store.backup(here / "b", keys=here / "keys")
            real = copies.verify_copy

            def verified(*given, real=real, store=store, gone=gone, **options):
                found = real(*given, **options)
                assert store.forget(session=gone).complete
                return found

            monkeypatch.setattr(copies, "verify_copy", verified)
            if what == "a copy":
                copy_store(folder, here / "r")
            else:
                restore_backup(here / "b", here / "r", keys=folder)
            monkeypatch.undo()
        with MemoryStore.open(here / "r", model=None) as copied:
            assert not copied.turns(gone)
            assert [turn.text for turn in copied.turns(f"stays-{number}")] == ["it stays"]
