"""Rows of vectors in memory or in a file. Blocks of a file are verified before use."""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
import xxhash
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.infra.runtime.files import open_descriptor
from mnemolog.projections.sql.embeddings import (
    MIDDLE_OF_LOW,
    Packed,
    Vectors,
    error_of_high,
    high_parts,
    unpack,
    width_of,
)
from mnemolog.projections.vectors.folders import Damaged, readable

BLOCK_ROWS: Final = 16
"""Rows per checksum: 9 KiB at 384 components. A lower number costs more checksums, a higher one more reading."""
DIGEST_BYTES: Final = 16
PIECE_ROWS: Final = 4_096
"""Rows in memory at once when all rows are read. A multiple of BLOCK_ROWS."""
KEPT_ROWS_MAX: Final = 8_192
"""Rows up to which they stay in memory as floats: a segment of so few has no index, and every answer reads them all."""
GAP_ROWS_MAX: Final = 8
"""Rows between two wanted ones up to which they are read together: 4 KiB, which takes less time than another read."""
SLACK: Final = 1e-5
"""Tolerance of bounds for float32 sums and for the rounding of exact scores."""
Rows = NDArray[np.int64]


class ExactRows(ABC):
    """The vectors of a segment. All methods raise `Damaged` rather than return wrong numbers."""

    def __init__(self, count: int, dimension: int) -> None:
        self.count, self.dimension = count, dimension
        self._kept: Vectors | None = None

    @abstractmethod
    def packed(self, rows: Rows) -> Packed:
        """Return the rows with these numbers (ascending), packed. Raises `Damaged`, `ProjectionUnreadable`."""

    def pieces(self) -> Iterator[Packed]:
        """Yield all rows in order, packed, at most `PIECE_ROWS` at once."""
        for start in range(0, self.count, PIECE_ROWS):
            yield self.packed(np.arange(start, min(start + PIECE_ROWS, self.count)))

    def kept(self) -> Vectors | None:
        """Return all rows as floats, which stay in memory; None for more than `KEPT_ROWS_MAX` rows."""
        kept = self._kept
        if kept is None and self.count <= KEPT_ROWS_MAX:
            pieces = [unpack(piece, self.dimension) for piece in self.pieces()]
            pieces = pieces or [np.empty((0, self.dimension), dtype=np.float32)]
            self._kept = kept = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return kept


class MemoryRows(ExactRows):
    """Packed vectors in memory only."""

    def __init__(self, packed: Packed, dimension: int) -> None:
        super().__init__(len(packed), dimension)
        self._packed = packed

    def packed(self, rows: Rows) -> Packed:
        """Return the rows with these numbers, packed."""
        return self._packed.take(rows, axis=0)


class SomeRows(ExactRows):
    """Some of the rows of another one, in the same order, read on demand."""

    def __init__(self, rows: ExactRows, left: Rows) -> None:
        super().__init__(len(left), rows.dimension)
        self._rows, self._left = rows, left

    def packed(self, rows: Rows) -> Packed:
        """Return the rows with these numbers (ascending), packed."""
        return self._rows.packed(self._left[rows])

    def pieces(self) -> Iterator[Packed]:
        """Yield all rows in order, packed."""
        start = 0
        for piece in self._rows.pieces():
            first, last = np.searchsorted(self._left, (start, start + len(piece)))
            yield piece[self._left[first:last] - start]
            start += len(piece)


