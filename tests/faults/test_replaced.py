"""P22: the files of a store are moved, deleted or replaced while processes have it open."""

import os
import shutil
import signal
import time
from contextlib import suppress

import pytest

from mnemolog import MemoryStore, errors, restore_backup
from tests.children.recording import read_sessions, record_some, record_until_refused
from tests.children.workers import record_and_cut_shared_memory
from tests.support import WAIT_S, HashEncoder, in_thread, turn, wait_until

pytestmark = pytest.mark.promise("P22")

LOG_PARTS = ("log.db-wal", "log.db-shm")
KEYS_PARTS = ("keys.db-wal", "keys.db-shm")


def moved(folder, aside):
    """The folder gets another name."""
    folder.rename(aside / "moved")
    return aside / "moved"


def another_in_place(folder, aside):
    """The folder gets another name, and a new store gets its old one."""
    folder.rename(aside / "moved")
    with MemoryStore.open(folder, model=None) as store:
        store.session("other").record("user", "of the other store")
    return aside / "moved"


def backup_in_place(folder, aside):
    """The folder gets another name, and its last backup is restored under the old one."""
    folder.rename(aside / "moved")
    restore_backup(aside / "backup", folder, keys=aside / "backup-keys" if (aside / "backup-keys").exists() else None)
    return aside / "moved"


def deleted(folder, aside):
    """The folder is deleted, although a process may make new files in it."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def log_of_another(folder, aside):
    """`log.db` alone is another's until everything has ended."""
    return swapped(folder, aside, "log.db")


def keys_of_another(folder, aside):
    """`keys.db` alone is another's until everything has ended."""
    return swapped(folder, aside, "keys.db")


def swapped(folder, aside, name):
    with MemoryStore.open(aside / "another", model=None) as store:
        store.session("other").record("user", "of the other store")
    (folder / name).rename(aside / name)
    shutil.copyfile(aside / "another" / name, folder / name)
    return folder


def without(*names):
    def attack(folder, aside):
        for name in names:
            (folder / name).unlink()
        return folder

    attack.__name__ = f"without {', '.join(names)}"
    return attack


def taken_away(name):
    def attack(folder, aside):
        (folder / name).rename(aside / name)
        return folder

    attack.__name__ = f"{name} taken away"
    return attack


ATTACKS = [
    moved,
    another_in_place,
    backup_in_place,
    deleted,
    log_of_another,
    keys_of_another,
    taken_away("log.db"),
    taken_away("keys.db"),
    without("log.db-wal"),
    without("log.db-shm"),
    without(*LOG_PARTS),
    without("keys.db-wal"),
    without("keys.db-shm"),
    without(*KEYS_PARTS),
]
LOSES = [attack for attack in ATTACKS if "log.db-wal" in attack.__name__]
"""What was only in the deleted `-wal` is lost, and the writers are told."""
LOSES_KEYS = [attack for attack in ATTACKS if "keys.db-wal" in attack.__name__]
"""The same for keys: content whose key was only in the deleted `-wal` cannot be read any more."""
MIXED = [log_of_another, keys_of_another]
"""Who opens the store now gets the `-wal` of another database. SQLite cannot know that."""


class Writers:
    """Processes that record in one store, with what they said."""

    def __init__(self, processes, fork_server, folder, threads_of_each):
        self._go = fork_server.Event()
        self._go.set()
        self.threads = sum(threads_of_each)
        self._said = []
        pipes = [
            processes.start(record_until_refused, str(folder), f"w{n}", threads, self._go, n == 0)[1]
            for n, threads in enumerate(threads_of_each)
        ]
        self._hearing = [in_thread(lambda pipe=pipe: self._hear(pipe)) for pipe in pipes]

    def _hear(self, pipe):
        with suppress(EOFError):
            while True:
                self._said.append(pipe.recv())

    def said(self, word):
        return [message[1:] for message in list(self._said) if message[0] == word]

    def record(self, count):
        """Have them record so many turns, each of them at least one."""

        def done():
            texts = [text for _, _, text in self.said("recorded")]
            return len(texts) >= count and len({text.split("/")[0] for text in texts}) == self.threads

        wait_until(done, what=f"{count} turns")

    def pause(self):
        self._go.clear()
        wait_until(lambda: len(self.said("waiting")) == self.threads, what="the writers to pause")

    def end(self):
        """Have them go on until they are refused. Return the acknowledged turns, and the refusals."""
        self._go.set()
        for hearing in self._hearing:
            hearing.result()
        assert len(self.said("closed")) == len(self._hearing), self._said[-5:]
        return self.said("recorded"), self.said("refused")


