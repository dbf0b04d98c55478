"""The tables of facts: a row for each assertion, from which belief is computed at any position and time."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.events import ContentErased, FactAsserted, FactRetracted, RecordedEvent
from mnemolog.domain.facts import Assertion, assertion_of, facts_scope
from mnemolog.projections.sql.database import METADATA

FACTS: Final = sa.Table(
    "facts",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("valid_from", sa.Integer, nullable=False),
    sa.Column("value", sa.BLOB, nullable=False),
    sa.Column("checked_at", sa.Integer, nullable=False),
    sa.Column("retracted", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("recorded_at", sa.Integer, nullable=False),
    sa.Column("assumed", sa.Integer, nullable=False),
    sa.Column("because", sa.Text, nullable=False),
    sa.Column("maker", sa.Text, nullable=False),
    sa.Column("session", sa.Text),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("proposal", sa.Integer),
    sa.Column("proposed_by", sa.Text, nullable=False),
    sa.Index("facts_by_key", "scope", "key", "valid_from", "position"),
    sqlite_strict=True,
)
KEYS: Final = sa.Table(
    "fact_keys",
    METADATA,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The keys that have rows, so that they can be listed without reading those."""
EVIDENCE: Final = sa.Table(
    "fact_evidence",
    METADATA,
    sa.Column("turn", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("fact", sa.Integer, primary_key=True, autoincrement=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The facts that rest on a turn."""

COLUMNS: Final = ", ".join(Assertion._fields)
_INSERT: Final = f"INSERT INTO facts ({COLUMNS}) VALUES ({', '.join('?' * len(Assertion._fields))})"
_RETRACT: Final = "UPDATE facts SET retracted = ?, reason = ? WHERE position = ? AND scope = ? AND retracted IS NULL"


def take(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    """Add the facts of a batch of events, and take back what they retract."""
    rows = [row for recorded in events if (row := assertion_of(recorded)) is not None]
    if rows:
        connection.exec_driver_sql(_INSERT, [tuple(row) for row in rows])
        keys = sorted({(row.scope, row.key) for row in rows})
        connection.exec_driver_sql("INSERT OR IGNORE INTO fact_keys (scope, key) VALUES (?, ?)", keys)
        evidence = [
            (turn, item.position)
            for item in events
            if isinstance(item.event, FactAsserted)
            for turn in item.event.because
        ]
        if evidence:
            connection.exec_driver_sql("INSERT OR IGNORE INTO fact_evidence (turn, fact) VALUES (?, ?)", evidence)
    for recorded in events:
        scope, event = facts_scope(recorded.stream), recorded.event
        if scope is not None and isinstance(event, FactRetracted):
            connection.exec_driver_sql(_RETRACT, (recorded.position, event.reason, event.fact, scope))


def erase(connection: sa.Connection, scope: str, erased: ContentErased) -> None:
    """Delete the rows of erased versions of the facts of a scope. Idempotent."""
    for first, last in erased.versions:
        within = (scope, first, last)
        of = "FROM facts WHERE scope = ? AND version BETWEEN ? AND ?"
        for table, column in (("fact_evidence", "fact"), ("distrusted", "position")):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} IN (SELECT position {of})", within)
        connection.exec_driver_sql(f"DELETE {of}", within)
    connection.exec_driver_sql(
        "DELETE FROM fact_keys WHERE scope = ?1 AND NOT EXISTS "
        "(SELECT 1 FROM facts WHERE facts.scope = ?1 AND facts.key = fact_keys.key)",
        (scope,),
    )
