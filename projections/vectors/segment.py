"""An immutable part of a generation: the vectors of an offset range `(after, upto]`.

A segment holds the groups of turns that closed in its range, in the order they closed, and says which turns
up to its end are in groups that were still open, and which have no vector because the model refused them:
with the segments before it, it accounts for every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from mnemolog.domain.position import Position
from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.ann_index import Coarse
from mnemolog.projections.vectors.checked_rows import ExactRows, MemoryRows, Rows
from mnemolog.projections.vectors.group_members import Members, Positions, joined, members_of
from mnemolog.projections.vectors.grouping import Group
from mnemolog.projections.vectors.manifest import Skipped
from mnemolog.projections.vectors.quantized_rows import Sketch

NO_POSITIONS: Final[Positions] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Segment:
    """Vectors row by row, with the groups of turns they belong to."""

    after: Position
    upto: Position
    rows: Rows
    """The number of each row's group in `members`, rising: a group of several chunks has several rows."""
    members: Members
    exact: ExactRows
    coarse: Coarse | None = None
    """Finds rows that may be near, in a segment too large to be read through."""
    sketch: Sketch | None = None
    """Says which of them cannot be among the best, where there is such an index."""
    open_turns: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Turns up to `upto` whose group closes later. Known of segments that are written."""
    skipped: tuple[Skipped, ...] = ()
    folder: Path | None = None
    """Where it was read from; None for what is in memory only."""

    @property
    def positions(self) -> Positions:
        """The id of each row's group: the position of its last turn. Shape (rows,)."""
        return self.members.ids[self.rows]

    @cached_property
    def of_single_turns(self) -> bool:
        """Whether every group is one turn."""
        return len(self.members.ends) == len(self.members.turns)

    @cached_property
    def row_starts(self) -> Rows:
        """The first row of each group, and the number of rows behind the last. Shape (groups + 1,)."""
        return np.searchsorted(self.rows, np.arange(len(self.members.ends) + 1))

    @cached_property
    def _sorted_turns(self) -> tuple[Positions, Rows | None]:
        """All turns, rising, and where in `members` each lies; None where that is the same order."""
        turns = self.members.turns
        if len(turns) < 2 or bool((turns[1:] > turns[:-1]).all()):
            return turns, None
        order = np.argsort(turns, kind="stable")
        return turns[order], order

    def groups_with(self, allowed: Positions) -> Rows:
        """Return the numbers of the groups that have any of these turns, rising. `allowed` rises."""
        turns, order = self._sorted_turns
        where = positions_of(allowed, turns)
        if order is not None:
            where = order[where]
        if order is None and self.of_single_turns:
            return where
        return np.unique(np.searchsorted(self.members.ends, where, side="right"))


def positions_of(wanted: Positions, turns: Positions) -> Rows:
    """Return where in `turns` those of `wanted` lie that are there. Both rise."""
    if not len(turns):
        return np.empty(0, dtype=np.int64)
    found = np.minimum(np.searchsorted(turns, wanted), len(turns) - 1)
    where: Rows = found[turns[found] == wanted]
    return where


def build(
    groups: Sequence[Group],
    vectors: Sequence[Vectors],
    *,
    after: Position,
    upto: Position,
    dimension: int,
    skipped: Sequence[Skipped] = (),
) -> Segment:
    """Return a segment in memory. `vectors` has shape (chunks, dimension) for each group, rows of length 1."""
    rows = np.repeat(np.arange(len(groups), dtype=np.int64), [len(made) for made in vectors])
    made = np.concatenate(vectors) if vectors else np.empty((0, dimension), dtype=np.float32)
    members = members_of([group.turns for group in groups])
    exact = MemoryRows(np.ascontiguousarray(made, dtype=np.float32))
    return Segment(after, upto, rows, members, exact, skipped=tuple(skipped))


def joined_rows(parts: Sequence[Segment]) -> Rows:
    """Return the rows of adjoining segments, their groups numbered through."""
    before = np.cumsum([0, *(len(part.members.ends) for part in parts[:-1])])
    return np.concatenate([part.rows + offset for part, offset in zip(parts, before, strict=True)])


def merge(parts: Sequence[Segment]) -> Segment:
    """Return adjoining segments in memory as one. Needs at least one."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    pieces = [piece for part in parts for piece in part.exact.pieces()]
    # Events that are no turns make parts without rows.
    exact = MemoryRows(np.concatenate(pieces)) if pieces else first.exact
    skipped = tuple(item for part in parts for item in part.skipped)
    members = joined(part.members for part in parts)
    rows, open_turns = joined_rows(parts), last.open_turns
    return Segment(first.after, last.upto, rows, members, exact, open_turns=open_turns, skipped=skipped)
