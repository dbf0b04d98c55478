"""The tables of distrust: which turns and facts are not shown as answers, at any position of the log."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mnemolog.domain.encoding import to_json
from mnemolog.domain.events import RecordedEvent, SourceDistrusted, SourceTrusted
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position
from mnemolog.projections.sql.database import METADATA, fetch, listed
from mnemolog.projections.sql.turn_tables import PLACES

DISTRUSTS: Final = sa.Table(
    "distrusts",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("undone", sa.Integer),  # The position where it ends.
    sa.Column("source", sa.Text, nullable=False),  # The event, as JSON.
    sqlite_strict=True,
)
DISTRUSTED: Final = sa.Table(
    "distrusted",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("distrust", sa.Integer, primary_key=True, autoincrement=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The turns and the facts that a distrust is about. What rests on them follows from the evidence of facts."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_SOURCE: Final = msgspec.json.Decoder(SourceDistrusted)
_POSITIONS: Final = msgspec.json.Decoder(frozenset[Position])
_WITHIN: Final = "scope = within.value OR (scope >= within.value || '/' AND scope < within.value || '0')"
_IN_SCOPES: Final = f"(?4 = '[]' OR EXISTS (SELECT 1 FROM json_each(?4) AS within WHERE {_WITHIN}))"
_REACHES: Final = (
    "json_type(source, '$.scopes') IS NULL "
    f"OR EXISTS (SELECT 1 FROM json_each(source, '$.scopes') AS within WHERE {_WITHIN})"
)
"""Whether a distrust reaches the fact in a row, by its scope."""
_TURNS: Final = (
    f"SELECT position FROM turns CROSS JOIN sessions ON started_position = place / {PLACES} "
    f"WHERE position BETWEEN ?1 AND ?2 AND {_IN_SCOPES} AND "
)
_FACTS: Final = f"SELECT position FROM facts WHERE position BETWEEN ?1 AND ?2 AND {_IN_SCOPES} AND "
_COUNTS: Final = "(undone IS NULL OR undone > {upto}) AND distrusts.position <= {upto}"


def of(position: str, upto: str, *, reaches: str = "TRUE") -> str:
    """Return the SQL of the newest distrust of the turn or fact at a position, as of `upto`; NULL for none."""
    return (
        "(SELECT max(distrust) FROM distrusted JOIN distrusts ON distrusts.position = distrust "
        f"WHERE distrusted.position = {position} AND {_COUNTS.format(upto=upto)} AND ({reaches}))"
    )


def of_fact(upto: str) -> str:
    """Return the SQL of the newest distrust of a row of facts: of its own, or where all turns it rests on have one.

    That of a turn counts if it reaches the scope of the fact.
    """
    turn = of("turn.value", upto, reaches=_REACHES)
    return (
        f"CASE WHEN EXISTS (SELECT 1 FROM distrusts) THEN coalesce({of('facts.position', upto)}, "
        f"iif(EXISTS (SELECT 1 FROM json_each(because) AS turn WHERE {turn} IS NULL), NULL, "
        f"(SELECT max({turn}) FROM json_each(because) AS turn))) END"
    )


_LASTING: Final = "SELECT position, undone, source FROM distrusts WHERE undone IS NULL OR undone > ?"
_INSERT: Final = "INSERT OR IGNORE INTO distrusted (position, distrust) VALUES (?, ?)"
_ALL: Final = (
    "SELECT json_group_array(distrusted.position) FROM distrusted "
    f"CROSS JOIN distrusts ON distrusts.position = distrust WHERE {_COUNTS.format(upto='?1')}"
)
_AMONG: Final = f"SELECT value FROM json_each(?2) WHERE {of('value', '?1')} IS NOT NULL"


def take(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    """Note what a batch of events distrusts and trusts again, and which of its turns and facts are distrusted."""
    first, last = events[0].position, events[-1].position
    for item in events:
        match item.event:
            case SourceDistrusted():
                row = (item.position, to_json(item.event).decode())
                connection.exec_driver_sql("INSERT INTO distrusts (position, source) VALUES (?, ?)", row)
            case SourceTrusted():
                query = "UPDATE distrusts SET undone = ? WHERE position = ? AND undone IS NULL"
                connection.exec_driver_sql(query, (item.position, item.event.distrust))
    for position, undone, stored in fetch(connection, _LASTING, first):
        source = _SOURCE.decode(stored)
        begin = ORIGIN if position >= first else first
        end = min(last, undone or last)
        if position >= first or source.sessions or source.appended_by or source.maker:
            rows = [(at, position) for at in covered(connection, source, first=begin, last=end)]
            if rows:
                connection.exec_driver_sql(_INSERT, rows)


def covered(
    connection: sa.Connection, source: SourceDistrusted, *, first: int = ORIGIN, last: int = INTEGER_MAX
) -> list[int]:
    """Return the positions of the turns and facts, in a range, that are of a source."""
    scopes = listed(source.scopes)
    actors, makers = [source.appended_by], [source.maker]
    wanted: list[tuple[str, str, Sequence[Any]]] = [
        *((_TURNS, "position", source.turns), (_TURNS, "session", source.sessions), (_TURNS, "actor", actors)),
        *((_FACTS, "session", source.sessions), (_FACTS, "actor", actors), (_FACTS, "maker", makers)),
    ]
    rows = (
        fetch(connection, f"{query} {column} IN (SELECT value FROM json_each(?3))", first, last, listed(values), scopes)
        for query, column, values in wanted
        if any(values)
    )
    return sorted({position for some in rows for (position,) in some})


def all_at(connection: sa.Connection, upto: Position) -> frozenset[Position]:
    """Return the turns and facts that are distrusted as of a position."""
    ((found,),) = fetch(connection, _ALL, upto)
    return _POSITIONS.decode(found)


def among(connection: sa.Connection, positions: Iterable[Position], upto: Position) -> set[Position]:
    """Return those of these turns that are distrusted as of a position."""
    return {position for (position,) in fetch(connection, _AMONG, upto, listed(list(positions)))}


def about(connection: sa.Connection, positions: Iterable[Position]) -> list[tuple[Position, Position]]:
    """Return the distrusts that are about any of these turns or facts, or were, each with what it is about."""
    query = "SELECT distrust, position FROM distrusted WHERE position IN (SELECT value FROM json_each(?)) ORDER BY 2"
    return fetch(connection, query, listed(list(positions)))


def states(connection: sa.Connection) -> dict[int, tuple[Position | None, int]]:
    """Return of each distrust, by position, where it ended, if it did, and how many turns and facts it covers."""
    counts = "SELECT distrust, count(*) AS covers FROM distrusted GROUP BY 1"
    query = f"SELECT position, undone, coalesce(covers, 0) FROM distrusts LEFT JOIN ({counts}) ON distrust = position"
    return {position: (undone, covers) for position, undone, covers in fetch(connection, query)}


def last_change(connection: sa.Connection) -> Position:
    """Return the position where something was last distrusted or trusted again; 0 if nothing ever was."""
    ((last,),) = fetch(connection, "SELECT max(max(position, coalesce(undone, 0))) FROM distrusts")
    return Position(last or ORIGIN)
