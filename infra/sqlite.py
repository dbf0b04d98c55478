"""Open SQLite connections with one set of settings, verified on every connection, and notice when their files change.

docs/adr/0003-which-sqlite-and-settings.md says why each setting is what it is.

SQLite keeps using the files that it has opened, even after they are renamed or deleted. It acknowledges commits into
files that are gone (https://www.sqlite.org/howtocorrupt.html, section 4). `OpenedFiles` compares them by device and
inode. None is opened for that: closing it again would drop the locks of this process. ADR 50: files overwritten in
place.
"""

import ctypes
import errno
import logging
import os
import re
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sa
from pysqlite3.dbapi2 import (
    SQLITE_AUTH,
    SQLITE_BUSY,
    SQLITE_CANTOPEN,
    SQLITE_CORRUPT,
    SQLITE_FULL,
    SQLITE_IOERR,
    SQLITE_NOTADB,
    SQLITE_READONLY,
)

from mnemolog.domain import errors
from mnemolog.domain.values import as_invalid_input
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import (
    are_descriptors_exhausted,
    has_room,
    is_readable,
    is_writable,
    mapped_to_store_errors,
    open_file,
    sync,
)
from mnemolog.infra.sqlite_driver import Pool
from mnemolog.infra.sqlite_driver import UnsafeFile as UnsafeFile
from mnemolog.infra.sqlite_driver import driver as driver

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


SQLITE_VERSION_MIN: Final = (3, 51, 3)
"""Older ones may corrupt a WAL that two connections write and checkpoint at the same instant."""

BUSY_TIMEOUT_S: Final = 30.0
WAL_RETRY_S: Final = 0.005
WAL_SIZE_LIMIT_BYTES: Final = 4 << 20
"""Size to which a write-ahead log shrinks after a large transaction. It usually has 1,000 pages (SQLite's figure)."""
FILE_MODE: Final = 0o600
CACHE_BYTES: Final = 2 << 20
"""Pages that a connection may keep in memory; SQLite's own figure."""
_WRITE_VERSION_AT: Final = 18
_WRITE_VERSION_MAX: Final = b"\x02"
MARKED_READ_ONLY: Final = f"byte {_WRITE_VERSION_AT} of its header makes SQLite treat it as read-only"
"""Of a database for which `is_marked_read_only`: "if the write version is greater than 2, the file must be treated as
read-only" (SQLite's file format, 1.3.3)."""
REMEDY_FOR_MARK: Final = "take a backup and restore that: copies are made without it"

_LOGGING_NAME: Final = "mnemolog"
# A program that lets everything be logged has SQLAlchemy log statements with their values and every row it reads.
logging.getLogger(f"sqlalchemy.engine.Engine.{_LOGGING_NAME}").setLevel(logging.WARNING)


Synchronous = Literal["FULL", "NORMAL"]
SYNCHRONOUS: Final[dict[Synchronous, int]] = {"NORMAL": 1, "FULL": 2}

_SELECT_SCHEMA: Final = "SELECT type, name, sql FROM sqlite_master"
_SELECT_GENERATED: Final = (
    "SELECT m.name FROM sqlite_master AS m JOIN pragma_table_xinfo(m.name) AS x "
    "WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND x.hidden > 1 LIMIT 1"
)
_UNCOMPARED: Final = re.compile(r"[\s\"'`\[\]]+")


def driver_errors() -> tuple[type[Exception], ...]:
    """Return what SQLAlchemy and the driver raise. `UnicodeDecodeError`: a message that quotes a damaged schema."""
    sqlite = sa.exc.SQLAlchemyError, driver.dbapi2.Error
    return *sqlite, UnsafeFile, UnicodeEncodeError, UnicodeDecodeError, OverflowError


