"""The embedding cache: `embeddings.db`, vectors by (model fingerprint, content hash) that no segment has yet.

A vector is stored here when the model returns it, and deleted once a segment has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
import sqlalchemy as sa
import xxhash

from mnemolog.projections.sql.database import ProjectionDatabase, fetch
from mnemolog.projections.sql.packed_vectors import Packed, width_of

LOOKUP_MAX: Final = 500
_xxh3: Final = xxhash.xxh3_128_digest
FORMAT: Final = 2
"""Format of the rows, in `user_version`. From 2 on, the checksum covers the fingerprint. Older rows are deleted."""
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
    "SELECT content FROM embeddings WHERE fingerprint = ? AND content > ? ORDER BY content LIMIT ?"
)
_DELETE: Final = "DELETE FROM embeddings WHERE fingerprint = ? AND content = ?"

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
            if not is_current(connection):
                METADATA.drop_all(connection)
                connection.exec_driver_sql(f"PRAGMA user_version = {FORMAT}")
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

        In small transactions. Then the file is shrunk, if much of it is free.
        """
        deleted, after = 0, b""
        while contents := self._contents_behind(after):
            after = contents[-1]
            if doomed := held(contents):
                with self.database.writing() as connection:
                    connection.exec_driver_sql(_DELETE, [(self._fingerprint, content) for content in doomed])
                deleted += len(doomed)
        if self._is_mostly_free():
            self.database.scrub()
        return deleted

    def _contents_behind(self, content: bytes) -> list[bytes]:
        with self.database.reading() as connection:
            rows = fetch(connection, _SELECT_CONTENTS, self._fingerprint, content, DELETED_TOGETHER_MAX)
        return [found for (found,) in rows]

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
        try:
            if checksum(self._fingerprint, content, blob) != stored:
                return None
            if len(blob) == chunks * self._width:
                return np.frombuffer(blob, dtype=np.uint8).reshape(chunks, self._width)
        except TypeError:  # A flipped bit can change the type of a value.
            pass
        return None


def count_of_model(database: ProjectionDatabase, fingerprint: str) -> int:
    """Return how many texts are cached for models with this fingerprint prefix."""
    with database.reading() as connection:
        if not sa.inspect(connection).has_table(EMBEDDINGS.name):
            return 0
        query = sa.select(sa.func.count()).select_from(EMBEDDINGS).where(_begins(fingerprint))
        return int(connection.execute(query).scalar_one())


def forget_model(database: ProjectionDatabase, fingerprint: str) -> int:
    """Delete the cached texts of models with this fingerprint prefix, and return how many.

    In many small transactions, so that a thread that embeds meanwhile does not wait long. If it is killed, the rest
    can be deleted later.
    """
    deleted = 0
    with database.reading() as connection:
        if not sa.inspect(connection).has_table(EMBEDDINGS.name):
            return 0
    while True:
        with database.writing() as connection:
            keys = sa.select(EMBEDDINGS.c.fingerprint, EMBEDDINGS.c.content).where(_begins(fingerprint))
            rows = [tuple(row) for row in connection.execute(keys.limit(DELETED_TOGETHER_MAX))]
            if not rows:
                return deleted
            connection.exec_driver_sql(_DELETE, rows)
        deleted += len(rows)


def _begins(fingerprint: str) -> sa.ColumnElement[bool]:
    # Hexadecimal digits sort before "g", so this range of the primary key is every fingerprint with the prefix.
    return sa.and_(EMBEDDINGS.c.fingerprint >= fingerprint, EMBEDDINGS.c.fingerprint < fingerprint + "g")


def is_current(connection: sa.Connection) -> bool:
    """Whether the rows of a cache have the current format."""
    version: int = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    return version == FORMAT


def checksum(fingerprint: str, content: bytes, blob: bytes) -> bytes:
    """Return the checksum of a row. It covers the model and the content, because a mix-up is as wrong as damage.

    Detects damage, not manipulation. XXH3 is as fast as reading.
    """
    return _xxh3(fingerprint.encode() + content + blob)
