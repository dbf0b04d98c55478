"""Remove forgotten content from every projection of a store, down to the bytes of its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import filelock

from mnemolog.domain import errors
from mnemolog.domain.store_layout import PROJECTIONS as FOLDER
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting.history import forgotten_turns
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.files import as_store_error, lock_file, make_folder, sweep_scratch
from mnemolog.projections.maintenance.context import StoreContext, abandoned_in, remove_stale
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector import PROJECTORS
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.registry import PROJECTIONS, unregistered_tables

LOCK_FILE: Final = ".forgetting.lock"


@contextmanager
def alone(layout: StoreLayout, *, wait_s: float) -> Iterator[None]:
    """Let one process at a time forget and purge in a folder. Raises `LogBusy` after waiting for another one."""
    folder = layout.projections
    try:
        make_folder(folder, root=FOLDER)
        lock = lock_file(folder / LOCK_FILE, wait_s=wait_s)
        lock.acquire()
    except filelock.Timeout as error:
        raise errors.LogBusy(waited_s=wait_s) from error
    except OSError as error:
        raise as_store_error(error, folder) from error
    try:
        yield
    finally:
        lock.release()


def purge(
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    *,
    progress: Progress | None = None,
) -> str:
    """Remove forgotten content from all projections. Return what could not be done, or an empty string.

    May be repeated. Raises `ProjectionError`, `StorageFull`.
    """
    context = StoreContext(layout, log, projections, progress=progress)
    left = [
        f"another process still reads {projection.name}.db"
        for projection in (*PROJECTIONS, *unregistered_tables(layout))
        if not projection.purge(context, partial(forgotten_turns, log))
    ]
    _purge_quarantine(context.quarantine, log)
    for path in (layout.projections / PROJECTORS).glob("*.json"):
        path.unlink(missing_ok=True)  # It may quote a model's report about a text.
    for abandoned in abandoned_in(layout.scratch or layout.folder):
        if abandoned.name.startswith(".keys."):  # Of an import or a copy of the store that was killed.
            remove_stale(abandoned)
    sweep_scratch()
    projections.poke()
    return "; ".join(left)


def _purge_quarantine(quarantine: Quarantine, log: EventLog) -> None:
    """Delete all items in quarantine, because their content is unknown; except items known to be of another log."""
    quarantine.delete([item for item in quarantine.items() if item.log_id in ("", log.log_id)])
    for path in quarantine.folder.glob(".removed.*"):
        remove_stale(path)
