"""An eventsourcing persistence module over our recorders, for that library's own suites.

`PERSISTENCE_MODULE=tests.contract.factory` selects it, `MNEMOLOG_FOLDER` says where the files lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    ProcessRecorder,
    Tracking,
)
from eventsourcing.tests.projection import EventCountersView

from mnemolog.eventsourcing import SqliteRecorder
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.tracking import SqliteTrackingRecorder
from tests.support import FakeClock

FOLDER = "MNEMOLOG_FOLDER"


def uuid_recorder(log: EventLog) -> SqliteRecorder:
    """A recorder on the file of `log` that hands out UUIDs, as applications of the library expect."""
    return SqliteRecorder(
        log.recorder.engine,
        path=log.path,
        clock=FakeClock(),
        genesis=log.genesis,
        originator_id_type="uuid",
    )


def tracking_database(folder: Path) -> ProjectionDatabase:
    """A database for a view, in a file of its own."""
    path = folder / "view.db"
    return ProjectionDatabase(sqlite.create_engine(path, synchronous="NORMAL", create=True), path)


class Factory(InfrastructureFactory[SqliteTrackingRecorder]):
    """Makes the recorders that `ProjectionRunner` asks for."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._folder = Path(str(self.env.get(FOLDER)))
        self._log: EventLog | None = None
        self._recorder: SqliteRecorder | None = None

    def application_recorder(self) -> ApplicationRecorder:
        self._log = EventLog.open(self._folder / "log", clock=FakeClock(), create=True)
        self._recorder = uuid_recorder(self._log)
        return self._recorder

    def tracking_recorder(
        self, tracking_recorder_class: type[SqliteTrackingRecorder] | None = None
    ) -> SqliteTrackingRecorder:
        made = (tracking_recorder_class or SqliteTrackingRecorder)(tracking_database(self._folder))
        _views.append(made)
        return made

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        raise NotImplementedError

    def process_recorder(self) -> ProcessRecorder:
        raise NotImplementedError

    def close(self) -> None:
        if self._recorder is not None and self._log is not None:
            self._recorder.close()
            self._log.close()


_views: list[SqliteTrackingRecorder] = []


def close_views() -> None:
    """Close the files of the views that were made: the runner leaves that to who made them."""
    while _views:
        _views.pop().database.engine.dispose()


class SqliteEventCounters(SqliteTrackingRecorder, EventCountersView):
    """Counts events in a table, in one transaction with the position."""

    def __init__(self, database: ProjectionDatabase) -> None:
        super().__init__(database)
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
