"""The files of a store and their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

CHECKSUM_PART: Final = "-seal"
"""Suffix of the file with a checksum over a closed database."""
DATABASE_PARTS: Final = ("-wal", "-shm", "-journal", CHECKSUM_PART)
"""Suffixes of the files that belong to a database file and move with it."""


PROJECTIONS: Final = "projections"
"""The name of the folder of everything that is derived from the log."""


class StoreLayout(NamedTuple):
    """The paths of one store. The log and the keys are the store; everything else can be deleted at any time."""

    folder: Path
    scratch: Path | None = None
    """A temporary folder for the projections of a store that is only read."""

    @property
    def log(self) -> Path:
        """The event log: the source of truth."""
        return self.folder / "log.db"

    @property
    def keys(self) -> Path:
        """The content keys of an encrypted log."""
        return self.folder / "keys.db"

    @property
    def known_backups(self) -> Path:
        """Where the last backups of this store were written."""
        return self.folder / "backups.json"

    @property
    def seen_head(self) -> Path:
        """The last head that this node has seen of a log in a database."""
        return self.folder / "head.json"

    @property
    def moved(self) -> Path:
        """Where the log was moved. Delete it to give up the move."""
        return self.folder / "moved.txt"

    @property
    def projections(self) -> Path:
        """The folder of everything that is derived from the log."""
        return (self.scratch or self.folder) / PROJECTIONS

    @property
    def views(self) -> Path:
        """Sessions, turns and full text."""
        return self.projections / "views.db"

    @property
    def embeddings(self) -> Path:
        """The cache of embedded texts."""
        return self.projections / "embeddings.db"

    @property
    def snapshots(self) -> Path:
        """Folded states of sessions."""
        return self.projections / "snapshots.db"

    @property
    def vectors(self) -> Path:
        """The folder of the vector generations."""
        return self.projections / "vectors"

    @property
    def derived_folders(self) -> tuple[Path, ...]:
        """The folders of what is derived from the log, outermost first."""
        return self.projections, self.vectors, self.quarantine, self.projections / "projectors"

    @property
    def quarantine(self) -> Path:
        """The folder of files that do not match the log or are damaged."""
        return self.projections / "quarantine"