def create_engine(
    path: Path,
    *,
    synchronous: Synchronous,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    create: bool = False,
    cache_bytes: int = CACHE_BYTES,
    guard: Callable[[Any], None] | None = None,
    read_only: bool = False,
    files: OpenedFiles | None = None,
) -> sa.Engine:
    """Return an engine on the database at `path`, whose connections all have the same settings.

    Unless `create` is set, a missing file is an error instead of a new empty database. Connections are
    opened lazily; one that does not accept a setting raises `StoreError`. `guard` sees every
    driver connection once, after its settings are made. With `read_only` they are those of `connect_read_only`.
    `files` counts the connections that are open.
    """
    dbapi2 = driver.dbapi2
    if dbapi2.sqlite_version_info < SQLITE_VERSION_MIN:
        raise errors.StoreError(
            f"SQLite {dbapi2.sqlite_version} can corrupt a log that two processes write; "
            f"{'.'.join(map(str, SQLITE_VERSION_MIN))} or newer is needed"
        )
    path = path.absolute()  # The working directory may change before the first connection is opened.
    mode = "mode=rwc" if create else "mode=rw"

    def connect() -> Any:
        if files is not None:
            files.require_in_place()  # SQLite would create a new `-wal` in place of a deleted one that holds commits.
        if create:
            _make_private(path)
        connection = connect_read_only(path, busy_timeout_s) if read_only else _connect(path, mode, busy_timeout_s)
        try:
            if not read_only:
                _make_wal(connection, busy_timeout_s=busy_timeout_s)
            _apply_settings(connection, synchronous=synchronous, busy_timeout_s=busy_timeout_s, cache_bytes=cache_bytes)
            if files is not None:
                connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # From now on `-wal` and `-shm` are open.
            if guard is not None:
                guard(connection)
            if files is not None:
                files.add(path.name)
        except BaseException:
            connection.close()
            raise
        return connection

    engine = sa.create_engine(
        "sqlite+pysqlite://",
        module=dbapi2,
        creator=connect,
        poolclass=Pool,
        max_overflow=-1,
        hide_parameters=True,
        logging_name=_LOGGING_NAME,
    )
    if files is not None:
        sa.event.listen(engine, "close", lambda *_: files.discard(path.name))
    return engine


