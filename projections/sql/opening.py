"""Open the databases of projections. Unusable ones go to quarantine and are rebuilt from the log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.head import Head
from mnemolog.domain.store_layout import DATABASE_PARTS, PROJECTIONS, StoreLayout
from mnemolog.domain.values import Position
from mnemolog.infra import sqlite
from mnemolog.infra.runtime.files import make_folder, mapped_to_store_errors
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import UNCOVERED, Drift, Quarantine, identity
from mnemolog.projections.sql.conversation_views import PLACES_OF_WORDS, TEXT_INDEX, VOCABULARY, Views
from mnemolog.projections.sql.database import (
    NOTHING_READ,
    TRACKING,
    ProjectionDatabase,
    SqlProjection,
    Tracked,
    TrackedTables,
    fetch,
    state_of,
    tracked,
    why_not_as_sealed,
)

VIEWS_CACHE_BYTES: Final = 8 << 20
"""Pages of the views that a connection may keep in memory: every recall reads the lengths of turns, 4 bytes a turn."""
TEXT_INDEXES: Final = (TEXT_INDEX, VOCABULARY, PLACES_OF_WORDS)
Opened = TypeVar("Opened")
Tables = TypeVar("Tables", bound=TrackedTables)


class _Uncovered(errors.ProjectionUnreadable):
    """The projection covers events that this log does not have."""

    def __init__(self, path: Path, state: str) -> None:
        super().__init__(path, f"it is {state}: this log does not have the events it was built from")
        self.state = state


class Schema(NamedTuple):
    """The schema that the database of a projection has, unless an earlier version wrote it."""

    create: Callable[[sa.Connection], object]
    tracked_as: str = ""
    """Name and version of the tables; empty if they have no version."""

    def why_foreign(self, database: ProjectionDatabase) -> str | None:
        """Return what is foreign in the schema of a database; None if nothing is, or if it has another version."""
        with database.reading() as connection:
            driver: Any = connection.connection.driver_connection
            if not fetch(connection, "SELECT 1 FROM sqlite_master LIMIT 1"):
                return None
            if self.tracked_as and not _is_tracked(connection, self.tracked_as):
                return None
            return sqlite.foreign_in_schema(driver, sqlite.schema_of(self.create))


def _is_tracked(connection: sa.Connection, name: str) -> bool:
    return sa.inspect(connection).has_table(TRACKING.name) and tracked(connection, name) != NOTHING_READ


def _require_harmless_schema(connection: Any) -> None:
    """Raise `UnsafeFile` for a database whose schema would run SQL that no version of mnemolog has written."""
    if (foreign := sqlite.foreign_in_schema(connection, {}, virtual=TEXT_INDEXES)) is not None:
        raise sqlite.UnsafeFile(foreign)


class _NotAsWritten(errors.ProjectionUnreadable):
    """The database does not match its seal. SQLite may not detect such damage."""


def open_engine(
    path: Path,
    *,
    cache_bytes: int = sqlite.CACHE_BYTES,
    busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
    files: sqlite.OpenedFiles | None = None,
) -> sa.Engine:
    """Open or create the database of a projection. A crash may lose its last transactions: the log has the events."""
    with mapped_to_store_errors(path.parent):
        make_folder(path.parent, root=PROJECTIONS)
    return sqlite.create_engine(
        path,
        synchronous="NORMAL",
        create=True,
        cache_bytes=cache_bytes,
        busy_timeout_s=busy_timeout_s,
        guard=_require_harmless_schema,
        files=files,
    )


@contextmanager
def opened(path: Path, *, busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S) -> Iterator[ProjectionDatabase]:
    """Yield the existing database at `path`, unchanged, and close it at the end."""
    engine = sqlite.create_engine(
        path, synchronous="NORMAL", busy_timeout_s=busy_timeout_s, guard=_require_harmless_schema
    )
    try:
        yield ProjectionDatabase(engine, path)
    finally:
        engine.dispose()


def open_views(layout: StoreLayout, log: Log, *, busy_timeout_s: float) -> Views:
    """Open the views of a store, as `open_tables` does."""
    return open_tables(
        layout, log, layout.views.name, Views, busy_timeout_s=busy_timeout_s, sealed=True, cache_bytes=VIEWS_CACHE_BYTES
    )


def open_unproved(layout: StoreLayout, log: Log, why: errors.LogUnreachable, *, busy_timeout_s: float) -> Views:
    """Open the views of a log that does not answer, to read them as they are. They are of this log by their tag alone.

    Raises `why` where there are none, or where they could not be used as they are.
    """
    path = layout.views
    if not path.exists() or _why_invalid(path, sealed=True) is not None:
        raise why
    files = sqlite.OpenedFiles(path.parent)
    engine = open_engine(path, cache_bytes=VIEWS_CACHE_BYTES, busy_timeout_s=busy_timeout_s, files=files)
    try:
        database = ProjectionDatabase(engine, path, True, files)
        with database.reading() as connection:
            at = tracked(connection, Views.name) if _is_tracked(connection, Views.name) else NOTHING_READ
        if at.log_id != log.log_id or Schema(Views.create_tables, Views.name).why_foreign(database) is not None:
            raise why
        return Views(database, cast(Log, _AsRead(at)))
    except BaseException:
        engine.dispose()
        raise


class _AsRead:
    """What views know of their log: its identity, and the end of what they have read."""

    def __init__(self, at: Tracked) -> None:
        self.log_id, self._at = at.log_id, at

    def head(self) -> Head:
        return Head(position=self._at.position, digest=self._at.digest.hex())

    def digest_at(self, position: Position) -> bytes | None:
        return self._at.digest if position == self._at.position else None


def open_tables(
    layout: StoreLayout,
    log: Log,
    file_name: str,
    kind: type[Tables],
    *,
    busy_timeout_s: float,
    sealed: bool = False,
    cache_bytes: int = sqlite.CACHE_BYTES,
) -> Tables:
    """Open tables in a file of their own. If they are damaged or of another history, quarantine and rebuild them.

    Views may hold the only copy of turns that the log has lost, so they are never overwritten.
    """
    path = layout.projections / file_name

    def open_covered(database: ProjectionDatabase) -> Tables:
        with database.reading() as connection:
            state, _ = state_of(connection, log, kind.name)
        if state in UNCOVERED:
            raise _Uncovered(path, state.value)
        return kind(database, log)

    return open_or_rebuild(
        path,
        open_covered,
        layout.quarantine,
        schema=Schema(kind.create_tables, kind.name),
        busy_timeout_s=busy_timeout_s,
        sealed=sealed,
        cache_bytes=cache_bytes,
    )


def open_or_rebuild(
    path: Path,
    open_projection: Callable[[ProjectionDatabase], Opened],
    quarantine: Path,
    *,
    schema: Schema,
    busy_timeout_s: float,
    sealed: bool = False,
    cache_bytes: int = sqlite.CACHE_BYTES,
) -> Opened:
    """Open the database at `path` and return the result of `open_projection`.

    Where the file is replaced later, the one in its place is opened in the same way, and tables catch up before they
    are read.
    A file that is damaged or of another history goes to quarantine, and a new one is created.
    So does a file with a foreign schema: it may come from an untrusted source, and its version number proves nothing.
    Raises `ProjectionUnreadable` if the quarantine is full, and `StorageFull`.
    """
    quarantined = Quarantine(quarantine)

    def filled(database: ProjectionDatabase) -> ProjectionDatabase:
        if isinstance(opened := open_projection(database), SqlProjection):
            opened.catch_up()
        return database

    for attempt in (1, 2):
        judged, files = identity(path), sqlite.OpenedFiles(path.parent)
        engine = open_engine(path, cache_bytes=cache_bytes, busy_timeout_s=busy_timeout_s, files=files)
        try:
            if (why_not := _why_invalid(path, sealed=sealed)) is not None:
                raise _NotAsWritten(path, why_not)
            database = ProjectionDatabase(engine, path, sealed, files)
            if (why_not := schema.why_foreign(database)) is not None:
                raise _NotAsWritten(path, why_not)
            opened = open_projection(database)
            database.opened_again = partial(
                open_or_rebuild,
                *(path, filled, quarantine),
                schema=schema,
                busy_timeout_s=busy_timeout_s,
                sealed=sealed,
                cache_bytes=cache_bytes,
            )
            return opened
        except BaseException as error:
            engine.dispose()  # Otherwise a connection would stay open until it is garbage collected.
            # Only an unusable file is moved. A busy database or a full disk is for the caller to handle.
            if attempt == 2 or not isinstance(error, errors.ProjectionUnreadable) or not _is_unusable(error):
                raise
            state = error.state if isinstance(error, _Uncovered) else Drift.DAMAGED.value
            # Another process may already have created a new file under this name: then open that one.
            moved = quarantined.add(path, reason=error.cause, state=state, parts=DATABASE_PARTS, judged=judged)
            if moved is None and quarantined.status().full:
                why = f"{error.cause}; it cannot be moved to quarantine, which is full: purge it"
                raise errors.ProjectionUnreadable(path, why) from error
    raise AssertionError("unreachable")


def _why_invalid(path: Path, *, sealed: bool) -> str | None:
    if sqlite.is_marked_read_only(path):
        return sqlite.MARKED_READ_ONLY
    return why_not_as_sealed(path) if sealed else None


def _is_unusable(error: errors.ProjectionUnreadable) -> bool:
    return isinstance(error, _Uncovered | _NotAsWritten) or is_damage(error)


def is_damage(error: errors.ProjectionUnreadable) -> bool:
    """Whether the file is damaged, and not only busy, full or owned by another user."""
    cause = error.__cause__
    return cause is not None and isinstance(sqlite.map_error(cause, error.path), errors.LogDamaged)
