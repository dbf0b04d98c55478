"""Rows of vectors in memory or in a file. Blocks of a file are verified before use."""

from __future__ import annotations

import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import faiss
import numpy as np
import xxhash
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.infra.runtime.regular_files import open_descriptor
from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.manifest import Damaged, readable

BLOCK_ROWS: Final = 16
"""Rows per checksum: 24 KiB at 384 components. A lower number costs more checksums, a higher one more reading."""
DIGEST_BYTES: Final = 16
PIECE_ROWS: Final = 4_096
"""Rows in memory at once when all rows are read. A multiple of BLOCK_ROWS."""
Rows = NDArray[np.int64]


class ExactRows(Protocol):
    """The exact vectors of a segment. All methods raise `Damaged` rather than return wrong numbers."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    def take(self, rows: Rows) -> Vectors:
        """Return the rows with these numbers (ascending). Shape (len(rows), dimension)."""
        ...

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order, at most `PIECE_ROWS` at once."""
        ...


class MemoryRows:
    """Vectors in memory only. Shape (rows, dimension)."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._vectors)

    def take(self, rows: Rows) -> Vectors:
        """Return the rows with these numbers."""
        return self._vectors[rows]

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order."""
        for start in range(0, len(self._vectors), PIECE_ROWS):
            yield self._vectors[start : start + PIECE_ROWS]


class _CheckedFile(ABC):
    """An immutable file of rows, with a checksum for every block of rows.

    A block is checked on first use, and again after the file was modified.
    """

    def __init__(self, path: Path, *, count: int, width: int, kind: str, digests: bytes) -> None:
        self.path, self._count, self._width, self._digests = path, count, width, digests
        self._kind = np.dtype(kind)
        self._row_bytes = width * self._kind.itemsize
        if len(digests) != -(-count // BLOCK_ROWS) * DIGEST_BYTES:
            raise Damaged(path, "it has another number of rows than checksums")
        self._descriptor = _open(path)
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._current_stamp()
        self._unchecked = np.ones(-(-count // BLOCK_ROWS), dtype=np.bool_)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._count

    @abstractmethod
    def _read(self, start: int, end: int) -> NDArray[Any]:
        """Return the rows from `start` to `end`."""

    def _check(self, rows: Rows) -> None:
        """Check the blocks of these rows (ascending) that are not checked yet. Raises `Damaged`."""
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._unchecked[:] = True
            self._stamp = stamp
        blocks = rows // BLOCK_ROWS
        for block in np.unique(blocks[self._unchecked[blocks]]).tolist():
            start = block * BLOCK_ROWS
            self._compare(block, self._read(start, min(start + BLOCK_ROWS, self._count)))

    def _compare(self, block: int, rows: NDArray[Any]) -> None:
        if block_digest(rows) != self._digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]:
            raise Damaged(self.path, f"rows from {block * BLOCK_ROWS} on are not those that were written")
        self._unchecked[block] = False

    def _current_stamp(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        if found.st_size != self._count * self._row_bytes:
            raise Damaged(self.path, f"it has {found.st_size:,} bytes instead of {self._count * self._row_bytes:,}")
        return found.st_mtime_ns, found.st_ctime_ns


class MappedRows(_CheckedFile):
    """Memory-mapped rows, for data that is small, or read often and in large amounts.

    A truncated file is detected before a missing page is read, which would end the process.
    """

    def __init__(self, path: Path, *, count: int, width: int, digests: bytes, kind: str = "<f4") -> None:
        super().__init__(path, count=count, width=width, kind=kind, digests=digests)
        if not count:
            self._rows = np.empty((0, width), dtype=self._kind)
            return
        try:
            mapped = mmap.mmap(self._descriptor, count * self._row_bytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise errors.ProjectionUnreadable(path, f"it cannot be mapped: {error}") from error
        # Read-ahead would load, and keep, far more than the few rows of an answer.
        mapped.madvise(mmap.MADV_RANDOM)
        self._rows = np.frombuffer(mapped, dtype=self._kind).reshape(count, width)

    def take(self, rows: Rows) -> NDArray[Any]:
        """Return the rows with these numbers (ascending). Raises `Damaged`."""
        self._check(rows)
        return self._rows[rows]

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Yield all rows in order, at most `PIECE_ROWS` at once. Raises `Damaged`."""
        for start in range(0, self._count, PIECE_ROWS):
            end = min(start + PIECE_ROWS, self._count)
            self._check(np.arange(start, end))
            yield self._rows[start:end]

    def _read(self, start: int, end: int) -> NDArray[Any]:
        return self._rows[start:end]


class ReadRows(_CheckedFile):
    """Exact vectors read from disk on demand. They take no memory."""

    def __init__(self, path: Path, *, count: int, width: int, digests: bytes) -> None:
        super().__init__(path, count=count, width=width, kind="<f4", digests=digests)

    def take(self, rows: Rows) -> Vectors:
        """Return the rows with these numbers (ascending). Raises `Damaged`, `ProjectionUnreadable`."""
        self._check(rows)
        size, descriptor = self._row_bytes, self._descriptor
        try:
            read = b"".join([os.pread(descriptor, size, row * size) for row in rows.tolist()])
        except OSError as error:
            raise errors.ProjectionUnreadable(self.path, str(error)) from error
        if len(read) != len(rows) * size:
            raise Damaged(self.path, "it ends before its last row")
        return np.frombuffer(read, dtype=self._kind).reshape(len(rows), self._width)

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order, at most `PIECE_ROWS` at once. Raises `Damaged`, `ProjectionUnreadable`."""
        for start in range(0, self._count, PIECE_ROWS):
            end = min(start + PIECE_ROWS, self._count)
            self._check(np.empty(0, dtype=np.int64))
            piece = self._read(start, end)
            for block in range(start // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
                first = block * BLOCK_ROWS - start
                self._compare(block, piece[first : first + BLOCK_ROWS])
            yield piece

    def _read(self, start: int, end: int) -> Vectors:
        rows = np.empty((end - start, self._width), dtype=self._kind)
        self._fill(rows, start)
        return rows

    def _fill(self, rows: Vectors, start: int) -> None:
        """Fill `rows` from the file, beginning at row `start`."""
        room, offset = rows.data.cast("B"), start * self._row_bytes
        while room:
            try:
                read = os.preadv(self._descriptor, [room], offset)
            except OSError as error:
                raise errors.ProjectionUnreadable(self.path, str(error)) from error
            if not read:
                raise Damaged(self.path, "it ends before its last row")
            room, offset = room[read:], offset + read


def block_digest(rows: NDArray[Any]) -> bytes:
    """Return the checksum of a block of rows: XXH3, which is as fast as reading them."""
    return xxhash.xxh3_128_digest(rows.data)


def scores(rows: ExactRows, query: Vectors, *, at: Rows | None = None) -> NDArray[np.float32]:
    """Return the inner products of `query`, shape (1, dimension), with the rows `at`, by default all.

    Rounded to six decimals, so that equal texts have equal scores in any segment: float32 sums in a different order
    differ beyond that.
    """
    made: Sequence[Vectors] | Iterator[Vectors]
    made = rows.pieces() if at is None else (rows.take(at[n : n + PIECE_ROWS]) for n in range(0, len(at), PIECE_ROWS))
    products = [inner_products(piece, query[0]) for piece in made]
    if not products:
        return np.empty(0, dtype=np.float32)
    return np.round(np.concatenate(products), 6).astype(np.float32)


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


def _open(path: Path) -> int:
    with readable(path):
        return open_descriptor(path, os.O_RDONLY, within=path.parent.parent)
