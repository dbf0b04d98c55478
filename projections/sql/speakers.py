"""An index of the words in speakers' names by scope, to find the speakers that a query names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.position import Position
from mnemolog.domain.session import session_of
from mnemolog.projections.sql.database import METADATA
from mnemolog.projections.sql.turn_places import PLACES
from mnemolog.projections.sql.words import STOP_WORDS, words_of

_SPEAKERS_KEPT: Final = 1_024
_ROLES: Final = frozenset(role.value for role in Role)

SPEAKERS: Final = sa.Table(
    "speakers",
    METADATA,
    sa.Column("word", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("speaker", sa.Text, primary_key=True),
    sa.Column("since", sa.Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The words of speakers' names, and the first turn of each speaker in a scope."""

_SELECT_FIRST: Final = (
    "SELECT min(turns.position) FROM sessions CROSS JOIN turns "
    f"ON turns.place BETWEEN started_position * {PLACES} AND (started_position + 1) * {PLACES} - 1 "
    "WHERE scope = ? AND speaker = ?"
)


def insert(
    connection: sa.Connection, turns: Sequence[tuple[RecordedEvent, TurnRecorded]], scopes: dict[str, str]
) -> None:
    """Add the speakers of new turns. `scopes` maps sessions to scopes."""
    first: dict[tuple[str, str], Position] = {}
    for recorded, turn in turns:
        if turn.speaker:
            first.setdefault((turn.speaker, scopes[str(session_of(recorded.stream))]), recorded.position)
    if rows := [row for (speaker, scope), since in first.items() for row in _rows(speaker, scope, since)]:
        connection.exec_driver_sql(
            "INSERT OR IGNORE INTO speakers (word, scope, speaker, since) VALUES (?, ?, ?, ?)", rows
        )


def forget(connection: sa.Connection, speaker: str, scope: str) -> None:
    """Update a speaker's first turn in a scope to the first one that remains."""
    since = connection.exec_driver_sql(_SELECT_FIRST, (scope, speaker)).scalar_one()
    if since is None:
        connection.exec_driver_sql("DELETE FROM speakers WHERE scope = ? AND speaker = ?", (scope, speaker))
    else:
        connection.exec_driver_sql(
            "UPDATE speakers SET since = ? WHERE scope = ? AND speaker = ?", (since, scope, speaker)
        )


def _rows(speaker: str, scope: str, since: Position) -> list[tuple[str, str, str, Position]]:
    if speaker.lower() in _ROLES:
        return []
    return [(word, scope, speaker, since) for word in _words_of(speaker)]


@lru_cache(_SPEAKERS_KEPT)
def _words_of(speaker: str) -> tuple[str, ...]:
    return tuple(word for word in dict.fromkeys(words_of(speaker)) if word not in STOP_WORDS)
