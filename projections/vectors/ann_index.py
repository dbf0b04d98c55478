"""A FAISS index that proposes candidate rows. It is small and fast; scores come from the exact vectors.

An inverted file over RaBitQ codes (Gao and Long, "RaBitQ", SIGMOD 2024; one bit a component, fast scan). The
number of lists to probe is measured on the indexed rows when the index is built. Building is deterministic: the same
rows give the same index.
"""

from __future__ import annotations

import io
import math
import struct
from functools import cached_property
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from mnemolog.projections.sql.packed_vectors import Vectors, unpack
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

# The layout of a serialised index (faiss/impl/index_write.cpp), as far as it does not depend on an empty one.
_METRIC: Final = faiss.METRIC_INNER_PRODUCT
_HEAD: Final = struct.Struct("<4siqqq?i")
"""Kind, components, rows, two constants, whether it is trained, metric."""
_LISTS: Final = struct.Struct("<qq")
"""Lists, and how many of them to probe."""
_SIZE: Final = struct.Struct("<Q")
_FLAT: Final = struct.Struct("<BiqqqQ")
"""Bits of a query, rows of a block, rows with padding, components with padding, bytes of a code, bytes of all codes."""
_QUANTIZER_BYTES: Final = 28
_FACTOR_BYTES: Final = 8
"""What a block has for each row beside its code."""
_BLOCK_ROWS: Final = 32


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

    def candidates(self, query: Vectors, wanted: int, *, among: NDArray[np.bool_] | None = None) -> Rows:
        """Return up to `wanted` different rows that may be near `query`, shape (1, dimension).

        `among` has for each row whether it may be returned; None allows all.
        """
        if among is None:
            found = _searched(self._index, query, wanted, probes=self.effort.probes)
        else:
            index = self._index if self.effort.probes else self._with_one_list
            found = _searched(index, query, wanted, probes=max(self.effort.probes, 1), among=among)
        rows: Rows = found[0][found[0] >= 0]
        return rows

    @cached_property
    def _with_one_list(self) -> Any:
        """The same codes in one list, for filters: FAISS filters the rows of lists only. Made for the first filter."""
        index: Any = faiss.index_factory(self.dimension, f"IVF1,{WITHOUT_LISTS}", _METRIC)
        index.quantizer.add(faiss.vector_to_array(self._index.center)[np.newaxis])
        numbers = np.arange(self.count, dtype=np.int64)
        index.invlists.resize(0, self.count)
        faiss.memcpy(index.invlists.get_codes(0), self._index.codes.get(), self._index.codes.size())
        faiss.memcpy(index.invlists.get_ids(0), faiss.swig_ptr(numbers), numbers.nbytes)
        index.ntotal, index.is_trained = self.count, True
        return index

    def serialised(self) -> bytes:
        """Return the bytes to write. FAISS passes them on in pieces, so that no second copy is in memory."""
        written, library = BytesIO(), cast(Any, faiss)
        library.write_index(self._index, library.PyCallbackIOWriter(written.write))
        return written.getvalue()


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


def parse(data: bytes, effort: Effort, *, dimension: int, count: int) -> Coarse:
    """Return the index of `count` rows in `data`. Raises `ValueError` if it is not one that `build` may have made.

    A right digest does not prove that: the manifest may come from an untrusted source. FAISS trusts the numbers in the
    bytes: a wrong one makes it reserve terabytes, or read past the end while it searches.
    """
    try:
        _require_own_layout(data, dimension=dimension, count=count, has_lists=effort.probes > 0)
        # `faiss.deserialize_index` would copy all bytes before it reads them.
        reader = faiss.PyCallbackIOReader(io.BytesIO(data).read)  # type: ignore[attr-defined]
        return Coarse(faiss.read_index(reader), effort)
    except (RuntimeError, AssertionError, MemoryError, struct.error) as error:
        raise ValueError(str(error)) from error


