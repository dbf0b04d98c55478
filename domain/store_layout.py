"""The files of a store and their paths."""

from pathlib import Path
from typing import Final

CHECKSUM_PART: Final = "-seal"
"""Suffix of the file with a checksum over a closed database."""
DATABASE_PARTS: Final = ("-wal", "-shm", "-journal", CHECKSUM_PART)
"""Suffixes of the files that belong to a database file and move with it."""


PROJECTIONS: Final = "projections"
"""The name of the folder of everything that is derived from the log."""


SEEN_HEAD: Final = "head.json"


class StoreLayout:
    """The paths of one store. The log and the keys are the store; everything else can be deleted at any time."""

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.folder = folder
        self.scratch = scratch
        """A temporary folder for the projections of a store that is only read."""
        self.log = folder / "log.db"
        """The event log: the source of truth."""
        self.keys = folder / "keys.db"
        """The content keys of an encrypted log."""
        self.known_backups = folder / "backups.json"
        """Where the last backups of this store were written."""
        self.seen_head = folder / SEEN_HEAD
        """The last head that this folder has seen of its log: a witness of the log's history."""
        self.may_lose = folder / "normal.txt"
        """Notes that the log was written with `synchronous="NORMAL"`: a power cut may take its newest events."""
        self.moved = folder / "moved.txt"
        """Where the log was moved. Delete it to give up the move."""
        self.projections = (scratch or folder) / PROJECTIONS
        """The folder of everything that is derived from the log."""
        self.views = self.projections / "views.db"
        """Sessions, turns and full text."""
        self.embeddings = self.projections / "embeddings.db"
        """The cache of embedded texts."""
        self.snapshots = self.projections / "snapshots.db"
        """Folded states of sessions."""
        self.vectors = self.projections / "vectors"
        """The folder of the vector generations."""
        self.quarantine = self.projections / "quarantine"
        """The folder of files that do not match the log or are damaged."""
        self.token_uses = self.projections / "token-uses.json"
        """When each token was last used."""
        self.own_quarantine = folder / PROJECTIONS / "quarantine"
        """The same in the folder of the store, also where it is only read: what people list and purge."""
        self.derived_folders = (self.projections, self.vectors, self.quarantine, self.projections / "projectors")
        """The folders of what is derived from the log, outermost first."""
