"""What the databases of the projections are worth, from a quick look: nothing is read through or repaired."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.infra.log.sqlite.engine import SqliteEngine
from mnemolog.projections.drift import Drift, action
from mnemolog.projections.quarantine import size_of
from mnemolog.projections.sql import file_checksum, item_tables, queries, thread_index
from mnemolog.projections.sql.conversation_views import VIEWS
from mnemolog.projections.sql.opening import is_damage, opened
from mnemolog.projections.sql.projection import SqlProjection, state_of
from mnemolog.results import CacheStatus, TablesStatus, ViewsStatus, WalStatus

PRESENT: Final = "present"
"""State of a cache that a quick look finds nothing wrong with."""

_FIRST_ROWS: Final = {
    "embeddings.db": "SELECT fingerprint, content, chunks, vectors, checksum FROM embeddings LIMIT 1",
    "snapshots.db": "SELECT stream, version, position, log_id, digest, format, state, checksum FROM snapshots LIMIT 1",
}
"""What a look at a cache asks. The tables' own modules need numpy, which a status must do without."""

_TABLES: Final[dict[str, type[SqlProjection]]] = {
    thread_index.FILE: thread_index.ThreadIndex,
    item_tables.FILE: item_tables.ItemTables,
}
_SIGNS_OF_DAMAGE: Final = ("no such table", "no such column", "Could not decode to UTF-8")


def views_status(path: Path, log: EventLog) -> tuple[ViewsStatus, int, int]:
    """Return the state of the views with the numbers of sessions and turns that they hold."""
    head = log.head().position
    if not path.exists():
        return _views(Drift.MISSING, ORIGIN, head), 0, 0
    if (why := file_checksum.why_invalid(path)) is not None:
        return _views(Drift.DAMAGED, ORIGIN, head, why=why), 0, 0
    try:
        with opened(path) as database, database.reading() as connection:
            state, position = state_of(connection, log, VIEWS)
            sessions, turns = (0, 0) if state is Drift.MISSING else queries.counts(connection)
    except errors.ProjectionUnreadable as error:
        return _views(broken(error), ORIGIN, head, why=error.cause), 0, 0
    return _views(state, position, head), sessions, turns


def tables(projections: Path, log: EventLog) -> tuple[TablesStatus, ...]:
    """Return the state of the tables that there are: threads, items."""
    found = ((projections / name, kind) for name, kind in _TABLES.items())
    return tuple(_tables(path, kind, log) for path, kind in found if path.exists())


def wal_status(log: EventLog) -> WalStatus:
    """Return the state of the log's write-ahead log, and where it is large, why."""
    size, found, readers = (
        wal_checkpointer.size_bytes(log.path),
        log.engine.checkpointed() if isinstance(log.engine, SqliteEngine) else wal_checkpointer.Checkpointed(0, 0),
        wal_checkpointer.readers_of(log.path),
    )
    why = ""
    if size >= wal_checkpointer.WARN_BYTES and found.waiting:
        who = f"process {', '.join(map(str, readers))}" if readers else "a process"
        why = (
            f"{who} reads it in a transaction that does not end, so {found.waiting:,} pages cannot be moved into "
            "log.db; end that, and it is emptied within seconds"
        )
    elif size >= wal_checkpointer.WARN_BYTES:
        why = "it was read until a moment ago; the next commits empty it"
    return WalStatus(bytes=size, waiting_frames=found.waiting, readers=readers, why=why)


def caches(projections: Path) -> tuple[CacheStatus, ...]:
    """Return the state of the embedding cache and of the snapshots."""
    return tuple(_cache(projections / name, query) for name, query in _FIRST_ROWS.items())


def broken(error: errors.ProjectionUnreadable) -> Drift:
    """Return what an error of a database says about its file.

    A table or column that is not there counts as damage, for our tables are all made in one transaction, and so
    does a text that is no text.
    """
    if is_damage(error) or any(sign in error.cause for sign in _SIGNS_OF_DAMAGE):
        return Drift.DAMAGED
    return Drift.UNREADABLE


def _views(state: Drift, position: Position, head: Position, *, why: str = "") -> ViewsStatus:
    behind = max(0, head - position)
    return ViewsStatus(
        state=state.value, position=position, behind_events=behind, action=action("views", state), why=why
    )


def _tables(path: Path, kind: type[SqlProjection], log: EventLog) -> TablesStatus:
    head, why = log.head().position, ""
    try:
        with opened(path) as database, database.reading() as connection:
            state, position = state_of(connection, log, kind.name)
    except errors.ProjectionUnreadable as error:
        state, position, why = broken(error), ORIGIN, error.cause
    return TablesStatus(
        name=path.name,
        state=state.value,
        position=position,
        behind_events=max(0, head - position),
        action=action("tables", state),
        why=why,
    )


def _cache(path: Path, query: str) -> CacheStatus:
    state, why = PRESENT, ""
    if not path.exists():
        state = Drift.MISSING.value
    else:
        try:
            with opened(path) as database, database.reading() as connection:
                if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
                    connection.exec_driver_sql(query).all()
        except errors.ProjectionUnreadable as error:
            state, why = broken(error).value, error.cause
    size = size_of(path) + sum(size_of(path.with_name(path.name + part)) for part in DATABASE_PARTS)
    drift = Drift.CURRENT if state == PRESENT else Drift(state)
    return CacheStatus(name=path.name, state=state, bytes=size, action=action("cache", drift), why=why)
