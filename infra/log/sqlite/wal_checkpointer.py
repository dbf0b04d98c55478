"""Keep the write-ahead log of `log.db` small, and find the processes that prevent it.

SQLite moves what is committed from there into the database, up to what the oldest reader still sees. A reader that does
not end keeps everything after that in the file, which then grows with every commit. Nothing is lost or wrong, but disk
is used and reads become slow.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mnemolog.domain import errors, structured_log
from mnemolog.infra import sqlite
from mnemolog.infra.runtime import fork_guard, shutdown

if TYPE_CHECKING:
    from mnemolog.infra.log.event_log import EventLog

WARN_BYTES: Final = 32 << 20
"""From this size on it is reported and emptied. It usually stays below 5 MB (1,000 pages, SQLite's figure)."""
LOOK_EVERY: Final = 64
"""Commits between two checks of its size."""
HELD_RETRY_S: Final = 1.0
"""How long to wait before checking again whether the reader has ended."""
BUSY_RETRY_S: Final = 0.05
"""The same where another connection only writes at this moment."""
CLOSE_TIMEOUT_S: Final = 1.0
NOTE_EVERY_S: Final = 60.0
"""How often the head of a log that is appended to is noted, if nothing reads it."""

_LOCKS: Final = Path("/proc/locks")
_LOCK: Final = re.compile(r"POSIX\s+ADVISORY\s+READ\s+(\d+)\s+\S+:(\d+)\s+(\d+)\s+(\d+)")
_READ_LOCKS: Final = range(124, 128)
"""Bytes of the `-shm` file that readers of the write-ahead log lock (SQLite's walformat page, section 2.3.1)."""


class Checkpointed(NamedTuple):
    """How much of a write-ahead log is in the database already, in frames (a page each)."""

    frames: int
    moved: int

    @property
    def waiting(self) -> int:
        """Frames that are only in the write-ahead log."""
        return max(0, self.frames - self.moved)


def wal_of(database: Path) -> Path:
    """Return the path of the write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def size_bytes(database: Path) -> int:
    """Return the size of the write-ahead log of a database; 0 where it does not exist."""
    try:
        return wal_of(database).stat().st_size
    except OSError:
        return 0


def readers_of(database: Path) -> tuple[int, ...]:
    """Return the ids of the processes that read from the write-ahead log now, as far as the system reports them."""
    try:
        inode = database.with_name(f"{database.name}-shm").stat().st_ino
        locks = _LOCKS.read_text()
    except OSError:
        return ()
    held = [(int(pid), int(of), int(first), int(last)) for pid, of, first, last in _LOCK.findall(locks)]
    return tuple(
        sorted({pid for pid, of, first, last in held if of == inode and first in _READ_LOCKS and last in _READ_LOCKS})
    )


def checkpoint(driver: Any, mode: str) -> tuple[bool, Checkpointed]:
    """Checkpoint the write-ahead log; `NOOP` changes nothing. Return whether SQLite was busy, and how far it is."""
    busy, frames, moved = driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return bool(busy), Checkpointed(max(0, frames), max(0, moved))


class WalKeeper:
    """Checks the size of a write-ahead log now and then; where it is large, a thread empties it.

    The thread also calls `note`, once a minute at most while the log is appended to: what keeps a witness of the log.

    The thread never holds up a writer: it moves what it can (`PASSIVE`), and empties the file (`TRUNCATE`) only
    when everything was moved, without waiting for a lock.
    """

    def __init__(self, database: Path, log: EventLog, note: Callable[[], object]) -> None:
        self._database = database
        self._log = log
        self._warn_bytes = WARN_BYTES
        self._commits, self._wal = 0, str(wal_of(database))
        self._note, self._noted_s = note, time.monotonic()
        self._closing = threading.Event()
        self._mutex = fork_guard.lock()
        self._thread: threading.Thread | None = None
        self._origin = fork_guard.Origin()
        shutdown.watch(self)
        log.followers.listen(self)

    def set(self) -> None:
        """Count a commit. Called by the thread that writes: nearly always it does nothing else."""
        self._commits += 1
        if time.monotonic() - self._noted_s > NOTE_EVERY_S:
            self._start()
        elif not self._commits % LOOK_EVERY:
            with suppress(OSError):
                if os.stat(self._wal).st_size >= self._warn_bytes:  # noqa: PTH116
                    self._start()

    def close(self) -> None:
        """Stop. May be called again."""
        if self._origin.is_here:
            self._log.followers.unlisten(self)
            if not self._closing.is_set():
                self._note()
            with self._mutex:
                self._closing.set()
                thread = self._thread
            if thread is not None:
                thread.join(CLOSE_TIMEOUT_S)

    end = close
    """Called when the process ends."""

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name="mnemolog-wal", daemon=True)
                with suppress(RuntimeError):  # No more threads: the next check tries again.
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        try:
            if size_bytes(self._database) < self._warn_bytes:
                return  # The minute is over.
            with sqlite.mapped_errors(self._database):
                # Waits for no lock, so that it never holds up a writer.
                engine = sqlite.create_engine(self._database, synchronous="FULL", busy_timeout_s=0)
                with sqlite.only_connection(engine) as connection:
                    self._work(connection.connection.driver_connection)
        except errors.MnemologError as error:
            structured_log.warning("wal.not_emptied", path=self._database, error=error)
        finally:
            self._noted_s = time.monotonic()
            self._note()
            with self._mutex:
                self._thread = None

    def _work(self, driver: Any) -> None:
        said = 0
        while not self._closing.is_set() and (size := size_bytes(self._database)) >= self._warn_bytes:
            # This connection was opened by name. A checkpoint with another `-wal` would damage the log.
            if (replaced := self._log.engine.replaced()) is not None:
                raise replaced
            pause_s = BUSY_RETRY_S
            with suppress(sqlite.driver.dbapi2.OperationalError):  # Another connection has a lock: later.
                hindered, found = checkpoint(driver, "PASSIVE")
                if found.waiting:
                    pause_s = HELD_RETRY_S
                    if size >= 2 * said:
                        said = size
                        structured_log.warning(
                            "wal.held",
                            path=self._database,
                            bytes=size,
                            waiting_frames=found.waiting,
                            readers=",".join(map(str, readers_of(self._database))),
                        )
                elif not hindered and not checkpoint(driver, "TRUNCATE")[0]:
                    structured_log.info("wal.emptied", path=self._database, bytes=size)
                    return
            self._closing.wait(pause_s)
