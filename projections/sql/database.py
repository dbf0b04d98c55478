"""A SQLite database of a projection, and the base classes of its tables: the views, and those of adapters.

It can be deleted at any time and rebuilt from the log. Position and rows are saved in one transaction. Tables of
another log or another version are emptied and refilled when they are opened; the version is part of the name.

SQLite pages have no checksums, so a flipped bit could cause a wrong answer. The seal of a closed database is a file
beside it with its checksum. Every transaction that writes removes it, and closing the store writes it again once
everything is in the main file. So a database with a seal must have exactly the sealed bytes. A database without a seal
(its process was killed, or another process has it open) is not checked.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import sqlalchemy as sa
import xxhash

from mnemolog.domain import errors, structured_log
from mnemolog.domain.encoding import JSON, UNDECODABLE, to_json
from mnemolog.domain.events import ContentErased, RecordedEvent
from mnemolog.domain.store_layout import CHECKSUM_PART
from mnemolog.domain.values import ORIGIN, Position, as_invalid_input
from mnemolog.infra import sqlite
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import mapped_to_projection_errors, open_file, read_file, replace_file
from mnemolog.projections.ports import Log, Progress, tell
from mnemolog.projections.quarantine import Drift

_FULL: Final = 13  # SQLITE_FULL
FAULTS_MAX: Final = 10
"""Maximum number of faults for SQLite to list."""


class ProjectionDatabase:
    """An engine and the path of its file. Its errors are `ProjectionUnreadable` and `StorageFull`.

    - `sealed`: whether closing it writes a checksum (`mnemolog.projections.sql.database`)
    - `files`: the files that are open. Once another file is in the place of one, that is opened
    """

    def __init__(
        self, engine: sa.Engine, path: Path, sealed: bool = False, files: sqlite.OpenedFiles | None = None
    ) -> None:
        self.engine = engine
        self.path = path
        self.sealed = sealed
        self.files = files
        self.opened_again: Callable[[], ProjectionDatabase] | None = None
        """Opens the file that is now at `path`, and fills it; None: it is not used any more once it is replaced."""
        self._opening = fork_guard.lock()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection for reads, which all see one state of the database."""
        try:
            with self._connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if not connection.invalidated:  # By a KeyboardInterrupt: then it is closed.
                        driver.execute("ROLLBACK")
        except sqlite.driver_errors() as error:
            raise self._error_of(error) from error

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Yield a connection that holds the write lock. Commits at the end, rolls back on an error."""
        try:
            with self._connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                try:
                    self._unseal()
                    yield connection
                except BaseException:
                    if not connection.invalidated:
                        connection.exec_driver_sql("ROLLBACK")
                    raise
                connection.exec_driver_sql("COMMIT")
        except sqlite.driver_errors() as error:
            raise self._error_of(error) from error

    def scrub(self) -> bool:
        """Overwrite the bytes of deleted rows, in the write-ahead log as well.

        False while another connection prevents that: call it again.
        """
        try:
            with self._connect() as connection:
                self._unseal()
                # `secure_delete` alone leaves copies of rows that SQLite has moved between pages.
                connection.exec_driver_sql("VACUUM")
                self._unseal()  # VACUUM takes its own lock: a process that closed the store may have sealed it.
                return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
        except sqlite.driver_errors() as error:
            raise self._error_of(error) from error

    def close(self) -> None:
        """Close the file. Seal it, if it is to be sealed and no other connection writes to it."""
        if self.sealed and self._replaced() is None:
            with (
                suppress(OSError, sa.exc.SQLAlchemyError, errors.StoreForked, errors.StoreReplaced),
                self.engine.connect() as connection,
            ):
                connection.exec_driver_sql("PRAGMA busy_timeout=0")
                seal(connection, self.path)
        self._let_go()

    def _let_go(self) -> None:
        if self.files is None:
            self.engine.dispose()
        else:
            self.files.close(self.path.name, self.engine)

    def _connect(self) -> sa.Connection:
        while True:
            try:
                if (replaced := self._replaced()) is not None:
                    raise replaced
                return self.engine.connect()
            except errors.StoreReplaced as error:
                if self.opened_again is None or self._replaced() is None:
                    raise self._unusable(error) from error
            with self._opening:
                if self._replaced() is not None:
                    self._let_go()
                    now = self.opened_again()
                    self.engine, self.files = now.engine, now.files

    def _replaced(self) -> errors.StoreReplaced | None:
        return None if self.files is None else self.files.replaced()

    def _unusable(self, replaced: errors.StoreReplaced) -> errors.MnemologError:
        return errors.ProjectionUnreadable(self.path, f"{replaced}; the store has to be opened again")

    def _unseal(self) -> None:
        if self.sealed:
            with mapped_to_projection_errors(self.path.parent):
                break_seal(self.path)

    def _error_of(self, error: Exception) -> errors.MnemologError:
        if (replaced := self._replaced()) is not None:
            return self._unusable(replaced)
        if isinstance(error, UnicodeEncodeError | OverflowError):
            return as_invalid_input(error)
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == _FULL:
            return errors.StorageFull(self.path)
        return errors.ProjectionUnreadable(self.path, str(cause))


def faults_of(connection: sa.Connection) -> list[str]:
    """Return the faults that SQLite finds in the pages, free pages and indexes of a file. Reads the whole file.

    Rows can be readable and correct while an index is damaged: then the next write would fail.
    """
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({FAULTS_MAX})")
    return [f"SQLite: {message}" for (message,) in rows if message != "ok"]


def fetch(connection: sa.Connection, statement: str, *parameters: Any) -> list[Any]:
    """Return rows as tuples, directly from the driver. A recall runs twenty queries, most for one or two rows."""
    driver: Any = connection.connection.driver_connection
    rows: list[Any] = driver.execute(statement, parameters).fetchall()
    return rows


def listed(values: Sequence[Any]) -> str:
    """Return values as one parameter for `json_each`, because SQLite limits the number of parameters."""
    return JSON.encode(values).decode()


METADATA: Final = sa.MetaData()

TRACKING: Final = sa.Table(
    "tracking",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("log_id", sa.Text, nullable=False, server_default=""),
    sa.Column("digest", sa.BLOB, nullable=False, server_default=sa.text("x''")),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

_UPSERT: Final = sa.text(
    "INSERT INTO tracking (name, position, log_id, digest) VALUES (:name, :position, :log_id, :digest) "
    "ON CONFLICT (name) DO UPDATE SET position = excluded.position, log_id = excluded.log_id, "
    "digest = excluded.digest WHERE excluded.position > tracking.position"
)


class Tracked(NamedTuple):
    """The log that a projection has read, its position, and the log's digest there."""

    position: Position
    log_id: str
    digest: bytes


