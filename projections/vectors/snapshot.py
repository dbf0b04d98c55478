"""An immutable view of a generation for searches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.sql.position_mask import PositionMask
from mnemolog.projections.vectors.segment import Segment


class Snapshot(NamedTuple):
    """Segments to search. Each turn is in at most one of them."""

    written: tuple[Segment, ...]
    """Segments on disk; each begins where the one before ends."""
    tail: tuple[Segment, ...]
    """Segments in memory, continuing from there."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments."""
        return (*self.written, *self.tail)

    @property
    def written_to(self) -> Position:
        """The end of the last segment on disk."""
        return self.written[-1].upto if self.written else ORIGIN

    @property
    def covers(self) -> Position:
        """The position up to which every turn has its vector, or is known to have none."""
        return self.tail[-1].upto if self.tail else self.written_to

    @property
    def tail_rows(self) -> int:
        """How many vectors are not on disk yet."""
        return sum(part.exact.count for part in self.tail)

    @property
    def turns(self) -> int:
        """How many turns have their vector here."""
        return sum(len(part.turns) for part in self.segments)

    @property
    def skipped(self) -> int:
        """How many turns are known to have none."""
        return sum(len(part.skipped) for part in self.segments)

    def allowed_as_of(self, upto: Position | None, allowed: PositionMask | None) -> PositionMask | None:
        """Return the positions in `allowed` (None for all turns) up to `upto`; None if that is all turns."""
        if upto is None or self.covers <= upto:
            return allowed
        return PositionMask(np.ones(upto + 1, dtype=np.bool_)) if allowed is None else allowed.upto(upto)


NOTHING = Snapshot((), ())
