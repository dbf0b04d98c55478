"""Delete vectors from the embedding cache that belong to no turn of the log any more (mark and sweep).

The rows of a forgotten text cannot be found by their hash, because the text is gone. The sweep also clears a cache that
was restored from an older copy.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import DELETED_TOGETHER_MAX, EMBEDDINGS, content_hash
from mnemolog.projections.vectors.embedder import rendered_turns

READ_BATCH: Final = 1_000


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
            doomed = [(rowid,) for rowid, content in rows if content not in alive]
            if doomed:
                connection.exec_driver_sql("DELETE FROM embeddings WHERE rowid = ?", doomed)
        deleted, after = deleted + len(doomed), rows[-1][0]
    return deleted


def _alive(log: Log, upto: Position, progress: Progress | None) -> set[bytes]:
    alive: set[bytes] = set()
    for events in log.read(after=ORIGIN, upto=upto, batch_max=READ_BATCH):
        alive.update(content_hash(turn.text) for turn in rendered_turns(events))
        if progress is not None:
            progress(events[-1].position, upto)
    return alive
