"""Compare the views with the log: every session and turn, up to where the views have read."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.events import (
    FactRetracted,
    Forgotten,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SourceDistrusted,
    SourceTrusted,
    TurnRecorded,
)
from mnemolog.domain.facts import Assertion, assertion_of, facts_scope
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.language import DEFAULT_LANGUAGE, choice_of
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.session import session_of
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql import distrust, facts, position_blocks, standing
from mnemolog.projections.sql.conversation_views import (
    SESSIONS,
    TEXT_INDEX,
    TURNS,
    turn_rows,
)
from mnemolog.projections.sql.database import faults_of
from mnemolog.projections.sql.languages import languages_at
from mnemolog.projections.sql.shown import rows_of as rows_of_receipts
from mnemolog.projections.sql.turn_metadata import TURN_METADATA, rows_of
from mnemolog.projections.sql.turn_places import PLACES

BATCH_MAX: Final = 500
LISTED_MAX: Final = 10
"""Disagreements that are listed; the rest is counted."""


class Disagreements:
    """Differences between the views and the log: the first few, and their number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.count = 0
        self.file_damaged = False
        """Whether SQLite itself finds the file damaged."""

    def add(self, what: str) -> None:
        """Note one more."""
        self.count += 1
        if len(self.listed) < LISTED_MAX:
            self.listed.append(what)

    def __str__(self) -> str:
        more = self.count - len(self.listed)
        return "; ".join(self.listed) + (f"; and {more} more" if more else "")


def compare(connection: sa.Connection, log: Log, *, upto: Position, progress: Progress | None = None) -> Disagreements:
    """Compare views that have read the log up to `upto` with it. Reads all of both; changes nothing.

    The words in the text index are checked for being whole and of the right turns, not read back one by one.
    Raises `ProjectionUnreadable` (by the connection's owner) where the file cannot be read.
    """
    found = Disagreements()
    for fault in faults_of(connection):
        found.add(fault)
        found.file_damaged = True
    expected = _Expected(languages_at(connection, upto).indexed)
    for events in log.read(after=ORIGIN, upto=upto, batch_max=BATCH_MAX):
        expected.take(events)
        _compare_turns(connection, events, expected, found)
        if progress is not None:
            progress(events[-1].position, upto)
    for row in connection.execute(sa.select(SESSIONS).order_by(SESSIONS.c.session)):
        told = expected.sessions.pop(row.session, None)
        _compare({row.session: dict(row._mapping)}, {} if told is None else {row.session: told}, "session", found)
    _compare({}, expected.sessions, "session", found)
    held = {row.position: dict(row._mapping) for row in connection.execute(sa.select(facts.FACTS))}
    _compare(held, {position: row._asdict() for position, row in expected.facts.items()}, "fact", found)
    for name, (table, source) in facts.DERIVED.items():
        for one, other in ((table, source), (source, table)):
            if connection.exec_driver_sql(f"{one} EXCEPT {other}").first():
                found.add(f"the {name} of the facts: not those of the facts")
    for columns, table, rows in (
        ("*", "shown", expected.shown),
        ("position, undone", "distrusts", expected.distrusts.items()),
        ("position, distrust", "distrusted", distrust.due(connection)),
    ):
        if {tuple(row) for row in connection.exec_driver_sql(f"SELECT {columns} FROM {table}")} != set(rows):
            found.add(f"the table {table}: not what the log says")
    beyond = connection.execute(sa.select(TURNS.c.position).where(TURNS.c.position > upto)).scalars()
    for position in beyond:
        found.add(f"turn {position}: behind the position that the views have read to")
    if expected.chosen != expected.language:
        found.add(f"the text index is in the language {expected.language!r}, not in {expected.chosen!r}")
    _compare_text_index(connection, found)
    _compare_blocks(connection, upto, found)
    return found


class _Expected:
    """What the views should say, as far as the log has been read."""

    def __init__(self, language: str) -> None:
        self.language = language
        """Of the text index."""
        self.chosen = DEFAULT_LANGUAGE
        """The language after the events so far."""
        self.sessions: dict[Any, dict[str, Any]] = {}
        self.places: dict[str, int] = {}
        self.facts: dict[int, Assertion] = {}
        self.shown: set[tuple[int, int, int, int]] = set()
        self.distrusts: dict[int, int | None] = {}

    def take(self, events: list[RecordedEvent]) -> None:
        for recorded in events:
            self.chosen = choice_of(recorded) or self.chosen
            self._follow_facts(recorded)
            self._follow_trust(recorded)
            session, event = session_of(recorded.stream), recorded.event
            if session is None:
                continue
            if isinstance(event, SessionStarted):
                self.sessions[session] = _started(event)
                self.places[session] = recorded.position * PLACES
            self._follow(session, recorded)

    def _follow_facts(self, recorded: RecordedEvent) -> None:
        if (row := assertion_of(recorded)) is not None:
            self.facts[row.position] = row
        elif isinstance(wrong := recorded.event, FactRetracted):
            row = self.facts.get(wrong.fact)
            if row is not None and row.retracted is None and row.scope == facts_scope(recorded.stream):
                self.facts[wrong.fact] = row._replace(retracted=recorded.position, reason=wrong.reason)

    def _follow_trust(self, recorded: RecordedEvent) -> None:
        self.shown |= {*rows_of_receipts([recorded])}
        match recorded.event:
            case SourceDistrusted():
                self.distrusts[recorded.position] = None
            case SourceTrusted(distrust=ended) if ended in self.distrusts:
                self.distrusts[ended] = self.distrusts[ended] or recorded.position

    def _follow(self, session: str, recorded: RecordedEvent) -> None:
        if (row := self.sessions.get(session)) is None:
            return
        row["last_position"] = recorded.position
        match recorded.event:
            case TurnRecorded():
                row["turns"] += 1
            case Forgotten() if was_turn(recorded.event):
                row["turns"] += 1
                row["forgotten"] += 1
            case SessionEnded():
                row["ended_at"] = recorded.recorded_at
            case SessionResumed():
                row["ended_at"] = None


