"""Forgotten content as ranges of stream versions, and the stream of forget requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mnemolog.domain.events import CheckpointCreated, Event, Forgotten, TurnRecorded
from mnemolog.domain.position import Position

FORGETTING_STREAM: Final = "forgetting"
"""The stream of requests. Its version is the forgetting epoch: what was read in an earlier one may be forgotten."""

NOTHING_OUTSIDE: Final = (
    "A caller that is bound to scopes forgets and distrusts nothing outside of them: "
    "facts and receipts of other scopes stay, whatever they rest on or showed."
)
"""Stands in reports and certificates of such callers whether there is anything outside or not."""


def ranges_of(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Return versions as the fewest ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for version in sorted(set(versions)):
        if ranges and ranges[-1][1] == version - 1:
            ranges[-1] = ranges[-1][0], version
        else:
            ranges.append((version, version))
    return ranges


class Positions:
    """A set of positions up to a head, one bit each: a session may have any number of events."""

    def __init__(self, head: Position) -> None:
        self._bits = bytearray((head >> 3) + 1)

    def add(self, position: int) -> None:
        """Add a position that is not past the head."""
        self._bits[position >> 3] |= 1 << (position & 7)

    def __contains__(self, position: int) -> bool:
        return position >> 3 < len(self._bits) and bool(self._bits[position >> 3] & 1 << (position & 7))

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield them as the fewest ranges, both ends included, ascending."""
        first: int | None = None
        for at, bits in enumerate(self._bits + b"\0"):
            if bits != (0 if first is None else 255):  # Eight positions at a time, where nothing changes.
                for position in range(at * 8, at * 8 + 8):
                    if position in self:
                        first = position if first is None else first
                    elif first is not None:
                        yield first, position - 1
                        first = None


def was_turn(event: Event) -> bool:
    """Whether this stands for a forgotten turn."""
    return isinstance(event, Forgotten) and event.was == TurnRecorded.topic


def is_checkpoint(event: Event) -> bool:
    """Whether this created a checkpoint, forgotten or not."""
    return isinstance(event, CheckpointCreated) or was_checkpoint(event)


def was_checkpoint(event: Event) -> bool:
    """Whether this stands for a created checkpoint whose name is forgotten."""
    return isinstance(event, Forgotten) and event.was == CheckpointCreated.topic
