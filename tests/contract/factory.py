"""A view for the eventsourcing library's own suites."""

from pathlib import Path

import sqlalchemy as sa
from eventsourcing.persistence import Tracking
from eventsourcing.tests.projection import EventCountersView

from mnemolog.eventsourcing import SqliteTrackingRecorder
from mnemolog.infra import sqlite
from mnemolog.projections.sql.database import ProjectionDatabase

_views: list[SqliteTrackingRecorder] = []


def tracking_database(folder: Path) -> ProjectionDatabase:
    """A database for a view, in a file of its own."""
    path = folder / "view.db"
    return ProjectionDatabase(sqlite.create_engine(path, synchronous="NORMAL", create=True), path)


def close_views() -> None:
    """Close the files of the views that were made: the runner does not."""
    while _views:
        _views.pop().close()


class SqliteEventCounters(SqliteTrackingRecorder, EventCountersView):
    """Counts events in a table, in one transaction with the position."""

    def __init__(self, database: ProjectionDatabase) -> None:
        super().__init__(database)
        _views.append(self)
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, n INTEGER)")

    def get_created_event_counter(self) -> int:
        return self._count("created")

    def get_subsequent_event_counter(self) -> int:
        return self._count("subsequent")

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self._increment("created", tracking)

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self._increment("subsequent", tracking)

    def _count(self, name: str) -> int:
        with self.database.reading() as connection:
            return connection.execute(sa.text("SELECT n FROM counters WHERE name = :n"), {"n": name}).scalar() or 0

    def _increment(self, name: str, tracking: Tracking) -> None:
        with self.database.writing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO counters (name, n) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1", (name,)
            )
            self.track(connection, tracking)