NOTHING_READ: Final = Tracked(ORIGIN, "", b"")


def tracked(connection: sa.Connection, name: str) -> Tracked:
    """Return the position of the projection `name`. A row with values of other types counts as none."""
    query = "SELECT position, log_id, digest FROM tracking WHERE name = ?"
    rows = fetch(connection, query, name)
    return next((Tracked(*row) for row in rows if [type(value) for value in row] == [int, str, bytes]), NOTHING_READ)


def track(connection: sa.Connection, name: str, to: Tracked) -> None:
    """Record, in the caller's transaction, that `name` has read up to `to`.

    The caller has checked that the position increases.
    """
    values = {"name": name, "position": to.position, "log_id": to.log_id, "digest": to.digest}
    if connection.execute(_UPSERT, values).rowcount != 1:
        raise AssertionError(f"{name!r} is at or past position {to.position}")


SEALED_BYTES_MAX: Final = 1 << 30
"""Maximum size of a sealed database. Reading a larger one would delay opening and closing by about a second."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The expected size and checksum of a database."""

    size_bytes: int
    xxh3_128: str


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(Seal)


def seal_of(database: Path) -> Path:
    """Return the path of a database's seal."""
    return database.with_name(database.name + CHECKSUM_PART)


def break_seal(database: Path) -> None:
    """Remove the seal of a database. Call it under the write lock, before anything is committed."""
    seal_of(database).unlink(missing_ok=True)


