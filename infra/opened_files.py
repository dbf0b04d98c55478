"""Notice when the files of an open database are moved, deleted or replaced under the process that has it open.

SQLite keeps using the files that it has opened, even after they are renamed or deleted. It acknowledges commits into
files that are gone (https://www.sqlite.org/howtocorrupt.html, section 4). Files are compared by device and inode. None
is opened for that: closing it again would drop the locks of this process.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard

SETTLED_NS: Final = 2_000_000_000
"""Age from which the time of a folder's last change is trusted: some file systems count it in steps of two seconds."""

_Identity = tuple[int, int] | None
"""Device and inode of a file; None if it does not exist."""

_abandoned: Final[set[_Identity]] = set()
"""Databases whose connections this process must not close, and which it can therefore not open again."""

_WAL: Final = "-wal"
_BESIDE: Final = (_WAL, "-shm")
"""What SQLite keeps beside a database: its names end with these."""
_SPLIT: Final = "it was deleted or replaced while this process had it open"


class OpenedFiles:
    """The files of the databases that are open in one folder. Safe for many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())  # The working directory may change.
        self._files: dict[str, _Identity] = {}
        """What was opened, by path: each database, and its `-wal` and `-shm` while it has connections."""
        self._connections = Counter[str]()
        self._lock, self._origin = fork_guard.lock(), fork_guard.Origin()
        self._unchanged: tuple[int, int, int] | None = None
        """Device, inode and last change of the folder when every file was in its place."""
        self._replaced: tuple[Path, str] | None = None
        """The first path that had another file, or no file, and what that means; None while all are in place."""

    def add(self, name: str) -> None:
        """Note a connection that was just opened. Raises `StoreReplaced` if it has other files than the others.

        Its `-wal` and `-shm` must be open too. SQLite replaces them only while no connection is open.
        """
        paths = self._paths(name)
        with self._lock:
            found = dict(zip(paths, _identities(paths), strict=True))
            if found[paths[0]] in _abandoned:
                raise errors.StoreReplaced(Path(paths[0]), f"{_SPLIT}; end this process, then open it again")
            self._compare(found)
            self.require_in_place()
            self._files, self._unchanged = self._files | found, None
            self._connections[name] += 1

    def discard(self, name: str) -> None:
        """Note that a connection is closed."""
        with self._lock:
            self._connections[name] -= 1
            if not self._connections[name]:
                beside = self._paths(name)[1:]
                self._files = {path: file for path, file in self._files.items() if path not in beside}

    def require_in_place(self) -> None:
        """Raise `StoreReplaced` if a file is not in its place, or was not at an earlier call.

        A change of a name changes the folder. While the folder is unchanged, the files need no look.
        """
        if self._replaced is None and (files := self._files):
            try:
                status = os.stat(self._folder)  # noqa: PTH116
                folder = status.st_dev, status.st_ino, status.st_ctime_ns
            except OSError:
                folder = None
            if folder is None or folder != self._unchanged:
                found = _identities(files)
                if found != (*files.values(),):
                    self._compare(dict(zip(files, found, strict=True)))
                elif folder is not None and time.time_ns() - folder[2] > SETTLED_NS:
                    self._unchanged = folder
        if self._replaced is not None:
            raise errors.StoreReplaced(*self._replaced)

    def replaced(self) -> errors.StoreReplaced | None:
        """Return what `require_in_place` raises, None if it does not."""
        try:
            self.require_in_place()
        except errors.StoreReplaced as error:
            return error
        return None

    def close(self, name: str, engine: sa.Engine) -> None:
        """Close the idle connections of an engine.

        If `-wal` or `-shm` was deleted under them, they stay open until the process ends. When the last one closes,
        SQLite would write what it remembers of the deleted file over what other processes committed since.
        """
        paths = self._paths(name)
        found = _identities(paths)
        opened = tuple(map(self._files.get, paths)) if self._origin.is_here and self._connections[name] else found
        if found != opened and found[0] == opened[0]:
            _abandoned.add(found[0])
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # Or the interpreter would close them.
        else:
            engine.dispose()

    def _compare(self, found: dict[str, _Identity]) -> None:
        """Refuse every later call if one of these files is not the one that was opened."""
        changed = next((path for path, file in found.items() if file != self._files.get(path, file)), None)
        if changed is None or self._replaced is not None:
            return
        if changed.endswith(_BESIDE):
            lost = ", and the newest events may be lost with it" if changed.endswith(_WAL) else ""
            why = f"{_SPLIT}{lost}; end this process before opening the store again"
        else:
            why = "it was moved or deleted" if found[changed] is None else "another file is in its place"
        self._replaced = Path(changed), why

    def _paths(self, name: str) -> tuple[str, ...]:
        path = f"{self._folder}/{name}"
        # SQLite keeps the other two beside the file that a link points to.
        beside = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114
        return path, *(f"{beside}{suffix}" for suffix in _BESIDE)


def _identities(paths: Iterable[str]) -> tuple[_Identity, ...]:
    found: list[_Identity] = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)
