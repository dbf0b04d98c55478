"""The eventsourcing library's own suites, run against our recorders: what it promises, we promise."""

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)
from eventsourcing.tests.projection import (
    AggregateEventCountersProjectionTestCase,
    EventCountersView,
    EventCountersViewTestCase,
)

from mnemolog.eventsourcing import (
    LogAggregateRecorder,
    LogApplicationRecorder,
    LogProcessRecorder,
    SqliteTrackingRecorder,
    stream_prefix,
)
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.projections.history.verify import verify
from tests.contract import factory
from tests.postgres import put_log_in_postgres
from tests.support import FakeClock


class InFolder:
    """Gives a `unittest` case a folder, and closes what was opened in it."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def open_log(self) -> EventLog:
        log = open_log(self.folder / "log", clock=FakeClock(), create=True)
        self.addCleanup(log.close)
        self.addCleanup(self.assert_sound, log)
        return log

    def open_recorder(self) -> LogApplicationRecorder:
        return LogApplicationRecorder(self.open_log(), prefix=stream_prefix("events", "Suite"))

    def assert_sound(self, log: EventLog) -> None:
        """Events of another library are chained and verified like ours."""
        assert verify(log).findings == ()

    def open_view(self) -> factory.SqliteEventCounters:
        database = factory.tracking_database(self.folder)
        self.addCleanup(database.engine.dispose)
        return factory.SqliteEventCounters(database)


class InPostgres(InFolder):
    """The same, with the log in PostgreSQL."""

    @pytest.fixture(autouse=True)
    def server(self, postgres_url) -> None:
        self.url = postgres_url

    def setUp(self) -> None:
        super().setUp()
        put_log_in_postgres(self.folder / "log", self.url)


class TestRecorder(InFolder, ApplicationRecorderTestCase):
    def create_recorder(self) -> LogApplicationRecorder:
        return self.open_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestAggregateRecorder(InFolder, AggregateRecorderTestCase):
    def create_recorder(self) -> LogAggregateRecorder:
        return LogAggregateRecorder(self.open_log(), prefix=stream_prefix("snapshots", "Suite"))


class TestProcessRecorder(InFolder, ProcessRecorderTestCase):
    def create_recorder(self) -> LogProcessRecorder:
        return LogProcessRecorder(self.open_log(), application="Suite")


class TestNoInterleaving(InFolder, NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> LogApplicationRecorder:
        return self.open_recorder()


class TestTracking(InFolder, TrackingRecorderTestCase):
    def create_recorder(self) -> SqliteTrackingRecorder:
        return self.open_view()


class TestRecorderInPostgres(InPostgres, TestRecorder):
    pass


class TestProcessRecorderInPostgres(InPostgres, TestProcessRecorder):
    pass


class TestNoInterleavingInPostgres(InPostgres, TestNoInterleaving):
    pass


class TestEventCountersView(InFolder, EventCountersViewTestCase):
    def construct_event_counters_view(self) -> EventCountersView:
        return self.open_view()


class TestProjection(InFolder, AggregateEventCountersProjectionTestCase):
    view_class = factory.SqliteEventCounters
    env: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.env = {"PERSISTENCE_MODULE": "mnemolog.eventsourcing", "MNEMOLOG_FOLDER": str(self.folder)}
        self.addCleanup(factory.close_views)


# The base cases are abstract: pytest would collect what was imported by name.
del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase, TrackingRecorderTestCase
del AggregateRecorderTestCase, ProcessRecorderTestCase
del AggregateEventCountersProjectionTestCase, EventCountersViewTestCase
