"""An index of the checkpoints and pending writes of threads, by position in the log. It contains no content.

Pruned checkpoints stay, hidden, because later checkpoints may need their channels. Content to be forgotten is removed
from the index with the request, before its keys are destroyed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.events import ForgetRequested, RecordedEvent
from mnemolog.domain.threads import (
    ThreadCheckpointed,
    ThreadCopied,
    ThreadDeleted,
    ThreadPruned,
    ThreadWritten,
    thread_of,
)
from mnemolog.domain.values import Position
from mnemolog.projections.sql.database import SqlProjection, fetch

FILE: Final = "threads.db"

_METADATA: Final = sa.MetaData()
sa.Table(
    "checkpoints",
    _METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),  # The order in which they were put into the thread.
    sa.Column("thread", sa.Text, nullable=False),
    sa.Column("ns", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("parent", sa.Text),
    sa.Column("run", sa.Text),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("stream", sa.Text, nullable=False),  # Of the original thread, if this one is a copy.
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("hidden", sa.Integer, nullable=False),
    sa.Index("checkpoints_by_id", "thread", "ns", "id"),
    sa.Index("checkpoints_by_event", "stream", "version", "thread", unique=True),
    sa.Index("checkpoints_by_run", "run", sqlite_where=sa.text("run IS NOT NULL")),
    sqlite_strict=True,
)
sa.Table(
    "writes",
    _METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("thread", sa.Text, nullable=False),
    sa.Column("ns", sa.Text, nullable=False),
    sa.Column("checkpoint", sa.Text, nullable=False),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("place", sa.Integer, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("stream", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Index("writes_by_task", "thread", "ns", "checkpoint", "task", "place"),
    sa.Index("writes_by_event", "stream", "version", "thread", "place", unique=True),
    sqlite_strict=True,
)
_TABLES: Final = ("checkpoints", "writes")
_COLUMNS: Final = "thread, ns, id, parent, position, hidden"
_CHECKPOINT: Final = "thread, ns, id, parent, run, position, stream, version, hidden"
_WRITE: Final = "thread, ns, checkpoint, task, place, path, channel, position, stream, version"
_INSERT_CHECKPOINT: Final = f"INSERT INTO checkpoints ({_CHECKPOINT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
_INSERT_WRITE: Final = f"INSERT OR REPLACE INTO writes ({_WRITE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A row that a later one replaces stays: it counts again when the later one is forgotten.
_OF_CHECKPOINTS: Final = (
    "FROM checkpoints AS it WHERE NOT EXISTS (SELECT 1 FROM checkpoints AS other WHERE other.thread = it.thread "
    "AND other.ns = it.ns AND other.id = it.id AND other.seq > it.seq)"
)
# For regular writes of a task the first one counts; for errors, interrupts and the like the last one.
_OF_WRITES: Final = (
    "FROM writes AS it WHERE NOT EXISTS (SELECT 1 FROM writes AS other WHERE other.thread = it.thread "
    "AND other.ns = it.ns AND other.checkpoint = it.checkpoint AND other.task = it.task AND other.place = it.place "
    "AND iif(it.place < 0, other.seq > it.seq, other.seq < it.seq))"
)
_COPY: Final = {
    table: f"INSERT OR REPLACE INTO {table} ({columns}) SELECT ?, {columns.partition(', ')[2]} FROM {table} "
    "WHERE thread = ? ORDER BY seq"
    for table, columns in (("checkpoints", _CHECKPOINT), ("writes", _WRITE))
}


class CheckpointAt(NamedTuple):
    """The position of a checkpoint."""

    thread: str
    ns: str
    id: str
    parent: str | None
    position: Position
    hidden: int = 0


class WriteAt(NamedTuple):
    """The position of a write of a task."""

    task: str
    place: int
    path: str
    channel: str
    position: Position


class ThreadIndex(SqlProjection):
    """The index of all threads of a log."""

    name = "threads/2"
    metadata = _METADATA
    batch_max = 50
    """Small batches, because checkpoints may be large."""

    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Add events of threads."""
        for recorded in events:
            if isinstance(recorded.event, ForgetRequested):
                _forget(connection, recorded.event)
            thread = thread_of(recorded.stream)
            if thread is None:
                continue
            execute: Any = connection.exec_driver_sql
            at = (recorded.position, recorded.stream, recorded.version)
            match recorded.event:
                case ThreadCheckpointed() as made:
                    execute(_INSERT_CHECKPOINT, (thread, made.ns, made.id, made.parent, made.run, *at))
                case ThreadWritten() as written:
                    of = (thread, written.ns, written.checkpoint, written.task)
                    execute(_INSERT_WRITE, [(*of, w.place, written.path, w.channel, *at) for w in written.writes])
                case ThreadPruned() as pruned:
                    hidden = [(thread, ns, name) for ns, names in pruned.hidden.items() for name in names]
                    execute("UPDATE checkpoints SET hidden = 1 WHERE thread = ? AND ns = ? AND id = ?", hidden)
                case ThreadDeleted():
                    for table in _TABLES:
                        execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
                case ThreadCopied() as copied:
                    for table in _TABLES:
                        execute(_COPY[table], (thread, copied.source))

    def erase(self, connection: sa.Connection, erased: Sequence[RecordedEvent], *, upto: Position) -> None:
        """Do nothing: the rows went with the request."""


