"""The position of a projection, saved in the same transaction as its rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.sql.database import fetch

METADATA: Final = sa.MetaData()

TRACKING: Final = sa.Table(
    "tracking",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("log_id", sa.Text, nullable=False, server_default=""),
    sa.Column("digest", sa.BLOB, nullable=False, server_default=sa.text("x''")),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

_UPSERT: Final = sa.text(
    "INSERT INTO tracking (name, position, log_id, digest) VALUES (:name, :position, :log_id, :digest) "
    "ON CONFLICT (name) DO UPDATE SET position = excluded.position, log_id = excluded.log_id, "
    "digest = excluded.digest WHERE excluded.position > tracking.position"
)


class Tracked(NamedTuple):
    """The log that a projection has read, its position, and the log's digest there."""

    position: Position
    log_id: str
    digest: bytes


NOTHING_READ: Final = Tracked(ORIGIN, "", b"")


def tracked(connection: sa.Connection, name: str) -> Tracked:
    """Return the position of the projection `name`. A row with values of other types counts as none."""
    query = "SELECT position, log_id, digest FROM tracking WHERE name = ?"
    rows = fetch(connection, query, name)
    return next((Tracked(*row) for row in rows if [type(value) for value in row] == [int, str, bytes]), NOTHING_READ)


def track(connection: sa.Connection, name: str, to: Tracked) -> None:
    """Record, in the caller's transaction, that `name` has read up to `to`.

    The caller has checked that the position increases.
    """
    values = {"name": name, "position": to.position, "log_id": to.log_id, "digest": to.digest}
    if connection.execute(_UPSERT, values).rowcount != 1:
        raise AssertionError(f"{name!r} is at or past position {to.position}")
