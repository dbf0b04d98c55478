"""What a power cut could do, without cutting any: settings, syncs counted, WALs cut short, a sync that fails.

P18: a reader that never ends makes the write-ahead log grow; that is said, and undone as soon as it ends.
"""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain.chain import Kind
from mnemolog.domain.errors import LogWriteFailed
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.projections.history.verify import Witness, verify
from tests.children.workers import append_until_killed
from tests.faults.test_kill import kill_at_random, whole_batches
from tests.support import HashEncoder, in_thread, read_all, settings_of, texts_of, wait_until

WAL = f"{LOG_FILE}-wal"
CUTS_PER_WAL = 250
APPENDING = Path(__file__).parents[1] / "children" / "appending.py"
FAILS_AT = 10


@pytest.fixture
def connections(monkeypatch):
    """Every connection to a database that is opened from now on."""
    opened, connect = [], dbapi2.connect

    def noted(*arguments, **options):
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(dbapi2, "connect", noted)
    return opened


@pytest.fixture
def traced(folder, tmp_path):
    """A function that runs a process which appends, under strace, and returns what it said and what it synced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not there")
    MemoryStore.open(folder, model=None).start_session("s")
    trace = tmp_path / "trace"

    def run(count, *options):
        command = ["strace", "-f", "-y", "-e", "trace=fdatasync,fsync", *options, "-o", str(trace)]
        child = [sys.executable, str(APPENDING), str(folder), "s", str(count)]
        ran = subprocess.run([*command, *child], capture_output=True, text=True, timeout=600)
        if "ptrace" in ran.stderr:
            pytest.skip(f"strace may not trace here: {ran.stderr.strip().splitlines()[0]}")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.split(), [line for line in trace.read_text().splitlines() if WAL in line]

    return run


@pytest.mark.promise("P2")
def test_every_connection_has_the_settings_that_keep_what_was_acknowledged(connections, folder):
    """Asked on each one, of the log and of projections, in several threads: pragmas are per connection."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=16)) as store:
        session = store.start_session("s")

        def work(name):
            for n in range(20):
                session.record("user", f"{name} number{n}")
                session.set(name, n)
                store.recall("number3", mode="hybrid")

        for worker in [in_thread(lambda name=name: work(f"t{name}")) for name in range(4)]:
            worker.result()
        store.admin.catch_up_vectors()
        store.rebuild()
        asked = {"log": 0, "projection": 0}
        for connection in connections:
            try:
                path = connection.execute("PRAGMA database_list").fetchone()[2]
            except dbapi2.ProgrammingError:
                continue  # Closed by now.
            found, is_log = settings_of(connection), path.endswith((LOG_FILE, KEYS_FILE))
            asked["log" if is_log else "projection"] += 1
            assert found == {
                "journal_mode": "wal",
                "synchronous": 2 if is_log else 1,
                "busy_timeout": 30_000,
                "foreign_keys": 1,
                "recursive_triggers": 1,
                "secure_delete": 1,
                "mmap_size": 0,
                "trusted_schema": 0,
            }, path
        assert asked["log"] >= 2
        assert asked["projection"] >= 3


@pytest.mark.promise("P2")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P2", "commits")
def test_every_commit_is_synced_before_it_is_acknowledged(traced, tries):
    """As many syncs of the WAL as commits at least, counted by strace."""
    told, syncs = traced(tries)
    assert len(told) == tries
    assert all(position.isdigit() for position in told)
    assert len(syncs) >= tries


@pytest.mark.promise("P2")
def test_a_sync_that_failed_is_never_tried_again(traced, folder):
    """The next one would succeed, and the kernel may have dropped what was to be synced: so this handle is done."""
    told, syncs = traced(30, "-e", f"inject=fdatasync,fsync:error=EIO:when={FAILS_AT}")
    failed = [number for number, said in enumerate(told) if not said.isdigit()]
    assert failed, told
    assert {told[number] for number in failed} == {"LogWriteFailed"}
    assert failed == list(range(failed[0], 30)), "once it has failed, nothing is acknowledged any more"
    of_commits = [line for line in syncs if "EIO" in line or "= 0" in line]
    after = of_commits[next(n for n, line in enumerate(of_commits) if "EIO" in line) + 1 :]
    assert len(after) <= 2, "closing may sync; thirty appends must not"
    check_acknowledged(folder, [int(position) for position in told if position.isdigit()])


