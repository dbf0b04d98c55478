"""Where in the log the checkpoints of threads are, and what was written behind them. It holds no content.

What was pruned stays here, hidden: the channels of a checkpoint that is left may need what was written before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.domain.thread_events import ThreadCheckpointed, ThreadCopied, ThreadDeleted, ThreadPruned, ThreadWritten
from mnemolog.domain.threads import thread_of
from mnemolog.projections.database import fetch
from mnemolog.projections.tables import Tables

FILE: Final = "threads.db"

_METADATA: Final = sa.MetaData()
sa.Table(
    "checkpoints",
    _METADATA,
    sa.Column("thread", sa.Text, primary_key=True),
    sa.Column("ns", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("parent", sa.Text),
    sa.Column("run", sa.Text),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("hidden", sa.Integer, nullable=False),
    sa.Index("checkpoints_by_run", "run", sqlite_where=sa.text("run IS NOT NULL")),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
sa.Table(
    "writes",
    _METADATA,
    sa.Column("thread", sa.Text, primary_key=True),
    sa.Column("ns", sa.Text, primary_key=True),
    sa.Column("checkpoint", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
_TABLES: Final = ("checkpoints", "writes")
_COLUMNS: Final = "thread, ns, id, parent, position, hidden"
# Of the regular writes of a task the first stand, of errors, interrupts and the like the last.
_INSERT_WRITE: Final = (
    "INSERT INTO writes (thread, ns, checkpoint, task, place, path, channel, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET path = excluded.path, channel = excluded.channel, position = excluded.position "
    "WHERE place < 0"
)
_COPY: Final = {
    "checkpoints": "INSERT OR REPLACE INTO checkpoints (thread, ns, id, parent, run, position, hidden) "
    "SELECT ?, ns, id, parent, run, position, hidden FROM checkpoints WHERE thread = ?",
    "writes": "INSERT OR REPLACE INTO writes (thread, ns, checkpoint, task, place, path, channel, position) "
    "SELECT ?, ns, checkpoint, task, place, path, channel, position FROM writes WHERE thread = ?",
}


class CheckpointAt(NamedTuple):
    """Where a checkpoint is."""

    thread: str
    ns: str
    id: str
    parent: str | None
    position: Position
    hidden: int = 0


class WriteAt(NamedTuple):
    """Where something is that a task wrote."""

    task: str
    place: int
    path: str
    channel: str
    position: Position


class ThreadIndex(Tables):
    """The index of all threads of a log."""

    name = "langgraph-threads/1"
    metadata = _METADATA
    batch_max = 50
    """Checkpoints may be large."""

    def take(self, connection: sa.Connection, recorded: RecordedEvent) -> None:
        """Note an event of a thread."""
        thread = thread_of(recorded.stream)
        if thread is None:
            return
        execute: Any = connection.exec_driver_sql
        match recorded.event:
            case ThreadCheckpointed() as made:
                execute(
                    "INSERT OR REPLACE INTO checkpoints (thread, ns, id, parent, run, position, hidden) "
                    "VALUES (?, ?, ?, ?, ?, ?, 0)",
                    (thread, made.ns, made.id, made.parent, made.run, recorded.position),
                )
            case ThreadWritten() as written:
                of = (thread, written.ns, written.checkpoint, written.task)
                rows = [(*of, w.place, written.path, w.channel, recorded.position) for w in written.writes]
                execute(_INSERT_WRITE, rows)
            case ThreadPruned() as pruned:
                hidden = [(thread, ns, name) for ns, names in pruned.hidden.items() for name in names]
                execute("UPDATE checkpoints SET hidden = 1 WHERE thread = ? AND ns = ? AND id = ?", hidden)
            case ThreadDeleted():
                for table in _TABLES:
                    execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
            case ThreadCopied() as copied:
                for table in _TABLES:
                    execute(_COPY[table], (thread, copied.source))

    def find(self, thread: str, ns: str, checkpoint: str | None, *, hidden: bool = False) -> CheckpointAt | None:
        """Return where a checkpoint of a thread is, the newest one for None."""
        of: tuple[Any, ...] = (thread, ns, int(hidden))
        query = f"SELECT {_COLUMNS} FROM checkpoints WHERE thread = ? AND ns = ? AND hidden <= ? "
        if checkpoint is None:
            query += "ORDER BY id DESC LIMIT 1"
        else:
            query, of = query + "AND id = ?", (*of, checkpoint)
        with self.database.reading() as connection:
            return next((CheckpointAt(*row) for row in fetch(connection, query, *of)), None)

    def listed(
        self, *, thread: str | None, ns: str | None, checkpoint: str | None, before: str | None
    ) -> list[CheckpointAt]:
        """Return where the checkpoints are that are not hidden, newest first."""
        asked = {"thread = ?": thread, "ns = ?": ns, "id = ?": checkpoint, "id < ?": before}
        given = {condition: value for condition, value in asked.items() if value is not None}
        where = " AND ".join(["hidden = 0", *given])
        query = f"SELECT {_COLUMNS} FROM checkpoints WHERE {where} ORDER BY id DESC, thread, ns"
        with self.database.reading() as connection:
            return [CheckpointAt(*row) for row in fetch(connection, query, *given.values())]

    def of_runs(self, runs: list[str]) -> list[CheckpointAt]:
        """Return where the checkpoints of runs are that are not hidden."""
        query = f"SELECT {_COLUMNS} FROM checkpoints WHERE run = ? AND hidden = 0"
        with self.database.reading() as connection:
            return [CheckpointAt(*row) for run in runs for row in fetch(connection, query, run)]

    def ancestors(self, of: CheckpointAt) -> Iterator[CheckpointAt]:
        """Yield where the checkpoints before one are, the nearest first, hidden ones included."""
        seen = {of.id}
        current: CheckpointAt | None = of
        while current is not None and current.parent is not None and current.parent not in seen:
            seen.add(current.parent)  # One that was put again, behind what came after it, makes a circle.
            current = self.find(of.thread, of.ns, current.parent, hidden=True)
            if current is not None:
                yield current

    def writes(self, of: CheckpointAt, channels: frozenset[str] | None = None) -> list[WriteAt]:
        """Return where is what was written behind a checkpoint, in the order in which a graph applies it."""
        query = (
            "SELECT task, place, path, channel, position FROM writes WHERE thread = ? AND ns = ? AND checkpoint = ? "
            "ORDER BY path, task, place"
        )
        with self.database.reading() as connection:
            found = [WriteAt(*row) for row in fetch(connection, query, of.thread, of.ns, of.id)]
        return found if channels is None else [write for write in found if write.channel in channels]

    def written(self, thread: str, ns: str, checkpoint: str, task: str) -> set[int]:
        """Return the places of what a task has written behind a checkpoint."""
        query = "SELECT place FROM writes WHERE thread = ? AND ns = ? AND checkpoint = ? AND task = ?"
        with self.database.reading() as connection:
            return {row[0] for row in fetch(connection, query, thread, ns, checkpoint, task)}

    def holds(self, thread: str) -> bool:
        """Whether there is anything of a thread, hidden or not."""
        with self.database.reading() as connection:
            return any(
                fetch(connection, f"SELECT 1 FROM {table} WHERE thread = ? LIMIT 1", thread) for table in _TABLES
            )
