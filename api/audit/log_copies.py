"""Creating a store from an exported log."""

from __future__ import annotations

from pathlib import Path

from mnemolog.audit.results import LogImport
from mnemolog.projections.ports import Progress


def import_log(export: str | Path, folder: str | Path, *, progress: Progress | None = None) -> LogImport:
    """Create a store from an exported log, or extend a store that has the beginning of the same log.

    The new log has the columns, digests and identity of the exported one; its projections are built when first
    needed. If `folder` holds no store, afterwards it holds a complete one or none. An existing store must be of the
    same log and end within the export; it gets the missing events in transactions of 500, so an interrupted import
    can be run again.

    Raises `ImportRefused` for an invalid line (naming it) and for a store with another history;
    `NotAStore`, `StoreNotWritable`, `FormatTooNew`.
    """
    from mnemolog.audit.log_import import import_export  # Only an import needs these modules.

    return import_export(Path(export), Path(folder), progress=progress)
