"""The log recorder: the eventsourcing library's `ApplicationRecorder` on SQLAlchemy Core and pysqlite3.

Why our own: docs/adr/0002-our-recorder-on-sqlalchemy-core.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

import sqlalchemy as sa
from eventsourcing import persistence
from eventsourcing.persistence import ApplicationRecorder, Notification, StoredEvent, Subscription
from pysqlite3 import dbapi2

from mnemolog.domain import errors
from mnemolog.domain.clock import Clock
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.sqlite.schema import EVENTS
from mnemolog.infra.log.sqlite.subscription import SqliteSubscription
from mnemolog.infra.log.writer import LogWriter
from mnemolog.infra.runtime import fork_guard


@dataclass(frozen=True)
class LogEntry(Notification):
    """A stored event with all its columns."""

    key: str | None
    """Idempotency key, unique in its stream."""
    recorded_at: int
    """Microseconds since the Unix epoch."""
    digest: bytes
    """The chain's link: SHA-256 over this event and everything before it."""


class Listener(Protocol):
    """Who wants to know of commits, as `threading.Event` is one."""

    def set(self) -> None:
        """Called by the thread that writes: must be quick, and never raise."""
        ...


class SqliteRecorder(ApplicationRecorder):
    """Appends events in one total order and reads them back.

    Database errors come out of the library's methods as the library's own error family, and out of
    `transact` as mnemolog's.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        path: Path,
        clock: Clock,
        genesis: bytes,
        codec: EventCodec | None = None,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        originator_id_type: Literal["uuid", "text"] = "text",
    ) -> None:
        self.engine = engine
        self._path = path
        self.busy_timeout_s = busy_timeout_s
        """How long to wait for who holds a lock of the log, in seconds."""
        self._origin, self._closed = fork_guard.Origin(), False
        self._originator_id_type = originator_id_type
        self._listeners: set[Listener] = set()
        self._listeners_lock = threading.Lock()
        self.writer = LogWriter(
            engine,
            path=path,
            clock=clock,
            codec=codec or EventCodec(),
            genesis=genesis,
            busy_timeout_s=busy_timeout_s,
            committed=self._notify_listeners,
        )

    def close(self) -> None:
        """Finish what is queued and close every connection."""
        self.writer.close()
        self._closed = True
        self._notify_listeners()  # Subscriptions wake up, find the log closed, and end with `StoreClosed`.
        self.engine.dispose()

    def _require_usable(self) -> None:
        if self._closed:
            raise errors.StoreClosed
        self._origin.require_here()

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Append all of `stored_events` or none. Raises the library's `IntegrityError` on a taken version."""
        if not stored_events:
            return []
        self._require_usable()
        streams = [_text(stored.originator_id) for stored in stored_events]
        try:
            return self.writer.transact(lambda tx: tx.append_stored(stored_events, streams))
        except dbapi2.IntegrityError as error:
            raise persistence.IntegrityError(str(error)) from error

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return events of one stream with versions in `(gt, lte]`."""
        query = sa.select(EVENTS.c.version, EVENTS.c.topic, EVENTS.c.state)
        query = query.where(EVENTS.c.stream == _text(originator_id))
        if gt is not None:
            query = query.where(EVENTS.c.version > gt)
        if lte is not None:
            query = query.where(EVENTS.c.version <= lte)
        query = query.order_by(EVENTS.c.version.desc() if desc else EVENTS.c.version).limit(limit)
        with self._reading() as connection:
            return [StoredEvent(originator_id, *row) for row in connection.execute(query)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return up to `limit` entries from position `start` to `stop`, both included by default."""
        query = sa.select(EVENTS).order_by(EVENTS.c.position).limit(limit)
        if start is not None:
            query = query.where(EVENTS.c.position >= start if inclusive_of_start else EVENTS.c.position > start)
        if stop is not None:
            query = query.where(EVENTS.c.position <= stop)
        if topics:
            query = query.where(EVENTS.c.topic.in_(topics))
        with self._reading() as connection:
            return [
                LogEntry(self._id(stream), version, topic, state, position, key, recorded_at, link)
                for position, stream, version, topic, state, key, recorded_at, link in connection.execute(query)
            ]

    def max_notification_id(self) -> int | None:
        """Return the last position, or None for an empty log."""
        with self._reading() as connection:
            return connection.execute(sa.select(sa.func.max(EVENTS.c.position))).scalar()

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Return a live iterator of entries after position `gt`, appends of other processes included."""
        return SqliteSubscription(self, gt=gt, topics=topics)

    def listen(self, listener: Listener) -> None:
        """Have `listener` set after every commit of this process."""
        with self._listeners_lock:
            self._listeners.add(listener)

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        with self._listeners_lock:
            self._listeners.discard(listener)

    def _notify_listeners(self) -> None:
        if self._listeners:
            with self._listeners_lock:
                for listener in self._listeners:
                    listener.set()

    def _reading(self) -> sa.Connection:
        self._require_usable()
        return self.engine.connect()

    def _id(self, stream: str) -> UUID | str:
        return UUID(stream) if self._originator_id_type == "uuid" else stream


def _text(originator_id: UUID | str) -> str:
    return originator_id.hex if isinstance(originator_id, UUID) else originator_id
