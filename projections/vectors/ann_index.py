"""A FAISS index that proposes candidate rows. It is small and fast; scores come from the exact vectors.

An inverted file over product quantization with 4 bits for three components, read by fast scan (Andre, Kermarrec and Le
Scouarnec, "Quicker ADC", TPAMI 2019). The number of lists to probe is measured on the indexed rows when the index is
built. Building is deterministic: the same rows give the same index.
"""

import io
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

import faiss
import numpy as np
from faiss.contrib.exhaustive_search import knn_ground_truth
from numpy.typing import NDArray

from mnemolog.projections.sql.embeddings import Vectors, unpack
from mnemolog.projections.vectors.checked_rows import ExactRows, Rows, SomeRows

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
TOGETHER: Final = (3, 4, 2, 1)
"""Components that share a code, the best number first; it has to divide the dimension. Four find fewer neighbours."""
CENTRES: Final = 16
"""Values that a code of 4 bits can have."""

# The layout of a serialised index (faiss/impl/index_write.cpp), as far as it does not depend on an empty one.
_METRIC: Final = faiss.METRIC_INNER_PRODUCT
_HEAD: Final = struct.Struct("<4siqqq?i")
"""Kind, components, rows, two constants, whether it is trained, metric."""
_LISTS: Final = struct.Struct("<qq")
"""Lists, and how many of them to probe."""
_SIZE: Final = struct.Struct("<Q")
_LISTS_BEGIN: Final = 4 + 4 * 8
"""What comes before the lists: a kind and four numbers."""


@contextmanager
def in_calling_thread() -> Iterator[None]:
    """Let FAISS and its BLAS compute in the calling thread only. Use it with `with`, or as a decorator.

    Further threads spin while they wait for one another, and on a busy machine they wait most of the time. The setting
    is the calling thread's own: FAISS in other threads of the process computes with as many as before.
    """
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


class Effort(NamedTuple):
    """How thorough a search is."""

    probes: int
    """Lists to probe."""
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
        return _factory(self.dimension, self._index.nlist)

    def wanted(self, k: int) -> int:
        """Return how many rows to request so that the best `k` are among them."""
        return max(self.effort.candidates, CANDIDATES_PER_HIT * k)

    def candidates(self, query: Vectors, wanted: int, *, among: NDArray[np.bool_] | None = None) -> Rows:
        """Return up to `wanted` different rows that may be near `query`, shape (1, dimension).

        `among` has for each row whether it may be returned; None allows all.
        """
        found = _searched(self._index, query, wanted, probes=self.effort.probes, among=among)
        rows: Rows = found[0][found[0] >= 0]
        return rows

    def serialised(self) -> bytes:
        """Return the bytes to write. FAISS passes them on in pieces, so that no second copy is in memory."""
        written, library = io.BytesIO(), cast(Any, faiss)
        library.write_index(self._index, library.PyCallbackIOWriter(written.write))
        return written.getvalue()


@in_calling_thread()
def build(rows: ExactRows, *, dimension: int) -> Coarse:
    """Build an index of `rows`, numbered from 0. Memory: a few bytes per row, and a training sample."""
    index: Any = faiss.index_factory(dimension, factory_for(rows.count, dimension), _METRIC)
    index.cp.niter, index.cp.spherical = TRAINED_TIMES, True
    index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = TRAINED_WITH_MAX, 1
    index.pq.cp.min_points_per_centroid = 1
    index.train(_read_in_order(rows, _spread(rows.count, index.nlist * TRAINED_WITH_MAX)))
    for piece in rows.pieces():
        index.add(unpack(piece, rows.dimension))
    return Coarse(index, _effort_for(index, rows))


def parse(data: bytes, effort: Effort, *, dimension: int, count: int) -> Coarse:
    """Return the index of `count` rows in `data`. Raises `ValueError` if it is not one that `build` may have made.

    A right digest does not prove that: the manifest may come from an untrusted source. FAISS trusts the numbers in the
    bytes: a wrong one makes it reserve terabytes, or read past the end while it searches.
    """
    try:
        _require_own_layout(data, dimension=dimension, count=count)
        # `faiss.deserialize_index` would copy all bytes before it reads them.
        reader = faiss.PyCallbackIOReader(io.BytesIO(data).read)  # type: ignore[attr-defined]
        return Coarse(faiss.read_index(reader), effort)
    except (RuntimeError, AssertionError, MemoryError, struct.error) as error:
        raise ValueError(str(error)) from error


