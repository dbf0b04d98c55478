"""Databases that save work and do not follow the log: the embedding cache and the snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.display import counted
from mnemolog.domain.hints import Hint, remedy
from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.projections.drift import NOTHING_TO_DO, Actions, Drift
from mnemolog.projections.maintenance.context import (
    UNREADABLE_ACTION,
    Database,
    Forgotten,
    StoreContext,
    remove_database,
    state_by,
)
from mnemolog.projections.maintenance.results import PRESENT, CacheStatus, IssueWithFix
from mnemolog.projections.quarantine import size_of
from mnemolog.projections.sql import snapshots
from mnemolog.projections.sql.database import faults_of
from mnemolog.projections.sql.opening import is_damage, opened

READ_BATCH: Final = 500
IsWhole = Callable[[Mapping[str, Any]], bool]
"""Whether a row matches its checksum."""
ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.DAMAGED: Hint(
        *(remedy("admin.doctor", fix=True), " moves the damaged file to quarantine, or deletes the damaged rows.")
    ),
    Drift.MISSING: "Nothing to do: it is created when it is first needed.",
    Drift.UNREADABLE: UNREADABLE_ACTION,
}


class Cache(Database):
    """A cache in a table of the same name. `first_row` reads a row: the module of the table may need numpy."""

    def __init__(self, name: str, *, first_row: str) -> None:
        super().__init__(name)
        self._first_row = first_row

    def status(self, context: StoreContext) -> list[CacheStatus]:
        """Return the state of the cache, from a look at its first row."""
        path = self.path(context.layout)
        state, why, size = PRESENT, "", 0
        if not path.exists():
            state = Drift.MISSING.value
        else:
            try:
                with opened(path) as database, database.reading() as connection:
                    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
                        connection.exec_driver_sql(self._first_row).all()
            except errors.ProjectionUnreadable as error:
                state, why = state_by(error).value, error.cause
            size = sum(size_of(path.with_name(path.name + part)) for part in ("", *DATABASE_PARTS))
        drift = Drift.CURRENT if state == PRESENT else Drift(state)
        return [CacheStatus(name=self.file, state=state, bytes=size, action=ACTIONS[drift], why=why)]

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
        yield self.issue(context, drift, what="cache", why=why, action=ACTIONS[drift], fix=fix)

    def _audited(self, path: Path) -> tuple[str, str, int]:
        """Return the state of the cache by all of its rows, why, and how many do not match their checksum."""
        try:
            with opened(path) as database, database.reading() as connection:
                if faults := faults_of(connection):
                    return Drift.DAMAGED.value, "; ".join(faults), 0
                bad = len(self._bad_rows(connection))
        except errors.ProjectionUnreadable as error:
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
        from mnemolog.projections.vectors.lookup_by_text import sweep  # It needs numpy.

        upto = context.log.head().position
        return context.purge_database(path, partial(sweep, log=context.log, upto=upto, progress=context.progress))


class Snapshots(Cache):
    """The states of sessions."""

    def _table(self) -> tuple[sa.Table, IsWhole]:
        return snapshots.SNAPSHOTS, snapshots.is_whole

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Delete all of them: they are folded from the log again."""
        try:
            return context.snapshots.forget()
        except errors.ProjectionUnreadable as error:
            if not is_damage(error):
                raise
            context.snapshots.let_go()
            remove_database(self.path(context.layout))
            return True


def _fits(row: Mapping[str, Any], is_whole: IsWhole) -> bool:
    try:
        return is_whole(row)
    except (TypeError, ValueError, AttributeError):  # A flipped bit can turn a value into one of another type.
        return False