class StoredRows(ExactRows):
    """An immutable file of packed rows, with a checksum for every block of rows.

    A block is checked on first use, and again after the file was modified.
    """

    def __init__(self, path: Path, *, count: int, dimension: int, digests: bytes) -> None:
        super().__init__(count, dimension)
        self.path = path
        self._digests = digests
        self._row_bytes = width_of(dimension)
        blocks = -(-count // BLOCK_ROWS)
        if len(digests) != blocks * DIGEST_BYTES:
            raise Damaged(path, "it has another number of rows than checksums")
        with readable(path):
            self._descriptor = open_descriptor(path, os.O_RDONLY, within=path.parent.parent)
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._current_stamp()
        self._unchecked = np.ones(blocks, dtype=np.bool_)

    def packed(self, rows: Rows) -> Packed:
        """Return the rows with these numbers (ascending), packed. Raises `Damaged`, `ProjectionUnreadable`."""
        self._notice_change()
        blocks = rows // BLOCK_ROWS
        unchecked = blocks[self._unchecked[blocks]]
        # Not `np.unique`: the first call imports numpy.ma, a tenth of opening a store of a million turns.
        unchecked = unchecked[np.diff(unchecked, prepend=-1) > 0]
        begins = np.flatnonzero(np.diff(unchecked, prepend=-2) > 1)
        counts = np.diff(begins, append=len(unchecked)).tolist()
        for first, count in zip(unchecked[begins].tolist(), counts, strict=True):
            start = first * BLOCK_ROWS
            self._compare(first, self._read([start], [min(count * BLOCK_ROWS, self.count - start)]))
        return self._read_some(rows)

    def pieces(self) -> Iterator[Packed]:
        """Yield all rows in order, each block checked again. Raises `Damaged`, `ProjectionUnreadable`."""
        for start in range(0, self.count, PIECE_ROWS):
            self._notice_change()
            piece = self._read([start], [min(PIECE_ROWS, self.count - start)])
            self._compare(start // BLOCK_ROWS, piece)
            yield piece

    def kept(self) -> Vectors | None:
        """Return all rows as floats; None if there are many. Raises `Damaged`, `ProjectionUnreadable`."""
        self._notice_change()
        return super().kept()

    def _notice_change(self) -> None:
        """Check every block again if the file was modified. Raises `Damaged` if its length is another."""
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._unchecked[:] = True
            self._kept, self._stamp = None, stamp

    def _compare(self, first: int, rows: NDArray[np.uint8]) -> None:
        """Check blocks that follow each other. Raises `Damaged`, naming the first that is."""
        found = block_digests(rows)
        written = self._digests[first * DIGEST_BYTES : first * DIGEST_BYTES + len(found)]
        if found != written:
            same = np.frombuffer(found, dtype=f"V{DIGEST_BYTES}") == np.frombuffer(written, dtype=f"V{DIGEST_BYTES}")
            block = first + int(np.argmin(same))
            raise Damaged(self.path, f"rows from {block * BLOCK_ROWS} on are not those that were written")
        self._unchecked[first : first + len(found) // DIGEST_BYTES] = False

    def _current_stamp(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        if found.st_size != self.count * self._row_bytes:
            raise Damaged(self.path, f"it has {found.st_size:,} bytes instead of {self.count * self._row_bytes:,}")
        return found.st_mtime_ns, found.st_ctime_ns

    def _read_some(self, rows: Rows) -> Packed:
        """Return these rows (ascending), read from the file. Those near each other are read together.

        They are not mapped: what is read of a mapped file stays in memory, with 15 pages around each row, and giving
        it back costs more than these reads.
        """
        if not len(rows):
            return np.empty((0, self._row_bytes), dtype=np.uint8)
        starts = np.flatnonzero(np.diff(rows, prepend=-GAP_ROWS_MAX - 1) > GAP_ROWS_MAX)
        ends = np.append(starts[1:], len(rows))
        firsts, counts = rows[starts], rows[ends - 1] - rows[starts] + 1
        found = self._read(firsts.tolist(), counts.tolist())
        not_read = firsts - np.cumsum(counts) + counts
        wanted: NDArray[np.uint8] = found[rows - np.repeat(not_read, ends - starts)]
        return wanted

    def _read(self, firsts: list[int], counts: list[int]) -> Packed:
        """Return ranges of rows, read from the file one after the other."""
        sizes, offsets = ([number * self._row_bytes for number in numbers] for numbers in (counts, firsts))
        try:
            read = b"".join(map(os.pread, repeat(self._descriptor), sizes, offsets))
        except OSError as error:
            raise errors.ProjectionUnreadable(self.path, str(error)) from error
        if len(read) != sum(sizes):
            raise Damaged(self.path, "it ends before its last row")
        return np.frombuffer(read, dtype=np.uint8).reshape(-1, self._row_bytes)


def block_digests(rows: NDArray[Any]) -> bytes:
    """Return the checksums of the blocks of rows, joined: XXH3, which is as fast as reading them."""
    starts = range(0, len(rows), BLOCK_ROWS)
    return b"".join([xxhash.xxh3_128_digest(rows[start : start + BLOCK_ROWS].data) for start in starts])


def floats(rows: ExactRows, at: Rows) -> Vectors:
    """Return these rows (ascending) as floats. Shape (len(at), dimension). Raises `Damaged`."""
    kept = rows.kept()
    return unpack(rows.packed(at), rows.dimension) if kept is None else kept[at]


def scores(rows: ExactRows, query: Vectors, *, at: Rows | None = None) -> NDArray[np.float32]:
    """Return the `products` of `query`, shape (1, dimension), with the rows `at`, by default all."""
    made: Iterable[Vectors]
    if at is not None:
        made = (floats(rows, at[n : n + PIECE_ROWS]) for n in range(0, len(at), PIECE_ROWS))
    elif (kept := rows.kept()) is not None:
        made = [kept]
    else:
        made = (unpack(piece, rows.dimension) for piece in rows.pieces())
    found = [products(piece, query) for piece in made]
    return np.concatenate(found) if found else np.empty(0, dtype=np.float32)


def products(rows: Vectors, query: Vectors) -> NDArray[np.float32]:
    """Return the inner products of `query`, shape (1, dimension), with rows.

    Rounded to six decimals, so that equal texts have equal scores in any segment: float32 sums in a different order
    differ beyond that.
    """
    return np.round(inner_products(rows, query[0]), 6)


def bounds(packed: Packed, query: Vectors) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return lower and upper bounds on the inner products of packed rows with `query`.

    `query` has shape (1, dimension) and length 1. Both results have shape (len(packed),). Computed from the high bits
    of the rows in a third of the time of exact scores.
    """
    high, sizes = high_parts(packed, dimension := query.shape[1])
    middle = MIDDLE_OF_LOW * float(query.sum())
    rough = (16 * inner_products(high.astype(np.float32), query[0]) + middle) * sizes[:, 0]
    off = sizes[:, 0] * error_of_high(dimension) + SLACK
    return rough - off, rough + off


def inner_products(rows: Vectors, query: Vectors) -> NDArray[np.float32]:
    """Return the product of each row with `query`. Shapes (n, dimension), (dimension,), (n,).

    Computed by FAISS in the calling thread. numpy's BLAS would wake threads, which costs more than the products of so
    few rows, and far more on a busy machine (measured: 8 ms instead of 0.3 ms for 2,000 rows).
    """
    rows, query = np.ascontiguousarray(rows, dtype=np.float32), np.ascontiguousarray(query, dtype=np.float32)
    made = np.empty(len(rows), dtype=np.float32)
    if len(rows):
        library: Any = faiss
        where = [library.swig_ptr(array) for array in (made, query, rows)]
        library.fvec_inner_products_ny(*where, rows.shape[1], len(rows))
    return made
