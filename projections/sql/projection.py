"""A reading of the log in tables of its own: what adapters with events of their own build on.

Position and rows are saved in one transaction. Made anew when opened on a file that another log, or another version of
the tables, has filled; so the name carries a version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import sqlalchemy as sa

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.catch_up import BATCH_MAX
from mnemolog.projections.ports import Log
from mnemolog.projections.sql import tracking
from mnemolog.projections.sql.conversation_views import ViewsState, standing
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.tracking import Tracked


class Tables(ABC):
    """Tables that follow a log. `take` says what an event does to them."""

    name: str
    """What it is called in tracking, with the version of its tables: raise that when they change."""
    metadata: sa.MetaData
    batch_max: int = BATCH_MAX
    """Events that are read, and taken in, together."""

    def __init__(self, database: ProjectionDatabase, log: Log) -> None:
        self.database, self.log = database, log
        with database.reading() as connection:
            state, _ = standing(connection, log, self.name)
        if state is ViewsState.USABLE:
            return
        with database.writing() as connection:
            # Asked again under the lock: another process may have begun them anew in between, and filled them.
            state, _ = standing(connection, log, self.name)
            if state is not ViewsState.USABLE:
                self._start_over(connection)

    @abstractmethod
    def take(self, connection: sa.Connection, recorded: RecordedEvent) -> None:
        """Change the tables by one event. Events that mean nothing here change nothing."""

    def position(self) -> Position:
        """How far it has read."""
        with self.database.reading() as connection:
            return tracking.tracked(connection, self.name).position

    def apply(self, events: Sequence[RecordedEvent]) -> None:
        """Take in events, in order, and save them with their last position; those it has seen change nothing."""
        with self.database.writing() as connection:
            self._apply(connection, events)

    def catch_up(self) -> Position:
        """Read on to the head of the log. Return where that is."""
        head, start, epoch = self.log.head().position, self.position(), self.log.epoch()
        while start < head:
            for events in self.log.read(after=start, upto=head, batch_max=self.batch_max):
                with self.database.writing() as connection:
                    if tracking.tracked(connection, self.name).position < start or self.log.epoch() != epoch:
                        break  # Somebody has emptied them meanwhile, or will, of what these events may still hold.
                    self._apply(connection, events)
                start = events[-1].position
            start, epoch = self.position(), self.log.epoch()
        return start

    def rebuild(self) -> Position:
        """Make everything anew from the log, in one transaction: readers see the old until the end."""
        with self.database.writing() as connection:
            self._start_over(connection)
            for events in self.log.read(after=ORIGIN, upto=self.log.head().position, batch_max=self.batch_max):
                self._apply(connection, events)
        return self.position()

    def _apply(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        seen = tracking.tracked(connection, self.name).position
        fresh = [event for event in events if event.position > seen]
        if not fresh:
            return
        for recorded in fresh:
            self.take(connection, recorded)
        last = fresh[-1].position
        digest = self.log.digest_at(last) or b""
        tracking.track(connection, self.name, Tracked(last, self.log.log_id, digest))

    def _start_over(self, connection: sa.Connection) -> None:
        self.metadata.drop_all(connection)
        self.metadata.create_all(connection)
        tracking.TRACKING.create(connection, checkfirst=True)
        connection.execute(tracking.TRACKING.delete().where(tracking.TRACKING.c.name == self.name))
        connection.execute(
            tracking.TRACKING.insert(),
            {
                "name": self.name,
                "position": ORIGIN,
                "log_id": self.log.log_id,
                "digest": self.log.digest_at(ORIGIN) or b"",
            },
        )


def empty(database: ProjectionDatabase) -> None:
    """Delete all rows of a file of such tables, with how far they have read: they read the log anew."""
    with database.writing() as connection:
        for table in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql(f'DELETE FROM "{table}"')
