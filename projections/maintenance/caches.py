"""Databases that save work and do not follow the log: the embedding cache and the snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

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
from mnemolog.projections.sql.database import faults_of
from mnemolog.projections.sql.opening import is_damage, opened

ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.DAMAGED: Hint(
        *(remedy("admin.doctor", fix=True), " moves the damaged file to quarantine, or deletes the damaged rows.")
    ),
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
        keys: list[tuple[Any, ...]] = []
        if deep and state == PRESENT:
            state, why, keys = _audited(context, path)
        if state in (PRESENT, Drift.MISSING):
            return
        fix = None
        if keys:
            fix = partial(_delete_rows, path, keys)
        elif state == Drift.DAMAGED:
            fix = partial(context.quarantine_database, path, why=why, state=state)
        drift = Drift(state)
        yield self.issue(context, drift, what="cache", why=why, action=ACTIONS[drift], fix=fix)


class Embeddings(Cache):
    """The cache of embedded texts."""

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Delete the vectors of texts that no remaining turn has."""
        path = self.path(context.layout)
        if not path.exists():
            return True
        from mnemolog.projections.vectors.embeddings_sweep import sweep  # It needs numpy.

        upto = context.log.head().position
        return context.purge_database(path, partial(sweep, log=context.log, upto=upto, progress=context.progress))


class Snapshots(Cache):
    """The states of sessions."""

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


def _audited(context: StoreContext, path: Path) -> tuple[str, str, list[tuple[Any, ...]]]:
    """Return the state of a cache by all of its rows, why, and the keys of the damaged ones."""
    from mnemolog.projections.health import rows_audit

    try:
        with opened(path) as database:
            with database.reading() as connection:
                if faults := faults_of(connection):
                    return Drift.DAMAGED.value, "; ".join(faults), []
            keys = rows_audit.invalid_rows(database, progress=context.progress)
    except errors.ProjectionUnreadable as error:
        return state_by(error).value, error.cause, []
    return (
        (Drift.DAMAGED.value, f"{counted(len(keys), 'row')} without the right checksum", keys)
        if keys
        else (PRESENT, "", [])
    )


def _delete_rows(path: Path, keys: list[tuple[Any, ...]]) -> str:
    from mnemolog.projections.health import rows_audit

    with opened(path) as database:
        count = rows_audit.delete(database, keys)
    return f"deleted {counted(count, 'row')}; what they held is computed again when needed"
