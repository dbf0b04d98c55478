"""Exact nearest neighbours over segments, with or without a filter."""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np

from mnemolog.domain.position import Position
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.segment import Positions, Segment


def nearest(
    segments: Sequence[Segment], query: Vectors, *, k: int, allowed: Positions | None
) -> list[tuple[Position, float]]:
    """Return up to `k` positions with their cosine similarity, best first; ties by position.

    `query` has shape (1, dimension), length 1. `allowed` (rising) restricts the answer; None does not.
    A turn of several chunks counts once, with its best chunk.
    """
    best: dict[int, float] = {}
    for segment in segments:
        for position, score in _nearest_in(segment, query, k=k, allowed=allowed):
            best[position] = max(score, best.get(position, -2.0))
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:k]
    return [(Position(position), score) for position, score in ranked]


def _nearest_in(segment: Segment, query: Vectors, *, k: int, allowed: Positions | None) -> list[tuple[int, float]]:
    parameters = None
    rows = len(segment.positions)
    if allowed is not None:
        mask = np.isin(segment.positions, allowed, assume_unique=False)
        rows = int(mask.sum())
        bits = np.packbits(mask, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]
        parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
    if rows == 0:
        return []
    wanted = k
    while True:  # Several chunks of one turn may crowd out others: ask for more until k turns are there.
        wanted = min(wanted, rows)
        scores, found = segment.faiss_index.search(query, wanted, params=parameters)
        positions = segment.positions[found[0]]
        if wanted == rows or len(np.unique(positions)) >= min(k, rows):
            return [(int(p), float(s)) for p, s in zip(positions, scores[0], strict=True)]
        wanted *= 2
