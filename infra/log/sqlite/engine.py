"""The log on SQLite: its file and the schema of it, the queries, the inserts and the errors of `LogEngine`.

Connections to it are restricted, and it is checked that the file still is as it was created.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from pysqlite3.dbapi2 import SQLITE_DELETE, SQLITE_DENY, SQLITE_INSERT, SQLITE_OK, SQLITE_PRAGMA, SQLITE_UPDATE
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import Clock, Micros
from mnemolog.infra import sqlite
from mnemolog.infra.keys import sqlite_keys
from mnemolog.infra.log.engine import (
    LOG_FORMAT,
    PLAIN_FORMAT,
    LogConnection,
    LogEngine,
    LogIdentity,
    StagedRow,
    altered_triggers,
    moved,
)
from mnemolog.infra.log.reader import NOT_A_TURN, PAGE_BYTES, LogReader
from mnemolog.infra.log.seen_head import SeenHead
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.infra.runtime.files import as_store_error, make_folder, new_file, read_file, sync

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
_SCHEMA_CHANGES: Final = frozenset({*range(1, 9), *range(10, 18), 26, 29, 30})  # CREATE *, DROP *, ALTER TABLE
_HARMLESS_PRAGMAS: Final = frozenset({"wal_checkpoint", "integrity_check", "quick_check", "table_info"})


def forbid_rewriting(driver_connection: Any) -> None:
    """Refuse, for the life of this connection, what would remove or bypass the append-only triggers.

    The triggers refuse changes of rows from any connection; this refuses dropping them from this connection.
    """
    driver_connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, _db: str | None, inside: str | None) -> object:
    refused = (
        (inside is not None and inside not in APPEND_ONLY_TRIGGERS)  # A trigger or view that mnemolog did not create.
        or action in _SCHEMA_CHANGES
        or (action in (SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE) and first in ("sqlite_master", "sqlite_sequence"))
        # A pragma with a value changes the connection: recursive_triggers=OFF or writable_schema=ON would allow that.
        or (action == SQLITE_PRAGMA and second is not None and first not in _HARMLESS_PRAGMAS)
    )
    return SQLITE_DENY if refused else SQLITE_OK


PROBLEMS_MAX: Final = 100
"""The most problems to ask SQLite for."""


def _compiled(made: CreateTable | CreateIndex) -> list[str]:
    return _words(str(made.compile(dialect=dialect())))


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
        query = "SELECT position FROM events WHERE position < 1 LIMIT ?"
        early = [
            f"an event is at position {at}, before the first" for (at,) in connection.execute(query, (PROBLEMS_MAX,))
        ]
        return [*_altered(connection), *early, *(f"SQLite: {row[0]}" for row in checked if row[0] != "ok")]
    except (sqlite.driver.dbapi2.DatabaseError, UnicodeDecodeError) as error:
        return [f"SQLite cannot check the file: {error}"]


def _altered(connection: Any) -> list[str]:
    rows = connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    found = {name: (kind, table, _words(sql)) for name, kind, table, sql in rows}
    other = [name for name, made in _MADE.items() if found.get(name) != made]
    # Missing and altered triggers are checked elsewhere: a log without one may still be whole.
    moved = [name for name in APPEND_ONLY_TRIGGERS if name in found and found[name][1] != name.split("_")[0]]
    return [f"{name} is not laid out as it was created" for name in (*other, *moved)]


LOG_FILE: Final = "log.db"


def find_or_create(
    folder: Path,
    *,
    clock: Clock,
    create: bool,
    encrypt: bool | None,
    identity: LogIdentity | None = None,
    read_only: bool = False,
) -> LogIdentity:
    """Return the identity of the log in `folder`, created where there is none and `create` is set.

    With `identity` the new log is a copy of the log that has it, without its keys. With `read_only` no file is
    written. A new log is encrypted unless `encrypt` is False. Raises `StoreNotFound`, `NotAStore`,
    `StoreNotWritable`, `FormatTooNew`, and the driver's errors.
    """
    found = _find(folder, read_only=read_only)
    if found is None:
        found = _create(
            folder, clock=clock, create=create and not read_only, encrypt=encrypt is not False, identity=identity
        )
    return found


def _find(folder: Path, *, read_only: bool = False) -> LogIdentity | None:
    """Return the identity of the log in `folder`, or None where a new one may be created.

    Another process may create the log between two steps of a look, so a folder that is refused is looked at again.
    """
    try:
        return _look(folder, read_only=read_only)
    except (errors.NotAStore, errors.LogDamaged):
        if not (folder / LOG_FILE).exists():
            raise
        return _look(folder, read_only=read_only)


def _look(folder: Path, *, read_only: bool) -> LogIdentity | None:
    """Return what `_find` does, as one look finds it.

    Reads through a connection that changes nothing: the file may be another program's database.
    """
    path = folder / LOG_FILE
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise errors.NotAStore(folder, "it is a file; a store is a folder")
    if not path.exists():
        _refuse_lost(folder, "is missing")
        if {entry.name for entry in folder.iterdir()} - {sqlite_keys.KEYS_FILE + part for part in sqlite_keys.PARTS}:
            raise errors.NotAStore(folder, f"it holds files, but no {LOG_FILE}")
        return None
    if not path.stat().st_size:  # Not opened: SQLite deletes the write-ahead log of an empty file.
        _refuse_lost(folder, "is empty")
    connection = sqlite.connect_read_only(path) if read_only else sqlite.driver.connect(path)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if not tables and application_id == 0:
            _refuse_lost(folder, "is empty")
            return None  # A creation that was killed before its commit.
        if application_id != APPLICATION_ID or "log" not in tables:
            why = "is the database of another program"
            _refuse_lost(folder, why)
            raise errors.NotAStore(folder, f"{LOG_FILE} {why}")
        # Missing indexes and triggers are for `verify` to find.
        known = {name: sqlite.schema_of(METADATA.create_all)[name] for name in METADATA.tables}
        if (foreign := sqlite.foreign_in_schema(connection, known, triggers=True)) is not None:
            raise errors.LogDamaged(f"{path}: {foreign}")
        row = connection.execute("SELECT log_id, format, created_at FROM log").fetchone()
    except sqlite.driver.dbapi2.DatabaseError as error:
        if "not a database" in str(error):
            why = "is not a SQLite database"
            _refuse_lost(folder, why)
            raise errors.NotAStore(folder, f"{LOG_FILE} {why}") from error
        raise
    finally:
        connection.close()
    if row is None or [type(value) for value in row] != [str, int, int]:
        raise errors.LogDamaged(f"{path}: the log has lost its identity")
    if row[1] > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=row[1], supported=LOG_FORMAT)
    return LogIdentity(row[0], row[1], Micros(row[2]))


def _refuse_lost(folder: Path, why: str) -> None:
    """Raise `LogDamaged` for a folder that was a store: it has files that depend on a log, but no log."""
    layout = StoreLayout(folder)
    derived = (layout.views, layout.embeddings, layout.snapshots, layout.vectors, layout.quarantine)
    left = next((path for path in derived if path.exists()), layout.keys)
    if left != layout.keys or sqlite_keys.are_in_use(folder):
        raise errors.LogDamaged(f"{folder} was a store: it has {left.relative_to(folder)}, but its {LOG_FILE} {why}")


def _create(folder: Path, *, clock: Clock, create: bool, encrypt: bool, identity: LogIdentity | None) -> LogIdentity:
    if not create:
        raise errors.StoreNotFound(folder)
    if identity is not None and identity.log_format > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=identity.log_format, supported=LOG_FORMAT)
    try:
        make_folder(folder)
    except OSError as error:
        raise as_store_error(error, folder) from error
    made = identity or LogIdentity(secrets.token_hex(16), PLAIN_FORMAT, clock.now())
    if encrypt and identity is None:
        # The keys first, durably: a log without its keys could never be read.
        made = LogIdentity(sqlite_keys.create(folder, created_at=made.created_at), LOG_FORMAT, made.created_at)
        _sync_names(folder)
    with sqlite.transaction_on(folder / LOG_FILE, create=True) as connection:
        if not sa.inspect(connection).has_table("log"):  # Another process may have created it meanwhile.
            create_schema(connection, **made._asdict())
    _sync_names(folder)
    found = _find(folder)
    if found is None:
        raise errors.StoreNotWritable(folder, "the log was not created")
    return found


def write_copy(path: Path, identity: LogIdentity, pages: Iterable[Sequence[StagedRow]]) -> None:
    """Write the events of another database into a new file of a log, durably. Raises the driver's errors."""
    with sqlite.transaction_on(path, create=True) as connection:
        driver: Any = connection.connection.driver_connection
        create_schema(connection, **identity._asdict())
        for rows in pages:
            driver.executemany(INSERT_EVENTS[1], rows)
    sync(path.absolute().parent)


