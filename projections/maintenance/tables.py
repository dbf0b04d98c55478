"""Databases of tables that follow the log, the views and those of adapters, and of caches, which only save work.

The views are compared with the log row by row: they are built once more.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.display import counted
from mnemolog.domain.errors import Hint, ProjectionUnreadable, remedy
from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.sqlite import temporary_engine
from mnemolog.projections.maintenance.context import (
    PRESENT,
    UNREADABLE_ACTION,
    CacheStatus,
    Database,
    Forgotten,
    IssueWithFix,
    StoreContext,
    TablesStatus,
    ViewsStatus,
    state_by,
)
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.quarantine import NOTHING_TO_DO, Actions, Drift, size_of
from mnemolog.projections.sql import queries, snapshots
from mnemolog.projections.sql.conversation_views import TEXT_INDEX, VIEWS, Views
from mnemolog.projections.sql.database import (
    METADATA,
    TRACKING,
    USABLE,
    ProjectionDatabase,
    SqlProjection,
    empty,
    faults_of,
    state_of,
    why_not_as_sealed,
)
from mnemolog.projections.sql.opening import is_damage, opened
from mnemolog.projections.vectors.folders import Rebuilt, survey

_FIX: Final = remedy("admin.doctor", fix=True)
_REBUILD: Final = remedy("rebuild", "views")
_NEW_TABLES: Final = Hint("Nothing to do: the next use, or ", _FIX, ", moves them to quarantine and rebuilds them.")
_FIND_OUT: Final = Hint("Run ", remedy("verify"), " and find out what happened to log.db; ")
_LOST_TABLES: Final = Hint(
    *(_FIND_OUT, "the next use, or ", _FIX, ", moves these tables to quarantine and rebuilds them.")
)
_READ_ON: Final = "Nothing to do: the next read brings them up to date."
ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.BEHIND: _READ_ON,
    Drift.AHEAD: _LOST_TABLES,
    Drift.OTHER_LOG: _NEW_TABLES,
    Drift.DIVERGED: _LOST_TABLES,
    Drift.DAMAGED: _NEW_TABLES,
    Drift.MISSING: _READ_ON,
    Drift.UNREADABLE: UNREADABLE_ACTION,
}
_LOST_VIEWS: Final = Hint(
    *(_FIND_OUT, "the next read, or ", _FIX),
    ", moves these views to quarantine, with the turns in them, and rebuilds them.",
)
VIEWS_ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.BEHIND: Hint("Nothing to do: every read brings them up to date; ", _REBUILD, " does it at once."),
    Drift.AHEAD: _LOST_VIEWS,
    Drift.OTHER_LOG: Hint(
        *("Nothing to do: the next read, or ", _FIX, ", moves them to quarantine and rebuilds them.")
    ),
    Drift.DIVERGED: _LOST_VIEWS,
    Drift.DAMAGED: Hint(_FIX, " rebuilds them from the log."),
    Drift.MISSING: Hint("Nothing to do: the next read builds them; ", _REBUILD, " does it at once."),
    Drift.UNREADABLE: UNREADABLE_ACTION,
}


READ_BATCH: Final = 500
IsWhole = Callable[[Mapping[str, Any]], bool]
"""Whether a row matches its checksum."""
CACHE_ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.DAMAGED: Hint(
        *(remedy("admin.doctor", fix=True), " moves the damaged file to quarantine, or deletes the damaged rows.")
    ),
    Drift.MISSING: "Nothing to do: it is created when it is first needed.",
    Drift.UNREADABLE: UNREADABLE_ACTION,
}


def _looked_at(path: Path, look: Callable[[sa.Connection], Any], *, sealed: bool = False) -> tuple[Any, str, Any]:
    """Return what a look at a database found. First why there is nothing, in a state and in words; None if it answers.

    With `sealed`, its file has to be as it was when it was closed.
    """
    if not path.exists():
        return Drift.MISSING, "", None
    try:
        if sealed and (invalid := why_not_as_sealed(path)):
            return Drift.DAMAGED, invalid, None
        with opened(path) as database, database.reading() as connection:
            return None, "", look(connection)
    except ProjectionUnreadable as error:
        return state_by(error), error.cause, None


class AdapterTables(Database):
    """The tables of an adapter, in a file of their own. The adapter itself is not imported."""

    def __init__(self, name: str, *, tracked_as: str = "", kind: type[SqlProjection] | None = None) -> None:
        super().__init__(name)
        self.tracked_as, self._kind = tracked_as if kind is None else kind.name, kind

    def status(self, context: StoreContext) -> list[TablesStatus]:
        """Return the state of the tables; nothing if the file does not exist."""
        path, log = self.path(context.layout), context.log
        if not path.exists():
            return []
        failed, why, found = _looked_at(path, lambda connection: state_of(connection, log, self.tracked_as))
        state, position = found or (failed, ORIGIN)
        return [
            TablesStatus(
                name=self.file,
                state=state.value,
                position=position,
                behind_events=max(0, log.head().position - position),
                action=ACTIONS[state],
                why=why,
            )
        ]

    def check(self, context: StoreContext, *, deep: bool) -> Iterator[IssueWithFix]:
        """Yield what is wrong with the tables. Being behind is no issue: the adapter reads on when it needs them."""
        for status in self.status(context):
            path, state = self.path(context.layout), Drift(status.state)
            if state in (Drift.CURRENT, Drift.BEHIND, Drift.MISSING):
                continue
            why = status.why or _ends(context, status.position)
            fix = partial(context.quarantine_database, path, why=why, state=state.value)
            yield self.issue(context, state, what="tables", why=why, action=status.action, fix=fix)

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Bring the tables up to date, and remove forgotten content from their bytes.

        Tables of an unknown kind are emptied: the adapter reads the log again, also where it has them open now.
        """
        kind, log = self._kind, context.log
        return context.purge_database(
            self.path(context.layout), empty if kind is None else lambda database: kind(database, log).catch_up()
        )


