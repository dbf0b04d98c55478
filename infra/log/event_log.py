"""The event log of a store: found or created, read in order, appended to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from mnemolog.domain import digest, errors
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.head import Head
from mnemolog.domain.position import NO_STREAM, ORIGIN, Micros, Position, Version
from mnemolog.domain.stream_fold import Evolve, FoldedState, Known, State, fold_stream, nothing_known
from mnemolog.eventsourcing import SqliteRecorder
from mnemolog.infra import sqlite
from mnemolog.infra.keys import keys_file
from mnemolog.infra.keys.encryption import Sealer
from mnemolog.infra.keys.keyring import Keyring
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.sparse import read_sparse
from mnemolog.infra.log.sqlite import integrity, wal_checkpointer
from mnemolog.infra.log.sqlite.log_file import LOG_FILE as LOG_FILE
from mnemolog.infra.log.sqlite.log_file import Identity, find_or_create
from mnemolog.infra.log.sqlite.schema import SELECT_TRIGGERS, forbid_rewriting, altered_triggers
from mnemolog.infra.log.stream_reader import last_turns
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import fork_guard

Result = TypeVar("Result")

_COLUMNS: Final = "position, stream, version, topic, state, key, recorded_at"
_SELECT_RANGE: Final = f"SELECT {_COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
_SELECT_BYTES: Final = (
    "SELECT position, CAST(stream AS BLOB), version, CAST(topic AS BLOB), state, CAST(key AS BLOB), "
    "recorded_at, digest FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_SELECT_STREAM: Final = (
    f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND version > ? AND position <= ? ORDER BY version LIMIT ?"
)


class _Undone(Exception):
    """Ends a rehearsal: what a unit of work has staged is undone when it raises."""


class EventLog:
    """One log file. Safe for many threads and many processes; not to be carried across a fork."""

    def __init__(
        self, path: Path, identity: Identity, recorder: SqliteRecorder, genesis: bytes, codec: EventCodec
    ) -> None:
        self.path, self.identity, self.recorder, self.genesis = path, identity, recorder, genesis
        self._codec, self._writer = codec, recorder.writer
        self._around_append: Callable[[], AbstractContextManager[None]] | None = None
        self._origin, self._closed = fork_guard.Origin(), False

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        create: bool,
        synchronous: sqlite.Synchronous = "FULL",
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        encrypt: bool | None = None,
        identity: Identity | None = None,
    ) -> Self:
        """Open the log in `folder`, creating both when `create` is set and nothing is there.

        What is created is a log of its own, or with `identity` another copy of the log that has it, without its keys.
        A log that is created encrypts its content unless `encrypt` is False. What a log that is there does was
        settled then; `InvalidInput` if it is not what `encrypt` says. Raises `StoreNotFound`, `NotAStore`,
        `StoreNotWritable` or `FormatTooNew`; a folder that is no store is left as it was.
        """
        path = folder / LOG_FILE
        with sqlite.mapped_errors(path, busy_timeout_s=busy_timeout_s):
            identity = find_or_create(folder, clock=clock, create=create, encrypt=encrypt, identity=identity)
            engine = sqlite.create_engine(
                path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, guard=forbid_rewriting
            )
        genesis = digest.genesis(**identity._asdict())
        codec = EventCodec()
        if identity.is_sealed:
            keys = Keyring(folder / keys_file.KEYS_FILE, log_id=identity.log_id, busy_timeout_s=busy_timeout_s)
            codec = EventCodec(Sealer(keys))
        recorder = SqliteRecorder(
            engine, path=path, clock=clock, genesis=genesis, codec=codec, busy_timeout_s=busy_timeout_s
        )
        return cls(path, identity, recorder, genesis, codec)

    @property
    def keyring(self) -> Keyring | None:
        """The keys of its content, None where that is stored plain."""
        return None if self._codec.sealer is None else self._codec.sealer.keyring

    @property
    def busy_timeout_s(self) -> float:
        """How long to wait for who holds a lock of the store, in seconds."""
        return self.recorder.busy_timeout_s

    def epoch(self) -> int:
        """Return the forgetting epoch. What is read after it was sampled holds nothing forgotten up to there."""
        return self.version(FORGETTING_STREAM)

    @property
    def log_id(self) -> str:
        """The random identity this log was created with."""
        return self.identity.log_id

    def close(self) -> None:
        """Finish queued appends and close the file. Appends after this raise `StoreClosed`."""
        if not self._closed and self._origin.is_here:
            self._closed = True
            self.recorder.close()
            if self.keyring is not None:
                self.keyring.close()

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a unit of work alone under the write lock; return its result when it is durable.

        The work may run twice, so it must have no side effects. Raises what the work raises, `LogBusy`,
        `StorageFull`, `StoreNotWritable`, `StoreClosed`, `StoreForked` (nothing written), or `LogWriteFailed`
        (outcome unknown).
        """
        if not self._origin.is_here:
            self._require_usable()
        if self._around_append is None:
            return self._writer.transact(work)
        with self._around_append():
            return self._writer.transact(work)

    def observe(
        self,
        *,
        around_append: Callable[[], AbstractContextManager[None]],
        on_commit: Callable[[float, int], None],
    ) -> None:
        """Enter `around_append()` around every `transact`; call `on_commit(seconds, group_size)` after every group.

        Errors of the append pass through the context manager. Both must be quick and must not raise errors of their
        own.
        """
        self._around_append = around_append
        self._writer.on_commit(on_commit)

    def rehearse(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `transact` would return for `work`, having written nothing. Raises as that does."""
        results: list[Result] = []

        def undone(tx: Transaction) -> None:
            results.append(work(tx))
            raise _Undone

        with suppress(_Undone):
            self.transact(undone)
        return results[-1]

    def head(self) -> Head:
        """Return the last committed position and its digest; position 0 and digest(0) for an empty log."""
        with self._reading() as driver:
            found = driver.execute("SELECT position, digest FROM events ORDER BY position DESC LIMIT 1").fetchone()
        if found is None:
            return Head(position=ORIGIN, digest=self.genesis.hex())
        return Head(position=Position(found[0]), digest=_digest(found[1], position=found[0]).hex())

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
            yield self._codec.recorded_events(rows)

    def stored_rows(self, *, after: Position, upto: Position, batch_max: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the stored bytes of `(after, upto]` undecoded: every column of the table in its order."""
        return self._pages(_SELECT_BYTES, after=after, upto=upto, batch_max=batch_max)

    def encode(self, stream: str, version: int, event: Event) -> bytes:
        """Return the bytes of an event as they are to be stored. Raises `InvalidInput`, `KeysMissing`."""
        with self._reading() as driver:
            return self._codec.encode(stream, version, event, driver.execute)

    def decode(self, position: int, stream: str, version: int, topic: str, state: bytes) -> Event:
        """Return the event of stored bytes. Raises `UndecodableEvent`, `LogDamaged`, `KeysMissing`."""
        return self._codec.decode(stream, version, topic, state, position=position)

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
            yield self._codec.recorded_events(rows)
            after = Version(rows[-1][2])

    def first_event(self, stream: str) -> RecordedEvent | None:
        """Return the event that a stream begins with, None if nothing was appended to it."""
        with self._reading() as driver:
            row = driver.execute(
                f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND version = 1", (stream,)
            ).fetchone()
        return None if row is None else self._codec.recorded_events([row])[0]

    def last_event(self, stream: str) -> RecordedEvent | None:
        """Return the event that a stream ends with, None if nothing was appended to it."""
        query = f"SELECT {_COLUMNS} FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1"
        return next(iter(self._codec.recorded_events(self.ask(query, (stream,)))), None)

    def last_turns(self, stream: str, *, after: Position, upto: Position, limit: int) -> list[RecordedEvent]:
        """Return the last `limit` turns of a stream in `(after, upto]`, newest first, without those forgotten."""
        with self._reading() as driver:
            latest = _version(driver, stream)
            return last_turns(driver.execute, self._codec, stream, after=after, upto=upto, latest=latest, limit=limit)

    def event_at(self, position: Position) -> RecordedEvent | None:
        """Return the event at a position, None if there is none."""
        query = f"SELECT {_COLUMNS} FROM events WHERE position = ?"
        return next(iter(self._codec.recorded_events(self.ask(query, (position,)))), None)

    def position_of(self, stream: str, key: str) -> Position | None:
        """Return where the event of `stream` lies that carries the idempotency key, forgotten or not; None for none."""
        found = self.ask("SELECT position FROM events WHERE stream = ? AND key = ?", (stream, key))
        return Position(found[0][0]) if found else None

    def ask(self, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds: where something lies, nothing of what was said."""
        with self._reading() as driver:
            found: list[tuple[Any, ...]] = driver.execute(query, parameters).fetchall()
        return found

    def fold(
        self,
        stream: str,
        evolve: Evolve[State],
        *,
        upto: Position | None = None,
        known: Known[State] = nothing_known,
    ) -> FoldedState[State]:
        """Return the state of `stream`, now or as of position `upto`. `evolve` must not depend on turns.

        `known` may know a state to begin with, which saves reading what is before it.
        """

        with self._reading() as driver:

            def read(stream: str, after: Version, upto: Position | None) -> list[RecordedEvent]:
                return read_sparse(driver.execute, self._codec, stream, after=after, upto=upto)

            epoch = _version(driver, FORGETTING_STREAM)
            return fold_stream(stream, upto, evolve, read=read, known=known, epoch=epoch)

    def version(self, stream: str) -> Version:
        """Return the version of `stream`, 0 if nothing was appended to it."""
        with self._reading() as driver:
            return _version(driver, stream)

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
            return altered_triggers(dict(driver.execute(SELECT_TRIGGERS)))

    def contradictions(self) -> list[str]:
        """Return what is wrong with the file beside what its rows say. Reads all of it in one transaction."""
        with self._reading() as driver:
            found = integrity.contradictions(driver)
        if sqlite.is_marked_read_only(self.path):
            found.append(f"{sqlite.MARKED_READ_ONLY}; {sqlite.REMEDY_FOR_MARK}")
        return found

    def size_bytes(self) -> int:
        """Return the bytes of the log's pages, the WAL not counted."""
        with self._reading() as driver:
            pages = driver.execute("PRAGMA page_count").fetchone()[0]
            return int(pages * driver.execute("PRAGMA page_size").fetchone()[0])

    def checkpointed(self) -> wal_checkpointer.Checkpointed:
        """Return how much of the write-ahead log is in the file's pages already. Changes nothing."""
        with self._reading() as driver:
            return wal_checkpointer.checkpoint(driver, "NOOP")[1]

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        self._require_usable()
        with sqlite.mapped_errors(self.path), self.recorder.engine.connect() as connection:
            yield connection.connection.driver_connection

    def _require_usable(self) -> None:
        if self._closed:
            raise errors.StoreClosed
        self._origin.require_here()


def _digest(stored: object, *, position: int) -> bytes:
    """Return a digest as it is stored, unless damage has made something else of it."""
    if not isinstance(stored, bytes):
        raise errors.LogDamaged("its digest is damaged", position=position)
    return stored


def _version(driver: Any, stream: str) -> Version:
    found = driver.execute("SELECT max(version) FROM events WHERE stream = ?", (stream,)).fetchone()[0]
    return NO_STREAM if found is None else Version(found)
