"""`keys.db`: the file that makes the content of a log readable. Created with the log, never after it."""

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateTable

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.keys.key_tree import Node
from mnemolog.infra.keys.keyring import WRAPPED_BYTES, KeyErasure, StoredKeys
from mnemolog.infra.runtime.files import is_writable, sync

KEYS_FILE: Final = "keys.db"
CLEAR_FORMAT, WRAPPED_FORMAT = 1, 2
"""The format of keys that are stored in the clear, and of those that are wrapped with a key of the key file."""
SECRET_BYTES: Final = 32
LOCKED: Final = "the keys of the log were"
PARTS: Final = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files that the database consists of."""

METADATA: Final = sa.MetaData()

META: Final = sa.Table(
    "keys_meta",
    METADATA,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("log_id", sa.Text, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("secret", sa.BLOB, nullable=False),
    sqlite_strict=True,
)
"""The log that the keys belong to, and a secret of the store for keyed hashes."""

NODES: Final = sa.Table(
    "nodes",
    METADATA,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("depth", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("prefix", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("material", sa.BLOB, sa.CheckConstraint("length(material) = 32"), nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The nodes of each stream's trees (`mnemolog.infra.keys.key_tree`). A stream has one tree, a series for each time that
keys were needed again for versions whose keys are destroyed: when the log was restored to before that."""

