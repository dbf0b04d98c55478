"""Check a log file: its layout, its pages, its indexes, and its lowest position."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from mnemolog.infra.log.sqlite.schema import APPEND_ONLY_TRIGGERS, EVENTS, LOG
from mnemolog.infra.sqlite import driver

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
