"""The tables of receipts: which turns and facts were shown, and by which recalls and contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import ContentErased, ContextServed, RecallServed, RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.tracking import METADATA

RECEIPTS: Final = sa.Table(
    "receipts",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("is_context", sa.Integer, nullable=False),
    sqlite_strict=True,
)
SHOWN: Final = sa.Table(
    "shown",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("receipt", sa.Integer, primary_key=True, autoincrement=False),
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
    receipts, shown = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for item in events:
        if isinstance(item.event, RecallServed | ContextServed):
            receipts.append((item.position, item.version, isinstance(item.event, ContextServed)))
            shown += [(position, item.position) for position in shown_by(item.event)]
    if receipts:
        connection.exec_driver_sql("INSERT INTO receipts (position, version, is_context) VALUES (?, ?, ?)", receipts)
    if shown:
        connection.exec_driver_sql("INSERT INTO shown (position, receipt) VALUES (?, ?)", shown)


def shown_by(receipt: RecallServed | ContextServed) -> set[int]:
    """Return the positions of the turns and facts that an answer showed."""
    if isinstance(receipt, ContextServed):
        return {*receipt.turns, *receipt.facts}
    return {*receipt.hits, *receipt.around}


def receipts_of(connection: sa.Connection, positions: Sequence[int]) -> list[tuple[Position, Position]]:
    """Return each receipt that showed any of these turns or facts, with what of them it showed, in order."""
    query = "SELECT receipt, position FROM shown WHERE position IN (SELECT value FROM json_each(?)) ORDER BY 1, 2"
    return [
        (Position(receipt), Position(position)) for receipt, position in fetch(connection, query, listed(positions))
    ]


def showings(connection: sa.Connection, positions: Sequence[int], *, upto: Position) -> dict[Position, Showings]:
    """Return how often each of these had been shown at a position; none that never was."""
    query = (
        "SELECT shown.position, count(*), sum(is_context) FROM shown JOIN receipts ON receipts.position = receipt "
        "WHERE shown.position IN (SELECT value FROM json_each(?)) AND receipt <= ? GROUP BY 1"
    )
    rows = fetch(connection, query, listed(positions), upto)
    return {Position(position): Showings(count - contexts, contexts) for position, count, contexts in rows}


def kept(connection: sa.Connection) -> tuple[Position | None, Showings]:
    """Return the first receipt there is, and how many there are."""
    query = "SELECT min(position), count(*), coalesce(sum(is_context), 0) FROM receipts"
    ((first, count, contexts),) = fetch(connection, query)
    return None if first is None else Position(first), Showings(count - contexts, contexts)


def erase(connection: sa.Connection, erased: ContentErased) -> None:
    """Delete the rows of erased versions of the stream of receipts. Idempotent."""
    for first, last in erased.versions:
        of = "FROM receipts WHERE version BETWEEN ? AND ?"
        connection.exec_driver_sql(f"DELETE FROM shown WHERE receipt IN (SELECT position {of})", (first, last))
        connection.exec_driver_sql(f"DELETE {of}", (first, last))
