"""A generation as it was at an earlier offset: no turn behind it, and groups with the turns they had then.

A group that was open then has grown since, and its vector is that of all its turns. What it was is embedded anew,
from the cache where that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.position import Position
from mnemolog.projections.ports import Log
from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.embedder import Embedder
from mnemolog.projections.vectors.group_members import Positions
from mnemolog.projections.vectors.grouping import Group
from mnemolog.projections.vectors.rendering import render
from mnemolog.projections.vectors.segment import Segment, build
from mnemolog.projections.vectors.snapshot import Snapshot

ENCODE_MAX: Final = 64
"""Texts of groups as they were that one search puts through the model."""


class Then(NamedTuple):
    """What to search."""

    allowed: Positions | None
    """The turns that may be found, rising; None for all."""
    instead: Segment | None
    """Groups as they were then, to be searched instead of what they are now."""
    covers: Position


def as_of(
    snapshot: Snapshot, upto: Position, *, allowed: Positions | None, log: Log, embedder: Embedder, dimension: int
) -> Then:
    """Return what of a snapshot there was when the log ended at `upto`. Raises `EncodingFailed`, `StorageFull`."""
    covers = min(snapshot.covers, upto)
    if snapshot.closed_to <= upto:
        return Then(allowed, None, covers)
    if allowed is None:
        turns = np.concatenate([segment.members.turns for segment in snapshot.segments])
        allowed = np.sort(turns[turns <= upto])
    else:
        allowed = allowed[: np.searchsorted(allowed, upto, side="right")]
    epoch = log.epoch()
    groups = [
        group
        for segment in snapshot.segments
        for turns in _grown_since(segment, upto)
        if (group := _group_of(log, turns)).turns
    ]
    if not groups:
        return Then(allowed, None, covers)
    made: list[tuple[Group, Vectors]] = []
    without: list[int] = []
    for group, vectors in zip(
        groups, embedder.embed(groups, encode_max=ENCODE_MAX, read_in=epoch).vectors, strict=True
    ):
        if vectors is None:
            without += group.turns  # Nor are they found by what their group is now.
            covers = min(covers, Position(group.turns[0] - 1))
        else:
            made.append((group, vectors))
    made.sort(key=lambda pair: pair[0].id)
    parts = [group for group, _ in made], [vectors for _, vectors in made]
    instead = build(*parts, after=upto, upto=upto, dimension=dimension)
    return Then(np.setdiff1d(allowed, np.asarray(without, dtype=np.int64), assume_unique=True), instead, covers)


def _grown_since(segment: Segment, upto: Position) -> Iterator[tuple[Position, ...]]:
    """Yield the turns up to `upto` of each group that has turns on both sides of it."""
    members = segment.members
    if len(members.ends) == len(members.turns):
        return
    starts = np.concatenate(([0], members.ends[:-1]))
    for group in np.flatnonzero((members.turns[starts] <= upto) & (members.ids > upto)):
        turns = members.turns[members.turns_of(int(group))]
        yield tuple(Position(turn) for turn in turns[turns <= upto].tolist())


def _group_of(log: Log, positions: Sequence[Position]) -> Group:
    """Return the group of the turns at these positions, without those that are forgotten since."""
    turns: dict[Position, str] = {}
    for position in positions:
        for events in log.read(after=Position(position - 1), upto=position):
            if isinstance(events[0].event, TurnRecorded):
                turns[position] = render(events[0].event)
            elif not was_turn(events[0].event):
                raise ValueError(f"no turn at {position}")
    return Group(tuple(turns), tuple(turns.values()))
