"""The event log of a store: found or created, read in order, appended to."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from pysqlite3 import dbapi2

from mnemolog.domain import digest, errors
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.folding import Evolve, Folded, Known, State, fold_stream, nothing_known
from mnemolog.domain.position import NO_STREAM, ORIGIN, Micros, Position, Version
from mnemolog.infra import file_check, forks, sqlite
from mnemolog.infra.mapper import decode, recorded_event
from mnemolog.infra.recorder import SqliteRecorder
from mnemolog.infra.schema import (
    APPLICATION_ID,
    LOG_FORMAT,
    SELECT_TRIGGERS,
    create_schema,
    forbid_rewriting,
    unlike_ours,
)
from mnemolog.infra.sparse import read_sparse
from mnemolog.infra.transaction import Transaction

Result = TypeVar("Result")

LOG_FILE: Final = "log.db"

_COLUMNS: Final = "position, stream, version, topic, state, key, recorded_at"
_SELECT_RANGE: Final = f"SELECT {_COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
_SELECT_BYTES: Final = (
    "SELECT position, CAST(stream AS BLOB), version, CAST(topic AS BLOB), state, CAST(key AS BLOB), "
    "recorded_at, digest FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_SELECT_STREAM: Final = (
    f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND version > ? AND position <= ? ORDER BY version LIMIT ?"
)


class Transact(Protocol):
    """Runs a unit of work under the write lock."""

    def __call__(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `work` returns, when what it staged is durable."""
        ...


class Identity(NamedTuple):
    """What a log says of itself."""

    log_id: str
    log_format: int
    created_at: Micros


class LogHead(NamedTuple):
    """The end of the log."""

    position: Position
    digest: bytes


class _Undone(Exception):
    """Ends a rehearsal: what a unit of work has staged is undone when it raises."""


