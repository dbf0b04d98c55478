"""One byte a component: exact enough to say which rows cannot be among the best, at a quarter of the memory.

A row is kept as whole numbers of steps, 127 of which are its largest component (scalar quantization), and its step.
By Cauchy and Schwarz its product with a vector of length 1 is off by half a step times the root of the dimension
at most, so leaving out what is further off than that leaves out nothing that belongs to the answer.
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
"""What sums of float32 and the rounding of exact scores may differ by."""


def width_of(dimension: int) -> int:
    """Return the bytes of a row of the file: its components, then its step as a little-endian float32."""
    return dimension + STEP_BYTES


class Sketch:
    """Rough scores of rows, and how rough they are. May be used by several threads at once."""

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
        """Return what the products of these rows, which rise, with `query` are at least, and at most.

        `query` has shape (1, dimension) and length 1. Shapes (len(rows),). Raises `Damaged`.
        """
        made = [self._scores(query[0], rows[n : n + PIECE_ROWS]) for n in range(0, len(rows), PIECE_ROWS)]
        rough, off = (np.concatenate(part) for part in zip(*made, strict=True))
        return rough - off, rough + off

    def check(self) -> Iterator[int]:
        """Check every row, and yield how many bytes of them were read. Raises `Damaged`."""
        for piece in self._rows.pieces():
            yield piece.nbytes

    def _scores(self, query: Vectors, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        taken = self._rows.take(rows)
        steps = np.ascontiguousarray(taken[:, self._dimension :]).view("<f4")[:, 0]
        whole = taken[:, : self._dimension].view(np.int8).astype(np.float32)
        off = steps * np.float32(math.sqrt(self._dimension) / 2) + np.float32(SLACK)
        return inner_products(whole, query) * steps, off


def sketched(rows: ExactRows) -> Iterator[NDArray[np.uint8]]:
    """Yield the rows of the file of a sketch, in pieces of whole blocks. Shapes (rows, width)."""
    for piece in rows.pieces():
        steps = (np.abs(piece).max(axis=1, keepdims=True) / STEPS).astype("<f4")
        whole = np.rint(piece / np.where(steps > 0, steps, 1)).astype(np.int8)
        yield np.concatenate([whole.view(np.uint8), steps.view(np.uint8)], axis=1)
