"""Compare the views with the log: they are built once more, and both are read row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.infra.sqlite import temporary_engine
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql.conversation_views import TEXT_INDEX, Views
from mnemolog.projections.sql.database import METADATA, TRACKING, ProjectionDatabase, faults_of

LISTED_MAX: Final = 10
"""Disagreements that are listed; the rest is counted."""
_KEYS: Final = {"sessions": ["session"], "turns": ["position"]}
"""Columns by which rows are named, where they are not those of the primary key."""
_INDEXED: Final = f"{TEXT_INDEX}_docsize"
"""The turns of the text index, with the number of their words."""


class Disagreements:
    """Differences between the views and the log: the first few, and their number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.count = 0
        self.file_damaged = False
        """Whether SQLite itself finds the file damaged."""

    def add(self, what: str) -> None:
        """Note one more."""
        self.count += 1
        if len(self.listed) < LISTED_MAX:
            self.listed.append(what)

    def __str__(self) -> str:
        more = self.count - len(self.listed)
        return "; ".join(self.listed) + (f"; and {more} more" if more else "")


def compare(connection: sa.Connection, log: Log, *, upto: Position, progress: Progress | None = None) -> Disagreements:
    """Compare views that have read the log up to `upto` with it. Reads all of both; changes nothing.

    The words in the text index are checked for being as many and of the right turns, not read back one by one.
    Raises `ProjectionUnreadable` (by the connection's owner) where the file cannot be read, and `StorageFull`.
    """
    found = Disagreements()
    for fault in faults_of(connection):
        found.add(fault)
        found.file_damaged = True
    with _built(log, upto, progress) as expected:
        try:
            for table in METADATA.sorted_tables:
                if table is not TRACKING:
                    keys = _KEYS.get(table.name, [column.name for column in table.primary_key])
                    columns = [*keys, *(column.name for column in table.columns if column.name not in keys)]
                    _compare(connection, expected, table.name, columns, len(keys), found)
            _compare(connection, expected, _INDEXED, ["id", "sz"], 1, found)
        except TypeError:  # A flipped bit can turn a key into one of another type, which has no place among the others.
            found.add("a key has another type")
            found.file_damaged = True
    return found


@contextmanager
def _built(log: Log, upto: Position, progress: Progress | None) -> Iterator[sa.Connection]:
    """Yield a connection to views of the log, in a temporary file."""
    engine = temporary_engine()
    try:
        views = Views(ProjectionDatabase(engine, Path("views.db")), log)
        views.rebuild(upto=upto, progress=progress)
        with views.database.reading() as connection:
            yield connection
    finally:
        engine.dispose()


def _compare(
    held: sa.Connection, expected: sa.Connection, table: str, columns: list[str], keys: int, found: Disagreements
) -> None:
    """Compare the rows of a table, of which the first `keys` columns are the key."""
    query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(columns[:keys])}"
    rows = merge(_rows(held, query, keys, 0), _rows(expected, query, keys, 1), key=itemgetter(0))
    for key, some in groupby(rows, key=itemgetter(0)):
        sides: dict[int, tuple[Any, ...]] = {side: row for _, side, row in some}
        if sides.get(0) == sides.get(1):
            continue
        if len(sides) == 2:
            pairs = zip(columns, *sides.values(), strict=True)
            why = f"other {', '.join(name for name, one, other in pairs if one != other)}"
        else:
            why = "the log has none" if 0 in sides else "missing"
        found.add(f"{table} {'/'.join(map(str, key))}: {why}")


def _rows(connection: sa.Connection, query: str, keys: int, side: int) -> Iterator[tuple[tuple[Any, ...], int, Any]]:
    driver: Any = connection.connection.driver_connection
    return ((row[:keys], side, row) for row in driver.execute(query))
