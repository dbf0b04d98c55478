"""A FAISS index that proposes candidate rows. It is small and fast; scores come from the exact vectors.

An inverted file over RaBitQ codes (Gao and Long, "RaBitQ", SIGMOD 2024; one bit a component, fast scan). The
number of lists to probe is measured on the indexed rows when the index is built. Building is deterministic: the same
rows give the same index.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import faiss
import numpy as np

from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.checked_rows import ExactRows, Rows

COARSE_ROWS_MIN: Final = 8_192
"""Minimum rows for a segment to have an index. Scanning fewer rows takes about the same time."""
METRIC: Final = "inner-product"
CANDIDATES_PER_HIT: Final = 6
TRAINED_WITH_MAX: Final = 100
"""Training rows per list. With 40 and half the rounds, eight times as many lists had to be probed for the same
recall."""
TRAINED_TIMES: Final = 10

TRIED_ROWS: Final = 48
"""Sample rows whose nearest neighbours are searched, to measure how thorough a search has to be."""
TRIED_K: Final = 10
TRIED_CANDIDATES: Final = (100, 200, 400)
FOUND_MIN: Final = 0.995
"""The fraction of these neighbours that must be found."""
GAIN_MIN: Final = 0.005
"""Minimum gain from doubling the lists. Without it, rows without near neighbours would probe all lists for little."""
MARGIN: Final = 1.5
"""Safety factor on the measured lists and rows: queries resemble the rows less than the rows resemble each other."""
PROBED_MIN: Final = 1 / 16
"""Minimum fraction of the lists to probe."""
PROBED_MAX: Final = 3 / 4
"""The fraction of probed lists above which an index without lists is faster and finds more."""
WITHOUT_LISTS: Final = "RaBitQfs"


class Effort(NamedTuple):
    """How thorough a search is."""

    probes: int
    """Lists to probe; 0 if the index has none."""
    candidates: int
    """Minimum rows to request."""


class Coarse:
    """Proposes rows for a query. Immutable; safe for many threads."""

    def __init__(self, index: Any, effort: Effort) -> None:
        self._index, self.effort = index, effort

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return int(self._index.d)

    @property
    def kind(self) -> str:
        """The FAISS factory string of the index."""
        return f"IVF{self._index.nlist},{WITHOUT_LISTS}" if self.effort.probes else WITHOUT_LISTS

    @property
    def count(self) -> int:
        """Rows in the index."""
        return int(self._index.ntotal)

    def wanted(self, k: int) -> int:
        """Return how many rows to request so that the best `k` are among them."""
        return max(self.effort.candidates, CANDIDATES_PER_HIT * k)

    def candidates(self, query: Vectors, wanted: int) -> Rows:
        """Return up to `wanted` different rows that may be near `query`, shape (1, dimension)."""
        found = _searched(self._index, query, wanted, probes=self.effort.probes)
        rows: Rows = found[0][found[0] >= 0]
        return rows

    def serialised(self) -> bytes:
        """Return the bytes to write."""
        return faiss.serialize_index(self._index).tobytes()


def build(rows: ExactRows, *, dimension: int) -> Coarse:
    """Build an index of `rows`, numbered from 0. Memory: a few bytes per row, and a training sample.

    Uses lists, unless the measurement shows that a search would have to probe most of them.
    """
    index: Any = faiss.index_factory(dimension, factory_for(rows.count), faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.spherical = TRAINED_TIMES, True
    index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = TRAINED_WITH_MAX, 1
    _fill(index, rows, trained_with=index.nlist * TRAINED_WITH_MAX)
    effort = _effort_for(index, rows)
    if effort.probes <= index.nlist * PROBED_MAX:
        return Coarse(index, effort)
    index = faiss.index_factory(dimension, WITHOUT_LISTS, faiss.METRIC_INNER_PRODUCT)
    _fill(index, rows, trained_with=TRAINED_WITH_MAX * TRAINED_WITH_MAX)
    return Coarse(index, _effort_for(index, rows))


def parse(data: bytes, effort: Effort) -> Coarse:
    """Return the index in `data`. The caller has checked the bytes. Raises `ValueError`."""
    try:
        return Coarse(faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8)), effort)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(str(error)) from error


def factory_for(count: int) -> str:
    """Return the FAISS factory string for `count` rows: about half the square root of `count` as lists."""
    return f"IVF{1 << max(5, round(math.log2(count) / 2 - 1))},RaBitQfs"


def version() -> str:
    """Return the version of FAISS."""
    return str(faiss.__version__)


def _fill(index: Any, rows: ExactRows, *, trained_with: int) -> None:
    index.train(rows.take(_spread(rows.count, trained_with)))
    for piece in rows.pieces():
        index.add(np.ascontiguousarray(piece))


def _effort_for(index: Any, rows: ExactRows) -> Effort:
    """Measure the effort that finds the nearest neighbours of sample rows, the samples themselves excluded."""
    tried = _spread(rows.count, TRIED_ROWS)
    queries = rows.take(tried)
    scored = np.concatenate([queries @ piece.T for piece in rows.pieces()], axis=1)
    scored[np.arange(len(tried)), tried] = -np.inf
    nearest = np.argpartition(-scored, TRIED_K, axis=1)[:, :TRIED_K]

    def found(probes: int, candidates: int) -> float:
        got = _searched(index, queries, candidates, probes=probes)
        return float(np.mean([np.isin(near, some).mean() for near, some in zip(nearest, got, strict=True)]))

    lists = getattr(index, "nlist", 0)
    probes = max(2, int(lists * PROBED_MIN)) if lists else 0
    best = found(probes, TRIED_CANDIDATES[-1])
    while best < FOUND_MIN and probes < lists:
        before, probes = best, min(probes * 2, lists)
        best = found(probes, TRIED_CANDIDATES[-1])
        if best - before < GAIN_MIN:
            break
    candidates = next((n for n in TRIED_CANDIDATES if found(probes, n) >= FOUND_MIN * best), TRIED_CANDIDATES[-1])
    return Effort(min(lists, round(probes * MARGIN)), round(candidates * MARGIN))


def _searched(index: Any, queries: Vectors, wanted: int, *, probes: int) -> Rows:
    parameters = None
    if probes:
        parameters = faiss.IVFRaBitQSearchParameters()
        parameters.nprobe, parameters.qb, parameters.centered = probes, index.qb, index.centered
    threads = faiss.omp_get_max_threads()
    if len(queries) == 1:
        # One query is too small to split: waking other threads takes longer, above all when they are busy.
        # The setting applies to the calling thread only.
        faiss.omp_set_num_threads(1)
    try:
        found: Rows = index.search(np.ascontiguousarray(queries), min(wanted, index.ntotal), params=parameters)[1]
    finally:
        faiss.omp_set_num_threads(threads)
    return found


def _spread(count: int, wanted: int) -> Rows:
    """Return up to `wanted` rows, evenly spread."""
    wanted = min(wanted, count)
    return np.arange(wanted, dtype=np.int64) * count // wanted
