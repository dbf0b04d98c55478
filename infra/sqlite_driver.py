"""The SQLite library of this process. A forked child never touches the connections of its parent.

SQLite keeps in memory, once for each process, which files are open and which locks it holds on them. A child inherits
that memory, but none of the locks; and a mutex that another thread of the parent held stays locked in it
(https://www.sqlite.org/howtocorrupt.html, section 2.6). Therefore, in a child:

- Inherited connections and pools raise `StoreForked`. To close them does nothing. They are never freed: that would
  take their mutex, and to close their descriptors would drop the child's own locks on the same files.
- New connections come from another copy of the library, which remembers nothing. With the inherited copy, the child
  would believe that it holds locks that only its parent holds. The last process to close a database deletes the
  write-ahead log: without its own locks, a child would lose what it has committed there when its parent closes.
"""

import ctypes
import errno
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import sqlalchemy as sa
from pysqlite3 import dbapi2 as _first

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import open_file, require_file

_EXTENSION: Final = sys.modules["pysqlite3._sqlite3"]
_SUPER_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
"""Ends a rollback journal that names a super-journal (SQLite's file format, 3.1)."""


class Pool(sa.pool.QueuePool):
    """A pool of connections of one process."""

    __module__ = sa.pool.QueuePool.__module__
    """SQLAlchemy names the logger of a pool by it. A pool's messages have no `event`, unlike those of mnemolog."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.opened_in = os.getpid()
        _pools.add(self)


class _InheritedPool(Pool):
    """What a pool becomes in a child. The lock inside may be held by a thread that exists only in the parent."""

    def _do_get(self) -> Any:
        raise errors.StoreForked(opened_in=self.opened_in, used_in=os.getpid())

    def _do_return_conn(self, record: Any) -> None:
        pass

    def dispose(self) -> None:
        pass

    def recreate(self) -> "_InheritedPool":
        return self


class _Library(NamedTuple):
    """A copy of SQLite in memory."""

    dbapi2: Any
    connection: type[Any]
    inherited: type[Any]
    """What a connection becomes in a child."""


def _library(module: Any) -> _Library:
    class Connection(module.Connection):  # type: ignore[misc]
        file: Any = None

        def close(self) -> None:
            super().close()
            with _opening:
                file, self.file = self.file, None
                if all(other.file != file for other in list(_connections)):
                    for descriptor in _raw.pop(file, ()):
                        os.close(descriptor)

    class InheritedConnection(module.Connection):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name in ("close", "rollback"):  # Called for every connection that goes out of use.
                return lambda: None
            if name.startswith("__"):
                return object.__getattribute__(self, name)
            raise errors.StoreForked(opened_in=self.__dict__["opened_in"], used_in=os.getpid())

    return _Library(module, Connection, InheritedConnection)


_pools: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()
_connections: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_raw: Final = defaultdict[Any, list[int]](list)
"""Our own descriptors, by device and inode of a database. To close one drops all locks of this process on its file."""
_opening: Final = fork_guard.rlock()  # Its holder may close a connection: the garbage collector does.


class _Driver:
    """The library of this process. A child that inherited one in use loads a copy when it first needs one."""

    def __init__(self) -> None:
        self._library = _library(_first)
        self._is_used = self._is_inherited = False
        self._loading = fork_guard.lock()
        fork_guard.watch(self)

    @property
    def dbapi2(self) -> Any:
        return self.library().dbapi2

    def library(self) -> _Library:
        if self._is_inherited:
            with self._loading:
                if self._is_inherited:
                    self._library = _library(_another_copy())
                    self._is_used = self._is_inherited = False
        return self._library

    def connect(self, path: Path, parameters: str = "mode=rw", **options: Any) -> Any:
        """Return a connection to the database at `path`. Every one is made here. Raises `UnsafeFile`.

        `parameters` are those of an SQLite URI, as in `mode=ro&immutable=1`.
        """
        _require_safe(path)
        library, database = self.library(), f"file:{quote(os.fsencode(path.absolute()))}?{parameters}"
        self._is_used = True  # Set first: another thread may fork during the call.
        options |= {"uri": True, "isolation_level": None, "factory": library.connection}
        with _opening:  # It takes no lock before it is counted.
            connection = library.dbapi2.connect(database, **options)
            connection.opened_in = os.getpid()
            with suppress(OSError):
                connection.file = (status := path.stat()).st_dev, status.st_ino
            _connections.add(connection)
        return connection

    def raw_descriptors(self, file: Any, paths: Sequence[str]) -> list[int]:
        """Return descriptors of a database and the files beside it, until its last connection is closed."""
        with _opening:
            for path in paths[len(_raw[file]) :]:
                _raw[file].append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            return _raw[file]

    def forked(self) -> None:
        for connection in list(_connections):
            connection.__class__ = self._library.inherited
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # Never freed, not even when the child ends.
        _connections.clear()
        _raw.clear()  # They stay open, just as the connections.
        for pool in list(_pools):
            pool.__class__ = _InheritedPool
        _pools.clear()
        self._is_inherited = self._is_inherited or self._is_used


class UnsafeFile(OSError):
    """A file in place of a database that SQLite must not open. A store may come from an untrusted source."""


def _require_safe(path: Path) -> None:
    """Raise `UnsafeFile` for what leads SQLite out of the folder of a database.

    It follows a symbolic link. A rollback journal may name another file, the super-journal, which SQLite reads, and
    deletes after the rollback (pager_delsuper). mnemolog never writes one.
    """
    journal = path.with_name(f"{path.name}-journal")
    try:
        for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")), journal):
            require_file(each)
        with suppress(FileNotFoundError), open_file(journal) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_SUPER_JOURNAL)))
            if file.read() == _SUPER_JOURNAL:
                raise UnsafeFile(f"{journal.name} names another file, which SQLite may delete")
    except UnsafeFile:
        raise
    except OSError as error:
        if error.errno == errno.EINVAL:
            name = Path(error.filename).name
            raise UnsafeFile(f"{name}: {error.strerror}" if name != path.name else error.strerror) from error


def _another_copy() -> ModuleType:
    """Load the driver again. The loader takes a file with another inode for another library."""
    name = _EXTENSION.__name__
    file = Path(_EXTENSION.__file__ or "")
    why = None
    for in_memory in (hasattr(os, "memfd_create"), False):
        try:
            with _copy_of(file, in_memory=in_memory) as path:
                extension = _loaded(name, importlib.machinery.ExtensionFileLoader(name, path))
                break
        except (OSError, ImportError) as error:
            why = error
    else:
        raise errors.StoreError(
            f"SQLite cannot be loaded again, which a process needs that was forked from one that used it: {why}; "
            "nothing was opened; start the process with multiprocessing's spawn method, or fork before the first store "
            "is opened"
        ) from why
    sys.modules[name] = extension  # The module in Python takes its names from there.
    try:
        return _loaded(_first.__name__, importlib.machinery.SourceFileLoader(_first.__name__, _first.__file__))
    finally:
        sys.modules[name] = _EXTENSION


def _loaded(name: str, loader: Any) -> ModuleType:
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# The interpreter caches extensions by path: no two copies of a process may have the same one.


@contextmanager
def _copy_of(source: Path, *, in_memory: bool) -> Iterator[str]:
    """Yield the path of a temporary copy. One in memory works also where no folder allows programs."""
    with (
        source.open("rb") as file,
        os.fdopen(os.memfd_create("sqlite"), "wb")
        if in_memory
        else tempfile.NamedTemporaryFile(suffix=source.suffix) as copy,
    ):
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield f"/proc/{os.getpid()}/fd/{copy.fileno()}" if in_memory else copy.name


driver: Final = _Driver()
"""The driver of this process. `driver.dbapi2` changes in a forked child: look it up when it is needed."""