def _require_own_layout(data: bytes, *, dimension: int, count: int, has_lists: bool) -> None:
    """Compare every number in a serialised index with those of an empty one of its kind, and of the rows.

    What is left free are the components of vectors, the codes, and which row is in which list.
    """
    view = memoryview(data)
    lists = _LISTS.unpack_from(view, _HEAD.size)[0] if has_lists else 0
    if lists > count:
        raise ValueError("the index has more lists than rows")
    empty: Any = faiss.index_factory(dimension, f"IVF{lists},{WITHOUT_LISTS}" if has_lists else WITHOUT_LISTS, _METRIC)
    wanted = memoryview(faiss.serialize_index(empty).tobytes())
    wanted_head = _HEAD.unpack_from(wanted)
    _require(_HEAD.unpack_from(view) == (wanted_head[0], dimension, count, *wanted_head[3:5], True, wanted_head[6]))
    block_bytes = empty.bbs * (empty.M2 // 2 + _FACTOR_BYTES)
    if has_lists:
        _require_own_lists(view, wanted, dimension=dimension, count=count, lists=lists, block_bytes=block_bytes)
        return
    blocks = -(-count // empty.bbs)
    at, centre = _HEAD.size, _HEAD.size + _QUANTIZER_BYTES
    end = centre + _SIZE.size + 4 * dimension
    padded, codes = blocks * empty.bbs, blocks * block_bytes
    _require(view[at:centre] == wanted[at:centre] and _SIZE.unpack_from(view, centre) == (dimension,))
    told = _FLAT.unpack_from(view, end)
    _require(told == (empty.qb, empty.bbs, padded, empty.M2, empty.code_size, codes))
    _require(len(view) == end + _FLAT.size + codes)


def _require_own_lists(
    view: memoryview, wanted: memoryview, *, dimension: int, count: int, lists: int, block_bytes: int
) -> None:
    centres = _HEAD.size + _LISTS.size
    head = _HEAD.unpack_from(wanted, centres)
    _require(_HEAD.unpack_from(view, centres) == (head[0], dimension, lists, *head[3:5], True, head[6]))
    _require(_SIZE.unpack_from(view, centres + _HEAD.size) == (lists * dimension,))
    start, empty_start = centres + _HEAD.size + _SIZE.size + 4 * lists * dimension, centres + _HEAD.size + _SIZE.size
    begin = len(wanted) - 2 * _SIZE.size * lists - empty_start  # An empty list is two sizes of 0.
    _require(view[start : start + begin] == wanted[empty_start : empty_start + begin])
    at, listed = start + begin, []
    for _ in range(lists):
        (rows,) = _SIZE.unpack_from(view, at)
        _require(rows <= count)
        listed.append(np.frombuffer(view, dtype="<i8", count=rows, offset=at + _SIZE.size))
        at += _SIZE.size + 8 * rows
        size = -(-rows // _BLOCK_ROWS) * block_bytes
        _require(_SIZE.unpack_from(view, at) == (size,))
        at += _SIZE.size + size
    numbers = np.sort(np.concatenate(listed))
    _require(at == len(view) and np.array_equal(numbers, np.arange(count)))


def _require(as_built: bool) -> None:
    if not as_built:
        raise ValueError("the index is not one of these vectors")


def factory_for(count: int) -> str:
    """Return the FAISS factory string for `count` rows: about half the square root of `count` as lists."""
    return f"IVF{1 << max(5, round(math.log2(count) / 2 - 1))},RaBitQfs"


def version() -> str:
    """Return the version of FAISS."""
    return str(faiss.__version__)


def _fill(index: Any, rows: ExactRows, *, trained_with: int) -> None:
    index.train(_read_in_order(rows, _spread(rows.count, trained_with)))
    for piece in rows.pieces():
        index.add(unpack(piece, rows.dimension))


def _read_in_order(rows: ExactRows, wanted: Rows) -> Vectors:
    """Return these rows (ascending). Reads all rows: pages of a mapped file would stay in memory, one for each row."""
    found, start = np.empty((len(wanted), rows.dimension), dtype=np.float32), 0
    for piece in rows.pieces():
        first, last = np.searchsorted(wanted, (start, start + len(piece)))
        found[first:last] = unpack(piece[wanted[first:last] - start], rows.dimension)
        start += len(piece)
    return found


def _effort_for(index: Any, rows: ExactRows) -> Effort:
    """Measure the effort that finds the nearest neighbours of sample rows, the samples themselves excluded."""
    tried = _spread(rows.count, TRIED_ROWS)
    queries = _read_in_order(rows, tried)
    nearest = _nearest(queries, rows, tried)

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


def _nearest(queries: Vectors, rows: ExactRows, tried: Rows) -> Rows:
    """Return the `TRIED_K` nearest rows of each query, which is the row `tried`, itself excluded."""
    best = np.empty((len(queries), 0), dtype=np.float32)
    nearest, start = np.empty((len(queries), 0), dtype=np.int64), 0
    for piece in rows.pieces():
        scored = queries @ unpack(piece, rows.dimension).T
        own = np.flatnonzero((tried >= start) & (tried < start + len(piece)))
        scored[own, tried[own] - start] = -np.inf
        best = np.concatenate((best, scored), axis=1)
        numbers = np.broadcast_to(np.arange(start, start + len(piece)), scored.shape)
        nearest, start = np.concatenate((nearest, numbers), axis=1), start + len(piece)
        if best.shape[1] > TRIED_K:
            kept = np.argpartition(-best, TRIED_K, axis=1)[:, :TRIED_K]
            best, nearest = np.take_along_axis(best, kept, axis=1), np.take_along_axis(nearest, kept, axis=1)
    return nearest


def _searched(
    index: Any, queries: Vectors, wanted: int, *, probes: int, among: NDArray[np.bool_] | None = None
) -> Rows:
    parameters = None
    if probes:
        parameters = faiss.IVFRaBitQSearchParameters()
        parameters.nprobe, parameters.qb, parameters.centered = probes, index.qb, index.centered
        if among is not None:
            library: Any = faiss
            parameters.sel = library.IDSelectorBitmap(np.packbits(among, bitorder="little"))
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
