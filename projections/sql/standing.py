"""The table of standing statements: where in the turns of a scope they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import RecordedEvent, StandingEnded, TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.session import session_of
from mnemolog.domain.standing import standing_in
from mnemolog.projections.sql.database import METADATA
from mnemolog.projections.sql.turn_places import PLACES

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

_INSERT: Final = f"INSERT INTO standing ({', '.join(STANDING.c.keys())}) VALUES ({', '.join('?' * len(STANDING.c))})"

_END: Final = (
    "UPDATE standing SET ended = ?1 WHERE position = ?2 AND ended IS NULL AND position IN (SELECT position FROM turns "
    "JOIN sessions ON started_position = place / ?4 WHERE session = ?3 AND position = ?2)"
)


def insert(
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
        connection.exec_driver_sql(_INSERT, rows)


def end(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    """Note which statements end. The first end of one counts, and only an end in its own session."""
    rows = [
        (item.position, item.event.turn, session_of(item.stream), PLACES)
        for item in events
        if isinstance(item.event, StandingEnded)
    ]
    if rows:
        connection.exec_driver_sql(_END, rows)
