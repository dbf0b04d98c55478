"""The eventsourcing library's own suites, run against our recorders: what it promises, we promise."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import pytest
from eventsourcing import persistence
from eventsourcing.application import Application
from eventsourcing.persistence import EventStore, StoredEvent
from eventsourcing.tests.persistence import (
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    TrackingRecorderTestCase,
)
from eventsourcing.tests.projection import (
    AggregateEventCountersProjectionTestCase,
    EventCountersView,
    EventCountersViewTestCase,
)

from mnemolog.domain.events import SessionEnded
from mnemolog.eventsourcing import SqliteRecorder
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.mapper import EventMapper, StreamEvent
from mnemolog.projections.sql.tracking import SqliteTrackingRecorder
from tests.contract import factory
from tests.support import FakeClock, append, in_thread, once, read_all, start, started, turn, wait_for_queue


class InFolder:
    """Gives a `unittest` case a folder, and closes what was opened in it."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def open_recorder(self) -> SqliteRecorder:
        log = EventLog.open(self.folder / "log", clock=FakeClock(), create=True)
        self.addCleanup(log.close)
        recorder = factory.uuid_recorder(log)
        self.addCleanup(recorder.close)
        self.addCleanup(self.assert_chain_is_whole, log)
        return recorder

    def assert_chain_is_whole(self, log: EventLog) -> None:
        """Each link of the chain follows from the one before: events that are not ours are chained too."""
        from mnemolog.domain.digest import link

        before = log.genesis
        for rows in log.stored_rows(after=0, upto=log.head().position, batch_max=1_000):
            for position, stream, version, topic, state, key, recorded_at, stored in rows:
                before = link(before, position, stream, version, topic, state, key, recorded_at)
                assert before == stored, position

    def open_view(self) -> factory.SqliteEventCounters:
        database = factory.tracking_database(self.folder)
        self.addCleanup(database.engine.dispose)
        return factory.SqliteEventCounters(database)


class TestRecorder(InFolder, ApplicationRecorderTestCase):
    def create_recorder(self) -> SqliteRecorder:
        return self.open_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestNoInterleaving(InFolder, NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> SqliteRecorder:
        return self.open_recorder()


class TestTracking(InFolder, TrackingRecorderTestCase):
    def create_recorder(self) -> SqliteTrackingRecorder:
        return self.open_view()


class TestEventCountersView(InFolder, EventCountersViewTestCase):
    def construct_event_counters_view(self) -> EventCountersView:
        return self.open_view()


class TestProjection(InFolder, AggregateEventCountersProjectionTestCase):
    view_class = factory.SqliteEventCounters
    env: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.env = {"PERSISTENCE_MODULE": factory.__name__, factory.FOLDER: str(self.folder)}
        self.addCleanup(factory.close_views)


# The base cases are abstract: pytest would collect what was imported by name.
del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase, TrackingRecorderTestCase
del AggregateEventCountersProjectionTestCase, EventCountersViewTestCase


def test_an_application_of_the_library_finds_its_aggregates_again(tmp_path):
    """What the library saved through our recorder, a new application on the same file reads back."""
    from eventsourcing.tests.projection import Counter

    env = {"PERSISTENCE_MODULE": factory.__name__, factory.FOLDER: str(tmp_path)}
    application = Application[UUID](env=env)
    counter = Counter("visits")
    counter.increment()
    application.save(counter)
    application.close()

    application = Application[UUID](env=env)
    found = application.repository.get(counter.id)
    application.close()
    assert (found.name, found.count, found.version) == ("visits", 1, 2)


def test_its_event_store_puts_and_gets_our_events(log):
    """`EventStore(EventMapper(), recorder)` round-trips our events under the topics we chose."""
    store = EventStore(EventMapper(log), log.recorder)
    events = [
        StreamEvent("session/s", 1, started(scope="acme/support")),
        StreamEvent("session/s", 2, turn("grüße, 世界 🌍", metadata={"n": [1, None, 2.5]}, said_at=-1)),
        StreamEvent("session/s", 3, SessionEnded(reason="done")),
    ]
    recordings = store.put(events)
    assert [recording.notification.id for recording in recordings] == [1, 2, 3]
    assert list(store.get("session/s")) == events
    assert [stored.topic for stored in log.recorder.select_events("session/s")] == [
        "session.started.v1",
        "turn.recorded.v1",
        "session.ended.v1",
    ]


def test_its_event_store_sees_what_the_log_wrote_and_the_other_way_round(log):
    """There is one log: both doors show the same events."""
    log.transact(start("s"))
    log.transact(append("s", "through the log"))
    store = EventStore(EventMapper(log), log.recorder)
    store.put([StreamEvent("session/s", 3, turn("through the library"))])
    log.transact(append("s", "through the log again"))
    expected = ["through the log", "through the library", "through the log again"]
    assert [item.event.text for item in list(store.get("session/s"))[1:]] == expected
    assert [item.event.text for item in read_all(log)[1:]] == expected


def test_a_version_that_is_taken_is_the_librarys_integrity_error(log):
    """Applications of the library catch its own error, and nothing of the refused list is written."""
    store = EventStore(EventMapper(log), log.recorder)
    store.put([StreamEvent("session/s", 1, started())])
    head = log.head()
    with pytest.raises(persistence.IntegrityError):
        store.put([StreamEvent("session/s", 2, turn()), StreamEvent("session/s", 1, started())])
    assert log.head() == head


def test_a_refused_insert_spares_the_others_of_its_group(log):
    """A taken version is one caller's error, although the group shares one statement and one commit."""
    log.recorder.insert_events([StoredEvent("a", 1, "t", b"")])
    waiting = []

    def fill():
        for name in ("b", "a", "c"):
            insert = lambda name=name: log.recorder.insert_events([StoredEvent(name, 1, "t", b"")])  # noqa: E731
            waiting.append(in_thread(insert))
            wait_for_queue(log, 1 + len(waiting))

    log.transact(once(fill))
    with pytest.raises(persistence.IntegrityError):
        waiting[1].result()
    assert sorted(waiting[0].result() + waiting[2].result()) == [2, 3]
    assert [entry.originator_id for entry in log.recorder.select_notifications(1, 10)] == ["a", "b", "c"]
