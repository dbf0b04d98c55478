"""Base classes of projections in SQL tables: the views, and the tables of adapters.

Position and rows are saved in one transaction. Tables of another log or another version are emptied and refilled when
they are opened; the version is part of the name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final

import sqlalchemy as sa

from mnemolog.domain import structured_log
from mnemolog.domain.events import ContentErased, RecordedEvent
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log, Progress, tell
from mnemolog.projections.quarantine import Drift
from mnemolog.projections.sql.database import NOTHING_READ, TRACKING, ProjectionDatabase, Tracked, track, tracked

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