class ConversationViews(Database):
    """The tables of sessions and turns and the text index, in `views.db`."""

    def status(self, context: StoreContext) -> list[ViewsStatus]:
        """Return the state of the views, with the numbers of sessions and turns in them."""
        log = context.log

        def look(connection: sa.Connection) -> tuple[Drift, Position, int, int]:
            state, position = state_of(connection, log, VIEWS)
            return state, position, *((0, 0) if state is Drift.MISSING else queries.counts(connection))

        failed, why, found = _looked_at(context.layout.views, look, sealed=True)
        state, position, sessions, turns = found or (failed, ORIGIN, 0, 0)
        return [
            ViewsStatus(
                state=state.value,
                position=position,
                behind_events=max(0, log.head().position - position),
                action=VIEWS_ACTIONS[state],
                why=why,
                sessions=sessions,
                turns=turns,
            )
        ]

    def check(self, context: StoreContext, *, deep: bool) -> Iterator[IssueWithFix]:
        """Yield what is wrong with the views, with `deep` by comparing every row with the log."""
        path, (status,) = context.layout.views, self.status(context)
        state = Drift(status.state)
        why = status.why
        unusable = True
        fix: Callable[[], str]
        if state in USABLE and deep and context.readable:
            state, why, unusable = _compared(context, path, status.position, state)
        match state:
            case Drift.CURRENT:
                return
            case Drift.BEHIND | Drift.MISSING if status.behind_events == 0:
                return
            case Drift.BEHIND | Drift.MISSING:
                why, fix = f"{counted(status.behind_events, 'event')} behind", partial(self._catch_up, context)
            case _:
                why = why or _ends(context, status.position)
                fix = partial(self._rebuild, context, unusable=unusable, why=why, state=state.value)
        yield self.issue(context, state, what="views", why=why, action=VIEWS_ACTIONS[state], fix=fix)

    def rebuild(self, context: StoreContext, *, upto: Position, skip_bad: bool) -> Rebuilt:
        """Rebuild the views from the log. They come from the log alone, so `skip_bad` changes nothing."""
        views = context.projections.views()
        views.rebuild(upto=upto, progress=context.progress)
        with views.database.reading() as connection:
            return Rebuilt(queries.turns_up_to(connection, upto))

    def to_encode(self, context: StoreContext, *, upto: Position) -> int:
        """Return 0: no model is needed."""
        return 0

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Remove forgotten content from the bytes of the file."""
        return not context.layout.views.exists() or context.projections.current_views().scrub()

    def _rebuild(self, context: StoreContext, *, unusable: bool, why: str, state: str) -> str:
        """Rebuild the views: in place, or in a new file where this one is unusable or evidence."""
        done = ""
        if unusable:
            done = context.quarantine_database(context.layout.views, why=why, state=state) + "; "
        rebuilt = self.rebuild(context, upto=context.log.head().position, skip_bad=False)
        return f"{done}rebuilt from the log with {counted(rebuilt.turns, 'turn')}"

    def _catch_up(self, context: StoreContext) -> str:
        """Bring the views up to date. Views that turn out to be damaged are rebuilt."""
        try:
            return f"read up to {context.projections.current_views(context.progress).position()}"
        except ProjectionUnreadable as error:
            if not is_damage(error):
                raise
            return self._rebuild(context, unusable=True, why=error.cause, state=Drift.DAMAGED.value)


def _compared(context: StoreContext, path: Path, upto: Position, state: Drift) -> tuple[Drift, str, bool]:
    """Return the state of views by their content, why, and whether the file itself is unusable."""
    failed, why, found = _looked_at(
        path, lambda connection: compare(connection, context.log, upto=upto, progress=context.progress)
    )
    if failed is not None:
        return failed, why, True
    return (Drift.DAMAGED, str(found), found.file_damaged) if found.count else (state, "", True)


def _ends(context: StoreContext, position: Position) -> str:
    return f"they have read up to {position}, the log ends at {context.log.head().position}"


class Cache(Database):
    """A cache in a table of the same name. A look at it does not import the module of the table: it may need numpy."""

    def status(self, context: StoreContext) -> list[CacheStatus]:
        """Return the state of the cache, from a look at its first row."""
        path = self.path(context.layout)

        def look(connection: sa.Connection) -> None:
            if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
                connection.exec_driver_sql(f"SELECT * FROM {self.name} LIMIT 1").all()

        failed, why, _ = _looked_at(path, look)
        return [
            CacheStatus(
                name=self.file,
                state=PRESENT if failed is None else failed.value,
                bytes=sum(size_of(path.with_name(path.name + part)) for part in ("", *DATABASE_PARTS)),
                action=CACHE_ACTIONS[failed or Drift.CURRENT],
                why=why,
            )
        ]

    def check(self, context: StoreContext, *, deep: bool) -> Iterator[IssueWithFix]:
        """Yield what is wrong with the cache, with `deep` row by row."""
        path, (status,) = self.path(context.layout), self.status(context)
        state, why = status.state, status.why
        bad = 0
        if deep and state == PRESENT:
            state, why, bad = self._audited(path)
        if state in (PRESENT, Drift.MISSING):
            return
        drift, fix = Drift(state), None
        if bad:
            fix = partial(self._delete_bad_rows, path)
        elif drift is Drift.DAMAGED:
            fix = partial(context.quarantine_database, path, why=why, state=state)
        yield self.issue(context, drift, what="cache", why=why, action=CACHE_ACTIONS[drift], fix=fix)

    def _audited(self, path: Path) -> tuple[str, str, int]:
        """Return the state of the cache by all of its rows, why, and how many do not match their checksum."""
        try:
            with opened(path) as database, database.reading() as connection:
                if faults := faults_of(connection):
                    return Drift.DAMAGED.value, "; ".join(faults), 0
                bad = len(self._bad_rows(connection))
        except ProjectionUnreadable as error:
            return state_by(error).value, error.cause, 0
        state = Drift.DAMAGED.value if bad else PRESENT
        return state, f"{counted(bad, 'row')} without the right checksum", bad

    def _delete_bad_rows(self, path: Path) -> str:
        with opened(path) as database, database.writing() as connection:
            bad = self._bad_rows(connection)  # Once more under the lock: another process may have replaced some.
            if bad:
                connection.exec_driver_sql(f"DELETE FROM {self.name} WHERE rowid = ?", bad)
        return f"deleted {counted(len(bad), 'row')}; what they held is computed again when needed"

    def _bad_rows(self, connection: sa.Connection) -> list[tuple[int]]:
        """Return the numbers of the rows that do not match their checksum. Such rows are never used."""
        table, is_whole = self._table()
        if not sa.inspect(connection).has_table(table.name):
            return []
        query = sa.select(sa.literal_column("rowid").label("number"), table)
        rows = connection.execution_options(yield_per=READ_BATCH).execute(query)
        return [(row.number,) for row in rows if not _fits(dict(row._mapping), is_whole)]

    def _table(self) -> tuple[sa.Table, IsWhole]:
        """Return the table, and the check of a row."""
        raise NotImplementedError


class Embeddings(Cache):
    """The cache of embedded texts."""

    def _table(self) -> tuple[sa.Table, IsWhole]:
        from mnemolog.projections.sql import embeddings  # It needs numpy.

        return embeddings.EMBEDDINGS, embeddings.is_whole

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Delete the vectors of texts that no remaining turn has."""
        path = self.path(context.layout)
        if not path.exists():
            return True
        from mnemolog.projections.vectors.turn_vectors import sweep  # It needs numpy.

        upto = context.log.head().position
        covered = dict[str, Position]()
        for found in survey(context.layout.vectors, context.log):
            if not found.replaced:
                covered[found.prefix] = min(found.covers, covered.get(found.prefix, upto))
        return context.purge_database(
            path, partial(sweep, log=context.log, upto=upto, covered=covered, progress=context.progress)
        )