def find(
    connection: sa.Connection, thread: str, ns: str, checkpoint: str, *, hidden: bool = False
) -> CheckpointAt | None:
    """Return a checkpoint of a thread, or None."""
    query = f"SELECT {_COLUMNS} {_OF_CHECKPOINTS} AND thread = ? AND ns = ? AND id = ? AND hidden <= ?"
    return next((CheckpointAt(*row) for row in fetch(connection, query, thread, ns, checkpoint, int(hidden))), None)


def newest(connection: sa.Connection, thread: str, ns: str) -> Iterator[CheckpointAt]:
    """Yield the visible checkpoints of a thread, newest first, each read on demand."""
    query = f"SELECT {_COLUMNS} {_OF_CHECKPOINTS} AND thread = ? AND ns = ? AND hidden = 0"
    below: tuple[str, ...] = ()
    while found := fetch(
        connection, f"{query} {'AND id < ?' if below else ''} ORDER BY id DESC LIMIT 1", thread, ns, *below
    ):
        at = CheckpointAt(*found[0])
        yield at
        below = (at.id,)


def listed(
    connection: sa.Connection, *, thread: str | None, ns: str | None, checkpoint: str | None, before: str | None
) -> list[CheckpointAt]:
    """Return the visible checkpoints that match, newest first."""
    asked = {"thread = ?": thread, "ns = ?": ns, "id = ?": checkpoint, "id < ?": before}
    given = {condition: value for condition, value in asked.items() if value is not None}
    where = " AND ".join(["hidden = 0", *given])
    query = f"SELECT {_COLUMNS} {_OF_CHECKPOINTS} AND {where} ORDER BY id DESC, thread, ns"
    return [CheckpointAt(*row) for row in fetch(connection, query, *given.values())]


def of_runs(connection: sa.Connection, runs: list[str]) -> list[CheckpointAt]:
    """Return the visible checkpoints of runs."""
    query = f"SELECT {_COLUMNS} {_OF_CHECKPOINTS} AND run = ? AND hidden = 0"
    return [CheckpointAt(*row) for run in runs for row in fetch(connection, query, run)]


def ancestors(connection: sa.Connection, of: CheckpointAt) -> Iterator[CheckpointAt]:
    """Yield the ancestors of a checkpoint, nearest first, hidden ones included."""
    seen = {of.id}
    current: CheckpointAt | None = of
    while current is not None and current.parent is not None and current.parent not in seen:
        seen.add(current.parent)  # A checkpoint that was put again after its descendants causes a cycle.
        current = find(connection, of.thread, of.ns, current.parent, hidden=True)
        if current is not None:
            yield current


def writes(connection: sa.Connection, of: CheckpointAt, channels: frozenset[str] | None = None) -> list[WriteAt]:
    """Return the writes after a checkpoint, in the order in which a graph applies them."""
    query = (
        f"SELECT task, place, path, channel, position {_OF_WRITES} AND thread = ? AND ns = ? AND checkpoint = ? "
        "ORDER BY path, task, place"
    )
    found = [WriteAt(*row) for row in fetch(connection, query, of.thread, of.ns, of.id)]
    return found if channels is None else [write for write in found if write.channel in channels]


def written(connection: sa.Connection, thread: str, ns: str, checkpoint: str, task: str) -> set[int]:
    """Return the places of a task's writes after a checkpoint."""
    query = "SELECT DISTINCT place FROM writes WHERE thread = ? AND ns = ? AND checkpoint = ? AND task = ?"
    return {row[0] for row in fetch(connection, query, thread, ns, checkpoint, task)}


def holds(connection: sa.Connection, thread: str) -> bool:
    """Whether a thread has checkpoints or writes, hidden or not."""
    return any(fetch(connection, f"SELECT 1 FROM {table} WHERE thread = ? LIMIT 1", thread) for table in _TABLES)


def _forget(connection: sa.Connection, request: ForgetRequested) -> None:
    """Delete the rows of content to be forgotten, and of its copies in other threads."""
    for target in request.targets:
        if thread_of(target.stream) is not None:
            ranges = [(target.stream, first, last) for first, last in target.versions]
            for table in _TABLES:
                query = f"DELETE FROM {table} WHERE stream = ? AND version BETWEEN ? AND ?"
                connection.exec_driver_sql(query, ranges)