def why_not_as_sealed(database: Path) -> str | None:
    """Return why a database does not match its seal; None if it matches or has no seal."""
    while (seal := _read(database)) is not None:
        found = _look(database)
        if found is None or found == seal:
            return None
        if _read(database) == seal:  # Otherwise another process is writing it.
            return f"its {found.size_bytes:,} bytes are not the {seal.size_bytes:,} that were sealed when it was closed"
    return None


def seal(connection: sa.Connection, database: Path) -> bool:
    """Seal a database, unless it is sealed, large, or in use. Return whether it has a seal now.

    The connection must not be in a transaction.
    """
    if seal_of(database).exists():
        return True
    if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
        return False
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # No other connection writes until it ends.
    try:
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size:
            return False
        found = _look(database)
        if found is None or found.size_bytes > SEALED_BYTES_MAX:
            return False
        replace_file(seal_of(database), to_json(found), prefix="seal", synced=False)
        return True
    finally:
        connection.exec_driver_sql("ROLLBACK")


def _read(database: Path) -> Seal | None:
    """Return the seal; None if there is none or it is unreadable, which is harmless."""
    with suppress(OSError, *UNDECODABLE):
        return _DECODER.decode(read_file(seal_of(database)))
    return None


def _look(database: Path) -> Seal | None:
    """Compute the seal of the current file; None if it cannot be read."""
    try:
        with open_file(database) as file:
            if os.fstat(file.fileno()).st_size > SEALED_BYTES_MAX:
                return Seal(size_bytes=os.fstat(file.fileno()).st_size, xxh3_128="")
            digest = file_digest(file, xxhash.xxh3_128).hexdigest()
            return Seal(size_bytes=file.tell(), xxh3_128=digest)
    except OSError:
        return None


BATCH_MAX: Final = 500
SAVED_TOGETHER: Final = 8
"""Batches in one transaction: a page of the database that several of them change is written once."""
USABLE: Final = frozenset({Drift.CURRENT, Drift.BEHIND})
"""States of tables that catch up from their position. In all other states, tables are refilled from the beginning."""


def state_of(connection: sa.Connection, log: Log, name: str) -> tuple[Drift, Position]:
    """Return the state of the tables tracked as `name`, judged by their tag alone, and their position."""
    if not sa.inspect(connection).has_table(TRACKING.name):
        return Drift.MISSING, ORIGIN
    at = tracked(connection, name)
    if at == NOTHING_READ:
        return Drift.MISSING, ORIGIN
    if at.log_id != log.log_id:
        return Drift.OTHER_LOG, at.position
    head = log.head().position
    if at.position > head:
        return Drift.AHEAD, at.position
    if at.digest != log.digest_at(at.position):
        return Drift.DIVERGED, at.position
    return Drift.BEHIND if at.position < head else Drift.CURRENT, at.position


class TrackedTables:
    """Tables derived from a log, with the position that they have read up to.

    Tables of another log or version, and those past its head, are emptied when they are opened.
    """

    name: ClassVar[str]
    """Name and version of the tables. Increase the version when the tables or the code that fills them change."""
    metadata: ClassVar[sa.MetaData]

    def __init__(self, database: ProjectionDatabase, log: Log) -> None:
        self.database, self.log = database, log
        with database.reading() as connection:
            state, _ = state_of(connection, log, self.name)
        if state in USABLE:
            return
        with database.writing() as connection:
            # Check again under the lock: another process may have created and filled them meanwhile.
            state, _ = state_of(connection, log, self.name)
            if state not in USABLE:
                self._start_over(connection)

    @classmethod
    def create_tables(cls, connection: sa.Connection) -> None:
        """Create the tables where they do not exist."""
        cls.metadata.create_all(connection)
        TRACKING.create(connection, checkfirst=True)

    def _start_over(self, connection: sa.Connection) -> None:
        """Create the tables empty, at position 0."""
        self.metadata.drop_all(connection)
        self.create_tables(connection)
        connection.execute(TRACKING.delete().where(TRACKING.c.name == self.name))
        connection.execute(
            TRACKING.insert(),
            {
                "name": self.name,
                "position": ORIGIN,
                "log_id": self.log.log_id,
                "digest": self.log.digest_at(ORIGIN) or b"",
            },
        )


