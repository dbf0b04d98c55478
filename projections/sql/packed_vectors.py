"""Vectors as they are stored: 12 bits per component.

A component is a multiple of the vector's step, at most `LEVELS` steps. A packed vector has the high 8 bits of every
component, then the step, then the low 4 bits, two components to a byte. The high bits alone give bounds on a score.
docs/adr/0036-vectors-once.md has the measured errors.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""Shape (rows, dimension)."""
Packed = NDArray[np.uint8]
"""Shape (rows, `width_of(dimension)`)."""

LEVELS: Final = 2_040
"""Steps of the largest component. Divisible by 2, 3, 4, 5 and 6: small ratios of components are stored exactly."""
STEP_BYTES: Final = 4
MIDDLE_OF_LOW: Final = 7.5
"""The middle of what the low 4 bits can be: 0 to 15 steps."""


def width_of(dimension: int) -> int:
    """Return the size of a packed vector in bytes."""
    return dimension + STEP_BYTES + (dimension + 1) // 2


def pack(vectors: Vectors) -> Packed:
    """Return packed vectors. Their length stays the same, so that the cosine of a vector with itself stays 1."""
    count, dimension = vectors.shape
    packed = np.zeros((count, width_of(dimension)), dtype=np.uint8)
    if not packed.size:
        return packed
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    steps = np.rint(vectors * (LEVELS / np.where(largest > 0, largest, 1))).astype(np.int16)
    low = (steps & 15).astype(np.uint8)
    packed[:, :dimension] = (steps >> 4).astype(np.int8).view(np.uint8)
    packed[:, dimension : dimension + STEP_BYTES] = _step_sizes(vectors, steps).view(np.uint8)
    halves = packed[:, dimension + STEP_BYTES :]
    halves[:] = low[:, ::2]
    halves[:, : dimension // 2] |= low[:, 1::2] << 4
    return packed


def unpack(packed: Packed, dimension: int) -> Vectors:
    """Return the vectors of packed ones."""
    high, step_sizes = high_parts(packed, dimension)
    steps = high.astype(np.float32)
    steps *= 16
    halves = packed[:, dimension + STEP_BYTES :]
    steps[:, ::2] += halves & 15
    steps[:, 1::2] += halves[:, : dimension // 2] >> 4
    steps *= step_sizes
    return steps


def high_parts(packed: Packed, dimension: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the high bits, shape (rows, dimension), and the size of a step, shape (rows, 1)."""
    sizes = np.ascontiguousarray(packed[:, dimension : dimension + STEP_BYTES]).view("<f4")
    return packed[:, :dimension].view(np.int8), sizes


def error_of_high(dimension: int) -> float:
    """Return the most by which the product of a vector of length 1 with the high bits is off, in steps.

    By the Cauchy-Schwarz inequality: every component is off by half of what the low bits can be, at most.
    """
    return MIDDLE_OF_LOW * math.sqrt(dimension)


def _step_sizes(vectors: Vectors, steps: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return the size of a step of each row, shape (rows, 1), for which its length is that of the vector."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    counted = np.sqrt(np.square(steps, dtype=np.int64).sum(axis=1, keepdims=True))
    sizes: NDArray[np.float32] = (lengths / np.where(counted > 0, counted, 1)).astype("<f4")
    return sizes
