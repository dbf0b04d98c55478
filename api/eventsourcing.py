"""A persistence module for the eventsourcing library: `PERSISTENCE_MODULE=mnemolog.eventsourcing`.

Applications of that library keep their events in the log of a store, beside what agents said there: in one order
and one digest chain, verified and backed up together (docs/eventsourcing.md). Environment variables:

MNEMOLOG_FOLDER        the store; created if it does not exist
MNEMOLOG_VIEWS_FOLDER  where views of `ProjectionRunner` lie; `eventsourcing/` in the store by default
ORIGINATOR_ID_TYPE     `uuid` (default) or `text`: the type of aggregate ids, as in the library's own modules

Streams are named `eventsourcing.KIND/APPLICATION/ID`, where KIND is `events`, `snapshots` or `tracking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, cast
from uuid import UUID

import sqlalchemy as sa
from eventsourcing import persistence
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ListenNotifySubscription,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.utils import resolve_topic

from mnemolog.domain import errors
from mnemolog.domain.events import FOREIGN_STREAMS
from mnemolog.domain.values import Position
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path, make_folder
from mnemolog.projections.sql.database import METADATA, ProjectionDatabase, Tracked, track, tracked

IdType = Literal["uuid", "text"]

FOLDER: Final = "MNEMOLOG_FOLDER"
VIEWS_FOLDER: Final = "MNEMOLOG_VIEWS_FOLDER"
ORIGINATOR_ID_TYPE: Final = "ORIGINATOR_ID_TYPE"

_TRACKING_TOPIC: Final = "eventsourcing.tracking.v1"

__all__ = [
    "Factory",
    "IdType",
    "LogAggregateRecorder",
    "LogApplicationRecorder",
    "LogProcessRecorder",
    "LogSubscription",
    "SqliteTrackingRecorder",
    "stream_prefix",
]


def __dir__() -> list[str]:
    return __all__


def stream_prefix(kind: str, application: str) -> str:
    """Return how the streams of an application begin. Raises `InfrastructureFactoryError` for a name with a slash."""
    if not application or "/" in application:
        raise InfrastructureFactoryError(f"{application!r} cannot name an application in a log; use a name without '/'")
    return f"{FOREIGN_STREAMS}{kind}/{application}/"


class LogAggregateRecorder(AggregateRecorder):
    """Stores events of aggregates, or their snapshots, in the streams that begin with `prefix`.

    Versions of a stream of the log never skip; those of snapshots do. Where the two differ, the library's version is
    the idempotency key of the event. Errors other than the library's `IntegrityError` are mnemolog's: `LogBusy`,
    `StorageFull`, `StoreClosed` and the rest of `mnemolog.errors`.
    """

    def __init__(self, log: EventLog, *, prefix: str = "", id_type: IdType = "uuid") -> None:
        self.log = log
        self._prefix = prefix
        self._id_type = id_type

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append all of `stored_events` or none. Raises `IntegrityError` for a version that is taken."""
        if stored_events:
            self.log.appends.transact(partial(self._append, stored_events))
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return what was stored of one aggregate with versions in `(gt, lte]`."""
        stream = self._stream(originator_id)
        if not self.log.keys(stream):
            rows = self.log.stored_versions(stream, after=gt, upto=lte, descending=desc, limit=limit)
            return [StoredEvent(originator_id, *row[2:5]) for row in rows]
        rows = self.log.stored_versions(stream)
        found = (StoredEvent(originator_id, int(key or version), *stored) for _, _, version, *stored, key, _ in rows)
        chosen = (
            item
            for item in sorted(found, key=attrgetter("originator_version"), reverse=desc)
            if (gt is None or item.originator_version > gt) and (lte is None or item.originator_version <= lte)
        )
        return list(islice(chosen, limit))

    def _append(self, stored_events: Sequence[StoredEvent], tx: Transaction) -> list[Position]:
        positions = []
        new: dict[str, set[int]] = {}
        """The versions of streams that begin here: no query is needed for each."""
        for stored in stored_events:
            stream, version = self._stream(stored.originator_id), stored.originator_version
            last = tx.version(stream)
            if last == 0:
                new[stream] = set()
            if (versions := new.get(stream)) is not None:
                taken = version in versions
                versions.add(version)
            else:
                taken = 1 <= version <= last and tx.key_at(stream, version) is None
                taken = taken or tx.position_of(stream, str(version)) is not None
            if taken:
                raise persistence.IntegrityError(f"version {version} of {stream!r} is taken; nothing was written")
            key = None if version == last + 1 else str(version)
            positions.append(tx.append_stored(stream, stored.topic, stored.state, key=key))
        return positions

    def _stream(self, originator_id: UUID | str) -> str:
        return self._prefix + (originator_id.hex if isinstance(originator_id, UUID) else originator_id)

    def _id(self, stream: str) -> UUID | str:
        name = stream[len(self._prefix) :]
        return UUID(name) if self._id_type == "uuid" else name


class LogApplicationRecorder(LogAggregateRecorder, ApplicationRecorder):
    """Stores events of aggregates, and reads those of an application in order. Notification ids are log positions.

    They rise and may skip: other applications and agents append to the same log.
    """

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append all of `stored_events` or none, and return their positions. Raises as `LogAggregateRecorder` does."""
        return self.log.appends.transact(partial(self._append, stored_events)) if stored_events else []

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return up to `limit` events from position `start` to `stop`, both included by default."""
        after = 0 if start is None else start - 1 if inclusive_of_start else start
        rows = self.log.stored_events(after=after, upto=stop, prefix=self._prefix, topics=topics, limit=limit)
        return [
            Notification(self._id(stream), version if key is None else int(key), topic, state, position)
            for position, stream, version, topic, state, key, _ in rows
        ]

    def max_notification_id(self) -> int | None:
        """Return the position of the application's last event, or None."""
        return self.log.last_position(self._prefix)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Return a live iterator of events after position `gt`, with those that other processes append."""
        return LogSubscription(self, gt=gt, topics=topics)


class LogProcessRecorder(LogApplicationRecorder, ProcessRecorder):
    """Stores the events of a process application together with how far it has read: both, or neither.

    The position lies in the log too, as an event of a `tracking` stream: it is chained and backed up with the rest.
    """

    def __init__(self, log: EventLog, *, application: str, id_type: IdType = "uuid") -> None:
        super().__init__(log, prefix=stream_prefix("events", application), id_type=id_type)
        self._tracking_prefix = stream_prefix("tracking", application)

    def insert_events(
        self, stored_events: Sequence[StoredEvent], *, tracking: Tracking | None = None, **kwargs: Any
    ) -> Sequence[int] | None:
        """Append all of `stored_events` and the position, or nothing. Return the positions of the events."""
        if tracking is None:
            return super().insert_events(stored_events)
        to = tracking

        def append(tx: Transaction) -> list[Position]:
            self._track(to, tx)
            return self._append(stored_events, tx)

        return self.log.appends.transact(append)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises `IntegrityError` unless it rises."""
        self.log.appends.transact(partial(self._track, tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return the recorded position, or None."""
        last = self.log.last_event(self._tracking_prefix + application_name)
        return None if last is None or last.key is None else int(last.key)

    def _track(self, to: Tracking, tx: Transaction) -> None:
        stream = self._tracking_prefix + to.application_name
        if to.notification_id <= int(tx.last_key(stream) or 0):
            raise persistence.IntegrityError(f"{to.application_name!r} is at or past position {to.notification_id}")
        tx.append_stored(stream, _TRACKING_TOPIC, b"", key=str(to.notification_id))


class LogSubscription(ListenNotifySubscription[LogApplicationRecorder]):
    """Yields notifications after `gt` until it is stopped, or the log is closed."""

    def __init__(self, recorder: LogApplicationRecorder, gt: int | None = None, topics: Sequence[str] = ()) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        recorder.log.followers.listen(self._has_been_notified)

    def stop(self) -> None:
        """Stop the subscription: the iteration ends."""
        super().stop()
        self._recorder.log.followers.unlisten(self._has_been_notified)

    def _loop_on_pull(self) -> None:
        # Commits of this process wake us; those of other processes do too, or are polled for.
        try:
            while not self._has_been_stopped:
                with suppress(*errors.AWAY):  # It is read again from where it was.
                    self._pull()
                self._has_been_notified.wait(timeout=self._recorder.log.followers.poll_interval_s)
        except BaseException as error:
            if self._thread_error is None:
                self._thread_error = error
            self.stop()


class SqliteTrackingRecorder(TrackingRecorder):
    """A view in a SQLite file of its own, for `ProjectionRunner`. Delete the file to rebuild the view.

    Subclass it: create tables in `__init__`, and write them with `self.track(connection, tracking)` in one
    transaction, so that the view and its position are saved together.
    """

    def __init__(self, database: ProjectionDatabase) -> None:
        self.database = database
        with database.writing() as connection:
            METADATA.create_all(connection)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises `IntegrityError` unless it rises."""
        with self.database.writing() as connection:
            self.track(connection, tracking)

    def track(self, connection: sa.Connection, to: Tracking) -> None:
        """Record a position in the transaction of `connection`. Raises `IntegrityError` unless it rises."""
        name, position = to.application_name, Position(to.notification_id)
        if tracked(connection, name).position >= position:
            raise persistence.IntegrityError(f"{name!r} is at or past position {position}")
        track(connection, name, Tracked(position, "", b""))

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return the recorded position, or None."""
        with self.database.reading() as connection:
            return tracked(connection, application_name).position or None

    def close(self) -> None:
        """Close the file. The runner does not."""
        self.database.close()


class Factory(InfrastructureFactory[SqliteTrackingRecorder]):
    """Makes the recorders of one application on one log. `close()` closes the log."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        folder, id_type = self.env.get(FOLDER), (self.env.get(ORIGINATOR_ID_TYPE) or "uuid").lower()
        if not folder:
            raise InfrastructureFactoryError(f"set {FOLDER} to the folder of a store; it is created if need be")
        if id_type not in ("uuid", "text"):
            raise InfrastructureFactoryError(f"{ORIGINATOR_ID_TYPE} is {id_type!r}; use 'uuid' or 'text'")
        self._folder, self._id_type = local_path(FOLDER, folder), cast(IdType, id_type)
        self._log: EventLog | None = None

    @property
    def log(self) -> EventLog:
        """The log, opened on first use."""
        if self._log is None:
            self._log = open_log(self._folder, clock=SystemClock(), create=True)
        return self._log

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """Return a recorder for `snapshots`, or whatever `purpose` is called."""
        return LogAggregateRecorder(self.log, prefix=stream_prefix(purpose, self.env.name), id_type=self._id_type)

    def application_recorder(self) -> ApplicationRecorder:
        """Return a recorder for the events of the application."""
        return LogApplicationRecorder(self.log, prefix=stream_prefix("events", self.env.name), id_type=self._id_type)

    def process_recorder(self) -> ProcessRecorder:
        """Return a recorder for the events of the application and the positions it has read to."""
        return LogProcessRecorder(self.log, application=self.env.name, id_type=self._id_type)

    def tracking_recorder(
        self, tracking_recorder_class: type[SqliteTrackingRecorder] | None = None
    ) -> SqliteTrackingRecorder:
        """Return a view in the file `NAME.db` of the folder for views. Close it yourself: `close()` does not."""
        topic = self.env.get(self.TRACKING_RECORDER_TOPIC)
        made = tracking_recorder_class or (resolve_topic(topic) if topic else SqliteTrackingRecorder)
        if not (self._folder / LOG_FILE).exists():  # A store is not created in a folder that holds other files.
            open_log(self._folder, clock=SystemClock(), create=True).close()
        folder = Path(self.env.get(VIEWS_FOLDER) or self._folder / "eventsourcing")
        make_folder(folder)
        path = folder / f"{self.env.name}.db"
        engine = sqlite.create_engine(path, synchronous="NORMAL", create=True)
        return cast(SqliteTrackingRecorder, made(ProjectionDatabase(engine, path)))

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
