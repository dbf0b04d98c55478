"""Notice when the files of an open database are moved, deleted or replaced under the process that has it open.

SQLite keeps using the files that it has opened, even after they are renamed or deleted. It acknowledges commits into
files that are gone (https://www.sqlite.org/howtocorrupt.html, section 4). Files are compared by device and inode. None
is opened for that: closing it again would drop the locks of this process.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.sqlite_driver import driver

SETTLED_NS: Final = 2_000_000_000
"""Age from which the time of a folder's last change is trusted: some file systems count it in steps of two seconds."""

_Identity = tuple[int, int] | None
"""Device and inode of a file; None if it does not exist."""

_abandoned: Final[set[_Identity]] = set()
"""Databases whose connections this process must not close, and which it can therefore not open again."""


class _Database:
    """A database that is open: its files, and the connections to it."""

    def __init__(self, path: str) -> None:
        # SQLite keeps the other two beside the file that a link points to.
        beside = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114
        self.paths = (path, f"{beside}-wal", f"{beside}-shm")
        self.files: tuple[_Identity, ...] = ()
        self.connections = 0
        self.spare: Any = None
        """A driver connection that is used to save what is in a deleted `-wal`, and for nothing else.

        Two threads must not use a connection that has an authorizer at once: both may wait for one another forever.
        """

    def found(self) -> tuple[_Identity, ...]:
        """Return the files that are at its paths now."""
        return tuple(_identity(path) for path in self.paths)

    def changed(self) -> list[str]:
        """Return the paths that no longer lead to the file that was opened."""
        if not self.connections:
            return []
        return [
            path for path, opened, found in zip(self.paths, self.files, self.found(), strict=True) if opened != found
        ]

    def is_split(self) -> bool:
        """Whether the database is in its place, but not the files that SQLite keeps beside it."""
        changed = self.changed()
        return bool(changed) and self.paths[0] not in changed

    def save(self) -> bool:
        """Move what is committed in a deleted `-wal` into the database. Return whether all of it was moved.

        Moves nothing if another process may have opened the database since, with a new `-wal` or `-shm`: both would
        write.
        """
        _, wal, shm = self.found()
        if wal == self.files[1]:
            return True
        if shm not in (None, self.files[2]) or (wal is not None and (shm is None or not _is_empty(self.paths[1]))):
            return False
        with suppress(driver.dbapi2.Error):
            busy, frames, moved = self.spare.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return not busy and frames == moved
        return False


class OpenedFiles:
    """The files of the databases that are open in one folder. Safe for many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())  # The working directory may change.
        self._databases: dict[str, _Database] = {}
        self._lock, self._origin = fork_guard.rlock(), fork_guard.Origin()
        self._unchanged: tuple[int, int, int] | None = None
        """Device, inode and last change of the folder when every file was in its place."""
        self._replaced = ""
        """The first path that had another file, or no file; empty while all are in place."""
        self._split: list[_Database] = []
        self._lost: list[_Database] = []
        """Of those, the ones whose `-wal` holds commits that are not saved."""

    def add(self, name: str, connect: Callable[[], Any]) -> None:
        """Note a driver connection that was just opened. Raises `StoreReplaced` if it has other files than the others.

        `connect` opens one more, whose files beside the database are open too: one is kept in reserve while there are
        any. SQLite replaces `-wal` and `-shm` only while no connection is open.
        """
        with self._lock:
            known = self._databases.get(name) or _Database(f"{self._folder}/{name}")
            found = known.found()
            if found[0] in _abandoned:
                raise errors.StoreReplaced(Path(known.paths[0]), f"{_SPLIT}; end this process, then open it again")
            opened = known.files if known.connections else known.files[:1]
            if found[: len(opened)] != opened:
                raise self._note([path for path, a, b in zip(known.paths, opened, found, strict=False) if a != b])
            if not known.connections:
                known.spare = connect()
            known.files = found
            known.connections += 1
            self._databases, self._unchanged = {**self._databases, name: known}, None

    def discard(self, name: str) -> None:
        """Note that a connection is closed."""
        with self._lock:
            known = self._databases[name]
            known.connections -= 1
            if not known.connections and known.files[0] not in _abandoned:
                known.spare.close()

    def require_in_place(self) -> None:
        """Raise `StoreReplaced` if a file is not in its place, or was not at an earlier call."""
        if (replaced := self.replaced()) is not None:
            raise replaced

    def replaced(self) -> errors.StoreReplaced | None:
        """Return what `require_in_place` raises, None if it does not."""
        changed = [] if self._replaced else self._changed()
        return self._note(changed) if changed or self._replaced else None

    def close(self, name: str, engine: sa.Engine) -> None:
        """Close the idle connections of an engine.

        If `-wal` or `-shm` was deleted under them, one connection stays open until the process ends. When the last one
        closes, SQLite would write what it remembers of the deleted file over what other processes committed since.
        """
        known = self._databases.get(name)
        if self._origin.is_here and known is not None and known.is_split():
            self._note(known.changed())
            _abandoned.add(known.files[0])
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(known.spare))  # Or the interpreter would close it.
        engine.dispose()

    def _changed(self) -> list[str]:
        """Return the paths that no longer lead to the file that was opened.

        A change of a name changes the folder. While the folder is unchanged, the files need no look.
        """
        if not self._databases:
            return []
        folder = _state(self._folder)
        if folder is not None and folder == self._unchanged:
            return []
        changed = [path for database in self._databases.values() for path in database.changed()]
        if not changed and folder is not None and time.time_ns() - folder[2] > SETTLED_NS:
            self._unchanged = folder
        return changed

    def _note(self, changed: list[str]) -> errors.StoreReplaced:
        """Refuse every later call, and save what can be saved. Return the error."""
        with self._lock:
            if not self._replaced:
                self._replaced = changed[0]
                self._split = self._lost = [each for each in self._databases.values() if each.is_split()]
            path = Path(self._replaced)
            if not self._split:
                why = "it was moved or deleted" if _identity(self._replaced) is None else "another file is in its place"
                return errors.StoreReplaced(path, why)
            self._lost = [each for each in self._lost if not each.save()]
            lost = ", and the newest events may be lost with it" if self._lost else ""
            return errors.StoreReplaced(path, f"{_SPLIT}{lost}; end this process before opening the store again")


_SPLIT: Final = "it was deleted or replaced while this process had it open"


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except OSError:
        return None


def _identity(path: str) -> _Identity:
    found = _stat(path)
    return None if found is None else (found.st_dev, found.st_ino)


def _is_empty(path: str) -> bool:
    found = _stat(path)
    return found is not None and not found.st_size


def _state(path: str) -> tuple[int, int, int] | None:
    found = _stat(path)
    return None if found is None else (found.st_dev, found.st_ino, found.st_ctime_ns)