class EventLog:
    """One log file. Safe for many threads and many processes; not to be carried across a fork."""

    def __init__(self, path: Path, identity: Identity, recorder: SqliteRecorder, genesis: bytes) -> None:
        self.path, self.identity, self.recorder, self.genesis = path, identity, recorder, genesis
        self.transact: Transact = recorder.transact
        """Run a unit of work alone under the write lock; return its result when it is durable.

        Raises what the work raises, `LogBusy`, `StorageFull`, `StoreNotWritable`, `StoreClosed`,
        `StoreForked` (nothing written), or `LogWriteFailed` (outcome unknown).
        """
        self._origin, self._closed = forks.Origin(), False
        forks.watch(self)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        create: bool,
        synchronous: sqlite.Synchronous = "FULL",
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        identity: Identity | None = None,
    ) -> Self:
        """Open the log in `folder`, creating both when `create` is set and nothing is there.

        What is created is a log of its own, or with `identity` another copy of the log that has it.
        Raises `StoreNotFound`, `NotAStore`, `StoreNotWritable` or `FormatTooNew`; a folder that is no
        store is left as it was.
        """
        path = folder / LOG_FILE
        with sqlite.mapped_errors(path, busy_timeout_s=busy_timeout_s):
            identity = _find(folder) or _create(folder, clock=clock, create=create, identity=identity)
            engine = sqlite.create_engine(
                path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, guard=forbid_rewriting
            )
        genesis = digest.genesis(**identity._asdict())
        recorder = SqliteRecorder(engine, path=path, clock=clock, genesis=genesis, busy_timeout_s=busy_timeout_s)
        return cls(path, identity, recorder, genesis)

    @property
    def log_id(self) -> str:
        """The random identity this log was created with."""
        return self.identity.log_id

    def close(self) -> None:
        """Finish queued appends and close the file. Appends after this raise `StoreClosed`."""
        if not self._closed and self._origin.is_here:
            self._closed = True
            self.recorder.close()

    def forked(self) -> None:
        """Refuse appends as well from now on: they are not asked where they are made."""
        self.transact = self._refuse

    def rehearse(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `transact` would return for `work`, having written nothing. Raises as that does."""
        results: list[Result] = []

        def undone(tx: Transaction) -> None:
            results.append(work(tx))
            raise _Undone

        with suppress(_Undone):
            self.transact(undone)
        return results[-1]

    def head(self) -> LogHead:
        """Return the last committed position and its digest; position 0 and digest(0) for an empty log."""
        with self._reading() as driver:
            found = driver.execute("SELECT position, digest FROM events ORDER BY position DESC LIMIT 1").fetchone()
        if found is None:
            return LogHead(ORIGIN, self.genesis)
        return LogHead(Position(found[0]), _digest(found[1], position=found[0]))

    def last_given(self) -> Position:
        """Return the highest position ever given, which outlives the row that got it."""
        with self._reading() as driver:
            found = driver.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return ORIGIN if found is None else Position(found[0])

    def digest_at(self, position: Position) -> bytes | None:
        """Return the stored digest at exactly `position`, digest(0) at 0, None where no event is."""
        if position == ORIGIN:
            return self.genesis
        with self._reading() as driver:
            found = driver.execute("SELECT digest FROM events WHERE position = ?", (position,)).fetchone()
        return None if found is None else _digest(found[0], position=position)

    def read(self, *, after: Position, upto: Position, batch_max: int = 500) -> Iterator[list[RecordedEvent]]:
        """Yield events of `(after, upto]` in order, in batches of at most `batch_max`.

        Raises `UndecodableEvent`, naming the position.
        """
        for rows in self._pages(_SELECT_RANGE, after=after, upto=upto, batch_max=batch_max):
            yield [recorded_event(*row) for row in rows]

    def stored_rows(self, *, after: Position, upto: Position, batch_max: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the stored bytes of `(after, upto]` undecoded: every column of the table in its order."""
        return self._pages(_SELECT_BYTES, after=after, upto=upto, batch_max=batch_max)

    def decode(self, position: int, stream: str, version: int, topic: str, state: bytes) -> Event:
        """Return the event of stored bytes. Raises `UndecodableEvent`."""
        return decode(topic, state, position=position)

    def _pages(self, query: str, *, after: Position, upto: Position, batch_max: int) -> Iterator[list[tuple[Any, ...]]]:
        # Each page is a read transaction of its own, so that a long reading does not hold the WAL.
        while after < upto:
            with self._reading() as driver:
                rows = driver.execute(query, (after, upto, batch_max)).fetchall()
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    def read_stream(
        self, stream: str, *, after: Version = NO_STREAM, upto: Position, batch_max: int = 500
    ) -> Iterator[list[RecordedEvent]]:
        """Yield events of one stream behind version `after`, up to position `upto`, in batches."""
        while True:
            with self._reading() as driver:
                rows = driver.execute(_SELECT_STREAM, (stream, after, upto, batch_max)).fetchall()
            if not rows:
                return
            yield [recorded_event(*row) for row in rows]
            after = Version(rows[-1][2])

    def first_event(self, stream: str) -> RecordedEvent | None:
        """Return the event that a stream begins with, None if nothing was appended to it."""
        with self._reading() as driver:
            row = driver.execute(
                f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND version = 1", (stream,)
            ).fetchone()
        return None if row is None else recorded_event(*row)

    def fold(
        self,
        stream: str,
        evolve: Evolve[State],
        *,
        upto: Position | None = None,
        known: Known[State] = nothing_known,
    ) -> Folded[State]:
        """Return the state of `stream`, now or as of position `upto`. `evolve` must not depend on turns.

        `known` may know a state to begin with, which saves reading what is before it.
        """

        def read(stream: str, after: Version, upto: Position | None) -> list[RecordedEvent]:
            with self._reading() as driver:
                return read_sparse(driver.execute, stream, after=after, upto=upto)

        return fold_stream(stream, upto, evolve, read=read, known=known)

    def version(self, stream: str) -> Version:
        """Return the version of `stream`, 0 if nothing was appended to it."""
        with self._reading() as driver:
            found = driver.execute("SELECT max(version) FROM events WHERE stream = ?", (stream,)).fetchone()[0]
        return NO_STREAM if found is None else Version(found)

    def recorded_at(self, position: Position) -> Micros:
        """Return when the event at `position`, or the last one before it, was recorded."""
        query = "SELECT recorded_at FROM events WHERE position <= ? ORDER BY position DESC LIMIT 1"
        with self._reading() as driver:
            found = driver.execute(query, (position,)).fetchone()
        return self.identity.created_at if found is None else Micros(found[0])

    def count(self, *, topic: str, after: Position, upto: Position) -> int:
        """Return how many events of `topic` lie in `(after, upto]`."""
        query = "SELECT count(*) FROM events WHERE topic = ? AND position > ? AND position <= ?"
        with self._reading() as driver:
            return int(driver.execute(query, (topic, after, upto)).fetchone()[0])

    def missing_triggers(self) -> list[str]:
        """Return the append-only triggers that this file should have and has not."""
        with self._reading() as driver:
            return unlike_ours(dict(driver.execute(SELECT_TRIGGERS)))

    def contradictions(self) -> list[str]:
        """Return what is wrong with the file beside what its rows say. Reads all of it in one transaction."""
        with self._reading() as driver:
            return file_check.contradictions(driver)

    def size_bytes(self) -> int:
        """Return the bytes of the log's pages, the WAL not counted."""
        with self._reading() as driver:
            pages = driver.execute("PRAGMA page_count").fetchone()[0]
            return int(pages * driver.execute("PRAGMA page_size").fetchone()[0])

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        self._require_usable()
        with sqlite.mapped_errors(self.path), self.recorder.engine.connect() as connection:
            yield connection.connection.driver_connection

    def _require_usable(self) -> None:
        if self._closed:
            raise errors.StoreClosed
        self._origin.require_here()

    def _refuse(self, work: Callable[[Transaction], Result]) -> Result:
        self._require_usable()
        raise AssertionError("unreachable")


def _digest(stored: object, *, position: int) -> bytes:
    """Return a digest as it is stored, unless damage has made something else of it."""
    if not isinstance(stored, bytes):
        raise errors.LogDamaged("its digest is damaged", position=position)
    return stored


def _find(folder: Path) -> Identity | None:
    """Return the identity of the log in `folder`, or None where a new one may be created.

    Looks through a connection that changes nothing: the file may be somebody else's database.
    """
    path = folder / LOG_FILE
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise errors.NotAStore(folder, "it is a file; a store is a folder")
    if not path.exists():
        if any(folder.iterdir()):
            raise errors.NotAStore(folder, f"it holds files, but no {LOG_FILE}")
        return None
    connection = dbapi2.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, isolation_level=None)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if not tables and application_id == 0:
            return None  # A creation that was killed before its commit.
        if application_id != APPLICATION_ID or "log" not in tables:
            raise errors.NotAStore(folder, f"{LOG_FILE} is the database of another program")
        row = connection.execute("SELECT log_id, format, created_at FROM log").fetchone()
    except dbapi2.DatabaseError as error:
        if "not a database" in str(error):
            raise errors.NotAStore(folder, f"{LOG_FILE} is no SQLite database") from error
        raise
    finally:
        connection.close()
    if row is None or [type(value) for value in row] != [str, int, int]:
        raise errors.LogDamaged(f"{path}: the log has lost its identity")
    if row[1] > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=row[1], supported=LOG_FORMAT)
    return Identity(row[0], row[1], Micros(row[2]))


def _create(folder: Path, *, clock: Clock, create: bool, identity: Identity | None) -> Identity:
    if not create:
        raise errors.StoreNotFound(folder)
    made = identity or Identity(secrets.token_hex(16), LOG_FORMAT, clock.now())
    if made.log_format > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=made.log_format, supported=LOG_FORMAT)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.StoreNotWritable(folder, error.strerror or str(error)) from error
    engine = sqlite.create_engine(folder / LOG_FILE, synchronous="FULL", create=True)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            if not sa.inspect(connection).has_table("log"):  # Another process may have been quicker.
                create_schema(connection, **made._asdict())
            connection.exec_driver_sql("COMMIT")
    finally:
        engine.dispose()
    _sync_folder(folder)
    found = _find(folder)
    if found is None:
        raise errors.StoreNotWritable(folder, "the log was not created")
    return found


def _sync_folder(folder: Path) -> None:
    """Make the new file's name durable, as its content already is."""
    for path in (folder, folder.absolute().parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
