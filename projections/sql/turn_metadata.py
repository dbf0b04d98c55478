"""An index of the metadata of turns by key and value, for filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.encoding import canonical
from mnemolog.domain.position import Position
from mnemolog.projections.sql.database import METADATA

VALUE_BYTES_MAX: Final = 64
"""A longer value is stored as its digest, with a prefix byte that no value begins with."""

_DIGEST: Final = b"\xc1"

TURN_METADATA: Final = sa.Table(
    "turn_metadata",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.BLOB, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
sa.Index("turn_metadata_by_position", TURN_METADATA.c.position)


def insert(connection: sa.Connection, turns: Iterable[tuple[Position, Mapping[str, Any]]]) -> None:
    """Insert the metadata of new turns, by position."""
    rows = [(key, stored(value), position) for position, metadata in turns for key, value in metadata.items()]
    if rows:
        connection.exec_driver_sql("INSERT INTO turn_metadata (key, value, position) VALUES (?, ?, ?)", rows)


def stored(value: Any) -> bytes:
    """Return a value as it is stored in the table."""
    made = canonical(value)
    return made if len(made) <= VALUE_BYTES_MAX else _DIGEST + sha256(made).digest()
