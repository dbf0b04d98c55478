"""A FAISS index that proposes rows: small in memory, quick, and not trusted with a score.

An inverted file over RaBitQ codes (Gao and Long, "RaBitQ", SIGMOD 2024; one bit a component, fast scan). What it
proposes is scored with the exact vectors. Built by the same steps from the same rows: the seed is fixed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import faiss
import numpy as np

from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.rows import ExactRows, Rows

COARSE_ROWS_MIN: Final = 16_384
"""Rows from which on a segment has an index. Fewer are read through in about the same time."""
METRIC: Final = "inner-product"
LISTS_PROBED: Final = 32
CANDIDATES_MIN: Final = 300
CANDIDATES_PER_HIT: Final = 5
TRAINED_WITH_MAX: Final = 64
"""Rows for each list that the lists are trained with."""
SEED: Final = 1234


class Coarse:
    """Proposes rows for a query. Never changed once it is built; may be searched by several threads at once."""

    def __init__(self, index: Any) -> None:
        self._index = index

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return int(self._index.d)

    @property
    def count(self) -> int:
        """Rows it knows."""
        return int(self._index.ntotal)

    def wanted(self, k: int) -> int:
        """Return how many rows to ask for, so that the best `k` are among them."""
        return max(CANDIDATES_MIN, CANDIDATES_PER_HIT * k)

    def candidates(self, query: Vectors, wanted: int) -> Rows:
        """Return up to `wanted` different rows that may be near `query`, shape (1, dimension)."""
        parameters = faiss.IVFRaBitQSearchParameters()
        parameters.nprobe, parameters.qb = LISTS_PROBED, self._index.qb
        _, found = self._index.search(query, min(wanted, self.count), params=parameters)
        rows: Rows = found[0][found[0] >= 0]
        return rows

    def serialised(self) -> bytes:
        """Return the bytes to write."""
        return faiss.serialize_index(self._index).tobytes()


def build(rows: ExactRows, *, dimension: int) -> Coarse:
    """Return an index of `rows`, which are numbered from 0. Holds a few bytes a row, and a sample to train."""
    lists = lists_for(rows.count)
    index = faiss.index_factory(dimension, factory_for(rows.count), faiss.METRIC_INNER_PRODUCT)
    sample = np.random.default_rng(SEED).choice(rows.count, min(rows.count, lists * TRAINED_WITH_MAX), replace=False)
    index.train(rows.take(np.sort(sample)))
    for piece in rows.pieces():
        index.add(np.ascontiguousarray(piece))
    return Coarse(index)


def parse(data: bytes) -> Coarse:
    """Return the index in `data`, whose bytes were checked before. Raises `ValueError`."""
    try:
        return Coarse(faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8)))
    except (RuntimeError, AssertionError) as error:
        raise ValueError(str(error)) from error


def lists_for(count: int) -> int:
    """Return into how many lists so many rows are divided: a power of two about the root of them."""
    return int(1 << max(6, round(math.log2(count) / 2)))


def factory_for(count: int) -> str:
    """Return FAISS' name of the index for so many rows."""
    return f"IVF{lists_for(count)},RaBitQfs"


def version() -> str:
    """Return the version of FAISS."""
    return str(faiss.__version__)
