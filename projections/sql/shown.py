"""The table of receipts: which turns and facts were shown, and by which recalls and contexts."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import ContentErased, ContextServed, Event, RecallServed, RecordedEvent
from mnemolog.domain.result import Result
from mnemolog.domain.values import Position
from mnemolog.projections.sql.database import METADATA, fetch, listed

SHOWN: Final = sa.Table(
    "shown",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("receipt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),  # Of the receipt, in its stream.
    sa.Column("is_context", sa.Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The turns and facts that the answer of a receipt showed."""


class Showings(Result, frozen=True):
    """How many recalls and contexts showed something, as far as they left receipts."""

    recalls: int
    contexts: int


def take(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    """Add the receipts of a batch of events."""
    rows = [
        (position, item.position, item.version, isinstance(item.event, ContextServed))
        for item in events
        for position in shown_by(item.event)
    ]
    if rows:
        connection.exec_driver_sql("INSERT INTO shown VALUES (?, ?, ?, ?)", rows)


def shown_by(event: Event) -> set[int]:
    """Return the positions of the turns and facts that an answer showed, given its receipt; none for other events."""
    match event:
        case ContextServed():
            return {*event.turns, *event.facts}
        case RecallServed():
            return {*event.hits, *event.around}
    return set()


def receipts_of(connection: sa.Connection, positions: Sequence[int]) -> list[tuple[Position, Position]]:
    """Return each receipt that showed any of these turns or facts, with what of them it showed, in order."""
    query = "SELECT receipt, position FROM shown WHERE position IN (SELECT value FROM json_each(?)) ORDER BY 1, 2"
    return fetch(connection, query, listed(positions))


def showings(connection: sa.Connection, positions: Sequence[int], *, upto: Position) -> dict[Position, Showings]:
    """Return how often each of these had been shown at a position; none that never was."""
    query = (
        "SELECT position, sum(NOT is_context), sum(is_context) FROM shown "
        "WHERE position IN (SELECT value FROM json_each(?)) AND receipt <= ? GROUP BY 1"
    )
    return {position: Showings(*counts) for position, *counts in fetch(connection, query, listed(positions), upto)}


def erase(connection: sa.Connection, erased: ContentErased) -> None:
    """Delete the rows of erased versions of the stream of receipts. Idempotent."""
    for versions in erased.versions:
        connection.exec_driver_sql("DELETE FROM shown WHERE version BETWEEN ? AND ?", tuple(versions))
