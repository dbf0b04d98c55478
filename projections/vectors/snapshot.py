"""What searches see of a generation: never changed, only replaced as a whole."""

from __future__ import annotations

from typing import NamedTuple

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.vectors.segment import Segment


class Snapshot(NamedTuple):
    """Segments to search. Every turn is in one group of them at most."""

    written: tuple[Segment, ...]
    """Closed groups on disk; each segment begins where the one before ends."""
    tail: tuple[Segment, ...]
    """Closed groups in memory, going on from there."""
    partials: Segment | None
    """Groups that are still open, as they were when they were embedded."""
    covers: Position
    """Up to where every turn has its vector, or is known to have none."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Everything there is to search."""
        return (*self.written, *self.tail, *(() if self.partials is None else (self.partials,)))

    @property
    def written_to(self) -> Position:
        """The offset up to which closed groups are on disk."""
        return self.written[-1].upto if self.written else ORIGIN

    @property
    def closed_to(self) -> Position:
        """The offset up to which every closed group is here, and from which on the log is to be read."""
        return self.tail[-1].upto if self.tail else self.written_to

    @property
    def tail_rows(self) -> int:
        """Vectors of closed groups that are not on disk."""
        return sum(part.exact.count for part in self.tail)

    @property
    def turns(self) -> int:
        """Turns that have their vector here."""
        return sum(len(part.members.turns) for part in self.segments)

    @property
    def skipped(self) -> int:
        """Turns that are known to have none."""
        return sum(len(part.skipped) for part in self.segments)


NOTHING = Snapshot((), (), None, ORIGIN)
