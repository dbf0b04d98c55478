"""Change and remove texts in the files of a closed memory, whatever wrote them: in SQLite cells, else byte by byte."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path


def files(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def is_sqlite(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def cells(path: Path, text: str) -> Iterator[tuple[sqlite3.Connection, str, str, int, str | bytes]]:
    """Yield the cells that hold a text: connection, table, column, rowid, value. Triggers are dropped."""
    connection = sqlite3.connect(path)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f'DROP TRIGGER "{trigger}"')
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    for table, made in rows:
        if made is None or "VIRTUAL TABLE" in made.upper() or "WITHOUT ROWID" in made.upper():
            continue
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        for column in columns:
            found = connection.execute(
                f'SELECT rowid, "{column}" FROM "{table}" WHERE instr(CAST("{column}" AS BLOB), ?)', (text.encode(),)
            )
            for rowid, value in found.fetchall():
                yield connection, table, column, rowid, value
    connection.commit()
    connection.close()


def edit(folder: Path, text: str, other: str) -> int:
    """Put another text of the same length in the place of one, everywhere. Returns how many places there were."""
    changed = 0
    for path in files(folder):
        if is_sqlite(path):
            for connection, table, column, rowid, value in cells(path, text):
                new = (
                    value.replace(text, other)
                    if isinstance(value, str)
                    else value.replace(text.encode(), other.encode())
                )
                connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (new, rowid))
                changed += 1
        elif (content := path.read_bytes()).count(text.encode()):
            path.write_bytes(content.replace(text.encode(), other.encode()))
            changed += 1
    return changed


def remove(folder: Path, text: str) -> int:
    """Delete the rows that hold a text. Returns how many there were; 0 where it is in no database."""
    removed = 0
    for path in filter(is_sqlite, files(folder)):
        for connection, table, _, rowid, _ in cells(path, text):
            removed += connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (rowid,)).rowcount
    return removed
