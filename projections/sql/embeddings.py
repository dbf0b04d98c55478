"""Vectors as they are stored, and the embedding cache: those that no segment has yet.

A vector has 12 bits per component. A component is a multiple of the vector's step, at most `LEVELS` steps. A packed
vector has the high 8 bits of every component, then the step, then the low 4 bits, two components to a byte. The high
bits alone give bounds on a score. docs/adr/0036-vectors-once.md has the measured errors.

The cache is `embeddings.db`: vectors by (model fingerprint, content hash). A vector is stored there when the model
returns it, and deleted once a segment has it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
import xxhash
from numpy.typing import NDArray

from mnemolog.projections.sql.database import ProjectionDatabase, fetch

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


LOOKUP_MAX: Final = 500
_xxh3: Final = xxhash.xxh3_128_digest
DELETED_TOGETHER_MAX: Final = 2_000
"""Texts to delete in one transaction."""
FREE_PAGES_MAX: Final = 64
"""Free pages above which the file is shrunk, if half of it is free. Fewer are used again."""
METADATA: Final = sa.MetaData()

EMBEDDINGS: Final = sa.Table(
    "embeddings",
    METADATA,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("content", sa.BLOB, primary_key=True),
    sa.Column("chunks", sa.Integer, nullable=False),
    sa.Column("vectors", sa.BLOB, nullable=False),
    sa.Column("checksum", sa.BLOB, nullable=False),
    sqlite_strict=True,
)


_SELECT: Final = "SELECT content, chunks, vectors, checksum FROM embeddings WHERE fingerprint = ? AND content IN ({})"
_SELECT_CONTENTS: Final = (
    "SELECT rowid, CAST(content AS BLOB) FROM embeddings WHERE rowid > ? AND substr(fingerprint, 1, ?) = ? "
    "ORDER BY rowid LIMIT ?"
)

_Row = tuple[bytes, int, bytes, bytes]
"""Content hash, chunks, vectors, and checksum."""


def content_hash(text: str) -> bytes:
    """Return the SHA-256 of a rendered text."""
    return sha256(text.encode()).digest()


class EmbeddingCache:
    """Vectors of texts under one model."""

    def __init__(
        self, database: ProjectionDatabase, *, fingerprint: str, dimension: int, epoch: Callable[[], int] = lambda: 0
    ) -> None:
        self.database, self._epoch = database, epoch
        self._fingerprint, self._width = fingerprint, width_of(dimension)
        with database.writing() as connection:
            METADATA.create_all(connection)

    def look_up(self, contents: Iterable[bytes]) -> dict[bytes, Packed]:
        """Return the cached vectors of `contents`: packed, one row for each chunk.

        A row that does not match its checksum counts as missing and will be replaced.
        """
        wanted = list(dict.fromkeys(contents))
        found: dict[bytes, Packed] = {}
        with self.database.reading() as connection:
            for start in range(0, len(wanted), LOOKUP_MAX):
                some = wanted[start : start + LOOKUP_MAX]
                rows = fetch(connection, _SELECT.format(",".join("?" * len(some))), self._fingerprint, *some)
                found |= {row[0]: packed for row in rows if (packed := self._packed(row)) is not None}
        return found

    def store(self, vectors_by_content: Mapping[bytes, Packed], *, read_in: int = 0) -> None:
        """Store packed vectors, one row for each chunk. Existing rows are replaced.

        Stores nothing if the forgetting epoch has changed since their texts were read.
        """
        if not vectors_by_content:
            return
        rows: Sequence[tuple[object, ...]] = [
            (self._fingerprint, content, len(vectors), blob, checksum(self._fingerprint, content, blob))
            for content, vectors in vectors_by_content.items()
            for blob in [vectors.tobytes()]
        ]
        with self.database.writing() as connection:
            # Checked under the write lock: forgetting first raises the epoch, then sweeps this table under the lock.
            if self._epoch() != read_in:
                return
            connection.exec_driver_sql(
                "INSERT INTO embeddings (fingerprint, content, chunks, vectors, checksum) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (fingerprint, content) DO UPDATE SET chunks = excluded.chunks, "
                "vectors = excluded.vectors, checksum = excluded.checksum",
                list(rows),
            )

    def delete_held(self, held: Callable[[Sequence[bytes]], Collection[bytes]]) -> int:
        """Delete the texts of these content hashes that `held` returns: segments have their vectors. Return how many.

        Then the file is shrunk, if much of it is free.
        """
        deleted = delete(self.database, held, model=self._fingerprint)
        if self._is_mostly_free():
            self.database.scrub()
        return deleted

    def _is_mostly_free(self) -> bool:
        with self.database.reading() as connection:
            free, pages = (
                int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
                for name in ("freelist_count", "page_count")
            )
        return free > FREE_PAGES_MAX and 2 * free > pages

    def _packed(self, row: _Row) -> Packed | None:
        """Return the vectors of a row; None if it is damaged or of another model, to which a damaged index may lead."""
        content, chunks, blob, stored = row
        with suppress(TypeError):  # A flipped bit can change the type of a value.
            if checksum(self._fingerprint, content, blob) == stored and len(blob) == chunks * self._width:
                return np.frombuffer(blob, dtype=np.uint8).reshape(chunks, self._width)
        return None


def models(database: ProjectionDatabase) -> list[str]:
    """Return the fingerprints of the models that have texts in the cache, once no one is writing any."""
    with database.writing() as connection:
        if not sa.inspect(connection).has_table(EMBEDDINGS.name):
            return []
        return [str(model) for (model,) in fetch(connection, "SELECT DISTINCT fingerprint FROM embeddings")]


def delete(
    database: ProjectionDatabase,
    doomed: Callable[[Sequence[bytes]], Collection[bytes]],
    *,
    model: str = "",
    dry_run: bool = False,
) -> int:
    """Delete the texts that `doomed` returns of some content hashes, of models with this fingerprint prefix.

    Return how many. In small transactions, so that a thread that embeds meanwhile does not wait long. If it is killed,
    the next call deletes the rest.
    """
    deleted = after = 0
    while True:
        with (database.reading if dry_run else database.writing)() as connection:
            if not sa.inspect(connection).has_table(EMBEDDINGS.name):
                return 0
            rows = fetch(connection, _SELECT_CONTENTS, after, len(model), model, DELETED_TOGETHER_MAX)
            if not rows:
                return deleted
            chosen = set(doomed([content for _, content in rows]))
            gone = [(row,) for row, content in rows if content in chosen]
            if gone and not dry_run:
                connection.exec_driver_sql("DELETE FROM embeddings WHERE rowid = ?", gone)
        deleted, after = deleted + len(gone), rows[-1][0]


def checksum(fingerprint: str, content: bytes, blob: bytes) -> bytes:
    """Return the checksum of a row. It covers the model and the content, because a mix-up is as wrong as damage.

    Detects damage, not manipulation. XXH3 is as fast as reading.
    """
    return _xxh3(fingerprint.encode() + content + blob)


def is_whole(row: Mapping[str, Any]) -> bool:
    """Whether a row matches its checksum. One that does not counts as missing."""
    blob, chunks = row["vectors"], row["chunks"]
    shaped = len(blob) % chunks == 0 if chunks > 0 else chunks == 0 and not blob
    return shaped and bool(row["checksum"] == checksum(row["fingerprint"], row["content"], blob))
