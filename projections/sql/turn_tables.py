"""Tables beside that of turns: the words of speakers' names, standing statements, and metadata by key and value.

A place is one number for a session and the turn's number in it, forgotten turns counted.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.encoding import canonical
from mnemolog.domain.events import RecordedEvent, StandingEnded, TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.session import session_of
from mnemolog.domain.standing import standing_in
from mnemolog.domain.values import Position
from mnemolog.projections.sql.database import METADATA
from mnemolog.projections.sql.words import STOP_WORDS, words_of

PLACES: Final = 1 << 24
"""Places per session. The first one is the position of the session's start times this number."""


def places_of(started_position: Any) -> tuple[Any, Any]:
    """Return the first and the last place of a session, by the position of its start: a number, or an expression."""
    first = started_position * PLACES
    return first, first + (PLACES - 1)


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


def insert_speakers(
    connection: sa.Connection, turns: Sequence[tuple[RecordedEvent, TurnRecorded]], scopes: dict[str, str]
) -> None:
    """Add the speakers of new turns. `scopes` maps sessions to scopes."""
    first: dict[tuple[str, str], Position] = {}
    for recorded, turn in turns:
        if turn.speaker:
            first.setdefault((turn.speaker, scopes[str(session_of(recorded.stream))]), recorded.position)
    rows = [(word, scope, speaker, since) for (speaker, scope), since in first.items() for word in _words_of(speaker)]
    if rows:
        connection.exec_driver_sql(
            "INSERT OR IGNORE INTO speakers (word, scope, speaker, since) VALUES (?, ?, ?, ?)", rows
        )


def forget_speaker(connection: sa.Connection, speaker: str, scope: str) -> None:
    """Update a speaker's first turn in a scope to the first one that remains."""
    since = connection.exec_driver_sql(_SELECT_FIRST, (scope, speaker)).scalar_one()
    if since is None:
        connection.exec_driver_sql("DELETE FROM speakers WHERE scope = ? AND speaker = ?", (scope, speaker))
    else:
        connection.exec_driver_sql(
            "UPDATE speakers SET since = ? WHERE scope = ? AND speaker = ?", (since, scope, speaker)
        )


@lru_cache(_SPEAKERS_KEPT)
def _words_of(speaker: str) -> tuple[str, ...]:
    """Return the words that a query may name a speaker by; none where the name is that of a role."""
    words = dict.fromkeys(words_of(speaker)) if speaker.lower() not in _ROLES else ()
    return tuple(word for word in words if word not in STOP_WORDS)


STANDING: Final = sa.Table(
    "standing",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("stop", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("ended", sa.Integer),  # The position of the event that ended it.
    sa.Index("standing_by_scope", "scope", "position"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The characters `start` to `stop` of a turn's text. Their words are in the turn alone."""

_INSERT_STANDING: Final = (
    f"INSERT INTO standing ({', '.join(STANDING.c.keys())}) VALUES ({', '.join('?' * len(STANDING.c))})"
)

_END: Final = (
    "UPDATE standing SET ended = ?1 WHERE position = ?2 AND ended IS NULL AND position IN (SELECT position FROM turns "
    "JOIN sessions ON started_position = place / ?4 WHERE session = ?3 AND position = ?2)"
)


def insert_standing(
    connection: sa.Connection, turns: Sequence[tuple[RecordedEvent, TurnRecorded]], scopes: Mapping[str, str]
) -> None:
    """Add the standing statements of new turns. `scopes` maps sessions to scopes.

    Only users say how answers should be.
    """
    rows = [
        (recorded.position, read.start, read.end, read.kind.value, scopes[str(session_of(recorded.stream))], None)
        for recorded, turn in turns
        if turn.role == Role.USER
        for read in standing_in(turn.text)
    ]
    if rows:
        connection.exec_driver_sql(_INSERT_STANDING, rows)


def end_standing(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    """Note which statements end. The first end of one counts, and only an end in its own session."""
    rows = [
        (item.position, item.event.turn, session_of(item.stream), PLACES)
        for item in events
        if isinstance(item.event, StandingEnded)
    ]
    if rows:
        connection.exec_driver_sql(_END, rows)


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


def insert_metadata(connection: sa.Connection, turns: Sequence[tuple[RecordedEvent, TurnRecorded]]) -> None:
    """Insert the metadata of new turns."""
    rows = [(key, stored(value), recorded.position) for recorded, turn in turns for key, value in turn.metadata.items()]
    if rows:
        connection.exec_driver_sql("INSERT INTO turn_metadata (key, value, position) VALUES (?, ?, ?)", rows)


def stored(value: Any) -> bytes:
    """Return a value as it is stored in the table."""
    made = canonical(value)
    return made if len(made) <= VALUE_BYTES_MAX else _DIGEST + sha256(made).digest()