@pytest.mark.promise("P2")
def test_a_sync_that_failed_is_never_tried_again_by_whatever_thread(folder, monkeypatch):
    """The same without strace: SQLite reports an I/O error once, and no statement is given to it afterwards."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        acknowledged = [session.record("user", f"turn {n}").position for n in range(3)]
        connection = store.parts.log.appends.connection
        failing = FailingDriver(connection.driver)
        monkeypatch.setattr(connection, "driver", failing)
        for _ in range(3):
            with pytest.raises(LogWriteFailed):
                session.record("user", "lost")
            with pytest.raises(LogWriteFailed):
                in_thread(lambda: session.record("user", "lost too")).result()
        assert failing.asked == 1
        monkeypatch.undo()
    check_acknowledged(folder, acknowledged)


class FailingDriver:
    """A connection whose first insert ends in an error of the disk."""

    def __init__(self, driver):
        self._driver, self.asked = driver, 0

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def execute(self, statement, *parameters):
        if statement.startswith("INSERT"):
            self.asked += 1
            error = dbapi2.OperationalError("disk I/O error")
            error.sqlite_errorcode = 1034  # SQLITE_IOERR_FSYNC
            raise error
        return self._driver.execute(statement, *parameters)


def check_acknowledged(folder, positions):
    with MemoryStore.open(folder, model=None) as store:
        there = {event.position for event in read_all(store.parts.log)}
        assert set(positions) <= there
        assert store.verify().sound
        store.record("s", "user", "goes on")


@pytest.mark.promise("P2")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P2", "cuts")
def test_a_wal_that_is_cut_anywhere_leaves_whole_batches_and_a_witness_tells_of_the_rest(
    processes, tmp_path, rng, seed, tries
):
    """A copy of what a killed process left, cut at any byte: a prefix, and loss is reported where a head was noted."""
    lost = whole = 0
    for number in range(tries):
        if number % CUTS_PER_WAL == 0:
            left = tmp_path / f"left{number}"
            arguments = (str(left), "run", rng.randrange(2**32), False)
            acknowledged = kill_at_random(processes, rng, append_until_killed, *arguments, near_opening=False)
            data = (left / WAL).read_bytes()
            full = contents(left, tmp_path / "full", data)
            assert [label for label, _, _ in acknowledged] == list(full.batches)[: len(acknowledged)]
        cut = rng.randrange(len(data))
        why = f"cut {number} at byte {cut} of {len(data)}, seed {seed}"
        found = contents(left, tmp_path / "cut", data[:cut], witness=full.witness)
        assert found.texts == full.texts[: len(found.texts)], why
        assert list(found.batches) == list(full.batches)[: len(found.batches)], why
        if found.events < full.events:
            assert [finding.kind for finding in found.findings] == [Kind.WITNESS], why
            assert found.findings[0].position == found.events + 1, why
            lost += 1
        else:
            assert found.findings == (), why
            whole += 1
    assert lost
    print(f"{tries} cuts: {lost} lost a tail and said so, {whole} lost nothing; seed {seed}")


class Contents:
    """What a log holds, and what an audit says of it."""

    def __init__(self, log, witness):
        self.texts = texts_of(read_all(log))
        self.batches = whole_batches(self.texts)
        head = log.head()
        self.events, self.witness = head.position, Witness("the head that was noted", head)
        self.findings = verify(log, witnesses=[witness or self.witness]).findings


def contents(left, folder, wal, witness=None):
    """Return what a copy of a store holds whose WAL is this one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in (left / LOG_FILE, *left.glob(f"{KEYS_FILE}*")):
        shutil.copy(path, folder / path.name)
    (folder / WAL).write_bytes(wal)
    log = open_log(folder, clock=SystemClock(), create=False)
    try:
        return Contents(log, witness)
    finally:
        log.close()


MIB = 1 << 20
RELEASED_S = 10.0


