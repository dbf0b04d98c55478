"""Which turns the groups of a segment hold, as arrays: from a row to its turns, from turns to rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class Members(NamedTuple):
    """Groups one after the other. Shapes: turns (m,), ends (g,), for g groups of m turns in all."""

    turns: Positions
    """Positions of turns: those of the first group, rising, then those of the second, and so on."""
    ends: NDArray[np.int64]
    """Where in `turns` each group ends, exclusive; a group begins where the one before ends."""

    @property
    def ids(self) -> Positions:
        """The id of each group: the position of its last turn. Shape (g,)."""
        return self.turns[self.ends - 1]

    def ids_of(self, groups: NDArray[np.int64]) -> Positions:
        """Return the ids of some groups, without looking at the others."""
        return self.turns[self.ends[groups] - 1]

    def turns_of(self, group: int) -> slice:
        """Return where in `turns` the turns of a group lie. Groups are numbered from 0."""
        return slice(int(self.ends[group - 1]) if group else 0, int(self.ends[group]))


def members_of(groups: Sequence[Sequence[int]]) -> Members:
    """Return the members of groups given as lists of turns."""
    turns = [position for group in groups for position in group]
    ends = np.cumsum([len(group) for group in groups], dtype=np.int64)
    return Members(np.asarray(turns, dtype=np.int64), ends)


def single_turns(ids: Positions) -> Members:
    """Return the members of groups that hold one turn each."""
    return Members(ids, np.arange(1, len(ids) + 1, dtype=np.int64))


def joined(parts: Iterable[Members]) -> Members:
    """Return the groups of `parts`, in order."""
    turns, ends, before = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
    for part in parts:
        turns.append(part.turns)
        ends.append(part.ends + before)
        before += len(part.turns)
    return Members(np.concatenate(turns), np.concatenate(ends))


def numbered(positions: Positions) -> NDArray[np.int64]:
    """Return for each row the number of its group, from 0, given the id of its group.

    The rows of a group (its chunks) lie together.
    """
    if not len(positions):
        return np.empty(0, dtype=np.int64)
    return np.concatenate(([0], np.cumsum(positions[1:] != positions[:-1]))).astype(np.int64)


def to_table(members: Members) -> NDArray[np.int64]:
    """Return one row per turn: its position and the id of its group. Shape (m, 2), as it is stored."""
    sizes = np.diff(members.ends, prepend=0)
    return np.column_stack((members.turns, np.repeat(members.ids, sizes)))


def from_table(table: NDArray[np.int64]) -> Members:
    """Return the members that `table` lists. Raises `ValueError` unless every group ends with its own id."""
    turns, ids = table[:, 0], table[:, 1]
    ends = np.flatnonzero(np.append(ids[1:] != ids[:-1], True)) + 1 if len(table) else np.empty(0, dtype=np.int64)
    members = Members(np.ascontiguousarray(turns), ends.astype(np.int64))
    if not np.array_equal(members.ids, ids[members.ends - 1]) or len(np.unique(turns)) != len(turns):
        raise ValueError("a group does not end with its own id, or a turn is in two groups")
    return members
