"""P18: a reader that never ends makes the write-ahead log grow; that is said, and undone as soon as it ends."""

import logging
import os
from urllib.parse import quote

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.infra.log.sqlite import wal_checkpointer
from tests.support import wait_until

pytestmark = pytest.mark.promise("P18")

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


def test_a_store_that_is_closed_leaves_no_thread_behind(folder, reader):
    """However long the reader stays."""
    with MemoryStore.open(folder, model=None) as store:
        keeper = keep_below(store, MIB)
        session = store.start_session("trip")
        reader()
        while (thread := keeper._thread) is None:
            session.record("user", "a turn")
    assert not thread.is_alive()


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