@pytest.fixture
def answer(processes):
    """Run a function in a process of its own, and return what it sends."""

    def answer(function, *arguments):
        process, pipe = processes.start(function, *arguments)
        assert pipe.poll(WAIT_S)
        found = pipe.recv()
        process.join(WAIT_S)
        return found

    return answer


def texts_in(answer, folder):
    """The texts of all turns of a store, which has to be sound."""
    found = answer(read_sessions, str(folder))
    assert not isinstance(found, str), found
    sessions, sound = found
    assert sound
    return [text for texts in sessions.values() for text in texts]


def accept_loss(folder):
    """Go on with a log whose end is gone, where anything was seen of that."""
    with MemoryStore.open(folder, model=None) as store:
        if not store.verify().sound:
            store.admin.doctor(accept_loss=True, reason="its write-ahead log was deleted")


@pytest.mark.timeout(7200)
@pytest.mark.promise("P22", "stores replaced")
def test_every_acknowledged_turn_keeps_its_position_or_its_writer_gets_an_error(
    processes, fork_server, answer, tmp_path, rng, seed, tries, record_property
):
    """Whatever becomes of the files: turns are found where they were recorded, and later ones are refused."""
    acknowledged = told = 0
    for number in range(tries):
        attack, aside = ATTACKS[number % len(ATTACKS)], tmp_path / str(number)
        folder = aside / "memory"
        aside.mkdir()
        with MemoryStore.open(folder, model=None, encrypt="keys" in attack.__name__ or rng.random() < 0.5) as store:
            store.session("first").record("user", "before the backup")
            store.backup(aside / "backup", keys=aside / "backup-keys")
        threads = [1] * rng.randint(1, 3) if rng.random() < 0.5 else [rng.randint(1, 3)]
        idle, visited = rng.random() < 0.5, rng.random() < 0.5 and attack not in (*MIXED, *LOSES)
        case = f"seed {seed}, {number}: {attack.__name__}, threads {threads}, {idle=}, {visited=}"
        writers = Writers(processes, fork_server, folder, threads)
        writers.record(rng.randint(5, 60))
        if idle:
            writers.pause()
        where, done = attack(folder, aside), time.monotonic()
        visitor = answer(record_some, str(folder), "visitor", 3) if visited else []
        turns, refusals = writers.end()
        acknowledged += len(turns)
        assert {kind for kind, _ in refusals} <= {"StoreReplaced", "KeysMissing"}, (case, refusals)
        assert len(refusals) == writers.threads, case
        for left in aside.iterdir():
            if left.name in ("log.db", "keys.db"):
                left.rename(folder / left.name)
        if where is None or (where.parent == aside and where != folder):
            assert [text for began, _, text in turns if began > done] == [], case
        if where is not None:
            if attack in LOSES_KEYS and isinstance(answer(read_sessions, str(where)), str):
                assert all("may be lost" in message for _, message in refusals), (case, refusals)
                told += 1  # The newest keys are gone.
                processes.end()
                continue
            if attack in LOSES:
                accept_loss(where)
            held = texts_in(answer, where)
            if lost := {text for _, _, text in turns} - set(held):
                told += 1
                assert attack in LOSES, (case, lost)
                assert all("may be lost" in message for _, message in refusals), (case, refusals)
        if not isinstance(visitor, str) and folder.exists():
            in_place = texts_in(answer, folder)
            assert set(visitor) <= set(in_place), case
            if where != folder:
                assert not {text for _, _, text in turns} & set(in_place), case
        processes.end()
        shutil.rmtree(aside)
    record_property("acknowledged", acknowledged)
    record_property("told", told)


