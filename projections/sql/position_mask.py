"""Positions as a mask: for each position up to the last one, whether it is one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.values import ORIGIN, Position

Bits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PositionMask:
    """A set of positions. Positions after the end of `bits` are not in it."""

    bits: Bits
    """Shape (last position + 1,)."""

    def __len__(self) -> int:
        return int(np.count_nonzero(self.bits))

    def holds(self, positions: NDArray[np.int64]) -> Bits:
        """Return for each of these positions (ascending) whether it is in the set."""
        within = int(np.searchsorted(positions, len(self.bits)))
        found = np.zeros(len(positions), dtype=np.bool_)
        np.take(self.bits, positions[:within], out=found[:within])
        return found

    def among(self, positions: Sequence[Position]) -> set[Position]:
        """Return those of a few positions that are in the set."""
        ascending = sorted(positions)
        return set(compress(ascending, self.holds(np.array(ascending, dtype=np.int64)).tolist()))

    def upto(self, last: Position) -> PositionMask:
        """Return the positions of the set up to `last`."""
        return PositionMask(self.bits[: last + 1])

    def positions(self, *, after: Position = ORIGIN) -> NDArray[np.int64]:
        """Return the positions of the set after `after`, ascending."""
        return np.flatnonzero(self.bits[after + 1 :]) + (after + 1)
