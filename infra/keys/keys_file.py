"""`keys.db`: the file that makes the content of a log readable. Created with the log, never after it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateTable

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.keys.keyring import WRAPPED_BYTES
from mnemolog.infra.runtime.files import sync

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
    return sqlite.schema_of(METADATA.create_all) | {"nodes": sqlite.compared(nodes_statement(wrapped=wrapped))}


def has_tables(driver: Any) -> bool:
    """Whether a database has the tables of keys."""
    return driver.execute("SELECT 1 FROM sqlite_master WHERE name = 'keys_meta'").fetchone() is not None
