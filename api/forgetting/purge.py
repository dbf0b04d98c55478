"""Taking what was forgotten out of every projection of a store, down to the bytes of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.store_layout import DATABASE_PARTS, StoreLayout
from mnemolog.forgetting.history import forgotten_turns
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.health import stale_files
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector_status import PROJECTORS
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import is_damage, opened
from mnemolog.projections.sql.projection import empty
from mnemolog.projections.sql.snapshots import SnapshotStore

_READ_BY_OTHERS: Final = "another process goes on reading {}"


def purge(
    folder: Path,
    log: EventLog,
    projections: ProjectionSet,
    snapshots: SnapshotStore,
    *,
    progress: Progress | None = None,
) -> str:
    """Take out of the projections what the log tells to be forgotten. Return what could not be done; else nothing.

    May be done again. Raises `ProjectionError`, `StorageFull`.
    """
    layout = StoreLayout(folder)
    root = layout.projections
    left: list[str] = []
    if layout.views.exists() and not projections.current_views().scrub():
        left.append(_READ_BY_OTHERS.format(layout.views.name))
    if not _purge_snapshots(layout.snapshots, snapshots):
        left.append(_READ_BY_OTHERS.format(layout.snapshots.name))
    if not _purge_embeddings(layout, log, progress):
        left.append(_READ_BY_OTHERS.format(layout.embeddings.name))
    if layout.vectors.exists():
        from mnemolog.projections.vectors import forgetting  # It needs FAISS, which a store without vectors does not.

        forgetting.purge(layout.vectors, log, forgotten_turns(log), progress=progress)
    left += [_READ_BY_OTHERS.format(path.name) for path in _tables(layout) if not _purge_tables(path, log)]
    _purge_quarantine(Quarantine(StoreLayout(folder).quarantine), log)
    for path in (root / PROJECTORS).glob("*.json"):
        path.unlink(missing_ok=True)  # It may quote what a model said about a text.
    projections.poke()
    return "; ".join(left)


def _purge_snapshots(path: Path, snapshots: SnapshotStore) -> bool:
    try:
        return snapshots.forget()
    except errors.ProjectionUnreadable as error:
        if not is_damage(error):
            raise
        snapshots.let_go()
        _remove(path)  # States can be folded again.
        return True


def _purge_embeddings(layout: StoreLayout, log: EventLog, progress: Progress | None) -> bool:
    path = layout.embeddings
    if not path.exists():
        return True
    from mnemolog.projections.vectors.embeddings_sweep import sweep  # It needs numpy.

    def purged(database: ProjectionDatabase) -> None:
        sweep(database, log, upto=log.head().position, progress=progress)

    return _purge_database(path, log, purged)


def _tables(layout: StoreLayout) -> list[Path]:
    """Return the files of tables that adapters follow the log with."""
    ours = {layout.views, layout.snapshots, layout.embeddings}
    return sorted(path for path in layout.projections.glob("*.db") if path not in ours)


def _purge_tables(path: Path, log: EventLog) -> bool:
    """Empty the tables of an adapter: it reads the log anew when it is next asked, also where it has them open."""
    return _purge_database(path, log, empty)


def _purge_database(path: Path, log: EventLog, purged: Callable[[ProjectionDatabase], None]) -> bool:
    try:
        with opened(path, busy_timeout_s=log.busy_timeout_s) as database:
            purged(database)
            return database.scrub()
    except errors.ProjectionUnreadable as error:
        if not is_damage(error):
            raise
        _remove(path)  # What cannot be read cannot be swept; and all of it can be made again.
        return True


def _remove(path: Path) -> None:
    for part in ("", *DATABASE_PARTS):
        stale_files.remove(path.with_name(path.name + part))


def _purge_quarantine(quarantine: Quarantine, log: EventLog) -> None:
    """Delete what lies in quarantine, but what is known to be of another log: nothing tells what is in it."""
    ours = [item.name for item in quarantine.items() if item.log_id in ("", log.log_id)]
    quarantine.purge(ours)
    for path in quarantine.folder.glob(".removed.*"):
        stale_files.remove(path)
