"""Copies of a log that are no store yet."""

from __future__ import annotations

from pathlib import Path

from mnemolog.audit.results import LogImport
from mnemolog.projections.ports import Progress


def import_log(export: str | Path, folder: str | Path, *, progress: Progress | None = None) -> LogImport:
    """Make a store of an exported log, or bring one up that has the beginning of the same log.

    The log gets the columns, digests and identity of the one that was exported; its projections are made when they are
    first needed. Where there is no store at `folder` yet, there is a whole one afterwards or none. A store that is
    there has to be of the same log and must end within the export; it gets the events that it lacks, in transactions
    of 500, so that an import that was cut off may be run again.

    Raises `ImportRefused`, naming the line that does not fit, and for a store whose history is another one;
    `NotAStore`, `StoreNotWritable`, `FormatTooNew`.
    """
    from mnemolog.audit.log_import import import_export  # Nobody else needs what it is made of.

    return import_export(Path(export), Path(folder), progress=progress)
