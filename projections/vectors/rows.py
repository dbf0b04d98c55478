"""Exact vectors, row by row: in memory, or mapped from a file whose blocks are checked before they are used."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.manifest import Damaged

BLOCK_ROWS: Final = 16
"""Rows that share a checksum: 24 KiB of 384 components. Fewer cost more checksums, more cost more reading."""
DIGEST_BYTES: Final = 16
PIECE_ROWS: Final = 4_096
"""Rows that are held in memory at once where all are gone through. A multiple of BLOCK_ROWS."""
RESIDENT_BYTES_MAX: Final = 352 << 20
"""Mapped bytes that may be in this process's memory before their pages are given back to the system."""
PARTS: Final = 8
"""In how many parts a file's pages are given back."""
FAULT_BYTES: Final = 64 << 10
"""What Linux maps at once around a page that is touched, if it has it in its cache."""

Rows = NDArray[np.int64]


class ExactRows(Protocol):
    """The exact vectors of a segment. All methods raise `Damaged` instead of giving wrong numbers."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    def take(self, rows: Rows) -> Vectors:
        """Return the rows of these numbers, which rise. Shape (len(rows), dimension)."""
        ...

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order, at most `PIECE_ROWS` at once."""
        ...


class MemoryRows:
    """Vectors of shape (rows, dimension) that are in memory only."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._vectors)

    def take(self, rows: Rows) -> Vectors:
        """Return the rows of these numbers."""
        return self._vectors[rows]

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order."""
        for start in range(0, len(self._vectors), PIECE_ROWS):
            yield self._vectors[start : start + PIECE_ROWS]


class MappedRows:
    """Vectors in a file of little-endian float32, mapped into memory and never changed.

    A block is checked when it is first used, and again after the file has been touched by anybody. A file
    that has become shorter is noticed before a page of it is missing, which would end the process.
    """

    def __init__(self, path: Path, *, count: int, dimension: int, digests: bytes) -> None:
        self.path, self._count, self._dimension, self._digests = path, count, dimension, digests
        self._bytes = count * dimension * 4
        if len(digests) != -(-count // BLOCK_ROWS) * DIGEST_BYTES:
            raise Damaged(path, "it has another number of rows than checksums")
        self._descriptor = _open(path)
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._current_stamp()
        self._unchecked = np.ones(-(-count // BLOCK_ROWS), dtype=np.bool_)
        self._next_part = 0
        self._touched = np.zeros(self._bytes // FAULT_BYTES + 1, dtype=np.bool_)
        if not count:
            self._map, self._vectors = None, np.empty((0, dimension), dtype=np.float32)
            return
        try:
            self._map = mmap.mmap(self._descriptor, self._bytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise errors.ProjectionUnreadable(path, f"it cannot be mapped: {error}") from error
        # Reading ahead would bring in, and keep, far more than the few rows of an answer.
        self._map.madvise(mmap.MADV_RANDOM)
        self._vectors = np.frombuffer(self._map, dtype="<f4").reshape(count, dimension)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._count

    def take(self, rows: Rows) -> Vectors:
        """Return the rows of these numbers, which rise. Raises `Damaged`."""
        blocks = rows // BLOCK_ROWS
        self._check(blocks[np.flatnonzero(np.diff(blocks, prepend=-1))])
        return self._vectors[rows]

    def pieces(self) -> Iterator[Vectors]:
        """Yield all rows in order, at most `PIECE_ROWS` at once. Raises `Damaged`."""
        for start in range(0, self._count, PIECE_ROWS):
            end = min(start + PIECE_ROWS, self._count)
            self._check(np.arange(start // BLOCK_ROWS, -(-end // BLOCK_ROWS)))
            yield self._vectors[start:end]

    def _check(self, blocks: Rows) -> None:
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._unchecked[:] = True
            self._stamp = stamp
        for block in blocks[self._unchecked[blocks]].tolist():
            rows = self._vectors[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
            if block_digest(rows) != self._digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]:
                raise Damaged(self.path, f"rows from {block * BLOCK_ROWS} on are not those that were written")
            self._unchecked[block] = False
        self._touched[blocks * (BLOCK_ROWS * self._dimension * 4) // FAULT_BYTES] = True
        if self._map is not None and np.count_nonzero(self._touched) * FAULT_BYTES > RESIDENT_BYTES_MAX:
            self._give_back(self._map)

    def _give_back(self, mapped: mmap.mmap) -> None:
        """Give back a part of the pages, another one each time: all of them would be missed at once."""
        # They stay in the system's cache; they only count no longer as this process's memory.
        size = -(-len(self._touched) // PARTS)
        start, end = self._next_part * size, min((self._next_part + 1) * size, len(self._touched))
        if start < end and start * FAULT_BYTES < self._bytes:
            length = min(end * FAULT_BYTES, self._bytes) - start * FAULT_BYTES
            mapped.madvise(mmap.MADV_DONTNEED, start * FAULT_BYTES, length)
            self._touched[start:end] = False
        self._next_part = (self._next_part + 1) % PARTS

    def _current_stamp(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        if found.st_size != self._bytes:
            raise Damaged(self.path, f"it has {found.st_size:,} bytes instead of {self._bytes:,}")
        return found.st_mtime_ns, found.st_ctime_ns


def block_digest(rows: Vectors) -> bytes:
    """Return the checksum of a block of rows: XXH3, which is as quick as reading them."""
    return xxhash.xxh3_128_digest(rows.data)


def scores(rows: ExactRows, query: Vectors, *, at: Rows | None = None) -> NDArray[np.float32]:
    """Return the inner product of `query`, shape (1, dimension), with the rows at `at`, or with all.

    Rounded to six decimals: sums of float32 in another order differ behind them, and equal texts should
    have equal scores wherever they lie.
    """
    made: Sequence[Vectors] | Iterator[Vectors]
    made = rows.pieces() if at is None else (rows.take(at[n : n + PIECE_ROWS]) for n in range(0, len(at), PIECE_ROWS))
    products = [piece @ query[0] for piece in made]
    if not products:
        return np.empty(0, dtype=np.float32)
    return np.round(np.concatenate(products), 6).astype(np.float32)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Damaged(path, "it is missing") from error
    except OSError as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error