class Snapshots(Cache):
    """The states of sessions."""

    def _table(self) -> tuple[sa.Table, IsWhole]:
        return snapshots.SNAPSHOTS, snapshots.is_whole

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Delete all of them: they are folded from the log again."""
        return context.purge_database(self.path(context.layout), empty)


def _fits(row: Mapping[str, Any], is_whole: IsWhole) -> bool:
    try:
        return is_whole(row)
    except (TypeError, ValueError, AttributeError):  # A flipped bit can turn a value into one of another type.
        return False


LISTED_MAX: Final = 10
"""Disagreements that are listed; the rest is counted."""
_KEYS: Final = {"sessions": ["session"], "turns": ["position"]}
"""Columns by which rows are named, where they are not those of the primary key."""
_INDEXED: Final = f"{TEXT_INDEX}_docsize"
"""The turns of the text index, with the number of their words."""


class Disagreements:
    """Differences between the views and the log: the first few, and their number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.count = 0
        self.file_damaged = False
        """Whether SQLite itself finds the file damaged."""

    def add(self, what: str) -> None:
        """Note one more."""
        self.count += 1
        if len(self.listed) < LISTED_MAX:
            self.listed.append(what)

    def __str__(self) -> str:
        more = self.count - len(self.listed)
        return "; ".join(self.listed) + (f"; and {more} more" if more else "")


