"""An immutable part of a generation: the vectors of a range of positions `(after, upto]`.

A segment holds the vectors of the turns in its range, and lists the turns that the model refused. So every turn in the
range is accounted for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import structured_log
from mnemolog.domain.position import Position
from mnemolog.projections.sql.packed_vectors import Packed, width_of
from mnemolog.projections.vectors.ann_index import Coarse
from mnemolog.projections.vectors.checked_rows import ExactRows, MemoryRows, Rows
from mnemolog.projections.vectors.manifest import Damaged, Skipped
from mnemolog.projections.vectors.text_hashes import NO_HASHES, TextHashes, hashes_of

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segment:
    """Vectors row by row, with the turns they belong to."""

    after: Position
    upto: Position
    turns: Positions
    """The turns that have vectors here, ascending. Shape (turns,)."""
    rows: Rows
    """The index in `turns` of each row's turn, ascending: a turn of several chunks has several rows. Shape (rows,)."""
    exact: ExactRows
    read_text_hashes: Callable[[], TextHashes]
    """Reads the hashes of the turns' texts. Raises `Damaged`."""
    coarse: Coarse | None = None
    """Proposes candidate rows, if the segment is too large to scan."""
    skipped: tuple[Skipped, ...] = ()
    folder: Path | None = None
    """The folder that it was read from; None for a segment in memory."""

    @cached_property
    def text_hashes(self) -> TextHashes:
        """The hashes of the texts that this segment has vectors of. Empty if their file is damaged."""
        try:
            return self.read_text_hashes()
        except Damaged as error:
            structured_log.warning("vectors.contents_damaged", segment=str(self.folder), error=error)
            return NO_HASHES

    @cached_property
    def row_starts(self) -> Rows:
        """The first row of each turn, and the number of rows after the last. Shape (turns + 1,)."""
        return np.append(np.flatnonzero(np.diff(self.rows, prepend=-1)), len(self.rows))

    def numbers_of(self, wanted: Positions) -> Rows:
        """Return the indexes in `turns` of those of `wanted` (ascending) that are in this segment."""
        if not len(self.turns):
            return np.empty(0, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.turns, wanted), len(self.turns) - 1)
        where: Rows = found[self.turns[found] == wanted]
        return where


def build(
    turns: Sequence[Position],
    vectors: Sequence[Packed],
    *,
    after: Position,
    upto: Position,
    dimension: int,
    skipped: Sequence[Skipped] = (),
    hashes: Sequence[bytes],
) -> Segment:
    """Return a segment in memory. `vectors` has the packed chunks of each turn, `hashes` that of its text."""
    rows = np.repeat(np.arange(len(turns), dtype=np.int64), [len(made) for made in vectors])
    made = np.concatenate(vectors) if vectors else np.empty((0, width_of(dimension)), dtype=np.uint8)
    exact = MemoryRows(made, dimension)
    text_hashes = TextHashes.of(hashes_of(hashes))
    return Segment(
        after,
        upto,
        np.asarray(turns, dtype=np.int64),
        rows,
        exact,
        skipped=tuple(skipped),
        read_text_hashes=lambda: text_hashes,
    )


def joined_turns(parts: Sequence[Segment]) -> Positions:
    """Return the turns of adjacent segments."""
    return np.concatenate([part.turns for part in parts])


def joined_rows(parts: Sequence[Segment]) -> Rows:
    """Return the rows of adjacent segments, as indexes in their `joined_turns`."""
    before = np.cumsum([0, *(len(part.turns) for part in parts[:-1])])
    return np.concatenate([part.rows + offset for part, offset in zip(parts, before, strict=True)])


def joined_text_hashes(parts: Sequence[Segment]) -> TextHashes:
    """Return the hashes of the texts of adjacent segments. Raises `Damaged`."""
    read = [part.read_text_hashes() for part in parts]
    return read[0] if len(read) == 1 else TextHashes.of(np.concatenate([hashes.by_turn() for hashes in read]))


def merge(parts: Sequence[Segment]) -> Segment:
    """Merge adjacent segments in memory into one. Needs at least one."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    pieces = [piece for part in parts for piece in part.exact.pieces()]
    # Ranges without turns are parts without rows.
    exact = MemoryRows(np.concatenate(pieces), first.exact.dimension) if pieces else first.exact
    skipped = tuple(item for part in parts for item in part.skipped)
    text_hashes = joined_text_hashes(parts)
    return Segment(
        first.after,
        last.upto,
        joined_turns(parts),
        joined_rows(parts),
        exact,
        skipped=skipped,
        read_text_hashes=lambda: text_hashes,
    )