@pytest.fixture
def reader(folder):
    """Begin a read transaction on a log, which lasts until the function returned is called."""
    opened = []

    def read():
        connection = dbapi2.connect(f"file:{quote(str(folder / 'log.db'))}?mode=ro", uri=True, isolation_level=None)
        opened.append(connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM events").fetchone()
        return connection.close

    yield read
    for connection in opened:
        connection.close()


def warnings_in(caplog):
    return [record for record in caplog.records if getattr(record, "event", "") == "wal.held"]


@pytest.mark.promise("P18")
@pytest.mark.timeout(1_200)
@pytest.mark.promise("P18", "appends")
def test_a_reader_that_never_ends_is_reported_before_64_mib_and_the_file_is_emptied_after_it(
    folder, reader, tries, caplog
):
    """The warning names the file, its size and who reads; nothing else is needed once the reader ends."""
    caplog.set_level(logging.INFO, logger="mnemolog")
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        assert store.status().wal.why == ""
        release, told_at = reader(), None
        for number in range(tries):
            session.record("user", f"turn {number}")
            if told_at is None and warnings_in(caplog):
                told_at = wal_checkpointer.size_bytes(store.path / "log.db")
        wait_until(lambda: bool(warnings_in(caplog)), what="the warning")
        told = warnings_in(caplog)[0].facts
        assert wal_checkpointer.WARN_BYTES <= told["bytes"] < 64 * MIB
        assert told_at is None or told_at < 64 * MIB
        assert str(os.getpid()) in told["readers"].split(",")
        status = store.status()
        assert status.wal.bytes >= wal_checkpointer.WARN_BYTES
        assert status.wal.waiting_frames > 1_000
        assert os.getpid() in status.wal.readers
        assert "does not end" in status.wal.why
        assert [line for line in status.warnings if "write-ahead log" in line]
        release()
        wait_until(
            lambda: wal_checkpointer.size_bytes(store.path / "log.db") == 0, what="an empty file", timeout_s=RELEASED_S
        )
        assert store.status().wal.why == ""
        assert session.record("user", "on it goes").position == tries + 2
        assert store.verify().sound


def keep_below(store, warn_bytes):
    """Have the store's write-ahead log emptied from another size on. Returns what does it."""
    keeper = store.parts.wal_keeper
    keeper._warn_bytes = warn_bytes
    return keeper


@pytest.mark.promise("P18")
def test_it_is_emptied_while_others_write(folder, reader, monkeypatch):
    """No writer is held up, and no writer holds it up without end."""
    monkeypatch.setattr(wal_checkpointer, "HELD_RETRY_S", 0.05)
    with MemoryStore.open(folder, model=None) as store:
        keep_below(store, MIB)
        session = store.start_session("trip")
        release = reader()
        while wal_checkpointer.size_bytes(store.path / "log.db") < 2 * MIB:
            session.record("user", "a turn")
        release()

        def emptied():
            session.record("user", "another")
            return wal_checkpointer.size_bytes(store.path / "log.db") < MIB

        wait_until(emptied, what="less than it was", timeout_s=RELEASED_S)
        assert store.verify().sound


@pytest.mark.promise("P18")
def test_a_store_that_is_closed_leaves_no_thread_behind(folder, reader):
    """However long the reader stays."""
    with MemoryStore.open(folder, model=None) as store:
        keeper = keep_below(store, MIB)
        session = store.start_session("trip")
        reader()
        while (thread := keeper._thread) is None:
            session.record("user", "a turn")
    assert not thread.is_alive()


@pytest.mark.promise("P18")
def test_the_readers_of_a_file_are_those_that_hold_its_read_locks(folder, monkeypatch, tmp_path):
    """By the inode of the shared memory, and the bytes that SQLite locks for readers."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip")
        inode = (folder / "log.db-shm").stat().st_ino
        (tmp_path / "locks").write_text(
            f"1: POSIX  ADVISORY  READ 11 fe:00:{inode} 124 124\n"
            f"2: POSIX  ADVISORY  READ 12 fe:00:{inode} 123 123\n"
            f"3: POSIX  ADVISORY  WRITE 13 fe:00:{inode} 120 120\n"
            f"4: POSIX  ADVISORY  READ 14 fe:00:{inode + 1} 124 124\n"
            f"5: FLOCK  ADVISORY  WRITE 15 fe:00:{inode} 0 EOF\n"
            f"6: POSIX  ADVISORY  READ 9 fe:00:{inode} 126 126\n"
        )
        monkeypatch.setattr(wal_checkpointer, "_LOCKS", tmp_path / "locks")
        assert wal_checkpointer.readers_of(store.path / "log.db") == (9, 11)
