"""The schema of a log file, the restrictions on connections to it, and whether the file still is as it was created."""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from mnemolog.infra.log.reader import NOT_A_TURN
from mnemolog.infra.sqlite import driver

APPLICATION_ID: Final = 0x6D6E6C67  # "mnlg", in the header of every log file

METADATA: Final = sa.MetaData()

LOG: Final = sa.Table(
    "log",
    METADATA,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("log_id", sa.Text, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Integer, nullable=False),
    sqlite_strict=True,
)

# AUTOINCREMENT matters: a plain integer key may reuse the number of a deleted last row,
# and a projection already past that number would never see the new event.
EVENTS: Final = sa.Table(
    "events",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("stream", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("state", sa.BLOB, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("recorded_at", sa.Integer, nullable=False),
    sa.Column("digest", sa.BLOB, sa.CheckConstraint("length(digest) = 32"), nullable=False),
    sa.UniqueConstraint("stream", "version"),
    sqlite_autoincrement=True,
    sqlite_strict=True,
)

sa.Index("events_key", EVENTS.c.stream, EVENTS.c.key, unique=True, sqlite_where=sa.text("key IS NOT NULL"))

# Everything in a stream but its turns: the state of a session stays quick to fold however long it talks.
sa.Index("events_sparse", EVENTS.c.stream, EVENTS.c.version, sqlite_where=sa.text(NOT_A_TURN))

APPEND_ONLY_TRIGGERS: Final = {
    f"{table}_refuse_{verb.lower()}": (
        f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'append-only: {verb} on {table} refused'); END"
    )
    for table in ("events", "log")
    for verb in ("UPDATE", "DELETE")
}

ROWS_MAX: Final = 64
"""The most rows in one statement."""

_COLUMNS: Final = ("position", "stream", "version", "topic", "state", "recorded_at", "digest")


def _insert_statements(columns: tuple[str, ...]) -> dict[int, str]:
    row = f"({', '.join('?' * len(columns))})"
    start = f"INSERT INTO events ({', '.join(columns)}) VALUES "
    return {n: start + ", ".join([row] * n) for n in range(1, ROWS_MAX + 1)}


INSERT_EVENTS: Final = _insert_statements((*_COLUMNS, "key"))
"""Insert statements by their number of rows. One statement releases the GIL once, not once per row, and is a
transaction of its own."""

INSERT_KEYLESS: Final = _insert_statements(_COLUMNS)
"""The same for rows without an idempotency key: binding None makes pysqlite3 look for an adapter first."""


def create_schema(connection: sa.Connection, *, log_id: str, log_format: int, created_at: int) -> None:
    """Create the tables of a new log, inside the transaction the caller began."""
    METADATA.create_all(connection)
    for statement in APPEND_ONLY_TRIGGERS.values():
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(
        "INSERT INTO log (id, log_id, format, created_at) VALUES (1, ?, ?, ?)",
        (log_id, log_format, created_at),
    )
    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")


# Action codes of sqlite3_set_authorizer, from sqlite3.h.
_DELETE = 9
_INSERT_ROW = 18
_PRAGMA = 19
_UPDATE = 23
_SCHEMA_CHANGES: Final = frozenset({*range(1, 9), *range(10, 18), 26, 29, 30})  # CREATE *, DROP *, ALTER TABLE
_OK, _DENY = 0, 1
_HARMLESS_PRAGMAS: Final = frozenset({"wal_checkpoint", "integrity_check", "quick_check", "table_info"})


SELECT_TRIGGERS: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


def forbid_rewriting(driver_connection: Any) -> None:
    """Refuse, for the life of this connection, what would remove or bypass the append-only triggers.

    The triggers refuse changes of rows from any connection; this refuses dropping them from this connection.
    """
    driver_connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, _db: str | None, inside: str | None) -> int:
    if inside is not None and inside not in APPEND_ONLY_TRIGGERS:  # A trigger or view that mnemolog did not create.
        return _DENY
    if action in _SCHEMA_CHANGES:
        return _DENY
    if action in (_INSERT_ROW, _UPDATE, _DELETE) and first in ("sqlite_master", "sqlite_sequence"):
        return _DENY
    # A pragma with a value changes the connection: recursive_triggers=OFF or writable_schema=ON would allow that.
    if action == _PRAGMA and second is not None and first not in _HARMLESS_PRAGMAS:
        return _DENY
    return _OK


PROBLEMS_MAX: Final = 100
"""The most problems to ask SQLite for."""

_DIALECT: Final = sqlite.dialect()


def _compiled(made: CreateTable | CreateIndex) -> list[str]:
    return _words(str(made.compile(dialect=_DIALECT)))


def _words(sql: str | None) -> list[str]:
    """Return the words of a statement: another version of SQLAlchemy may set spaces differently.

    White space that SQLAlchemy never writes counts as damage.
    """
    return [word for word in re.split(r"[ \t\n]+", str(sql or "")) if word]


_MADE: Final = {
    **{table.name: ("table", table.name, _compiled(CreateTable(table))) for table in (LOG, EVENTS)},
    **{str(index.name): ("index", EVENTS.name, _compiled(CreateIndex(index))) for index in EVENTS.indexes},
    "sqlite_sequence": ("table", "sqlite_sequence", _words("CREATE TABLE sqlite_sequence(name,seq)")),
    "sqlite_autoindex_events_1": ("index", EVENTS.name, []),
}
"""By name: the kind of every table and index of a log file, the table it belongs to, and its definition."""


def contradictions(connection: Any) -> list[str]:
    """Return what is wrong with the file of a driver connection beside the content of its rows. Reads all of it.

    An index that lacks a row hides an event from reads by stream, and the rows themselves do not show that.
    """
    try:
        checked = connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
        return [*_altered(connection), *_early(connection), *(f"SQLite: {row[0]}" for row in checked if row[0] != "ok")]
    except (driver.dbapi2.DatabaseError, UnicodeDecodeError) as error:
        return [f"SQLite cannot check the file: {error}"]


def _altered(connection: Any) -> list[str]:
    rows = connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    found = {name: (kind, table, _words(sql)) for name, kind, table, sql in rows}
    other = [name for name, made in _MADE.items() if found.get(name) != made]
    # Missing and altered triggers are checked elsewhere: a log without one may still be whole.
    moved = [name for name in APPEND_ONLY_TRIGGERS if name in found and found[name][1] != name.split("_")[0]]
    return [f"{name} is not laid out as it was created" for name in (*other, *moved)]


def _early(connection: Any) -> list[str]:
    rows = connection.execute("SELECT position FROM events WHERE position < 1 LIMIT ?", (PROBLEMS_MAX,)).fetchall()
    return [f"an event is at position {position}, before the first" for (position,) in rows]