@pytest.fixture
def recorded(folder):
    """An open store with a session of three turns, and the session."""
    store = MemoryStore.open(folder, model=None)
    session = store.session("trip")
    for n in range(3):
        session.record("user", f"turn {n}")
    yield store, session
    store.close()


def test_every_call_is_refused_once_another_store_is_in_its_place(recorded, folder, tmp_path):
    """No answer and no acknowledgement comes from files that are gone. The other store stays as it is."""
    store, session = recorded
    kept = another_in_place(folder, tmp_path)
    for call in (
        lambda: session.record("user", "to nobody"),
        store.status,
        store.verify,
        lambda: store.recall("turn"),
        lambda: store.turns("trip"),
    ):
        with pytest.raises(errors.StoreReplaced, match=r"memory/log.db is no longer the file that was opened"):
            call()
    with MemoryStore.open(kept, model=None) as store:
        assert [turn.text for turn in store.turns("trip")] == ["turn 0", "turn 1", "turn 2"]
    with MemoryStore.open(folder, model=None) as store:
        assert [summary.session for summary in store.sessions()] == ["other"]
        assert store.verify().sound


@pytest.mark.parametrize("attack", [taken_away("keys.db"), keys_of_another], ids=lambda attack: attack.__name__)
def test_nothing_is_acknowledged_or_forgotten_with_keys_that_are_gone_or_of_another_store(
    recorded, folder, tmp_path, attack
):
    """What is recorded could never be read, in new sessions and in those that have their keys."""
    store, session = recorded
    attack(folder, tmp_path)
    for call in (
        lambda: store.session("another"),
        lambda: session.record("user", "turn 3"),
        lambda: store.forget(session="trip", reason="asked"),
    ):
        with pytest.raises(errors.StoreReplaced, match=r"keys\.db"):
            call()
    store.close()
    (tmp_path / "keys.db").rename(folder / "keys.db")
    with MemoryStore.open(folder, model=None) as again:
        assert [turn.text for turn in again.turns("trip")] == ["turn 0", "turn 1", "turn 2"]
        assert [summary.session for summary in again.sessions()] == ["trip"]


def test_the_refusal_stays_until_the_store_is_opened_again(recorded, folder, tmp_path):
    """Also if the files come back: others may have used them meanwhile."""
    store, session = recorded
    back = moved(folder, tmp_path)
    with pytest.raises(errors.StoreReplaced):
        session.record("user", "while it was away")
    back.rename(folder)
    with pytest.raises(errors.StoreReplaced):
        session.record("user", "after it came back")
    store.close()
    with MemoryStore.open(folder, model=None) as again:
        assert again.session("trip").record("user", "turn 3").position == 5


def test_a_commit_into_a_store_that_was_moved_meanwhile_is_not_acknowledged(recorded, folder, tmp_path):
    """Between the first look and the commit there is time to move it. The second look comes after the commit."""
    store, _ = recorded

    def work(tx):
        if folder.exists():
            tx.forget()  # As if another process had written: now the transaction has begun.
        else:
            return
        tx.append("session/trip", turn("overtaken"))
        folder.rename(tmp_path / "moved")

    log = store.parts.log
    log.appends._knows_head = False
    with pytest.raises(errors.StoreReplaced):
        log.appends.transact(work)
    with pytest.raises(errors.StoreReplaced):
        store.session("trip").record("user", "after it")


@pytest.mark.parametrize("name", [*LOG_PARTS, *KEYS_PARTS])
def test_a_deleted_file_beside_a_database_refuses_every_later_call(recorded, folder, name):
    """With a `-wal` the newest commits may be lost, and the error says so. The store cannot be opened again here."""
    store, session = recorded
    (folder / name).unlink()
    for call in (lambda: session.record("user", "turn 3"), lambda: store.session("another"), store.status):
        with pytest.raises(errors.StoreReplaced, match=name) as refused:
            call()
        assert ("may be lost" in str(refused.value)) == name.endswith("-wal")
    store.close()
    with pytest.raises(errors.StoreReplaced, match="end this process"):
        MemoryStore.open(folder, model=None).record("trip", "user", "turn 3")


