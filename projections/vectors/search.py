"""Nearest neighbours over segments, with or without a filter: groups are scored, turns returned.

Every score is exact. In a segment with a coarse index that proposes the rows to score; a filter that leaves
few rows is answered from just these, without the index. Of what all segments offer, only the rows are read whose
sketch does not say that others are better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.position import Position
from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.ann_index import Coarse
from mnemolog.projections.vectors.checked_rows import Rows, scores
from mnemolog.projections.vectors.group_members import Positions
from mnemolog.projections.vectors.quantized_rows import Sketch
from mnemolog.projections.vectors.segment import Segment, positions_of

FILTERED_ROWS_MAX: Final = 12_000
"""Rows that a filter may leave to be scored one and all: as quick as asking the index for more."""
WIDER: Final = 4
"""How many times more candidates are asked for when those before did not suffice."""

Scores = NDArray[np.float32]


class _Part(NamedTuple):
    """Groups with their rows, which lie one group behind the other: those of a group from its start to the next."""

    groups: Rows
    rows: Rows
    starts: Rows

    def kept(self, those: NDArray[np.bool_]) -> _Part:
        """Return the part of these groups."""
        sizes = np.diff(self.starts, append=len(self.rows))
        left = sizes[those]
        return _Part(self.groups[those], self.rows[np.repeat(those, sizes)], np.cumsum(left) - left)


class _Offer(NamedTuple):
    """What a segment offers: groups, and what the score of their best row is at least and at most. Shapes (n,)."""

    segment: Segment
    groups: Rows
    least: Scores
    most: Scores
    part: _Part | None
    """Where to score them; None where that is done, and `least` is the score."""

    def settled(self, query: Vectors, floor: float) -> tuple[Rows, Scores]:
        """Return the groups that may reach `floor`, with their scores."""
        if self.part is None:
            return self.groups, self.least
        kept = self.part.kept(self.most >= floor)
        return kept.groups, _exactly(self.segment, query, kept)


def nearest(
    segments: Sequence[Segment],
    query: Vectors,
    *,
    k: int,
    allowed: Positions | None,
    instead: Segment | None = None,
) -> list[tuple[Position, float]]:
    """Return up to `k` positions of turns with the cosine similarity of their group, best first.

    `query` has shape (1, dimension), length 1. `allowed` (rising) restricts the answer to these turns: a
    group without any of them is not scored, and of the others only these turns are returned. None does not
    restrict. The turns of a group follow one another in order; equal scores go to the group of the lower id.
    A group of several chunks counts once, with its best chunk. The turns of `instead` are looked for there and in
    no other segment; with it, `allowed` must be given. Raises `Damaged`.
    """
    elsewhere = allowed
    if instead is not None and allowed is not None:
        elsewhere = np.setdiff1d(allowed, instead.members.turns, assume_unique=True)
    offers = [offer for segment in segments for offer in _offers(segment, query, k=k, allowed=elsewhere)]
    if instead is not None:
        offers += _offers(instead, query, k=k, allowed=allowed)
    if not offers:
        return []
    floor = _best_but(k, np.concatenate([offer.least for offer in offers]))
    settled = [offer.settled(query, floor) for offer in offers]
    found = np.concatenate([scored for _, scored in settled])
    ids = np.concatenate(
        [offer.segment.members.ids_of(groups) for offer, (groups, _) in zip(offers, settled, strict=True)]
    )
    ends = np.cumsum([len(groups) for groups, _ in settled])
    best: list[tuple[Position, float]] = []
    chosen = _best(found, ids, k)  # Every group has a turn to return, so k groups are enough.
    of = np.searchsorted(ends, chosen, side="right").tolist()
    for n, which, score in zip(chosen.tolist(), of, found[chosen].tolist(), strict=True):
        groups = settled[which][0]
        turns = _turns(offers[which].segment, int(groups[n - ends[which]]), allowed)
        best += [(Position(turn), score) for turn in turns]
    return best[:k]


def similarities(
    segments: Sequence[Segment], query: Vectors, wanted: Positions, *, instead: Segment | None = None
) -> dict[Position, float]:
    """Return the cosine similarity of the groups of these turns, which rise, by turn; those without are left out.

    `query` and `instead` as for `nearest`. Raises `Damaged`.
    """
    elsewhere = wanted if instead is None else np.setdiff1d(wanted, instead.members.turns, assume_unique=True)
    looked_in = [(segment, elsewhere) for segment in segments] + ([] if instead is None else [(instead, wanted)])
    found: dict[Position, float] = {}
    for segment, turns in looked_in:
        groups = segment.groups_with(turns)
        if not len(groups):
            continue
        scored = _exactly(segment, query, _part(segment, groups)).tolist()
        if segment.of_single_turns:
            found.update(zip(map(Position, segment.members.turns[groups].tolist()), scored, strict=True))
            continue
        for group, score in zip(groups.tolist(), scored, strict=True):
            found.update(dict.fromkeys(map(Position, _turns(segment, group, turns)), score))
    return found


def _offers(segment: Segment, query: Vectors, *, k: int, allowed: Positions | None) -> Iterator[_Offer]:
    """Yield what a segment offers, if anything."""
    groups = None if allowed is None else segment.groups_with(allowed)
    if segment.exact.count == 0 or (groups is not None and not len(groups)):
        return
    rows_left = segment.exact.count if groups is None else _rows_of(segment, groups)
    part = None
    if segment.coarse is not None and (groups is None or rows_left > FILTERED_ROWS_MAX):
        part = _proposed(segment, segment.coarse, query, groups, k=k, rows_left=rows_left)
    if part is None and groups is None:
        scored = _best_of_each(scores(segment.exact, query), segment.row_starts[:-1])
        yield _Offer(segment, np.arange(len(scored)), scored, scored, None)
        return
    if part is None and groups is not None:
        part = _part(segment, groups)
    if part is None:
        raise AssertionError("unreachable")
    yield _bounded(segment, segment.sketch, query, part, k=k)


def _bounded(segment: Segment, sketch: Sketch | None, query: Vectors, part: _Part, *, k: int) -> _Offer:
    if sketch is None or len(part.groups) <= k:
        scored = _exactly(segment, query, part)
        return _Offer(segment, part.groups, scored, scored, None)
    least, most = (_best_of_each(bound, part.starts) for bound in sketch.scores(query, part.rows))
    return _Offer(segment, part.groups, least, most, part)


def _proposed(
    segment: Segment, coarse: Coarse, query: Vectors, groups: Rows | None, *, k: int, rows_left: int
) -> _Part | None:
    """Return what the index proposes, more where a filter or chunks leave too few groups. None: better score all."""
    count = segment.exact.count
    wanted = coarse.wanted(k) * count // rows_left
    while wanted < count // 2:
        rows = np.sort(coarse.candidates(query, wanted))
        if groups is not None:
            rows = rows[np.isin(segment.rows[rows], groups, assume_unique=False)]
        numbers = segment.rows[rows]
        if len(starts := np.flatnonzero(np.diff(numbers, prepend=-1))) >= k:
            return _Part(numbers[starts], rows, starts)
        wanted *= WIDER
    return None


def _part(segment: Segment, groups: Rows) -> _Part:
    """Return groups with all their rows."""
    first = segment.row_starts[groups]
    sizes = segment.row_starts[groups + 1] - first
    starts = np.cumsum(sizes) - sizes
    rows = first if len(first) == sizes.sum() else np.repeat(first - starts, sizes) + np.arange(sizes.sum())
    return _Part(groups, rows, starts)


def _exactly(segment: Segment, query: Vectors, part: _Part) -> Scores:
    return _best_of_each(scores(segment.exact, query, at=part.rows), part.starts)


def _best_of_each(made: Scores, starts: Rows) -> Scores:
    return made if len(made) == len(starts) else np.maximum.reduceat(made, starts)


def _rows_of(segment: Segment, groups: Rows) -> int:
    return int((segment.row_starts[groups + 1] - segment.row_starts[groups]).sum())


def _best_but(k: int, scored: Scores) -> float:
    """Return the score that the best `k` reach, whatever it is where there are no more."""
    return -np.inf if len(scored) <= k else float(np.partition(scored, len(scored) - k)[len(scored) - k])


def _best(scored: Scores, ids: Positions, k: int) -> Rows:
    """Return where the best `k` are, ties by id."""
    where = np.flatnonzero(scored >= _best_but(k, scored))
    best: Rows = where[np.lexsort((ids[where], -scored[where]))][:k]
    return best


def _turns(segment: Segment, group: int, allowed: Positions | None) -> list[int]:
    if segment.of_single_turns:
        return [int(segment.members.turns[group])]  # A group of one turn, which is allowed, or it was not scored.
    turns = segment.members.turns[segment.members.turns_of(group)]
    found: list[int] = (turns if allowed is None else turns[positions_of(allowed, turns)]).tolist()
    return found