def _sync_names(folder: Path) -> None:
    """Make the new file's name durable, as its content already is."""
    sync(folder)
    sync(folder.absolute().parent)


POLL_INTERVAL_S: Final = 0.05
"""SQLite does not report commits of other processes: followers look this often."""

_SELECT_HEAD: Final = (
    "SELECT position, digest, (SELECT digest FROM events WHERE position = ?) FROM events ORDER BY position DESC LIMIT 1"
)


class SqliteReader(LogReader):
    """Implements `LogReader` on a driver connection: past SQLAlchemy, which would cost more than the query (ADR 2)."""

    __slots__ = ("driver",)

    select_stored = (
        "SELECT position, CAST(stream AS BLOB), version, CAST(topic AS BLOB), state, CAST(key AS BLOB), "
        "recorded_at, digest FROM events WHERE"
    )

    def __init__(self, driver: Any, genesis: bytes) -> None:
        self.driver, self.genesis = driver, genesis

    def head(self, seen: int = 0) -> tuple[int, Any, Any] | None:
        """See `LogReader`."""
        found: tuple[int, Any, Any] | None = self.driver.execute(_SELECT_HEAD, (seen,)).fetchone()
        return found

    def last_given(self) -> int:
        """See `LogReader`."""
        return self._value("SELECT seq FROM sqlite_sequence WHERE name = 'events'", ()) or 0

    def layout(self) -> int:
        """See `LogReader`. Nothing changes a log of SQLite from outside but by taking its triggers away."""
        return int(self.driver.execute("PRAGMA schema_version").fetchone()[0])

    def first_stream_with(self, key: str, streams: Sequence[str]) -> str | None:
        """See `LogReader`."""
        found: str | None = self._value(
            "SELECT events.stream FROM json_each(?) AS known JOIN events ON events.stream = known.value "
            "AND events.key = ? ORDER BY events.position LIMIT 1",
            (to_json(streams).decode(), key),
        )
        return found

    def _run(self, query: str, parameters: tuple[Any, ...]) -> Any:
        return self.driver.execute(query, parameters)

    def _page(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        found, size = list[Any](), 0
        for row in self.driver.execute(query, parameters):
            found.append(row)
            size += len(row[4] or b"")
            if size >= PAGE_BYTES:
                break
        return found


class SqliteConnection(LogConnection):
    """Implements `LogConnection`."""

    def __init__(self, connection: sa.Connection, files: sqlite.OpenedFiles, genesis: bytes) -> None:
        self._connection, self._files = connection, files
        self.driver: Any = connection.connection.driver_connection
        self.reads = SqliteReader(self.driver, genesis)

    def append(self, rows: Sequence[StagedRow], *, head: int, head_digest: bytes) -> bool:
        """See `LogConnection`. The insert itself checks the head: had it moved, the next position would be taken.

        One INSERT is a transaction of its own that takes the write lock before it reads, just as BEGIN IMMEDIATE
        does, with two statements less.
        """
        driver = self.driver
        # A commit may damage the file in the place of one.
        self._files.require_unchanged(every_ns=sqlite.LOOK_EVERY_NS)
        try:
            if len(rows) <= ROWS_MAX:
                self.insert(rows)
            else:
                driver.execute("BEGIN IMMEDIATE")
                self.insert(rows)
                driver.execute("COMMIT")
        except sqlite.driver.dbapi2.IntegrityError:
            self.roll_back()
            return False
        self._files.require_in_place()
        return True

    def lock(self, seen: int) -> tuple[int, bytes | None, int, bytes | None]:
        """See `LogConnection`."""
        self._files.require_unchanged(every_ns=sqlite.LOOK_EVERY_NS)
        self.driver.execute("BEGIN IMMEDIATE")
        position, digest, digest_there = self.reads.head(seen) or (0, None, None)
        return position, digest, self.reads.last_given(), digest_there

    def insert(self, rows: Sequence[StagedRow]) -> None:
        """See `LogConnection`."""
        if not rows:
            return
        if len(rows) > ROWS_MAX:
            for start in range(0, len(rows), ROWS_MAX):
                self.insert(rows[start : start + ROWS_MAX])
            return
        if len(rows) == 1:
            values: Sequence[Any] = rows[0]
            keyless = values[-1] is None
            if keyless:
                values = values[:-1]
        else:
            keyless = all(row[-1] is None for row in rows)
            values = [*chain.from_iterable([row[:-1] for row in rows] if keyless else rows)]
        statement = (INSERT_KEYLESS if keyless else INSERT_EVENTS)[len(rows)]
        if self.driver.execute(statement, values).rowcount != len(rows):
            raise errors.LogDamaged("an insert reported success but the event is not in the file")

    def commit(self) -> None:
        """See `LogConnection`."""
        self.driver.execute("COMMIT")
        self._files.require_in_place()

    def roll_back(self) -> None:
        """See `LogConnection`."""
        if self.driver.in_transaction:
            self.driver.execute("ROLLBACK")

    def has_committed(self, row: StagedRow) -> bool:
        """See `LogConnection`."""
        committed = not self.driver.in_transaction and self.reads.digest_at(row[0]) == row[6]
        return committed and self._files.replaced() is None

    def close(self) -> None:
        """See `LogConnection`."""
        self._connection.close()


class SqliteEngine(LogEngine):
    """Implements `LogEngine` on one file."""

    poll_interval_s = POLL_INTERVAL_S

    def __init__(
        self,
        path: Path,
        *,
        identity: LogIdentity,
        files: sqlite.OpenedFiles,
        synchronous: sqlite.Synchronous,
        busy_timeout_s: float,
        seen: SeenHead,
        read_only: bool = False,
    ) -> None:
        self.seen = seen
        self.path = path
        self.busy_timeout_s = busy_timeout_s
        self._files = files
        self._log_id, self._genesis = identity.log_id, identity.genesis
        self._moved = StoreLayout(path.parent).moved
        self.driver_errors = sa.exc.SQLAlchemyError, sqlite.driver.dbapi2.Error
        self.pool = sqlite.create_engine(
            path,
            synchronous=synchronous,
            busy_timeout_s=busy_timeout_s,
            guard=self._guard,
            read_only=read_only,
            files=None if read_only else files,
        )

    def _guard(self, driver: Any) -> None:
        forbid_rewriting(driver)
        if (found := driver.execute("SELECT log_id FROM log").fetchone()) != (self._log_id,):
            raise errors.StoreReplaced(self.path, f"it holds log {found and found[0]}, not {self._log_id}")

    @contextmanager
    def reading(self) -> Iterator[SqliteReader]:
        """See `LogEngine`."""
        try:
            with self.pool.connect() as connection:
                yield SqliteReader(connection.connection.driver_connection, self._genesis)
        except sqlite.driver_errors() as error:
            raise self.seen.meet(self.error_of(error)) from error
        except errors.LogDamaged as error:
            self.seen.meet(error)
            raise
        self._files.require_in_place()

    def connect(self) -> SqliteConnection:
        """See `LogEngine`."""
        if place := self.moved_to():
            raise moved(self.path.parent, place, undo=f"delete {self._moved}")
        return self._connect()

    def _connect(self) -> SqliteConnection:
        connection = SqliteConnection(self.pool.connect(), self._files, self._genesis)
        if changed := altered_triggers(_triggers(connection.driver), APPEND_ONLY_TRIGGERS):
            connection.close()
            raise errors.LogWriteFailed(f"the log's triggers are missing or altered: {changed}")
        return connection

    def is_conflict(self, error: BaseException) -> bool:
        """See `LogEngine`."""
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        return isinstance(cause, sqlite.driver.dbapi2.IntegrityError) and "append-only" not in str(cause)

    def error_of(self, error: BaseException) -> errors.MnemologError:
        """See `LogEngine`."""
        if (replaced := self._files.replaced()) is not None:
            return replaced
        return sqlite.map_error(error, self.path, busy_timeout_s=self.busy_timeout_s)

    def missing_triggers(self) -> list[str]:
        """See `LogEngine`."""
        with self.reading() as reads:
            return altered_triggers(_triggers(reads.driver), APPEND_ONLY_TRIGGERS)

    def contradictions(self) -> list[str]:
        """See `LogEngine`. Reads the file in one transaction."""
        with self.reading() as reads:
            found = contradictions(reads.driver)
        if sqlite.is_marked_read_only(self.path):
            found.append(f"{sqlite.MARKED_READ_ONLY}; {sqlite.REMEDY_FOR_MARK}")
        return found

    def moved_to(self) -> str:
        """See `LogEngine`. It is in a file beside the log."""
        try:
            self._moved.lstat()  # Needs no descriptor: an append works where none is left.
            return os.fsdecode(read_file(self._moved))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise as_store_error(error, self._moved, access="read") from error

    def set_moved_to(self, place: str, *, head: int) -> bool:
        """See `LogEngine`."""
        connection = self._connect()
        try:
            with sqlite.mapped_errors(self.path, busy_timeout_s=self.busy_timeout_s):
                if connection.lock(0)[0] != head:
                    return False
            with new_file(self._moved, replace=True) as file:
                file.write(os.fsencode(place))
        finally:
            connection.roll_back()
            connection.close()
        return True

    def replaced(self) -> errors.StoreReplaced | None:
        """See `LogEngine`."""
        return self._files.replaced()

    def set_back(self) -> None:
        """See `LogEngine`."""
        with sqlite.transaction_on(self.path) as connection:  # Without the guard, which refuses that.
            connection.exec_driver_sql(
                "UPDATE sqlite_sequence SET seq = coalesce((SELECT max(position) FROM events), 0) WHERE name = 'events'"
            )

    def size_bytes(self) -> int:
        """Return the bytes of the log's pages, without the write-ahead log."""
        with self.reading() as reads:
            pages = reads.driver.execute("PRAGMA page_count").fetchone()[0]
            return int(pages * reads.driver.execute("PRAGMA page_size").fetchone()[0])

    def checkpointed(self) -> wal_checkpointer.Checkpointed:
        """Return how much of the write-ahead log is in the database pages already. Changes nothing."""
        with self.reading() as reads:
            return wal_checkpointer.checkpoint(reads.driver, "NOOP")[1]

    def copy_to(self, target: Path, *, moved: Callable[[int], None]) -> None:
        """See `LogEngine`."""
        self._files.require_in_place()
        sqlite.copy_database(self.path, target, moved=moved)
        self._files.require_in_place()

    def close(self) -> None:
        """See `LogEngine`."""
        self._files.close(self.path.name, self.pool)
        self.seen.close()


def _triggers(driver: Any) -> dict[str, str]:
    return dict(driver.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