def connect_read_only(path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Any:
    """Return a driver connection that reads a database and cannot write it. Its folder may be read-only as well.

    In such a folder SQLite reads a database in WAL mode through an existing `-wal` and `-shm`. Without them it needs to
    know that no process writes the file (`immutable`); a writer would have them open. In a folder that can be written
    it leaves an empty `-wal` and a `-shm`. Raises the driver's errors, and `StoreNotWritable` if the newest commits are
    in a `-wal` that cannot be read without a new `-shm`.
    """
    connection = _connect(path, "mode=ro", busy_timeout_s)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except driver.dbapi2.OperationalError as error:
        connection.close()
        if (
            error.sqlite_errorcode & 0xFF not in (SQLITE_CANTOPEN, SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL)
            or not path.exists()
        ):
            raise
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            why = f"the newest commits are in {wal.name}, which SQLite reads with a new {path.name}-shm beside it"
            raise errors.StoreNotWritable(path.parent, f"{why}; copy the folder to where it can be written") from error
        connection = _connect(path, "mode=ro&immutable=1", busy_timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, parameters: str, busy_timeout_s: float) -> Any:
    return driver.connect(
        path,
        parameters,
        check_same_thread=False,
        timeout=busy_timeout_s,
        cached_statements=256,
    )


def temporary_engine() -> sa.Engine:
    """Return an engine on one connection to a database whose file SQLite deletes as soon as it has opened it."""
    dbapi2 = driver.dbapi2
    creator = partial(dbapi2.connect, "", isolation_level=None)
    return sa.create_engine(
        "sqlite+pysqlite://", module=dbapi2, creator=creator, poolclass=sa.StaticPool, hide_parameters=True
    )


@contextmanager
def only_connection(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield the one connection that an engine is needed for, and dispose of both at the end."""
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def transaction_on(path: Path, *, create: bool = False) -> Iterator[sa.Connection]:
    """Yield a connection to a database in a transaction. It is committed, durably, unless an error is raised."""
    with only_connection(create_engine(path, synchronous="FULL", create=create)) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.exec_driver_sql("COMMIT")


@cache
def schema_of(create: Callable[[sa.Connection], object]) -> Mapping[str, str]:
    """Return the statements of what `create` makes, by name, to compare others with."""
    with only_connection(temporary_engine()) as connection:
        create(connection)
        found = connection.exec_driver_sql(_SELECT_SCHEMA).all()
    return {name: compared(sql) for _, name, sql in found if sql}


def compared(statement: str | None) -> str:
    """Return a statement of a schema in the form in which two of them are compared."""
    return _UNCOMPARED.sub("", statement or "").lower()


def foreign_in_schema(
    connection: Any,
    known: Mapping[str, str],
    *,
    triggers: bool = False,
    virtual: Collection[str] = (),
) -> str | None:
    """Return what is foreign in the schema of a database from an untrusted source; None if nothing is.

    Foreign is what would run SQL that may never end: views, triggers (unless allowed), virtual tables (unless named in
    `virtual`) and generated columns. So is a known table or index that is missing or differs from `known`. Other tables
    do no harm. Reads only the schema. Raises the driver's errors.
    """
    found = connection.execute(_SELECT_SCHEMA).fetchall()
    for kind, name, sql in found:
        statement = compared(sql)
        if name in known and statement != known[name]:
            return f"its {kind} {name!r} differs from what mnemolog creates"
        is_plain = kind in ("table", "index") and (name in virtual or not statement.startswith("createvirtual"))
        if name not in known and not is_plain and not (kind == "trigger" and triggers):
            return f"its schema has a {kind} {name!r}, which mnemolog does not create"
    if missing := sorted(known.keys() - {name for _, name, _ in found}):
        return f"its schema has no {missing[0]!r}"
    generated = connection.execute(_SELECT_GENERATED).fetchone()
    return None if generated is None else f"its table {generated[0]!r} has a generated column"


def _make_private(path: Path) -> None:
    """Create an empty file that only its owner may read, for SQLite to fill. Its `-wal` and `-shm` get the same mode.

    If that fails, SQLite creates the file or reports the error.
    """
    try:
        # Not opened: to close a descriptor of a database drops this process' locks on it.
        os.mknod(path, stat.S_IFREG | FILE_MODE)
    except PermissionError:  # A system where only root may do that, or a folder that this process may not write.
        with suppress(OSError):
            make_new(path)
    except OSError:
        return


def _apply_settings(connection: Any, *, synchronous: Synchronous, busy_timeout_s: float, cache_bytes: int) -> None:
    connection.execute(f"PRAGMA journal_size_limit={WAL_SIZE_LIMIT_BYTES}").fetchone()
    wanted: dict[str, object] = {
        "synchronous": SYNCHRONOUS[synchronous],
        "busy_timeout": int(busy_timeout_s * 1000),
        "foreign_keys": 1,
        "recursive_triggers": 1,  # Without it INSERT OR REPLACE deletes a row past the delete trigger.
        "secure_delete": 1,
        "mmap_size": 0,  # A mapped read error would be a signal instead of an exception.
        "trusted_schema": 0,
        "cache_size": -(cache_bytes >> 10),
    }
    for name, value in wanted.items():
        connection.execute(f"PRAGMA {name}={value}").fetchall()
        answer = connection.execute(f"PRAGMA {name}").fetchone()[0]
        if answer != value:
            raise errors.StoreError(f"SQLite answers {name}={answer}, {value} is needed; nothing was written")


def _make_wal(connection: Any, *, busy_timeout_s: float) -> None:
    """Have the file in WAL mode. It is a property of the file: set once, and then only read."""
    end = time.monotonic() + busy_timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise errors.StoreError(f"SQLite answers journal_mode={mode}, wal is needed; nothing was written")
            return
        except driver.dbapi2.OperationalError as error:
            # If several do this to a new file at once, SQLite refuses some of them without waiting.
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(WAL_RETRY_S)


@contextmanager
def mapped_errors(path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Iterator[None]:
    """Raise mnemolog's errors instead of those of SQLAlchemy and SQLite."""
    try:
        yield
    except driver_errors() as error:
        raise map_error(error, path, busy_timeout_s=busy_timeout_s) from error


def map_error(error: BaseException, path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> errors.MnemologError:
    """Return mnemolog's error for an error of the database."""
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return as_invalid_input(error)
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
    code = getattr(cause, "sqlite_errorcode", None)
    code = None if code is None else code & 0xFF
    if code == SQLITE_BUSY or "database is locked" in str(cause):
        return errors.LogBusy(waited_s=busy_timeout_s)
    if code == SQLITE_AUTH or "append-only" in str(cause) or "not authorized" in str(cause):
        return errors.AppendOnly(str(cause))
    if code == SQLITE_CANTOPEN and are_descriptors_exhausted():
        return errors.OutOfDescriptors(path)
    if code == SQLITE_READONLY and is_marked_read_only(path):
        return errors.LogDamaged(f"{path}: {MARKED_READ_ONLY}; nothing was written; {REMEDY_FOR_MARK}")
    if code in (SQLITE_READONLY, SQLITE_CANTOPEN):
        if os.path.lexists(path) and not is_readable(path):
            return errors.StoreNotWritable(path, os.strerror(errno.EACCES), access="read")
        return errors.StoreNotWritable(path, str(cause))
    if code == SQLITE_FULL:
        return errors.StorageFull(path)
    if code == SQLITE_IOERR:
        # SQLite does not always say so. It stays an I/O error: after a failed sync, the commit may be on the disk.
        return errors.LogWriteFailed(f"{cause}{'' if has_room(path.parent) else '; its disk is full, free some space'}")
    # The driver decodes SQLite's messages, and one about a damaged schema quotes what is damaged.
    is_no_text = isinstance(cause, UnicodeDecodeError) or "Could not decode to UTF-8" in str(cause)
    if code in (SQLITE_CORRUPT, SQLITE_NOTADB) or is_no_text or isinstance(cause, UnsafeFile):
        return errors.LogDamaged(f"{path}: {cause}")
    return errors.StoreError(f"{path}: {cause}")


def is_marked_read_only(path: Path) -> bool:
    """Whether the header of a database prevents SQLite from writing it, as a flipped bit does.

    Closing a file drops the locks that this process has on it. In WAL mode, the locks for reading and writing are on
    the shared memory file, and the required version of SQLite also finds there who has the database open.
    """
    try:
        with open_file(path) as file:
            file.seek(_WRITE_VERSION_AT)
            return file.read(1) > _WRITE_VERSION_MAX
    except OSError:
        return False


def clear_read_only_flag(path: Path) -> None:
    """Let SQLite write a database again whose header forbids it. It must not be open. Raises `OSError`."""
    if is_marked_read_only(path):
        with path.open("r+b") as file:
            file.seek(_WRITE_VERSION_AT)
            file.write(_WRITE_VERSION_MAX)


PAGES_PER_STEP: Final = 512
"""Pages copied between two calls of `moved`, which may stop the copy: 2 MiB of 4 KiB pages."""


def copy_database(source: Path, target: Path, *, moved: Callable[[int], None] = lambda _: None) -> None:
    """Copy the database `source`, as it is now, into the new file `target`, and make that durable.

    By SQLite's backup: opening and closing the file of a live database would drop this process's locks on it, and its
    newest commits may be only in the write-ahead log. `moved` is called after every step with the bytes copied in it,
    and may raise to stop. Writers are not blocked: the copy is of one moment, seen through one read transaction.
    Without it, every commit of another process would restart the copy, and under load it would never end; with it, the
    write-ahead log of the source cannot be emptied until the copy ends. Raises `MnemologError` for the source, and
    `OSError` for the target.
    """
    make_new(target)
    try:
        with mapped_errors(source):
            may_write = is_writable(source.parent) and has_room(source.parent)
            with only_connection(create_engine(source, synchronous="NORMAL", read_only=not may_write)) as connection:
                _copy(connection.connection.driver_connection, target, moved)
        clear_read_only_flag(target)
    except errors.StorageFull as error:  # Only the copy is written.
        raise errors.StorageFull(target) from error
    except errors.LogWriteFailed as error:
        raise errors.StoreNotWritable(target, str(error.__cause__)) from error
    sync(target)


def _copy(source: Any, target: Path, moved: Callable[[int], None]) -> None:
    page_bytes = source.execute("PRAGMA page_size").fetchone()[0]
    left: list[int] = []

    def step(_: int, remaining: int, total: int) -> None:
        before = left[-1] if left else total
        left.append(remaining)
        moved((before - remaining) * page_bytes)

    with closing(driver.connect(target)) as copy:
        copy.execute("PRAGMA journal_mode=OFF").fetchone()  # An interrupted copy is deleted as a whole.
        copy.execute("PRAGMA synchronous=OFF").fetchone()  # Synced when it is whole.
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # From here on it sees this moment.
            source.backup(copy, pages=PAGES_PER_STEP, progress=step)
        finally:
            source.execute("ROLLBACK")


def make_new(path: Path) -> None:
    """Create an empty file that only its owner may read, for SQLite to fill. Raises `FileExistsError`."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
