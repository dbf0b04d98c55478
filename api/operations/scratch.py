"""The temporary copy of its projections that a store has which is only read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.atomic_files import ScratchFolder, make_folder
from mnemolog.infra.sqlite import copy_database
from mnemolog.operations.backup_manifest import copy_file
from mnemolog.operations.nodes import note_copied
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.vectors.manifest import MANIFEST_FILE, read_manifest

LOOKS_MAX: Final = 5
"""The most times the segments are listed again because some were merged meanwhile."""


def scratch_of(folder: Path, log: EventLog) -> ScratchFolder:
    """Return a temporary folder with copies of the projections of a store. Closes the log if that fails."""
    try:
        scratch = ScratchFolder()
        note_copied(log, StoreLayout(folder, scratch.path).projections)
        copy_projections(StoreLayout(folder), scratch.path)
    except BaseException:
        log.close()
        raise
    return scratch


def copy_projections(layout: StoreLayout, target: Path) -> None:
    """Copy databases and segments. What cannot be read is left out: it is rebuilt from the log."""
    for projection in PROJECTIONS:
        for _ in range(LOOKS_MAX):
            paths = projection.backup_paths(layout)
            for path in paths:
                copy = target / path.relative_to(layout.folder)
                if not copy.exists():
                    _copy(path, copy, within=layout.folder)
            if all(path.exists() for path in paths):
                break


def _copy(source: Path, target: Path, *, within: Path) -> None:
    try:
        if source.suffix == ".db":
            make_folder(target.parent)
            copy_database(source, target)
            return
        files = read_manifest(source).files
        for name in (*sorted(files), MANIFEST_FILE):
            size = files[name].size_bytes if name in files else None
            copy_file(source / name, target / name, within=within, size_bytes=size)
    except (errors.StorageFull, errors.OutOfDescriptors, errors.StoreNotWritable):
        raise  # The copy cannot be written.
    except (errors.MnemologError, OSError) as error:
        if isinstance(error, OSError) and Path(error.filename or "").parent != source:
            raise  # The copy cannot be written.
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