def _require_own_layout(data: bytes, *, dimension: int, count: int) -> None:
    """Compare every number in a serialised index with those of an empty one of its kind, and of the rows.

    What is left free are the components of vectors, the codes, and which row is in which list.
    """
    view = memoryview(data)
    lists, _ = _LISTS.unpack_from(view, _HEAD.size)
    _require(0 < lists <= count)
    empty: Any = faiss.index_factory(dimension, _factory(dimension, lists), _METRIC)
    wanted = memoryview(faiss.serialize_index(empty).tobytes())
    head, centres = _HEAD.unpack_from(wanted), _HEAD.size + _LISTS.size
    _require(_HEAD.unpack_from(view) == (head[0], dimension, count, *head[3:5], True, head[6]))
    head = _HEAD.unpack_from(wanted, centres)
    _require(_HEAD.unpack_from(view, centres) == (head[0], dimension, lists, *head[3:5], True, head[6]))
    _require(_SIZE.unpack_from(view, centres + _HEAD.size) == (lists * dimension,))
    start, empty_start = centres + _HEAD.size + _SIZE.size + 4 * lists * dimension, centres + _HEAD.size + _SIZE.size
    begin = len(wanted) - 2 * _SIZE.size * lists - empty_start  # An empty list is two sizes of 0.
    coded = begin - _LISTS_BEGIN - 4 * CENTRES * dimension
    for first, end in ((0, coded), (begin - _LISTS_BEGIN, begin)):
        _require(view[start + first : start + end] == wanted[empty_start + first : empty_start + end])
    at = start + begin
    listed = []
    block_bytes = empty.bbs * empty.M2 // 2
    for _ in range(lists):
        (rows,) = _SIZE.unpack_from(view, at)
        _require(rows <= count)
        listed.append(np.frombuffer(view, dtype="<i8", count=rows, offset=at + _SIZE.size))
        at += _SIZE.size + 8 * rows
        size = -(-rows // empty.bbs) * block_bytes
        _require(_SIZE.unpack_from(view, at) == (size,))
        at += _SIZE.size + size
    numbers, seen = np.concatenate(listed), np.zeros(count, dtype=np.bool_)
    _require(at == len(view) and len(numbers) == count and numbers.min() >= 0 and numbers.max() < count)
    seen[numbers] = True
    _require(bool(seen.all()))


def _require(as_built: bool) -> None:
    if not as_built:
        raise ValueError("the index is not one of these vectors")


def factory_for(count: int, dimension: int) -> str:
    """Return the FAISS factory string for `count` rows: about half the square root of `count` as lists."""
    return _factory(dimension, 1 << max(5, round(math.log2(count) / 2 - 1)))


def _factory(dimension: int, lists: int) -> str:
    together = next(number for number in TOGETHER if dimension % number == 0)
    return f"IVF{lists},PQ{dimension // together}x{int(math.log2(CENTRES))}fs"


def _read_in_order(rows: ExactRows, wanted: Rows) -> Vectors:
    """Return these rows (ascending). Reads all rows: pages of a mapped file would stay in memory, one for each row."""
    return unpack(np.concatenate([*SomeRows(rows, wanted).pieces()]), rows.dimension)


def _effort_for(index: Any, rows: ExactRows) -> Effort:
    """Measure the effort that finds the nearest neighbours of sample rows, the samples themselves excluded."""
    tried = _spread(rows.count, TRIED_ROWS)
    queries = _read_in_order(rows, tried)
    nearest = _nearest(queries, rows, tried)

    def found(probes: int, candidates: int) -> float:
        got = _searched(index, queries, candidates, probes=probes)
        return float(np.mean([np.isin(near, some).mean() for near, some in zip(nearest, got, strict=True)]))

    lists = index.nlist
    probes = max(2, int(lists * PROBED_MIN))
    best = found(probes, TRIED_CANDIDATES[-1])
    while best < FOUND_MIN and probes < lists:
        before, probes = best, min(probes * 2, lists)
        best = found(probes, TRIED_CANDIDATES[-1])
        if best - before < GAIN_MIN:
            break
    candidates = next((n for n in TRIED_CANDIDATES if found(probes, n) >= FOUND_MIN * best), TRIED_CANDIDATES[-1])
    return Effort(min(lists, round(probes * MARGIN)), round(candidates * MARGIN))


def _nearest(queries: Vectors, rows: ExactRows, tried: Rows) -> list[Rows]:
    """Return the `TRIED_K` nearest rows of each query, which is the row `tried`, itself excluded."""
    pieces = (unpack(piece, rows.dimension) for piece in rows.pieces())
    found = knn_ground_truth(queries, pieces, TRIED_K + 1, _METRIC, ngpu=0)[1]
    return [near[near != own][:TRIED_K] for near, own in zip(found, tried, strict=True)]


@in_calling_thread()
def _searched(
    index: Any, queries: Vectors, wanted: int, *, probes: int, among: NDArray[np.bool_] | None = None
) -> Rows:
    parameters: Any = faiss.IVFSearchParameters()
    parameters.nprobe = probes
    if among is not None:
        library: Any = faiss
        parameters.sel = library.IDSelectorBitmap(np.packbits(among, bitorder="little"))
    found: Rows = index.search(np.ascontiguousarray(queries), min(wanted, index.ntotal), params=parameters)[1]
    return found


def _spread(count: int, wanted: int) -> Rows:
    """Return up to `wanted` rows, evenly spread."""
    wanted = min(wanted, count)
    return np.arange(wanted, dtype=np.int64) * count // wanted
