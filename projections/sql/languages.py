"""The languages that a store has had. The text index is in the last one, with the turns from before it too."""

from __future__ import annotations

from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.language import DEFAULT_LANGUAGE
from mnemolog.domain.position import Position
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.tracking import METADATA

CHOICES: Final = sa.Table(
    "languages",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("language", sa.Text, nullable=False),
    sqlite_strict=True,
)


class Languages(NamedTuple):
    """The language at a position, and that of the text index."""

    then: str
    indexed: str


def languages_at(connection: sa.Connection, position: Position) -> Languages:
    """Return the language at `position`, and that of the text index."""
    then = indexed = DEFAULT_LANGUAGE
    for chosen_at, language in fetch(connection, "SELECT position, language FROM languages ORDER BY position"):
        indexed = language
        then = language if chosen_at <= position else then
    return Languages(then, indexed)
