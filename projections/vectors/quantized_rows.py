"""Rows quantized to one byte per component: bounds on scores, to rule rows out at a quarter of the memory.

Scalar quantization: a row is stored as multiples of a step, and its step; 127 steps are its largest component.
By the Cauchy-Schwarz inequality, the error of its product with a vector of length 1 is at most half a step times the
square root of the dimension. So a row whose upper bound is too low cannot belong to the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.checked_rows import PIECE_ROWS, ExactRows, MappedRows, Rows, inner_products

KIND: Final = "|u1"
STEPS: Final = 127
STEP_BYTES: Final = 4
SLACK: Final = 1e-5
"""Tolerance for float32 sums and for the rounding of exact scores."""


def width_of(dimension: int) -> int:
    """Return the size of a row in the file, in bytes: its components, then its step as a little-endian float32."""
    return dimension + STEP_BYTES


class Sketch:
    """Approximate scores of rows, with error bounds. Safe for many threads."""

    def __init__(self, rows: MappedRows, *, dimension: int) -> None:
        self._rows, self._dimension = rows, dimension

    @property
    def path(self) -> Path:
        """The file."""
        return self._rows.path

    @path.setter
    def path(self, path: Path) -> None:
        self._rows.path = path

    def scores(self, query: Vectors, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return lower and upper bounds on the inner products of these rows (ascending) with `query`.

        `query` has shape (1, dimension) and length 1. Both results have shape (len(rows),). Raises `Damaged`.
        """
        made = [self._scores(query[0], rows[n : n + PIECE_ROWS]) for n in range(0, len(rows), PIECE_ROWS)]
        rough, off = (np.concatenate(part) for part in zip(*made, strict=True))
        return rough - off, rough + off

    def check(self) -> Iterator[int]:
        """Check every row; yield the number of bytes of each read. Raises `Damaged`."""
        for piece in self._rows.pieces():
            yield piece.nbytes

    def _scores(self, query: Vectors, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        taken = self._rows.take(rows)
        steps = np.ascontiguousarray(taken[:, self._dimension :]).view("<f4")[:, 0]
        whole = taken[:, : self._dimension].view(np.int8).astype(np.float32)
        off = steps * np.float32(math.sqrt(self._dimension) / 2) + np.float32(SLACK)
        return inner_products(whole, query) * steps, off


def sketched(rows: ExactRows) -> Iterator[NDArray[np.uint8]]:
    """Yield the quantized rows for a file, in pieces of whole blocks. Shapes (rows, width)."""
    for piece in rows.pieces():
        steps = (np.abs(piece).max(axis=1, keepdims=True) / STEPS).astype("<f4")
        whole = np.rint(piece / np.where(steps > 0, steps, 1)).astype(np.int8)
        yield np.concatenate([whole.view(np.uint8), steps.view(np.uint8)], axis=1)
