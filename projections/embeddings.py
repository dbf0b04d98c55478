"""The embedding cache: `embeddings.db`, vectors by (model fingerprint, content hash).

It makes every rebuild of vectors free of model calls. Like every projection it may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from mnemolog.projections.database import ProjectionDatabase

Vectors = NDArray[np.float32]

LOOKUP_MAX: Final = 500
_METADATA: Final = sa.MetaData()

EMBEDDINGS: Final = sa.Table(
    "embeddings",
    _METADATA,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("content", sa.BLOB, primary_key=True),
    sa.Column("chunks", sa.Integer, nullable=False),
    sa.Column("vectors", sa.BLOB, nullable=False),
    sa.Column("checksum", sa.BLOB, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)


def content_hash(text: str) -> bytes:
    """Return the SHA-256 of a rendered text."""
    return sha256(text.encode()).digest()


class EmbeddingCache:
    """Vectors of texts, as one model gave them."""

    def __init__(self, database: ProjectionDatabase, *, fingerprint: str, dimension: int) -> None:
        self._database = database
        self._fingerprint, self._dimension = fingerprint, dimension
        with database.writing() as connection:
            _METADATA.create_all(connection)

    def look_up(self, contents: Iterable[bytes]) -> dict[bytes, Vectors]:
        """Return what is known of `contents`: arrays of shape (chunks, dimension), float32.

        A row whose bytes do not fit their checksum counts as unknown and will be written anew.
        """
        wanted = list(dict.fromkeys(contents))
        found: dict[bytes, Vectors] = {}
        with self._database.reading() as connection:
            for start in range(0, len(wanted), LOOKUP_MAX):
                query = sa.select(
                    EMBEDDINGS.c.content, EMBEDDINGS.c.chunks, EMBEDDINGS.c.vectors, EMBEDDINGS.c.checksum
                ).where(
                    EMBEDDINGS.c.fingerprint == self._fingerprint,
                    EMBEDDINGS.c.content.in_(wanted[start : start + LOOKUP_MAX]),
                )
                for content, chunks, blob, stored in connection.execute(query):
                    if self._is_whole(content, chunks, blob, stored):
                        vectors = np.frombuffer(blob, dtype="<f4").reshape(chunks, self._dimension)
                        found[content] = vectors.astype(np.float32, copy=False)
        return found

    def store(self, vectors_by_content: Mapping[bytes, Vectors]) -> None:
        """Keep vectors of shape (chunks, dimension). What is there already is replaced."""
        if not vectors_by_content:
            return
        rows: Sequence[tuple[object, ...]] = [
            (self._fingerprint, content, len(vectors), blob, checksum(content, blob))
            for content, vectors in vectors_by_content.items()
            for blob in [np.ascontiguousarray(vectors, dtype="<f4").tobytes()]
        ]
        with self._database.writing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO embeddings (fingerprint, content, chunks, vectors, checksum) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (fingerprint, content) DO UPDATE SET chunks = excluded.chunks, "
                "vectors = excluded.vectors, checksum = excluded.checksum",
                list(rows),
            )

    def _is_whole(self, content: bytes, chunks: int, blob: bytes, stored: bytes) -> bool:
        return len(blob) == chunks * self._dimension * 4 and stored == checksum(content, blob)


def checksum(content: bytes, blob: bytes) -> bytes:
    """Return the checksum of a row: vectors under another content are as wrong as other vectors."""
    return blake2b(blob, key=content, digest_size=16).digest()
