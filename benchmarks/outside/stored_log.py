"""The stored events of a log, read and changed past the library: in a folder, or in PostgreSQL.

This is what somebody can do who owns the files or the database and has an SQL client. Nothing here makes digests: a
program that makes those too makes a history that fits, and only a head kept elsewhere tells it from the true one
(SECURITY.md).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pysqlite3 import dbapi2

from mnemolog.domain.events import TurnRecorded
from mnemolog.infra.keys.keyring import Sealer
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.clock import SystemClock
from tests.postgres import connect, put_log_in_postgres

COLUMNS: Final = ("position", "stream", "version", "topic", "state", "key", "recorded_at", "digest")
TEXTS: Final = frozenset({"stream", "topic", "key"})
TABLES: Final = (
    *(f"mnemolog.{table}" for table in ("head", "events", "nodes")),
    *(f"mnemolog_keys.{table}" for table in ("meta", "nodes", "destroyed", "requests")),
)

Statement = tuple[str, Sequence[Any]]
Row = dict[str, Any]
"""An event by column, its texts as bytes."""


class StoredLog:
    """The log of a store in `folder`. Nobody has the store open while it is restored."""

    as_text, as_bytes = "CAST(? AS TEXT)", "{}"
    log = "", ""
    """The column that says which log an event is of, and its value."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Get ready for a new store."""
        self.folder.parent.mkdir(exist_ok=True)

    def rows(self) -> list[Row]:
        """Return all events as stored, by position."""
        columns = ", ".join(self.as_bytes.format(name) if name in TEXTS else name for name in COLUMNS)
        return [
            dict(zip(COLUMNS, row, strict=True))
            for row in self._read(f"SELECT {columns} FROM events ORDER BY position")
        ]

    def change(self, position: int, /, **columns: Any) -> None:
        """Overwrite columns of an event."""
        self.run(self._update(position, columns))

    def insert(self, row: Row) -> None:
        """Add an event, and have the log end with it if it is the last one."""
        self.run(self._inserted(row))
        self.end(self.rows()[-1]["position"])

    def remove(self, *positions: int) -> None:
        """Delete events. What says where the log ends stays as it is."""
        self.run(*(("DELETE FROM events WHERE position = ?", (position,)) for position in positions))

    def end(self, position: int) -> None:
        """Have the log say that it ends there: in its counter, in PostgreSQL in its head, with that event's digest."""
        self.run(self._ended(position))

    def replace(self, rows: Sequence[Row], end: int) -> None:
        """Have the log hold these events only, and say that it ends at a position."""
        self.run(("DELETE FROM events WHERE true", ()), *map(self._inserted, rows), self._ended(end))

    def restated(self, row: Row, say: Callable[[str], str], *, version: int | None = None) -> bytes:
        """Return the state of a turn that says something else, sealed with the keys of the store if it has keys.

        It is sealed for the version of the turn in its stream, or for the `version` given. A forgotten turn stays so.
        """
        with closing(open_log(self.folder, clock=SystemClock(), create=False)) as log:
            place = row["stream"].decode(), row["version"], row["topic"].decode()
            said = log.decode(row["position"], *place, row["state"])
            if not isinstance(said, TurnRecorded):
                return bytes(row["state"])
            codec = EventCodec(None if log.keyring is None else Sealer(log.keyring))
            told = msgspec.structs.replace(said, text=say(said.text))
            return codec.encode(place[0], version or row["version"], told, lambda _: True)

    def snapshot(self) -> Any:
        """Copy everything that the store keeps, for `restore`."""
        return shutil.copytree(self.folder, Path(tempfile.mkdtemp(dir=self.folder.parent)) / "kept")

    def restore(self, kept: Any) -> None:
        """Put a copy in the place of what is there."""
        self.drop()
        shutil.copytree(kept, self.folder)

    def drop(self) -> None:
        """Remove the store."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: Statement) -> None:
        """Run statements with parameters `?`, all of them or none. No trigger refuses them."""
        with self._unguarded() as execute:
            for statement, values in statements:
                execute(statement, values)

    def _read(self, query: str) -> list[Any]:
        with closing(self._connected()) as connection:
            return list(connection.execute(query))

    def _connected(self) -> Any:
        connection = dbapi2.connect(self.folder / LOG_FILE, isolation_level=None)
        connection.text_factory = bytes
        return connection

    @contextmanager
    def _unguarded(self) -> Iterator[Callable[..., Any]]:
        """A transaction in which nothing refuses to change an event."""
        triggers = self._read("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        with closing(self._connected()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name.decode()}")
            yield connection.execute
            for _, definition in triggers:
                connection.execute(definition.decode())
            connection.execute("COMMIT")

    def _ended(self, position: int) -> Statement:
        return "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (position,)

    def _inserted(self, row: Row) -> Statement:
        columns, marks = ", ".join(COLUMNS), ", ".join(map(self._mark, COLUMNS))
        statement = f"INSERT INTO events ({self.log[0]}{columns}) VALUES ({self.log[1]}{marks})"
        return statement, [row[name] for name in COLUMNS]

    def _mark(self, column: str) -> str:
        return self.as_text if column in TEXTS else "?"

    def _update(self, position: int, columns: Row) -> Statement:
        named = ", ".join(f"{name} = {self._mark(name)}" for name in columns)
        return f"UPDATE events SET {named} WHERE position = ?", (*columns.values(), position)


class StoredInPostgres(StoredLog):
    """The only log of a database; `folder` has the projections and what else a node keeps of it."""

    as_text, as_bytes = "convert_from(?, 'UTF8')", "convert_to({}, 'UTF8')"
    log = "log, ", "(SELECT log FROM head), "

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url

    def prepare(self) -> None:
        """Get ready for a new store."""
        super().prepare()
        put_log_in_postgres(self.folder, self.url)

    def _ended(self, position: int) -> Statement:
        there = "coalesce((SELECT digest FROM events WHERE position = ?), digest)"
        return f"UPDATE head SET position = ?, digest = {there}", (position, position)

    def snapshot(self) -> Any:
        """Copy everything that the store keeps, for `restore`."""
        with self._connected() as connection:
            return super().snapshot(), {table: _rows_of(connection, table) for table in TABLES}

    def restore(self, kept: Any) -> None:
        """Put a copy in the place of what is there."""
        folder, tables = kept
        super().restore(folder)
        with self._connected() as connection, connection.transaction():
            for table, rows in tables.items():
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    copy.write(rows)

    def drop(self) -> None:
        """Remove the store."""
        super().drop()
        self.run(*((f"DELETE FROM {table}", ()) for table in TABLES))

    def _connected(self) -> Any:
        connection = connect(self.url)
        connection.execute("SET search_path = mnemolog; SET session_replication_role = replica")
        return connection

    @contextmanager
    def _unguarded(self) -> Iterator[Callable[..., Any]]:
        with self._connected() as connection, connection.transaction():
            yield lambda statement, values: connection.execute(statement.replace("?", "%s"), values)


def _rows_of(connection: Any, table: str) -> bytes:
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        return b"".join(copy)