def compare(connection: sa.Connection, log: Log, *, upto: Position, progress: Progress | None = None) -> Disagreements:
    """Compare views that have read the log up to `upto` with it. Reads all of both; changes nothing.

    The words in the text index are checked for being as many and of the right turns, not read back one by one.
    Raises `ProjectionUnreadable` (by the connection's owner) where the file cannot be read, and `StorageFull`.
    """
    found = Disagreements()
    for fault in faults_of(connection):
        found.add(fault)
        found.file_damaged = True
    with _built(log, upto, progress) as expected:
        try:
            for table in METADATA.sorted_tables:
                if table is not TRACKING:
                    keys = _KEYS.get(table.name, [column.name for column in table.primary_key])
                    columns = [*keys, *(column.name for column in table.columns if column.name not in keys)]
                    _compare(connection, expected, table.name, columns, len(keys), found)
            _compare(connection, expected, _INDEXED, ["id", "sz"], 1, found)
        except TypeError:  # A flipped bit can turn a key into one of another type, which has no place among the others.
            found.add("a key has another type")
            found.file_damaged = True
    return found


@contextmanager
def _built(log: Log, upto: Position, progress: Progress | None) -> Iterator[sa.Connection]:
    """Yield a connection to views of the log, in a temporary file."""
    engine = temporary_engine()
    try:
        views = Views(ProjectionDatabase(engine, Path("views.db")), log)
        views.rebuild(upto=upto, progress=progress)
        with views.database.reading() as connection:
            yield connection
    finally:
        engine.dispose()


def _compare(
    held: sa.Connection, expected: sa.Connection, table: str, columns: list[str], keys: int, found: Disagreements
) -> None:
    """Compare the rows of a table, of which the first `keys` columns are the key."""
    query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(columns[:keys])}"
    rows = merge(_rows(held, query, keys, 0), _rows(expected, query, keys, 1), key=itemgetter(0))
    for key, some in groupby(rows, key=itemgetter(0)):
        sides: dict[int, tuple[Any, ...]] = {side: row for _, side, row in some}
        if sides.get(0) == sides.get(1):
            continue
        if len(sides) == 2:
            pairs = zip(columns, *sides.values(), strict=True)
            why = f"other {', '.join(name for name, one, other in pairs if one != other)}"
        else:
            why = "the log has none" if 0 in sides else "missing"
        found.add(f"{table} {'/'.join(map(str, key))}: {why}")


def _rows(connection: sa.Connection, query: str, keys: int, side: int) -> Iterator[tuple[tuple[Any, ...], int, Any]]:
    driver: Any = connection.connection.driver_connection
    return ((row[:keys], side, row) for row in driver.execute(query))
