"""Delete vectors from the embedding cache that belong to no turn of the log any more (mark and sweep).

The rows of a forgotten text cannot be found by their hash, because the text is gone. The sweep also clears a cache that
was restored from an older copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import DELETED_TOGETHER_MAX, EMBEDDINGS, content_hash
from mnemolog.projections.vectors.rendering import rendered_turns
from mnemolog.projections.vectors.text_hashes import CONTENT_BYTES, Hashes

READ_BATCH: Final = 1_000
_HASH: Final = np.dtype(f"S{CONTENT_BYTES}")
"""The bytes of each hash that are compared. They are in memory for every turn of the log."""


def sweep(
    database: ProjectionDatabase,
    log: Log,
    *,
    upto: Position,
    progress: Progress | None = None,
) -> int:
    """Delete the vectors of texts that no turn up to `upto` has. Return the number deleted.

    Call it after raising the forgetting epoch. Vectors stored meanwhile stay: they are newer than what was forgotten
    (`EmbeddingCache.store`). Raises `ProjectionUnreadable`.
    """
    with database.reading() as connection:
        if not sa.inspect(connection).has_table(EMBEDDINGS.name):
            return 0
    # Under the write lock: every writer that read the epoch before it was raised has committed by then.
    with database.writing() as connection:
        newest = connection.exec_driver_sql("SELECT coalesce(max(rowid), 0) FROM embeddings").scalar_one()
    alive = _alive(log, upto, progress)
    deleted, after = 0, 0
    while after < newest:
        # In batches, so that a thread that embeds meanwhile does not wait long.
        with database.writing() as connection:
            rows = connection.exec_driver_sql(
                "SELECT rowid, content FROM embeddings WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?",
                (after, newest, DELETED_TOGETHER_MAX),
            ).fetchall()
            if not rows:
                break
            held = _held(alive, [content for _, content in rows])
            doomed = [(rowid,) for (rowid, _), is_held in zip(rows, held, strict=True) if not is_held]
            if doomed:
                connection.exec_driver_sql("DELETE FROM embeddings WHERE rowid = ?", doomed)
        deleted, after = deleted + len(doomed), rows[-1][0]
    return deleted


def _alive(log: Log, upto: Position, progress: Progress | None) -> Hashes:
    """Return the first bytes of the hashes of all texts, sorted."""
    alive = bytearray()
    for events in log.read(after=ORIGIN, upto=upto, batch_max=READ_BATCH):
        for turn in rendered_turns(events):
            alive += content_hash(turn.text)[:CONTENT_BYTES]
        if progress is not None:
            progress(events[-1].position, upto)
    hashes: Hashes = np.frombuffer(alive, dtype=_HASH)
    hashes.sort()
    return hashes


def _held(alive: Hashes, contents: Sequence[Any]) -> list[bool]:
    """Return for each hash whether it is alive. Damage can turn one into a value of another type."""
    asked: Hashes = np.array([content if isinstance(content, bytes) else b"" for content in contents], dtype=_HASH)
    if not len(alive):
        return [False] * len(asked)
    places = np.minimum(np.searchsorted(alive, asked), len(alive) - 1)
    found: list[bool] = (alive[places] == asked).tolist()
    return found
