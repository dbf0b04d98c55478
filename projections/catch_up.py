"""Apply the log to a projection, live or in a rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Protocol

from mnemolog.domain import structured_log
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Log, Progress

BATCH_MAX: Final = 500
SAVED_TOGETHER: Final = 8
"""Batches in one transaction: a page of the database that several of them change is written once."""


class Projection(Protocol):
    """State derived from the log; it can be deleted and rebuilt."""

    @property
    def name(self) -> str:
        """Its name in messages and tracking."""
        ...

    def position(self) -> Position:
        """The last position it has read."""
        ...

    def apply_all(self, batches: Iterable[Sequence[RecordedEvent]]) -> None:
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
    start = reached = projection.position()
    failed: Exception | None = None

    def following(batches: Iterable[list[RecordedEvent]]) -> Iterator[list[RecordedEvent]]:
        nonlocal reached, failed
        try:
            for events in batches:
                yield events
                reached = events[-1].position
        except Exception as error:  # Of reading the log. What was read before is saved.
            failed = error

    batches = log.read(after=start, upto=upto, batch_max=batch_max)
    for first in batches:
        projection.apply_all(following(chain([first], islice(batches, SAVED_TOGETHER - 1))))
        if progress is not None:
            progress(reached - start, upto - start)
        if failed is not None:
            raise failed
    if reached > start:
        structured_log.debug(
            "projection.caught_up", name=projection.name, after=start, upto=upto, behind_events=upto - start
        )
    return projection.position() if reached > start else start