def _started(event: SessionStarted) -> dict[str, Any]:
    return {
        "title": event.title,
        "agent": event.agent,
        "scope": event.scope,
        "parent": event.parent,
        "branched_at": event.branched_at,
        "turns": 0,
        "forgotten": 0,
        "ended_at": None,
    }


def _compare_turns(
    connection: sa.Connection, events: list[RecordedEvent], expected: _Expected, found: Disagreements
) -> None:
    rows = (
        dict(zip(TURNS.c.keys(), row, strict=True)) for row in turn_rows(events, expected.places, expected.language)
    )
    told = {row["position"]: row for row in rows}
    within = TURNS.c.position.between(events[0].position, events[-1].position)
    held = {row.position: dict(row._mapping) for row in connection.execute(sa.select(TURNS).where(within))}
    _compare(held, told, "turn", found)
    turns = [(item, item.event) for item in events if isinstance(item.event, TurnRecorded)]
    named = {str(session_of(item.stream)) for item, _ in turns} & expected.sessions.keys()
    scopes = {session: expected.sessions[session]["scope"] for session in named}
    for table, told_rows, what in (
        (TURN_METADATA, [row for item, turn in turns for row in rows_of(item.position, turn.metadata)], "metadata is"),
        (standing.STANDING, standing.rows_of(turns, scopes), "standing statements are"),
    ):
        within = table.c.position.between(events[0].position, events[-1].position)
        stored = {tuple(row) for row in connection.execute(sa.select(table).where(within))}
        at = list(table.c).index(table.c.position)
        for position in sorted({int(row[at]) for row in stored ^ set(told_rows)}):
            found.add(f"turn {position}: its {what} not those of the log")


def _compare(held: dict[Any, Any], told: dict[Any, dict[str, Any]], what: str, found: Disagreements) -> None:
    for key in sorted(told.keys() - held.keys()):
        found.add(f"{what} {key}: missing")
    for key in sorted(held.keys() - told.keys()):
        found.add(f"{what} {key}: the log has none")
    for key in sorted(told.keys() & held.keys()):
        differ = sorted(name for name, value in told[key].items() if held[key][name] != value)
        if differ:
            found.add(f"{what} {key}: other {', '.join(differ)}")


def _compare_text_index(connection: sa.Connection, found: Disagreements) -> None:
    index, turns = f"SELECT id FROM {TEXT_INDEX}_docsize", "SELECT position FROM turns"
    for query, what in ((f"{turns} EXCEPT {index}", "not in"), (f"{index} EXCEPT {turns}", "nowhere but in")):
        for (position,) in connection.exec_driver_sql(query):
            found.add(f"turn {position}: {what} the text index")


def _compare_blocks(connection: sa.Connection, upto: Position, found: Disagreements) -> None:
    """Compare the blocks with the tables that they are made from."""
    rows = connection.exec_driver_sql("SELECT block, field, value, positions FROM bitmaps ORDER BY block")
    held = groupby(rows, key=itemgetter(0))
    number, bitmaps = next(held, (None, ()))
    for expected in range((upto + 1) // position_blocks.BLOCK):
        block, wanted = position_blocks.contents(connection, expected)
        stored: dict[position_blocks.Key, bytes] = {}
        if number == expected:
            stored = {position_blocks.Key(field, value): positions for _, field, value, positions in bitmaps}
            number, bitmaps = next(held, (None, ()))
        differ = sorted({key.field for key, _ in stored.items() ^ wanted.items()})
        if tuple(block) not in [tuple(row) for row in connection.exec_driver_sql(_SELECT_BLOCK, (expected,))]:
            differ.append("times and lengths")
        if differ:
            found.add(f"block {expected} of the filters: other {', '.join(differ)}")
    last = connection.exec_driver_sql("SELECT max(block) FROM blocks").scalar_one()
    if number is not None or (last is not None and last >= (upto + 1) // position_blocks.BLOCK):
        found.add("the filters have blocks that the log does not fill")


_SELECT_BLOCK: Final = f"SELECT {', '.join(position_blocks.Block._fields)} FROM blocks WHERE block = ?"