class SqlProjection(TrackedTables, ABC):
    """Tables that are filled from the events of a log. They never show less than they had: they only read on.

    What was forgotten is erased in the transaction that reads its `ContentErased`.
    """

    batch_max: int = BATCH_MAX
    """Events to read and apply in one batch."""

    @abstractmethod
    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Apply a batch of new events, in order. Irrelevant events change nothing."""

    @abstractmethod
    def erase(self, connection: sa.Connection, erased: Sequence[RecordedEvent], *, upto: Position) -> None:
        """Make the rows those that the log gives now up to `upto`: the `ContentErased` events `erased` were read."""

    def position(self) -> Position:
        """Return the last position read."""
        with self.database.reading() as connection:
            return tracked(connection, self.name).position

    @contextmanager
    def current(self) -> Iterator[sa.Connection]:
        """Catch up, and yield a connection for reads, which all see one position: the head at this call or a later one.

        Also where another process empties the tables meanwhile.
        """
        while True:
            reached = self.catch_up()
            with self.database.reading() as connection:
                if tracked(connection, self.name).position >= reached:
                    yield connection
                    return

    def catch_up(self, *, upto: Position | None = None, progress: Progress | None = None) -> Position:
        """Apply the events of the log up to `upto`, by default its head, in order. Return the position reached.

        Each transaction applies a few batches; an error of the log is raised after what was read before it is saved.
        """
        upto = self.log.head().position if upto is None else upto
        start = reached = self.position()
        is_fresh, failed = False, None
        while reached < upto and failed is None:
            with self.database.writing() as connection:
                before = tracked(connection, self.name).position
                # Read under the lock from the beginning, they hold nothing that was erased before.
                is_fresh = is_fresh or before == ORIGIN
                failed = self._read_some(connection, before, upto, is_fresh=is_fresh)
                reached = tracked(connection, self.name).position
            if reached == before:
                break
            tell(progress, reached - start, upto - start)
        if failed is not None:
            raise failed
        if reached > start:
            structured_log.debug(
                "projection.caught_up", name=self.name, after=start, upto=upto, behind_events=upto - start
            )
        return reached

    def rebuild(self, *, upto: Position | None = None, progress: Progress | None = None) -> Position:
        """Rebuild the tables from the log, up to `upto` (by default the head), and return the position reached.

        One transaction: readers see the old tables until the end. It always reaches at least the previous position of
        the tables, because other processes continue from there.
        """
        upto = self.log.head().position if upto is None else upto
        with self.database.writing() as connection:
            state, reached = state_of(connection, self.log, self.name)
            if state in USABLE:
                upto = max(upto, reached)
            self._start_over(connection)
            for events in self.log.read(after=ORIGIN, upto=upto, batch_max=self.batch_max):
                self._apply(connection, events)
                tell(progress, events[-1].position, upto)
            return tracked(connection, self.name).position

    def _read_some(
        self, connection: sa.Connection, after: Position, upto: Position, *, is_fresh: bool
    ) -> Exception | None:
        """Apply the next few batches. Return the error if the log cannot be read on."""
        erased = list[RecordedEvent]()
        batches, failed = self.log.read(after=after, upto=upto, batch_max=self.batch_max), None
        for _ in range(SAVED_TOGETHER):
            try:
                events = next(batches, [])
            except Exception as error:
                failed = error
                break
            if not events:
                break
            self._apply(connection, events)
            after = events[-1].position
            erased += [item for item in events if isinstance(item.event, ContentErased)]
        if erased and not is_fresh:
            self.erase(connection, erased, upto=after)
        return failed

    def _apply(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        self.take(connection, events)
        last = events[-1].position
        track(connection, self.name, Tracked(last, self.log.log_id, self.log.digest_at(last) or b""))


def empty(database: ProjectionDatabase) -> None:
    """Delete all rows of a projection's database, and its position. It is refilled from the log."""
    with database.writing() as connection:
        for table in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql(f'DELETE FROM "{table}"')
