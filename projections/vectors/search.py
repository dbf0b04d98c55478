"""Search for nearest neighbours over segments, with or without a filter.

Every score is exact. The index of a segment, if it has one, proposes the rows to score. If a filter leaves few rows,
these are scored directly, without the index. Rows that the high bits of their vectors rule out are not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.position import Position
from mnemolog.projections.sql.packed_vectors import Packed, Vectors, unpack
from mnemolog.projections.sql.position_mask import Bits, PositionMask
from mnemolog.projections.vectors.ann_index import Coarse
from mnemolog.projections.vectors.checked_rows import Rows, bounds, products, scores
from mnemolog.projections.vectors.segment import Positions, Segment

SCANNED_ROWS: Final = 1_000
SCANNED_SHARE: Final = 1 / 128
"""Rows left by a filter up to which all are scored, beside those a share of all: as fast as asking the index."""
WIDER: Final = 4
"""The factor by which more candidates are requested if the first were too few."""

Scores = NDArray[np.float32]


class _Part(NamedTuple):
    """Turns of a segment by number, with their rows: a turn's rows reach from its start to the next start."""

    turns: Rows
    rows: Rows
    starts: Rows


class _Offer(NamedTuple):
    """Turns of a segment by number, with bounds on the score of their best row. Shapes (n,)."""

    segment: Segment
    turns: Rows
    least: Scores
    most: Scores
    starts: Rows
    packed: Packed | None
    """The rows to score; None where `least` is the exact score."""

    def settled(self, query: Vectors, floor: float) -> tuple[Rows, Scores]:
        """Return the turns that may reach `floor`, with their scores."""
        if self.packed is None:
            return self.turns, self.least
        those = self.most >= floor
        sizes = np.diff(self.starts, append=len(self.packed))
        left = sizes[those]
        rows = unpack(self.packed[np.repeat(those, sizes)], query.shape[1])
        return self.turns[those], _best_of_each(products(rows, query), np.cumsum(left) - left)


def nearest(
    segments: Sequence[Segment], query: Vectors, *, k: int, allowed: PositionMask | None
) -> list[tuple[Position, float]]:
    """Return the positions of the nearest `k` turns with their cosine similarity, best first.

    `query` has shape (1, dimension), length 1. `allowed` restricts the answer to these turns; None does not restrict.
    A turn of several chunks counts once, with its best chunk; of equal scores the earlier turn comes first.
    Raises `Damaged`.
    """
    offered = (_offer(segment, query, k=k, allowed=allowed) for segment in segments)
    offers = [offer for offer in offered if offer is not None]
    if not offers:
        return []
    floor = _best_but(k, np.concatenate([offer.least for offer in offers]))
    settled = [offer.settled(query, floor) for offer in offers]
    found = np.concatenate([scored for _, scored in settled])
    turns = np.concatenate([offer.segment.turns[numbers] for offer, (numbers, _) in zip(offers, settled, strict=True)])
    best = _best(found, turns, k)
    return list(zip(map(Position, turns[best].tolist()), found[best].tolist(), strict=True))


def similarities(segments: Sequence[Segment], query: Vectors, wanted: Positions) -> dict[Position, float]:
    """Return the cosine similarity of these turns (ascending); those without vectors are left out.

    `query` has shape (1, dimension), length 1. Raises `Damaged`.
    """
    found: dict[Position, float] = {}
    for segment in segments:
        numbers = segment.numbers_of(wanted)
        if len(numbers):
            scored = _exactly(segment, query, _part(segment, numbers))
            found.update(zip(segment.turns[numbers].tolist(), scored.tolist(), strict=True))
    return found


def _offer(segment: Segment, query: Vectors, *, k: int, allowed: PositionMask | None) -> _Offer | None:
    """Return the turns that a segment offers; None if there are none."""
    left = None if allowed is None else allowed.holds(segment.turns)
    count = segment.exact.count
    rows_left = count if left is None else _rows_of(segment, left)
    if rows_left == 0:
        return None
    part = None
    if segment.coarse is not None and (left is None or rows_left > SCANNED_ROWS + SCANNED_SHARE * count):
        part = _proposed(segment, segment.coarse, query, left, k=k, rows_left=rows_left)
    if part is None:
        if left is None:
            scored = _best_of_each(scores(segment.exact, query), segment.row_starts[:-1])
            return _Offer(segment, np.arange(len(scored)), scored, scored, segment.row_starts[:-1], None)
        part = _part(segment, np.flatnonzero(left))
    return _bounded(segment, query, part, k=k)


def _bounded(segment: Segment, query: Vectors, part: _Part, *, k: int) -> _Offer:
    if segment.coarse is None or len(part.turns) <= k:
        scored = _exactly(segment, query, part)
        return _Offer(segment, part.turns, scored, scored, part.starts, None)
    packed = segment.exact.packed(part.rows)
    least, most = (_best_of_each(bound, part.starts) for bound in bounds(packed, query))
    return _Offer(segment, part.turns, least, most, part.starts, packed)


def _proposed(
    segment: Segment, coarse: Coarse, query: Vectors, left: Bits | None, *, k: int, rows_left: int
) -> _Part | None:
    """Return at least `k` turns proposed by the index, requesting more as needed; None if scoring all is cheaper."""
    among = left if left is None or len(segment.rows) == len(left) else left[segment.rows]
    wanted = coarse.wanted(k)
    while wanted < rows_left // 2:
        rows = np.sort(coarse.candidates(query, wanted, among=among))
        numbers = segment.rows[rows]
        if len(starts := np.flatnonzero(np.diff(numbers, prepend=-1))) >= k:
            return _Part(numbers[starts], rows, starts)
        wanted *= WIDER
    return None


def _part(segment: Segment, numbers: Rows) -> _Part:
    """Return these turns with all their rows."""
    first = segment.row_starts[numbers]
    sizes = segment.row_starts[numbers + 1] - first
    starts = np.cumsum(sizes) - sizes
    rows = first if len(first) == sizes.sum() else np.repeat(first - starts, sizes) + np.arange(sizes.sum())
    return _Part(numbers, rows, starts)


def _exactly(segment: Segment, query: Vectors, part: _Part) -> Scores:
    return _best_of_each(scores(segment.exact, query, at=part.rows), part.starts)


def _best_of_each(made: Scores, starts: Rows) -> Scores:
    return made if len(made) == len(starts) else np.maximum.reduceat(made, starts)


def _rows_of(segment: Segment, left: Bits) -> int:
    """Return the number of rows of these turns."""
    if len(segment.rows) == len(segment.turns):
        return int(np.count_nonzero(left))
    return int(np.diff(segment.row_starts)[left].sum())


def _best_but(k: int, scored: Scores) -> float:
    """Return the `k`-th best score; minus infinity if there are no more than `k`."""
    return -np.inf if len(scored) <= k else float(np.partition(scored, len(scored) - k)[len(scored) - k])


def _best(scored: Scores, turns: Positions, k: int) -> Rows:
    """Return the indexes of the best `k`, ties by position."""
    where = np.flatnonzero(scored >= _best_but(k, scored))
    best: Rows = where[np.lexsort((turns[where], -scored[where]))][:k]
    return best
