"""Forgotten content as ranges of stream versions, and the stream of forget requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mnemolog.domain.events import CheckpointCreated, Event, Forgotten, TurnRecorded

FORGETTING_STREAM: Final = "forgetting"
"""The stream of requests. Its version is the forgetting epoch: what was read in an earlier one may be forgotten."""


def ranges_of(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Return versions as the fewest ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for version in sorted(set(versions)):
        if ranges and ranges[-1][1] == version - 1:
            ranges[-1] = ranges[-1][0], version
        else:
            ranges.append((version, version))
    return ranges


def was_turn(event: Event) -> bool:
    """Whether this stands for a forgotten turn."""
    return isinstance(event, Forgotten) and event.was == TurnRecorded.topic


def is_checkpoint(event: Event) -> bool:
    """Whether this created a checkpoint, forgotten or not."""
    return isinstance(event, CheckpointCreated) or was_checkpoint(event)


def was_checkpoint(event: Event) -> bool:
    """Whether this stands for a created checkpoint whose name is forgotten."""
    return isinstance(event, Forgotten) and event.was == CheckpointCreated.topic
