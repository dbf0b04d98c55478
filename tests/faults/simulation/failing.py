"""A disk that fails in the middle of something: at the n-th operation, of files or of SQLite, once or from there on.

From a `Crash` on nothing reaches the disk, as after a power switch: what an `except` or `finally` of ours would still
tidy up stays as it is. SQLite itself is let go of by closing its connections, which undoes what was not committed.
"""

import errno
import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock
from pysqlite3 import dbapi2

from tests.children.file_operations import FileOperations

WRITING = ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT", "CREATE", "DROP")
FULL, IO_ERROR = 13, 10


class Crash(BaseException):
    """The process is no more. Nobody but the world that it happens in may catch it."""


class Failing:
    """The disk of one process. One per process: the hooks stay."""

    def __init__(self, root: Path) -> None:
        self._files = FileOperations(root)
        self._effect: Callable[[bool], None] | None = None
        self._at = self.count = 0
        self.happened = self._for_ever = False
        self._connections: weakref.WeakSet[dbapi2.Connection] = weakref.WeakSet()
        self._connect = dbapi2.connect
        dbapi2.connect = self._watched
        self._locks: weakref.WeakSet[filelock.BaseFileLock] = weakref.WeakSet()
        self._lock = filelock.FileLock
        filelock.FileLock = self._watched_lock  # type: ignore[misc]

    def arm(self, effect: Callable[[bool], None], *, at: int, for_ever: bool) -> None:
        """Have `effect`, which is told whether it is SQLite, in place of the operation `at`, or of all from there."""
        self._effect, self._at, self._for_ever = effect, at, for_ever
        self.count, self.happened = 0, False
        self._files.arm(lambda: self.operation(sqlite=False), at=1, for_ever=True)

    def disarm(self) -> bool:
        """Stop it. Return whether it happened."""
        self._files.disarm()
        self._effect = None
        return self.happened

    def operation(self, *, sqlite: bool) -> None:
        """Something is about to be changed."""
        if self._effect is None:
            return
        self.count += 1
        if self.count == self._at or (self._for_ever and self.count > self._at):
            self.happened = True
            self._effect(sqlite)

    def left_open(self) -> list[str]:
        """Return the paths of databases that a connection is open to."""
        paths = []
        for connection in list(self._connections):
            with suppress(dbapi2.ProgrammingError):  # It is closed.
                paths += [path for _, _, path in dbapi2.Connection.execute(connection, "PRAGMA database_list")]
        return paths

    def let_go(self) -> None:
        """Close every connection and every lock, as the end of a process does. Nothing is committed by it."""
        for connection in list(self._connections):
            connection.gone = True
            connection.close()
        for lock in list(self._locks):
            lock.release(force=True)

    def _watched(self, *arguments: Any, **options: Any) -> Any:
        options["factory"] = functools.partial(_Connection, self)  # That of the store only serves after a fork.
        connection = self._connect(*arguments, **options)
        self._connections.add(connection)
        return connection

    def _watched_lock(self, *arguments: Any, **options: Any) -> Any:
        lock = self._lock(*arguments, **options)
        self._locks.add(lock)
        return lock


class _Cursor(dbapi2.Cursor):
    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement.startswith(WRITING):
            self.connection.failing.operation(sqlite=True)
        return super().execute(statement, *parameters)


class _Connection(dbapi2.Connection):
    def __init__(self, failing: Failing, *arguments: Any, **options: Any) -> None:
        self.failing, self.gone = failing, False
        super().__init__(*arguments, **options)

    def cursor(self, factory: type = _Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, statement: str, *parameters: Any) -> Any:
        return self.cursor().execute(statement, *parameters)

    def rollback(self) -> None:
        if not self.gone:  # The pool of an abandoned handle still tidies up.
            super().rollback()


def crash(_: bool) -> None:
    raise Crash


def no_space(sqlite: bool) -> None:
    raise _refused(FULL, "database or disk is full") if sqlite else OSError(errno.ENOSPC, "planted")


def io_error(sqlite: bool) -> None:
    raise _refused(IO_ERROR, "disk I/O error") if sqlite else OSError(errno.EIO, "planted")


def _refused(code: int, why: str) -> dbapi2.OperationalError:
    error = dbapi2.OperationalError(why)
    error.sqlite_errorcode = code
    return error
