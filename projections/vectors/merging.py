"""Choose which segments to merge, to keep them few while each merge rewrites a bounded number of rows.

Log-structured merging (O'Neil and others, "The log-structured merge-tree", 1996) of adjacent runs, bounded:
docs/adr/0012-segments-and-their-index.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHARE_MAX: Final = 1 / 3
"""Maximum fraction of all rows that one merge rewrites."""
ROWS_FREE: Final = 1_024
"""Rows that a merge may always rewrite, however small the total."""
UNEVEN_MAX: Final = 2
"""Maximum ratio of the largest segment of a run to the others together. Beyond it, much is copied for little."""


def run_to_merge(sizes: Sequence[int], *, rows_free: int = ROWS_FREE) -> slice | None:
    """Return the adjacent segments to merge, given the rows of each; None if no merge is needed.

    Picks the longest run within the bounds, and of several the one with the fewest rows. `rows_free` rows may always be
    rewritten, whatever their share: rewriting as many rows as are new costs only a part of embedding them.
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
