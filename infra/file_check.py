"""Is a log file what was made? Its layout, its pages, its indexes, and the counter of its positions."""

from __future__ import annotations

from typing import Any, Final

from pysqlite3 import dbapi2
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from mnemolog.infra.schema import EVENTS, LOG

PROBLEMS_MAX: Final = 100
"""So many of the problems that SQLite finds with a file are asked for."""

_DIALECT: Final = sqlite.dialect()
_MADE: Final[dict[str, CreateTable | CreateIndex]] = {
    **{table.name: CreateTable(table) for table in (LOG, EVENTS)},
    **{str(index.name): CreateIndex(index) for index in EVENTS.indexes},
}


def contradictions(connection: Any) -> list[str]:
    """Return what is wrong with the file of a driver connection beside what its rows say; reads all of it.

    An index that lacks a row would hide an event from whoever reads by stream, and the rows do not tell.
    """
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    altered = [
        f"{name} is not laid out as it was made"
        for name, made in _MADE.items()
        if _words(found.get(name)) != _words(str(made.compile(dialect=_DIALECT)))
    ]
    early = connection.execute("SELECT position FROM events WHERE position < 1 LIMIT ?", (PROBLEMS_MAX,)).fetchall()
    altered += [f"an event is at position {position}, before the first" for (position,) in early]
    try:
        checked = connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
    except (dbapi2.DatabaseError, UnicodeDecodeError) as error:
        return [*altered, f"SQLite cannot check the file: {error}"]
    return [*altered, *(f"SQLite: {row[0]}" for row in checked if row[0] != "ok")]


def _words(sql: str | None) -> list[str]:
    """Return a statement without the spaces that another SQLAlchemy may set in another way."""
    return [] if sql is None else sql.split()
