"""The table of standing statements: where in the turns of a scope they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.role import Role
from mnemolog.domain.session import session_of
from mnemolog.domain.standing import standing_in
from mnemolog.projections.sql.tracking import METADATA

STANDING: Final = sa.Table(
    "standing",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("stop", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Index("standing_by_scope", "scope", "position"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The characters `start` to `stop` of a turn's text. Their words are in the turn alone."""

_INSERT: Final = f"INSERT INTO standing ({', '.join(STANDING.c.keys())}) VALUES ({', '.join('?' * len(STANDING.c))})"


def insert(
    connection: sa.Connection, turns: Sequence[tuple[RecordedEvent, TurnRecorded]], scopes: Mapping[str, str]
) -> None:
    """Add the standing statements of new turns. `scopes` maps sessions to scopes.

    Only users say how answers should be.
    """
    rows = [
        (recorded.position, read.start, read.end, read.kind.value, scopes[str(session_of(recorded.stream))])
        for recorded, turn in turns
        if turn.role == Role.USER
        for read in standing_in(turn.text)
    ]
    if rows:
        connection.exec_driver_sql(_INSERT, rows)
