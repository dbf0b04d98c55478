"""P22: another program overwrites the files of an open store in place: `cp`, `truncate`, `dd`."""

import os
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

from mnemolog import MemoryStore, errors
from mnemolog.infra.sqlite import LOOK_EVERY_NS
from tests.children.recording import change_until_told, try_to_lock
from tests.support import WAIT_S, turn, wait_until

pytestmark = pytest.mark.promise("P22")

FILES = ("log.db", "log.db-wal", "keys.db", "keys.db-wal")
TEXT = "a turn that takes some room " * 20


def copied(source, target):
    subprocess.run(["cp", source, target], check=True)  # A process of its own: to close a file drops our locks on it.


def store_with(folder, aside, *, forgets):
    """Make a store of 65 turns. Copies of its files, and a backup, are from when it had five."""
    (aside / "older").mkdir(parents=True)
    for turns in (5, 60):
        with MemoryStore.open(folder, model=None) as store:
            for n in range(turns):
                store.session("trip").record("user", f"{n}: {TEXT}")
            store.session(f"of {turns}").record("user", "in a session of its own")
            if turns == 5:
                for name in FILES:
                    copied(folder / name, aside / "older" / name)
                store.backup(aside / "backup", keys=aside / "keys")
        if turns == 5:
            for name in ("log.db", "keys.db"):
                copied(folder / name, aside / "older" / name)
    with MemoryStore.open(folder, model=None) as store:
        for _ in range(forgets):
            store.session("gone").record("user", "to be forgotten")
            store.forget(session="gone", reason="asked")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store as it is closed, its older copies, and the files of another store while it is open."""
    made = tmp_path_factory.mktemp("made")
    store_with(made / "memory", made, forgets=1)
    store_with(made / "another", made / "aside", forgets=3)
    (made / "other").mkdir()
    with MemoryStore.open(made / "another", model=None) as store:
        store.session("of another").record("user", "in the write-ahead log")
        for name in FILES:
            copied(made / "another" / name, made / "other" / name)
    return made


def by_older_copy(made, path):
    copied(made / "older" / path.name, path)


def by_backup(made, path):
    copied(made / "backup" / "log.db" if path.name == "log.db" else next((made / "keys").glob("*.db")), path)


def by_another_store(made, path):
    copied(made / "other" / path.name, path)


def by_nothing(made, path):
    os.truncate(path, 0)


def by_its_first_half(made, path):
    os.truncate(path, path.stat().st_size // 2)


def by_zeros(made, path):
    zeros = ("if=/dev/zero", f"of={path}", f"bs={path.stat().st_size}", "count=1", "conv=notrunc", "status=none")
    subprocess.run(["dd", *zeros], check=True)


ATTACKS = (by_older_copy, by_another_store, by_nothing, by_its_first_half, by_zeros)
CASES = [(name, attack) for name in FILES for attack in ATTACKS] + [("log.db", by_backup), ("keys.db", by_backup)]


def bytes_in(folder, name):
    """What is in a database and its `-wal`."""
    database = folder / name.removesuffix("-wal")
    return subprocess.run(["cat", database, f"{database}-wal"], check=True, capture_output=True).stdout


@pytest.mark.parametrize(("name", "attack"), CASES, ids=[f"{name} {attack.__name__}" for name, attack in CASES])
def test_the_append_after_a_file_was_overwritten_is_refused_and_nothing_more_is_written(made, folder, name, attack):
    """In a session that is there and in a new one. The error names the file and says what to do, as every later one."""
    shutil.copytree(made / "memory", folder)
    store = MemoryStore.open(folder, model=None)
    session = store.session("trip")
    for n in range(3):
        store.session(f"new {n}").record("user", "in the write-ahead log")
        session.record("user", "in the write-ahead log")
    attack(made, folder / name)
    left, done = bytes_in(folder, name), time.monotonic_ns()
    wait_until(lambda: time.monotonic_ns() - done > LOOK_EVERY_NS, what="the next look")
    for call in (lambda: session.record("user", "lost"), lambda: store.session("another"), store.status, store.verify):
        with pytest.raises(errors.StoreReplaced, match=f"{name} .*overwritten.*end every process") as refused:
            call()
        assert "restore a backup" in refused.value.hint
    store.close()
    assert bytes_in(folder, name) == left


@pytest.mark.parametrize("attack", [by_older_copy, by_backup, by_another_store], ids=lambda attack: attack.__name__)
def test_no_key_is_made_in_keys_that_were_overwritten(made, folder, attack):
    """The first call after it begins a session: its key would be written over what is left."""
    shutil.copytree(made / "memory", folder)
    store = MemoryStore.open(folder, model=None)
    store.record("trip", "user", "with keys that are open")
    store.forget(session="of 5", reason="asked")
    attack(made, folder / "keys.db")
    left = bytes_in(folder, "keys.db")
    with pytest.raises(errors.StoreReplaced, match=r"keys\.db .*overwritten"):
        store.session("new")
    store.close()
    assert bytes_in(folder, "keys.db") == left


@pytest.mark.timeout(3_600)
@pytest.mark.promise("P22", "changes beside appends")
def test_what_another_process_does_to_its_files_is_no_reason_to_refuse(
    processes, folder, tmp_path, tries, record_property
):
    """It records, forgets, wipes the keys, checkpoints and takes backups, while this one appends and looks."""
    with MemoryStore.open(folder, model=None) as store:
        session, looks = store.session("trip"), 0
        child, pipe = processes.start(change_until_told, str(folder), str(tmp_path / "backup"), tries)
        for number in count():
            session.record("user", f"{number}: {TEXT}")
            if number % 10 == 0:
                store.session(f"session {number // 10 % 50}").record("user", "with a key of its own")
            while looks < 20 * number:
                assert store.parts.log.engine.replaced() is None
                looks += 1
            if pipe.poll():
                break
        assert pipe.recv() == tries
        child.join(WAIT_S)
        record_property("appends", number)
        assert [turn.text for turn in store.turns("trip", limit=1_000_000)] == [
            f"{n}: {TEXT}" for n in range(number + 1)
        ]
        assert store.verify(contents=True).sound


def descriptors_of(folder):
    """How many descriptors this process has of files in a folder."""
    found = 0
    for entry in os.listdir("/dev/fd"):  # noqa: PTH208
        try:
            found += os.path.samestat(os.fstat(int(entry)), (folder / "log.db").stat())
        except OSError:
            continue
    return found


def test_a_store_that_is_opened_and_closed_beside_another_keeps_the_locks_of_this_process(processes, folder):
    """A descriptor that reads past SQLite is closed after the last connection of the process: locks go with it."""

    def said():
        _, pipe = processes.start(try_to_lock, str(folder / "log.db"))
        assert pipe.poll(WAIT_S)
        return pipe.recv()

    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "first")

        def work(tx):
            tx.append("session/trip", turn("with the lock"))
            with MemoryStore.open(folder, model=None) as beside:
                beside.turns("trip")
            found.append(said())

        found = []
        log = store.parts.log
        log.appends._knows_head = False  # As if another process had written: it takes the lock first.
        log.appends.transact(work)
        assert found == ["writing: locked, alone: locked"]
        assert said() == "writing: free, alone: locked"
    assert descriptors_of(folder) == 0
    assert Path(folder / "log.db").exists()
