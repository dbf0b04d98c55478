"""What files of a node know of the log's history: manifests of segments, and turns that the log has lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.projections.drift import LOST_HISTORY
from mnemolog.projections.health.verify import Witness
from mnemolog.projections.ports import AuditableLog
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.conversation_views import VIEWS
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.opening import opened
from mnemolog.projections.sql.projection import state_of
from mnemolog.projections.vectors.manifest import generation_folders, log_range_of, segment_folders

_TAGS: Final = "SELECT name, position, log_id, digest FROM tracking WHERE typeof(digest) = 'blob'"
IN_QUARANTINE: Final = "quarantined"
"""What the name of a witness in quarantine begins with."""


def witnesses_of(folder: Path, log: AuditableLog) -> Iterator[Witness]:
    """Yield what remembers the history of this log: the tags of tables, and the manifests of segments, those in
    quarantine included.

    A segment in quarantine is as good a witness as before, and one that is ahead of the log is the only witness of a
    tail that was lost. Purging the quarantine deletes these witnesses. A damaged manifest is no witness.
    """
    layout = StoreLayout(folder)
    found: list[tuple[str, str, Position, str]] = []
    for path in () if log.is_read_only else sorted(layout.projections.glob("*.db")):
        with suppress(errors.ProjectionUnreadable), opened(path) as database, database.reading() as connection:
            for name, position, log_id, digest in fetch(connection, _TAGS):
                found.append((f"{path.name} ({name})", log_id, position, digest.hex()))
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


class LostTurns(NamedTuple):
    """Turns that were read from another history of the log, and the views that have their texts."""

    file: Path
    turns: int
    first: Position
    last: Position


def lost_turns(layout: StoreLayout, log: AuditableLog) -> Iterator[LostTurns]:
    """Yield the turns of views that know more than the log, in use or in quarantine. An unreadable file has none."""
    quarantine = Quarantine(layout.quarantine)
    aside = [item.name for item in quarantine.items() if item.was == layout.views.name and item.state in LOST_HISTORY]
    for path in (layout.views, *(quarantine.folder / name for name in aside)):
        if path.exists():
            with suppress(errors.ProjectionUnreadable), opened(path) as database, database.reading() as connection:
                if state_of(connection, log, VIEWS)[0] in LOST_HISTORY:
                    yield from _after_the_common_part(path, connection, log)


def _after_the_common_part(path: Path, connection: sa.Connection, log: AuditableLog) -> Iterator[LostTurns]:
    """Yield the turns after the last one that both have: two histories of a log are the same up to some position."""
    positions = [position for (position,) in fetch(connection, "SELECT position FROM turns ORDER BY position")]

    def is_lost(position: Position) -> bool:
        rows = next(log.stored_rows(after=Position(position - 1), upto=position, batch_max=1), [])
        own = fetch(connection, "SELECT version, recorded_at FROM turns WHERE position = ?", position)
        return [(row[2], row[6]) for row in rows] != own

    lost = positions[bisect_left(positions, True, key=is_lost) :]
    if lost:
        yield LostTurns(path, len(lost), lost[0], lost[-1])
