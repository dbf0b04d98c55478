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
    Drift.DAMAGED: Hint(*(remedy("admin.doctor", fix=True), " moves the damaged file to quarantine.")),
    Drift.MISSING: "Nothing to do: it is created when it is first needed.",
    Drift.UNREADABLE: UNREADABLE_ACTION,
}


class Cache(Database):
    """A cache in a database of its own. `first_row` reads a row: the module of its tables may need numpy."""

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
        if deep and state == PRESENT:
            state, why = self._audited(path)
        if state in (PRESENT, Drift.MISSING):
            return
        drift = Drift(state)
        fix = partial(context.quarantine_database, path, why=why, state=state) if drift is Drift.DAMAGED else None
        yield self.issue(context, drift, what="cache", why=why, action=ACTIONS[drift], fix=fix)

    def _audited(self, path: Path) -> tuple[str, str]:
        """Return the state of the cache by all of its rows, and why."""
        table, is_whole = self._table()
        try:
            with opened(path) as database, database.reading() as connection:
                if faults := faults_of(connection):
                    return Drift.DAMAGED.value, "; ".join(faults)
                if not sa.inspect(connection).has_table(table.name):
                    return PRESENT, ""
                rows = connection.execution_options(yield_per=READ_BATCH).execute(sa.select(table))
                bad = sum(not _fits(dict(row._mapping), is_whole) for row in rows)
        except errors.ProjectionUnreadable as error:
            return state_by(error).value, error.cause
        return (Drift.DAMAGED.value, f"{counted(bad, 'row')} without the right checksum") if bad else (PRESENT, "")

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
