"""Which segments to merge: so that they stay few, and so that no write rewrites more than a share of them.

Log-structured merging (O'Neil and others, "The log-structured merge-tree", 1996) of adjoining runs, bounded:
docs/adr/0012-segments-and-their-index.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHARE_MAX: Final = 1 / 3
"""The part of all rows that one merge rewrites at most."""
ROWS_FREE: Final = 1_024
"""Rows that a merge may always rewrite, however few there are in all."""
UNEVEN_MAX: Final = 2
"""How many times larger than the others together the largest of a run may be. More would be copied for little."""


def run_to_merge(sizes: Sequence[int], *, rows_free: int = ROWS_FREE) -> slice | None:
    """Return the adjoining segments to make one of, given the rows of each; None if they may stay as they are.

    The longest run within the bounds; of several the one with the fewest rows. `rows_free` may be rewritten whatever
    share of all they are: as many as are new cost no more than a part of what it took to embed them.
    """
    rows_max = max(rows_free, ROWS_FREE, int(sum(sizes) * SHARE_MAX))
    best: slice | None = None
    best_rank = (0, 0)
    for start in range(len(sizes)):
        rows = largest = 0
        for end in range(start + 1, len(sizes) + 1):
            rows, largest = rows + sizes[end - 1], max(largest, sizes[end - 1])
            if rows > rows_max:
                break
            rank = (end - start, -rows)
            if end - start > 1 and largest <= UNEVEN_MAX * (rows - largest) and rank > best_rank:
                best, best_rank = slice(start, end), rank
    return best