def test_closing_a_store_whose_shared_memory_was_deleted_keeps_what_others_committed(
    processes, fork_server, answer, folder
):
    """SQLite would move what it remembers of the old file over what was committed with the new one."""
    writers = Writers(processes, fork_server, folder, [1])
    writers.record(20)
    writers.pause()
    (folder / "log.db-shm").unlink()
    visitor = answer(record_some, str(folder), "visitor", 30)
    turns, _ = writers.end()
    assert {*visitor, *(text for _, _, text in turns)} == set(texts_in(answer, folder))


def test_a_restored_backup_gets_nothing_of_the_store_that_was_there(folder, tmp_path):
    """Neither turns nor projections of the process that still has the old store open: both have the same log id."""
    store = MemoryStore.open(folder, model=HashEncoder(dimension=16))
    session = store.session("trip")
    session.record("user", "before the backup")
    store.backup(tmp_path / "backup", keys=tmp_path / "backup-keys")
    for n in range(50):
        session.record("user", f"after the backup {n}")
    backup_in_place(folder, tmp_path)
    with pytest.raises(errors.MnemologError):
        store.recall("backup")
    store.close()
    with MemoryStore.open(folder, model=HashEncoder(dimension=16)) as restored:
        assert [hit.text for hit in restored.recall("backup").hits] == ["before the backup"]
        restored.session("trip").record("user", "after the restore")
        assert restored.verify().sound
        assert restored.status().quarantine.items == 0
        assert {turn.text for turn in restored.turns("trip")} == {"before the backup", "after the restore"}


def test_views_that_are_deleted_while_they_are_open_are_made_again(folder):
    """Projections can be deleted at any time: no recall misses a turn afterwards, in this process or another."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("trip")
        session.record("user", "tea in Porto")
        assert len(store.recall("tea").hits) == 1
        shutil.rmtree(folder / "projections")
        session.record("user", "tea in Lisbon")
        assert len(store.recall("tea").hits) == 2
        with MemoryStore.open(folder, model=None) as other:
            assert len(other.recall("tea").hits) == 2


def test_what_leaves_the_files_in_place_is_no_reason_to_refuse(recorded, answer, folder, tmp_path, monkeypatch):
    """Other processes come and go, the store is checked, copied, rebuilt, linked to, and found by a relative path."""
    store, session = recorded
    os.link(folder / "log.db", tmp_path / "hard link")
    (tmp_path / "link").symlink_to(folder)
    assert answer(record_some, str(folder), "visitor", 3) == [f"visitor/{n}" for n in range(3)]
    monkeypatch.chdir(folder.parent)
    with MemoryStore.open(folder.name, model=None) as relative:
        relative.session("trip").record("user", "from the folder above")
        monkeypatch.chdir("/")
        relative.session("trip").record("user", "from elsewhere")
    with MemoryStore.open(tmp_path / "link", model=None) as link:
        for number, other in enumerate((link, store)):
            assert other.verify().sound
            other.backup(tmp_path / f"backup {number}")
            other.rebuild()
            other.admin.doctor(fix=True, deep=True)
            other.session("trip").record("user", f"through another name {number}")
    store.forget(session="visitor", reason="asked")
    assert answer(record_some, str(folder), "another", 3)
    session.record("user", "at last")
    assert store.verify().sound


@pytest.mark.parametrize("name", ["log.db", "keys.db", "projections/views.db"])
def test_a_shm_that_is_cut_ends_the_process_and_loses_nothing(folder, processes, name):
    """By SIGBUS: SQLite has the file mapped. Or an append that looks at it first is refused. Nothing is lost."""
    process, pipe = processes.start(record_and_cut_shared_memory, str(folder), name)
    assert pipe.poll(WAIT_S)
    assert pipe.recv() == "recorded"
    process.join(WAIT_S)
    assert process.exitcode in (-signal.SIGBUS, 1)
    with MemoryStore.open(folder, model=None) as store:
        assert store.turns("trip")[0].text == "acknowledged"
        assert store.verify(contents=True).sound
