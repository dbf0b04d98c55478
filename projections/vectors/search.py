"""Nearest neighbours over segments, with or without a filter: groups are scored, turns returned.

Every score is exact. In a segment with a coarse index that proposes the rows to score; a filter that leaves
few rows is answered from just these, without the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.position import Position
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.coarse import Coarse
from mnemolog.projections.vectors.members import Positions
from mnemolog.projections.vectors.rows import Rows, scores
from mnemolog.projections.vectors.segment import Segment, positions_of

FILTERED_ROWS_MAX: Final = 12_000
"""Rows that a filter may leave to be scored one and all: as quick as asking the index for more."""
WIDER: Final = 4
"""How many times more candidates are asked for when those before did not suffice."""


class _Scored(NamedTuple):
    """Groups with the score of their best row. Shapes (n,)."""

    groups: Rows
    scores: NDArray[np.float32]


class _Found(NamedTuple):
    """A group that may be among the best, with the turns of it to return: at least one, in order."""

    score: float
    id: int
    turns: list[int]


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
    found = [group for segment in segments for group in _nearest_in(segment, query, k=k, allowed=elsewhere)]
    if instead is not None:
        found += _nearest_in(instead, query, k=k, allowed=allowed)
    found.sort(key=lambda group: (-group.score, group.id))
    # Every group has a turn to return, so k groups are enough.
    return [(Position(turn), group.score) for group in found[:k] for turn in group.turns][:k]


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
        scored = _all_of(segment, query, groups, k=len(groups)).scores.tolist()
        if len(segment.members.ends) == len(segment.members.turns):
            found.update(zip(map(Position, segment.members.turns[groups].tolist()), scored, strict=True))
            continue
        for group, score in zip(groups.tolist(), scored, strict=True):
            found.update(dict.fromkeys(map(Position, _turns(segment, group, turns)), score))
    return found


def _nearest_in(segment: Segment, query: Vectors, *, k: int, allowed: Positions | None) -> list[_Found]:
    groups = None if allowed is None else segment.groups_with(allowed)
    if segment.exact.count == 0 or (groups is not None and not len(groups)):
        return []
    rows_left = segment.exact.count if groups is None else _rows_of(segment, groups)
    if segment.coarse is None or (groups is not None and rows_left <= FILTERED_ROWS_MAX):
        scored = _all_of(segment, query, groups, k=k)
    else:
        scored = _proposed(segment, segment.coarse, query, groups, k=k, rows_left=rows_left)
    ids = segment.members.ids_of(scored.groups)
    return [
        _Found(float(scored.scores[n]), int(ids[n]), _turns(segment, int(scored.groups[n]), allowed))
        for n in _best(scored.scores, ids, k)
    ]


def _all_of(segment: Segment, query: Vectors, groups: Rows | None, *, k: int) -> _Scored:
    """Score every row of `groups`, or of all."""
    if groups is None:
        made = scores(segment.exact, query)
        return _Scored(np.arange(len(segment.members.ends)), _best_of_each(made, segment.row_starts[:-1]))
    first = segment.row_starts[groups]
    sizes = segment.row_starts[groups + 1] - first
    starts = np.cumsum(sizes) - sizes
    rows = first if len(first) == sizes.sum() else np.repeat(first - starts, sizes) + np.arange(sizes.sum())
    return _exactly(segment, query, groups, rows, starts, k=k)


def _proposed(
    segment: Segment, coarse: Coarse, query: Vectors, groups: Rows | None, *, k: int, rows_left: int
) -> _Scored:
    """Score the rows that the index proposes, more of them where a filter or chunks leave too few groups."""
    count = segment.exact.count
    wanted = coarse.wanted(k) * count // rows_left
    while wanted < count // 2:
        rows = np.sort(coarse.candidates(query, wanted))
        if groups is not None:
            rows = rows[np.isin(segment.rows[rows], groups, assume_unique=False)]
        numbers = segment.rows[rows]
        if len(starts := np.flatnonzero(np.diff(numbers, prepend=-1))) >= k:
            return _exactly(segment, query, numbers[starts], rows, starts, k=k)
        wanted *= WIDER
    return _all_of(segment, query, groups, k=k)


def _exactly(segment: Segment, query: Vectors, groups: Rows, rows: Rows, starts: Rows, *, k: int) -> _Scored:
    """Score the rows of groups; `starts` says where in `rows` each begins. Leaves out who cannot be among the best."""
    if segment.sketch is not None and len(groups) > k:
        least, most = (_best_of_each(bound, starts) for bound in segment.sketch.scores(query, rows))
        kept = most >= np.partition(least, len(least) - k)[len(least) - k]
        ends = np.append(starts[1:], len(rows))
        rows, groups = rows[np.repeat(kept, ends - starts)], groups[kept]
        sizes = (ends - starts)[kept]
        starts = np.cumsum(sizes) - sizes
    return _Scored(groups, _best_of_each(scores(segment.exact, query, at=rows), starts))


def _best_of_each(made: NDArray[np.float32], starts: Rows) -> NDArray[np.float32]:
    return made if len(made) == len(starts) else np.maximum.reduceat(made, starts)


def _rows_of(segment: Segment, groups: Rows) -> int:
    return int((segment.row_starts[groups + 1] - segment.row_starts[groups]).sum())


def _best(scored: NDArray[np.float32], ids: Positions, k: int) -> list[int]:
    """Return where the best `k` are, ties by id."""
    where = np.arange(len(scored))
    if len(scored) > k:
        least = np.partition(scored, len(scored) - k)[len(scored) - k]
        where = np.flatnonzero(scored >= least)
    best: list[int] = where[np.lexsort((ids[where], -scored[where]))][:k].tolist()
    return best


def _turns(segment: Segment, group: int, allowed: Positions | None) -> list[int]:
    if len(segment.members.ends) == len(segment.members.turns):
        return [int(segment.members.turns[group])]  # A group of one turn, which is allowed, or it was not scored.
    turns = segment.members.turns[segment.members.turns_of(group)]
    found: list[int] = (turns if allowed is None else turns[positions_of(allowed, turns)]).tolist()
    return found
