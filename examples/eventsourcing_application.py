"""An application of the eventsourcing library in the log of a store: aggregate, snapshot, projection, verification.

python examples/eventsourcing_application.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, DomainEventProtocol, event
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner

from mnemolog import MemoryStore
from mnemolog.eventsourcing import SqliteTrackingRecorder
from mnemolog.projections.sql.database import ProjectionDatabase


class Trip(Aggregate):
    """A trip that is being planned."""

    @event("Planned")
    def __init__(self, to: str) -> None:
        self.to, self.stops = to, list[str]()

    @event("StopAdded")
    def add_stop(self, place: str) -> None:
        """Add a stop."""
        self.stops.append(place)


class Trips(Application[UUID]):
    """Plans trips. Every second event of a trip takes a snapshot."""

    snapshotting_intervals = {Trip: 2}  # noqa: RUF012

    def plan(self, to: str, *stops: str) -> UUID:
        """Plan a trip and return its id."""
        trip = Trip(to)
        for stop in stops:
            trip.add_stop(stop)
        self.save(trip)
        return trip.id


class Stops(SqliteTrackingRecorder):
    """A view: how often each place is a stop."""

    def __init__(self, database: ProjectionDatabase) -> None:
        super().__init__(database)
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS stops (place TEXT PRIMARY KEY, n INTEGER)")

    def count(self, place: str, tracking: Tracking) -> None:
        """Count a stop and the position of its event in one transaction."""
        with self.database.writing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO stops VALUES (?, 1) ON CONFLICT (place) DO UPDATE SET n = n + 1", (place,)
            )
            self.track(connection, tracking)

    def of(self, place: str) -> int:
        """Return how often a place is a stop."""
        with self.database.reading() as connection:
            return connection.execute(sa.text("SELECT n FROM stops WHERE place = :p"), {"p": place}).scalar() or 0


class CountStops(Projection[Stops]):
    """Derives the view from the events of the application."""

    @singledispatchmethod
    def process_event(self, domain_event: DomainEventProtocol[UUID], tracking: Tracking) -> None:
        """Record that an event which is no stop was read."""
        self.view.insert_tracking(tracking)

    @process_event.register
    def _(self, domain_event: Trip.StopAdded, tracking: Tracking) -> None:
        self.view.count(domain_event.place, tracking)


with tempfile.TemporaryDirectory() as root:
    folder = Path(root) / "memory"
    env = {"PERSISTENCE_MODULE": "mnemolog.eventsourcing", "MNEMOLOG_FOLDER": str(folder)}

    with MemoryStore.open(folder, model=None) as store:  # Agents and the application share the log.
        store.session("trip").record("user", "Plan me a trip to Porto, by way of Coimbra.")

    with ProjectionRunner(application_class=Trips, view_class=Stops, projection_class=CountStops, env=env) as runner:
        trips = runner.app
        porto = trips.plan("Porto", "Coimbra", "Aveiro")
        trips.plan("Braga", "Coimbra")
        runner.wait(trips.recorder.max_notification_id(), timeout=10)
        print("trips by way of Coimbra:", runner.view.of("Coimbra"))
        print("snapshots of the first trip:", len(list(trips.snapshots.get(porto))))
        print("its stops, from the snapshot and the events after it:", trips.repository.get(porto).stops)
    runner.view.close()

    with MemoryStore.open(folder, model=None) as store:
        print("what the user said is still there:", store.recall("Porto", mode="text").hits[0].text)
        audit = store.verify()
        print(f"{audit.events} events in one chain, sound: {audit.sound}")
