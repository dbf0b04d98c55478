"""The embedding cache: `embeddings.db`, vectors by (model fingerprint, content hash).

With it, a rebuild of vectors needs no model calls. Like every projection, it can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

import numpy as np
import sqlalchemy as sa
import xxhash

from mnemolog.domain import errors
from mnemolog.projections.sql.database import ProjectionDatabase, fetch
from mnemolog.projections.sql.packed_vectors import Packed, pack, width_of

LOOKUP_MAX: Final = 500
TOGETHER_MIN: Final = 64
"""Minimum texts in a look-up for trying to read the rows that follow those of the last look-up."""
SCATTERED_MAX: Final = 2
"""Rows count as adjacent within this multiple of their number from their middle. A frequent text lies elsewhere.
"""
_xxh3: Final = xxhash.xxh3_128_digest
FORMAT: Final = 2
"""Format of the rows, in `user_version`. From 2 on, the checksum covers the fingerprint. Older rows are deleted."""
DELETED_TOGETHER_MAX: Final = 2_000
"""Texts to delete in one transaction."""
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
    # With row ids, rows are stored in the order they were embedded, in which a rebuild reads them.
)


_COLUMNS: Final = "SELECT content, chunks, vectors, checksum, rowid FROM embeddings"
_SELECT: Final = _COLUMNS + " WHERE fingerprint = ? AND content IN ({})"
_SELECT_BEHIND: Final = _COLUMNS + " NOT INDEXED WHERE rowid BETWEEN ? AND ? AND fingerprint = ?"
_SELECT_ROWS: Final = _COLUMNS + " NOT INDEXED WHERE rowid > ? AND fingerprint = ? ORDER BY rowid LIMIT ?"
_CONVERT: Final = "UPDATE embeddings SET vectors = ?, checksum = ? WHERE rowid = ? AND fingerprint = ? AND checksum = ?"

_Row = tuple[bytes, int, bytes, bytes, int]
"""Content hash, chunks, vectors, checksum, and row id."""


def content_hash(text: str) -> bytes:
    """Return the SHA-256 of a rendered text."""
    return sha256(text.encode()).digest()


class EmbeddingCache:
    """Vectors of texts under one model."""

    def __init__(
        self, database: ProjectionDatabase, *, fingerprint: str, dimension: int, epoch: Callable[[], int] = lambda: 0
    ) -> None:
        self._database, self._epoch = database, epoch
        self._fingerprint, self._dimension, self._width = fingerprint, dimension, width_of(dimension)
        self._next: int | None = None
        """The row id at which the next look-up may begin: a rebuild reads rows in their order."""
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
        with self._database.reading() as connection:
            for start in range(0, len(wanted), LOOKUP_MAX):
                some = wanted[start : start + LOOKUP_MAX]
                rows = self._read_behind(connection, some)
                known = {row[0] for row in rows}
                if others := [content for content in some if content not in known]:
                    query = _SELECT.format(",".join("?" * len(others)))
                    rows += fetch(connection, query, self._fingerprint, *others)
                self._next = _behind(rows)
                found |= self._whole(rows)
        return found

    def _read_behind(self, connection: sa.Connection, contents: Sequence[bytes]) -> list[_Row]:
        """Return the rows of these contents that follow those of the last look-up.

        A sequential read takes a fifth of the time of finding each through the primary key.
        """
        first = self._next
        if first is None or len(contents) < TOGETHER_MIN:
            return []
        wanted = frozenset(contents)
        rows = fetch(connection, _SELECT_BEHIND, first, first + len(contents) - 1, self._fingerprint)
        return [row for row in rows if row[0] in wanted]

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
        with self._database.writing() as connection:
            # Checked under the write lock: forgetting first raises the epoch, then sweeps this table under the lock.
            if self._epoch() != read_in:
                return
            connection.exec_driver_sql(
                "INSERT INTO embeddings (fingerprint, content, chunks, vectors, checksum) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (fingerprint, content) DO UPDATE SET chunks = excluded.chunks, "
                "vectors = excluded.vectors, checksum = excluded.checksum",
                list(rows),
            )

    def convert(self) -> int:
        """Pack the vectors that an earlier version stored as floats, and shrink the file. Return how many texts.

        In small transactions: after a kill, the next call converts the rest. Damaged rows stay as they are.
        """
        converted, after = 0, 0
        while rows := self._rows_behind(after):
            after = rows[-1][4]
            earlier = [row for row in rows if self._is_earlier(row)]
            packed = [(row, vectors.tobytes()) for row in earlier if (vectors := self._packed(row)) is not None]
            changes = [
                (blob, checksum(self._fingerprint, row[0], blob), row[4], self._fingerprint, row[3])
                for row, blob in packed
            ]
            if changes:
                with self._database.writing() as connection:
                    connection.exec_driver_sql(_CONVERT, changes)
            converted += len(changes)
        if converted:
            with suppress(errors.ProjectionUnreadable, errors.StorageFull):  # Then the file stays as large as it was.
                self._database.scrub()
        return converted

    def _rows_behind(self, rowid: int) -> list[_Row]:
        with self._database.reading() as connection:
            return fetch(connection, _SELECT_ROWS, rowid, self._fingerprint, LOOKUP_MAX)

    def _is_earlier(self, row: _Row) -> bool:
        try:
            return len(row[2]) == row[1] * self._dimension * 4
        except TypeError:  # A flipped bit can change the type of a value.
            return False

    def _whole(self, rows: list[_Row]) -> dict[bytes, Packed]:
        """Return the vectors of rows that match their checksum."""
        return {row[0]: packed for row in rows if (packed := self._packed(row)) is not None}

    def _packed(self, row: _Row) -> Packed | None:
        """Return the vectors of a row; None if it is damaged or of another model, to which a damaged index may lead.

        Earlier versions stored float32 numbers.
        """
        content, chunks, blob, stored, _ = row
        try:
            if checksum(self._fingerprint, content, blob) != stored:
                return None
            if len(blob) == chunks * self._width:
                return np.frombuffer(blob, dtype=np.uint8).reshape(chunks, self._width)
            if self._is_earlier(row):
                return pack(np.frombuffer(blob, dtype="<f4").reshape(chunks, self._dimension))
        except TypeError:  # A flipped bit can change the type of a value.
            pass
        return None


def _behind(rows: Sequence[_Row]) -> int | None:
    """Return the row id after the place where most of the rows are adjacent; None if they are scattered."""
    numbers = sorted(row[4] for row in rows)
    if not numbers:
        return None
    middle, reach = numbers[len(numbers) // 2], SCATTERED_MAX * len(numbers)
    together = [number for number in numbers if abs(number - middle) <= reach]
    return together[-1] + 1 if 2 * len(together) > len(numbers) else None


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
            connection.exec_driver_sql("DELETE FROM embeddings WHERE fingerprint = ? AND content = ?", rows)
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
