"""Apply the log to a projection, live or in a rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from mnemolog.domain import structured_log
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Log, Progress

BATCH_MAX: Final = 500


class Projection(Protocol):
    """State derived from the log; it can be deleted and rebuilt."""

    @property
    def name(self) -> str:
        """Its name in messages and tracking."""
        ...

    def position(self) -> Position:
        """The last position it has read."""
        ...

    def apply(self, events: Sequence[RecordedEvent]) -> None:
        """Take in events, in order, and save them with their last position in one transaction.

        Quiet and deterministic: no clock, no network. Events it has already seen change nothing.
        """
        ...


def catch_up(
    log: Log,
    projection: Projection,
    *,
    upto: Position,
    batch_max: int = BATCH_MAX,
    progress: Progress | None = None,
) -> Position:
    """Apply every event of `(projection.position(), upto]`, in order. Return the position reached."""
    start, moved = projection.position(), False
    for events in log.read(after=start, upto=upto, batch_max=batch_max):
        projection.apply(events)
        if progress is not None:
            progress(events[-1].position - start, upto - start)
        moved = True
    if moved:
        structured_log.debug(
            "projection.caught_up", name=projection.name, after=start, upto=upto, behind_events=upto - start
        )
    return projection.position() if moved else start