DESTROYED: Final = sa.Table(
    "destroyed",
    METADATA,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("last", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("request", sa.Text, primary_key=True),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""Which leaves were destroyed. One neither listed here nor below a node is missing: an error, never 'forgotten'."""

REQUESTS: Final = sa.Table(
    "requests",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("request", sa.Text, nullable=False, unique=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("recorded_at", sa.Integer, nullable=False),
    sa.Column("event", sa.BLOB, nullable=False),
    sqlite_strict=True,
)
"""The requests for which leaves were destroyed, as in the log, to repeat them for an older copy of the log."""


class KeysIdentity(NamedTuple):
    """The identity of a file of keys."""

    log_id: str
    secret: bytes
    in_use: bool
    """Whether it holds keys, or once held some."""


def create(folder: Path, *, created_at: int) -> str:
    """Create the keys of a new log in `folder`, and return the id that the log must get.

    Keys of a log whose creation was interrupted are used again.
    """
    path = folder / KEYS_FILE
    with suppress(FileExistsError):
        sqlite.make_new(path)
    with sqlite.transaction_on(path) as connection:
        METADATA.create_all(connection)
        if connection.execute(sa.select(META.c.log_id)).scalar_one_or_none() is None:
            row = {"id": 1, "log_id": secrets.token_hex(16), "format": CLEAR_FORMAT, "created_at": created_at}
            connection.execute(META.insert(), row | {"secret": secrets.token_bytes(SECRET_BYTES)})
        found = identity(connection.connection.driver_connection)
    return found.log_id


def nodes_statement(*, wrapped: bool) -> str:
    """Return the statement that creates the table of nodes. Each is longer where it is wrapped."""
    clear = str(CreateTable(NODES).compile(dialect=dialect()))
    return clear.replace("length(material) = 32", f"length(material) = {WRAPPED_BYTES}") if wrapped else clear


def note_wrapping(driver: Any, key: str | None) -> None:
    """Note the id of the key that the keys are wrapped with, where earlier versions look for nothing."""
    number = int(key or "0", 16)
    driver.execute(f"PRAGMA user_version = {number - (number >> 31 << 32)}")


def wrapped_with(driver: Any) -> str | None:
    """Return the id that `note_wrapping` noted, None if none was."""
    number: int = driver.execute("PRAGMA user_version").fetchone()[0]
    return f"{number & 0xFFFFFFFF:08x}" if number else None


def write_copy(
    path: Path, tables: Mapping[sa.Table, Iterator[list[Any]]], *, wrapped: bool, wrapped_with: str | None
) -> None:
    """Write keys from another database into a new file, durably. Raises the driver's errors."""
    sqlite.make_new(path)
    with sqlite.transaction_on(path) as connection:
        driver: Any = connection.connection.driver_connection
        METADATA.create_all(connection)
        if wrapped:
            driver.execute("DROP TABLE nodes")
            driver.execute(nodes_statement(wrapped=True))
            note_wrapping(driver, wrapped_with)
        for table, pages in tables.items():
            insert = f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"
            for rows in pages:
                driver.executemany(insert, rows)
    sync(path.absolute().parent)


def are_in_use(folder: Path) -> bool:
    """Whether a folder has keys that content was encrypted with, or a file of keys that cannot be read."""
    path = folder / KEYS_FILE
    if not path.exists() or not path.stat().st_size:
        return False
    try:
        with closing(sqlite.connect_read_only(path)) as connection:
            return has_tables(connection) and identity(connection).in_use
    except (sqlite.driver.dbapi2.DatabaseError, errors.LogDamaged):
        return True


def log_of(path: Path) -> str | None:
    """Return the id of the log that a file of keys belongs to, None if the file is missing or damaged."""
    try:
        if not path.stat().st_size:
            return None
        with closing(sqlite.connect_read_only(path)) as connection:
            return identity(connection).log_id if _damage_in(connection) is None else None
    except (OSError, sqlite.driver.dbapi2.Error, errors.MnemologError):
        return None


def identity(driver: Any) -> KeysIdentity:
    """Return the identity of the keys behind a driver connection. Raises the driver's errors, `LogDamaged`."""
    found = rows(driver, "SELECT log_id, format, secret FROM keys_meta", types=(str, int, bytes))
    if not found:
        raise errors.LogDamaged("the keys have no identity")
    row = found[0]
    if row[1] > WRAPPED_FORMAT:
        raise errors.LogDamaged(f"the keys have format {row[1]}; this mnemolog reads formats up to {WRAPPED_FORMAT}")
    used = driver.execute("SELECT EXISTS (SELECT 1 FROM nodes) OR EXISTS (SELECT 1 FROM destroyed)").fetchone()[0]
    return KeysIdentity(row[0], row[2], bool(used))


def rows(driver: Any, query: str, values: tuple[Any, ...] = (), *, types: tuple[type, ...]) -> list[tuple[Any, ...]]:
    """Return the rows of a query. Raises `LogDamaged` for a value of another type: damage can change it."""
    found: list[tuple[Any, ...]] = driver.execute(query, values).fetchall()
    for row in found:
        if tuple(map(type, row)) != types:
            raise errors.LogDamaged("a row of the keys has a value of the wrong type")
    return found


def series_in(driver: Any, path: Path) -> list[tuple[str, int]]:
    """Return the stream and the series of all keys, destroyed ones included, in order.

    Checks every page first. Raises `KeysMissing` for a damaged file, the driver's errors, `LogDamaged`.
    """
    if (damage := _damage_in(driver)) is not None:
        raise errors.KeysMissing(path, f"it is damaged: {damage}")
    query = "SELECT stream, series FROM nodes UNION SELECT stream, series FROM destroyed ORDER BY 1, 2"
    return [(stream, series) for stream, series in rows(driver, query, types=(str, int))]


def _damage_in(driver: Any) -> str | None:
    """Return the first fault that SQLite finds in a database, None if it finds none."""
    found: str = driver.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return None if found == "ok" else found


@contextmanager
def mapped_errors(path: Path, *, busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S) -> Iterator[None]:
    """As `sqlite.mapped_errors`, but damage is `KeysMissing`, and the keys are locked: it is not the log."""
    try:
        with sqlite.mapped_errors(path, busy_timeout_s=busy_timeout_s):
            yield
    except errors.LogBusy as error:
        raise errors.LogBusy(waited_s=error.waited_s, what=LOCKED) from error
    except errors.LogDamaged as error:
        raise errors.KeysMissing(path, f"it cannot be used: {error}") from error


def foreign_in(driver: Any) -> str | None:
    """Return what is foreign in the schema of a file of keys; None if nothing is."""
    foreign = [sqlite.foreign_in_schema(driver, _schema(wrapped)) for wrapped in (False, True)]
    return None if None in foreign else foreign[0]


@cache
def _schema(wrapped: bool) -> Mapping[str, str]:
    return {**sqlite.schema_of(METADATA.create_all), "nodes": sqlite.compared(nodes_statement(wrapped=wrapped))}


def has_tables(driver: Any) -> bool:
    """Whether a database has the tables of keys."""
    return driver.execute("SELECT 1 FROM sqlite_master WHERE name = 'keys_meta'").fetchone() is not None


CHECKPOINT_POLL_S: Final = 0.02


class SqliteKeys:
    """Implements `KeysEngine` on the file at `path`. Safe for many processes; not across a fork.

    Unless `read_only` is given, it is so in a folder that cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        log_id: str,
        files: sqlite.OpenedFiles | None = None,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        read_only: bool | None = None,
    ) -> None:
        self.path = path
        self.log_id = log_id
        self._busy_timeout_s = busy_timeout_s
        self._read_only = not is_writable(path.parent) if read_only is None else read_only
        self._files = files or sqlite.OpenedFiles(path.parent)
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None
        """Kept open: once closed, the pool would give the driver's connection to another caller."""
        self._opened: Any = None
        """The driver's connection."""
        self._secret = b""
        self._closed = False

    def missing(self, why: str) -> errors.KeysMissing:
        """See `KeysEngine`."""
        return errors.KeysMissing(self.path, why)

    def is_there(self) -> bool:
        """See `KeysEngine`."""
        return self.path.exists()

    def secret(self) -> bytes:
        """See `KeysEngine`."""
        with self._driver():
            return self._secret

    def wrapped_with(self) -> str | None:
        """See `KeysEngine`."""
        with self._driver() as driver:
            return wrapped_with(driver)

    def last_change(self) -> object:
        """See `KeysEngine`. Another value after any change by another process."""
        driver = self._opened
        if driver is not None:  # Before every page that is read: no more than one statement.
            try:
                return driver.execute("PRAGMA data_version").fetchone()[0]
            except sqlite.driver.dbapi2.Error:
                with self._driver():  # It was closed meanwhile, or the file is not as it was.
                    raise
        with self._driver() as driver:
            return driver.execute("PRAGMA data_version").fetchone()[0]

    def stored(self, stream: str) -> StoredKeys:
        """See `KeysEngine`."""
        # Destroyed ones last: what is destroyed in between is then found twice rather than not at all.
        with self._driver() as driver:
            nodes = rows(
                driver,
                "SELECT series, depth, prefix, material FROM nodes WHERE stream = ?",
                (stream,),
                types=(int, int, int, bytes),
            )
            destroyed = rows(
                driver, "SELECT series, first, last FROM destroyed WHERE stream = ?", (stream,), types=(int, int, int)
            )
        return StoredKeys([(series, Node(*rest)) for series, *rest in nodes], destroyed)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `KeysEngine`."""
        with self._driver() as driver:
            self._files.require_unchanged()
            driver.execute("BEGIN IMMEDIATE")
            try:
                self._secret = identity(driver).secret
                yield
                driver.execute("COMMIT")
                self._files.require_in_place()
            except BaseException:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                raise

    def insert(self, stream: str, series: int, nodes: Sequence[Node]) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "INSERT INTO nodes (stream, series, depth, prefix, material) VALUES (?, ?, ?, ?, ?)",
            [(stream, series, *node) for node in nodes],
        )

    def delete(self, stream: str, series: int, places: Collection[tuple[int, int]]) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "DELETE FROM nodes WHERE stream = ? AND series = ? AND depth = ? AND prefix = ?",
            [(stream, series, *place) for place in places],
        )

    def note_destroyed(self, stream: str, series: int, ranges: Sequence[tuple[int, int]], request: str) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "INSERT OR IGNORE INTO destroyed (stream, series, first, last, request) VALUES (?, ?, ?, ?, ?)",
            [(stream, series, *leaves, request) for leaves in ranges],
        )

    def note_request(self, erasure: KeyErasure) -> None:
        """See `KeysEngine`."""
        self._opened.execute(
            "INSERT INTO requests (request, position, recorded_at, event) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (request) DO UPDATE SET position = excluded.position",
            erasure,
        )

    def rewrite(self, change: Callable[[bytes], bytes], *, wrapped_with: str | None) -> None:
        """See `KeysEngine`."""
        self._opened.create_function("changed", 1, change)
        number = WRAPPED_FORMAT if wrapped_with else CLEAR_FORMAT
        self._opened.execute("UPDATE keys_meta SET format = ?, secret = changed(secret)", (number,))
        self._opened.execute("ALTER TABLE nodes RENAME TO nodes_before")
        self._opened.execute(nodes_statement(wrapped=wrapped_with is not None))
        self._opened.execute(
            "INSERT INTO nodes SELECT stream, series, depth, prefix, changed(material) FROM nodes_before"
        )
        self._opened.execute("DROP TABLE nodes_before")
        note_wrapping(self._opened, wrapped_with)

    def note_change(self) -> None:
        """See `KeysEngine`. SQLite notes every commit."""

    def requests(self, *, last: bool = False) -> list[KeyErasure]:
        """See `KeysEngine`."""
        query = "SELECT request, position, recorded_at, event FROM requests ORDER BY number" + " DESC LIMIT 1" * last
        with self._driver() as driver:
            return [KeyErasure(*row) for row in rows(driver, query, types=(str, int, int, bytes))]

    def has_request(self, request: str) -> bool:
        """See `KeysEngine`."""
        with self._driver() as driver:
            return driver.execute("SELECT 1 FROM requests WHERE request = ?", (request,)).fetchone() is not None

    def series(self) -> list[tuple[str, int]]:
        """See `KeysEngine`. Checks every page of the file."""
        with self._driver() as driver:
            return series_in(driver, self.path)

    def wipe(self) -> bool:
        """See `KeysEngine`. The write-ahead log is emptied as well."""
        with self._driver() as driver:
            self._files.require_unchanged()
            if not self._emptied(driver):  # Rewriting would only make the write-ahead log larger, each time.
                return False
            # Not by `secure_delete` alone: SQLite may have left copies of rows that it moved from page to page.
            driver.execute("VACUUM")
            return self._emptied(driver)

    def _emptied(self, driver: Any) -> bool:
        """Empty the write-ahead log. False if others read from it for too long."""
        end = time.monotonic() + self._busy_timeout_s
        while driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() >= end:
                return False
            time.sleep(CHECKPOINT_POLL_S)
        return True

    def copy_to(self, target: Path) -> None:
        """See `KeysEngine`."""
        if not self.is_there():
            raise self.missing("it does not exist")
        sqlite.copy_database(self.path, target)

    def replace(self, copy: Path) -> None:
        """See `KeysEngine`. The file gets its name. It must not be open yet."""
        for part in PARTS[1:]:
            self.path.with_name(self.path.name + part).unlink(missing_ok=True)
        copy.rename(self.path)
        sync(self.path.parent)

    def another(self, *, busy_timeout_s: float | None = None) -> "SqliteKeys":
        """See `KeysEngine`."""
        return SqliteKeys(
            self.path,
            log_id=self.log_id,
            files=self._files,
            busy_timeout_s=self._busy_timeout_s if busy_timeout_s is None else busy_timeout_s,
            read_only=self._read_only,
        )

    def close(self) -> None:
        """See `KeysEngine`."""
        self._closed = True
        if self._connection is not None and self._engine is not None:
            self._connection.close()
            self._files.close(self.path.name, self._engine)
        self._opened = self._connection = None

    @contextmanager
    def _driver(self) -> Iterator[Any]:
        """Give the connection, opened where it is not."""
        if self._closed:
            raise errors.StoreClosed
        if self._opened is None:
            self._open()
        with mapped_errors(self.path, busy_timeout_s=self._busy_timeout_s):
            yield self._opened

    def _open(self) -> None:
        """Open the keys. Raises `KeysMissing` if they are missing, damaged or of another log."""
        if not self.path.exists():
            raise self.missing("it does not exist")
        if not os.access(self.path, os.R_OK):
            raise self.missing("this user may not read it")
        if not self.path.stat().st_size:  # SQLite would make it a database, and wait for connections to what it was.
            raise self.missing("it is empty")
        engine = sqlite.create_engine(
            self.path,
            synchronous="FULL",
            busy_timeout_s=self._busy_timeout_s,
            read_only=self._read_only,
            files=None if self._read_only else self._files,
        )
        connection: sa.Connection | None = None
        try:
            with mapped_errors(self.path, busy_timeout_s=self._busy_timeout_s):
                connection = engine.connect()
                driver: Any = connection.connection.driver_connection
                if not has_tables(driver):
                    raise self.missing("it is empty")
                if (foreign := foreign_in(driver)) is not None:
                    raise self.missing(f"it cannot be used: {foreign}")
                found = identity(driver)
                if found.log_id != self.log_id:
                    raise self.missing(f"it belongs to log {found.log_id}, this one is {self.log_id}")
        except BaseException:
            if connection is not None:
                connection.close()
            engine.dispose()
            raise
        self._engine = engine
        self._connection = connection
        self._opened = driver
        self._secret = found.secret
