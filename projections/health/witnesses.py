"""Witnesses of the log's history in a store: manifests of segments, in use or in quarantine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.projections.health.verify import Witness
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.vectors.folders import generation_folders
from mnemolog.projections.vectors.manifest import log_range_of, segment_folders

IN_QUARANTINE: Final = "quarantined"
"""What the name of a witness in quarantine begins with."""


def witnesses_of(folder: Path, log: Log) -> Iterator[Witness]:
    """Yield what remembers the history of this log: the manifests of segments, those in quarantine included.

    A segment in quarantine is as good a witness as before, and one that is ahead of the log is the only witness of a
    tail that was lost. Purging the quarantine deletes these witnesses. A damaged manifest is no witness.
    """
    layout = StoreLayout(folder)
    found: list[tuple[str, str, Position, str]] = []
    for generation in generation_folders(layout.vectors):
        for part in segment_folders(generation.path):
            if (tag := log_range_of(part)) is not None:
                found.append((f"segment {part.parent.name}/{part.name}", tag.log_id, tag.upto, tag.digest))
    quarantine = Quarantine(layout.quarantine)
    for item in quarantine.items():
        if item.upto is not None:
            found.append((f"{IN_QUARANTINE} {item.name}", item.log_id, item.upto, item.digest))
    for path in quarantine.paths():
        for part in (path, *sorted(path.glob("[0-9]*-[0-9]*"))):  # A segment, or a generation with its segments.
            if (tag := log_range_of(part)) is not None:
                found.append((f"{IN_QUARANTINE} {path.name}", tag.log_id, tag.upto, tag.digest))
    for name, log_id, upto, digest in dict.fromkeys(found):
        with suppress(ValueError):
            if log_id == log.log_id:
                bytes.fromhex(digest)
                yield Witness(name, Head(position=upto, digest=digest))
