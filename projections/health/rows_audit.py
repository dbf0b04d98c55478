"""Find and delete rows of the caches that do not match their checksum. Such rows are never used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.projections.ports import Progress
from mnemolog.projections.sql import embeddings, snapshots
from mnemolog.projections.sql.database import ProjectionDatabase

READ_BATCH: Final = 500

_Fits = Callable[[dict[str, Any]], bool]


def _embedding_fits(row: dict[str, Any]) -> bool:
    blob, chunks = row["vectors"], row["chunks"]
    shaped = len(blob) % chunks == 0 if chunks > 0 else chunks == 0 and not blob
    return shaped and bool(row["checksum"] == embeddings.checksum(row["fingerprint"], row["content"], blob))


def _snapshot_fits(row: dict[str, Any]) -> bool:
    return bool(row["checksum"] == snapshots.checksum(row))


class _Audited(NamedTuple):
    table: sa.Table
    fits: _Fits
    in_use: Callable[[sa.Connection], bool] = lambda _: True
    """Whether the rows are used: those of an earlier format are not damaged, and are replaced on the next opening."""


AUDITED: Final = {
    "embeddings.db": _Audited(embeddings.EMBEDDINGS, _embedding_fits, embeddings.is_current),
    "snapshots.db": _Audited(snapshots.SNAPSHOTS, _snapshot_fits),
}
"""By the name of the file."""

Keys = list[tuple[Any, ...]]


def invalid_rows(database: ProjectionDatabase, *, progress: Progress | None = None) -> Keys:
    """Return the keys of the rows that do not match their checksum. Reads every row.

    Raises `ProjectionUnreadable` where the file itself is damaged.
    """
    table, fits, in_use = AUDITED[database.path.name]
    found: Keys = []
    with database.reading() as connection:
        if not (sa.inspect(connection).has_table(table.name) and in_use(connection)):
            return found
        total = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        rows = connection.execution_options(yield_per=READ_BATCH).execute(sa.select(table))
        for done, row in enumerate(rows, 1):
            values = dict(row._mapping)
            if not _is_whole(values, fits):
                found.append(tuple(values[column.name] for column in table.primary_key))
            if progress is not None and done % READ_BATCH == 0:
                progress(done, total)
    return found


def delete(database: ProjectionDatabase, keys: Sequence[tuple[Any, ...]]) -> int:
    """Delete the rows of those keys that still do not match, and return how many. Raises `ProjectionUnreadable`."""
    table, fits, _ = AUDITED[database.path.name]
    deleted = 0
    with database.writing() as connection:
        for key in keys:
            at = sa.and_(*(column == value for column, value in zip(table.primary_key, key, strict=True)))
            # Look again under the lock: another process may have replaced the row.
            row = connection.execute(sa.select(table).where(at)).first()
            if row is not None and not _is_whole(dict(row._mapping), fits):
                deleted += connection.execute(table.delete().where(at)).rowcount
    return deleted


def _is_whole(row: dict[str, Any], fits: _Fits) -> bool:
    try:
        return fits(row)
    except (TypeError, ValueError, AttributeError):  # A flipped bit can turn a value into one of another type.
        return False
