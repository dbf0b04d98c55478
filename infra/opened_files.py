"""Notice when the files of an open database are moved, deleted, replaced or overwritten under its process.

SQLite keeps using the files that it has opened, even after they are renamed or deleted. It acknowledges commits into
files that are gone (https://www.sqlite.org/howtocorrupt.html, section 4). Files are compared by device and inode. None
is opened for that: closing it again would drop the locks of this process. ADR 50: files overwritten in place.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import mapped_to_store_errors
from mnemolog.infra.sqlite_driver import driver

SETTLED_NS: Final = 2_000_000_000
"""Age from which the time of a folder's last change is trusted: some file systems count it in steps of two seconds."""

_Identity = tuple[int, int] | None
"""Device and inode of a file; None if it does not exist."""

_abandoned: Final[set[_Identity]] = set()
"""Databases whose connections this process must not close, and which it can therefore not open again."""

_WAL: Final = "-wal"
_BESIDE: Final = (_WAL, "-shm")
"""What SQLite keeps beside a database: its names end with these."""
_SPLIT: Final = "it was deleted, replaced or overwritten while this process had it open"
_OVERWRITTEN: Final = "another program has overwritten it, and events may be lost; end every process that has it open"
LOOK_EVERY_NS: Final = 5_000_000
"""How often appends read files of the same size again, to find that they were overwritten."""
LOOKS_MAX: Final = 100
_SHM: Final = struct.Struct("=14xHI12x8s56xI28xI")
"""Page size, frames of the `-wal`, their salts, how many are in the database, how many a checkpoint moves there."""


class OpenedFiles:
    """The files of the databases that are open in one folder. Safe for many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())  # The working directory may change.
        self._files: dict[str, _Identity] = {}
        """What was opened, by path: each database, and its `-wal` and `-shm` while it has connections."""
        self._connections = Counter[str]()
        self._lock, self._origin = fork_guard.rlock(), fork_guard.Origin()
        self._unchanged: tuple[int, int, int] | None = None
        """Device, inode and last change of the folder when every file was in its place."""
        self._replaced: tuple[Path, str] | None = None
        """The first path that had another file, or no file, and what that means; None while all are in place."""
        self.log_id = ""
        """If set, it is noticed that another program overwrites a database of that log, or a file beside it."""
        self._contents: dict[str, _Contents] = {}
        self._looked_ns, self._sizes = 0, list[int]()

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
            if self.log_id and name not in self._contents:
                with mapped_to_store_errors(Path(paths[0])):
                    raw = driver.raw_descriptors(found[paths[0]], paths)
                self._contents[name] = _Contents(paths, raw, self.log_id.encode())
            self._files, self._unchanged = self._files | found, None
            self._connections[name] += 1

    def discard(self, name: str) -> None:
        """Note that a connection is closed."""
        with self._lock:
            self._connections[name] -= 1
            if not self._connections[name]:
                self._contents.pop(name, None)
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

    def require_unchanged(self, *, every_ns: int = 0) -> None:
        """As `require_in_place`, also for overwritten files. Those of the same size are read once in `every_ns`."""
        with self._lock:
            sizes = [os.lseek(raw, 0, os.SEEK_END) for each in self._contents.values() for raw in each.raw[:2]]
            if self._replaced is None and (sizes != self._sizes or time.monotonic_ns() - self._looked_ns >= every_ns):
                self._looked_ns, self._sizes = time.monotonic_ns(), sizes
                for path in filter(None, (each.overwritten() for each in self._contents.values())):
                    self._replaced = Path(path), _OVERWRITTEN
        self.require_in_place()

    def replaced(self) -> errors.StoreReplaced | None:
        """Return what `require_unchanged` raises, None if it does not."""
        try:
            self.require_unchanged()
        except errors.StoreReplaced as error:
            return error
        return None

    def close(self, name: str, engine: sa.Engine) -> None:
        """Close the idle connections of an engine.

        If a file was overwritten, or `-wal` or `-shm` deleted, they stay open until the process ends. When the last one
        closes, SQLite would write what it remembers over what is there now, or what other processes committed since.
        """
        paths = self._paths(name)
        found = _identities(paths)
        opened = tuple(map(self._files.get, paths)) if self._origin.is_here and self._connections[name] else found
        overwritten = name in self._contents and self._contents[name].overwritten()
        if overwritten or (found != opened and found[0] == opened[0]):
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


class _Contents:
    """What a database, its `-wal` and its `-shm` hold, read past SQLite."""

    def __init__(self, paths: Sequence[str], raw: Sequence[int], log_id: bytes) -> None:
        self._paths = paths
        self.raw = raw
        self._log_id = log_id
        self._changed_ns, self._held = 0, (False, False, 0)
        self.overwritten()

    def overwritten(self) -> str | None:
        """Return the path of a file that another program has overwritten. Other processes commit during the look."""
        for _ in range(LOOKS_MAX):
            shm = os.pread(self.raw[2], _SHM.size, 0)
            if (path := self._look(shm)) is None or os.pread(self.raw[2], _SHM.size, 0) == shm:
                return path
        return None

    def _look(self, shm: bytes) -> str | None:
        if len(shm) < _SHM.size:
            return self._paths[2]
        page, frames, salts, moved, moving = _SHM.unpack(shm)
        page += (page & 1) * 0xFFFF  # 1 stands for 65,536.
        last = os.pread(self.raw[1], 24 + page, 32 + (frames - 1) * (24 + page)) if frames else b""
        if frames and shm[:48] == shm[48:96] and (len(last) < 24 + page or last[8:16] != salts):
            return self._paths[1]
        status = os.fstat(self.raw[0])
        if status.st_ctime_ns != self._changed_ns:
            first = os.pread(self.raw[0], 64 << 10, 0)
            pages = int.from_bytes(first[28:32]) if moved == moving and moved in (0, frames) else 0
            held = pages * page <= status.st_size, self._log_id in first, int.from_bytes(first[24:32])
            if any(map(int.__lt__, held, self._held)):  # The last is the change counter with the number of pages.
                return self._paths[0]
            self._changed_ns, self._held = status.st_ctime_ns, held
        return None
