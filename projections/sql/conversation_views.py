"""The views: tables of sessions, turns and their text in `views.db`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.events import (
    ContentErased,
    Forgotten,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    TurnRecorded,
    UnfitEvent,
)
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.language import choice_of
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.session import session_of
from mnemolog.projections.sql import languages, speakers, turn_metadata
from mnemolog.projections.sql.erasing import erase, merge_text_index, passing_over
from mnemolog.projections.sql.projection import SqlProjection
from mnemolog.projections.sql.tracking import METADATA
from mnemolog.projections.sql.words import stems_of

VIEWS: Final = "views/10"
"""Name and version of this projection. Increase the number when the tables or the code that fills them change."""

_INDEXED_AT_ONCE: Final = 1_000
_ASKING: Final = ("?", "\uff1f", "\u061f")
"""Latin, full-width and Arabic question marks."""

SESSIONS: Final = sa.Table(
    "sessions",
    METADATA,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("parent", sa.Text),
    sa.Column("branched_at", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("started_at", sa.Integer, nullable=False),
    sa.Column("started_position", sa.Integer, nullable=False),
    sa.Column("ended_at", sa.Integer),
    sa.Column("turns", sa.Integer, nullable=False),  # Includes forgotten turns: the next place depends on it.
    sa.Column("forgotten", sa.Integer, nullable=False),
    sa.Column("last_position", sa.Integer, nullable=False),
    sqlite_strict=True,
)

TURNS: Final = sa.Table(
    "turns",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("speaker", sa.Text),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("said_at", sa.Integer),
    sa.Column("recorded_at", sa.Integer, nullable=False),
    sa.Column("extra", sa.BLOB),
    sqlite_strict=True,
)
sa.Index("turns_by_scope", TURNS.c.scope, TURNS.c.position)
sa.Index("turns_by_session", TURNS.c.session, TURNS.c.position)

WORDS: Final = sa.Table(
    "words",
    METADATA,
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("speaker", sa.Text),
    sa.Column("at", sa.Integer, nullable=False),
    sa.Column("asks", sa.Integer, nullable=False),
    sa.Column("stems", sa.Text, nullable=False),
    sqlite_strict=True,
)
"""The table that ranking reads, ordered by place: consecutive turns of a session are adjacent."""
PLACES: Final = 1 << 24
"""The first place of a session is the position of its start times this number."""

UNFIT: Final = sa.Table(
    "unfit",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("stream", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sqlite_strict=True,
)
"""The events that do not fit what comes before them, for `status`. Without content."""

TEXT_INDEX: Final = "turns_text"
TOKENIZER: Final = "ascii tokenchars '_'"
"""The tokenizer splits at spaces only, because stems are inserted (`mnemolog.projections.sql.words`)."""
VOCABULARY: Final = "turns_vocabulary"
CREATE_TEXT_INDEX: Final = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {TEXT_INDEX} USING fts5("
    f"body, content='', contentless_delete=1, tokenize=\"{TOKENIZER}\")",
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {VOCABULARY} USING fts5vocab({TEXT_INDEX}, row)",
)
"""The index, and the table with the number of turns that contain a word."""


class Views(SqlProjection):
    """The projection behind `sessions`, `show`, `status` and the text search of recall."""

    name = VIEWS
    metadata = METADATA

    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Apply a batch of events: sessions first, then turns, then erasures."""
        for recorded in events:
            if isinstance(recorded.event, SessionStarted):
                _insert_session(connection, recorded, recorded.event)
        unfit = [
            (recorded.position, recorded.stream, recorded.event.was, recorded.event.why)
            for recorded in events
            if isinstance(recorded.event, UnfitEvent)
        ]
        if unfit:
            connection.exec_driver_sql("INSERT INTO unfit (position, stream, topic, why) VALUES (?, ?, ?, ?)", unfit)
        language = _follow_language(connection, events)
        _insert_turns(connection, events, language)
        _update_sessions(connection, events)
        for recorded in events:
            if isinstance(recorded.event, ContentErased):
                erase(connection, recorded, recorded.event)

    def scrub(self) -> bool:
        """Remove forgotten content from the bytes of the file. False while another connection prevents that."""
        with self.database.writing() as connection:
            merge_text_index(connection)
        return self.database.scrub()

    def _start_over(self, connection: sa.Connection) -> None:
        for table in (VOCABULARY, TEXT_INDEX):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        for table in ("switches", "activations"):  # Written by development versions of 0.1.
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        super()._start_over(connection)

    @classmethod
    def create_tables(cls, connection: sa.Connection) -> None:
        """Create the tables and the text index."""
        super().create_tables(connection)
        for statement in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(statement)


def _insert_session(connection: sa.Connection, recorded: RecordedEvent, started: SessionStarted) -> None:
    connection.execute(
        SESSIONS.insert(),
        {
            "session": session_of(recorded.stream),
            "title": started.title,
            "agent": started.agent,
            "scope": started.scope,
            "parent": started.parent,
            "branched_at": started.branched_at,
            "reason": started.reason,
            "started_at": recorded.recorded_at,
            "started_position": recorded.position,
            "turns": 0,
            "forgotten": 0,
            "last_position": recorded.position,
        },
    )


def _follow_language(connection: sa.Connection, events: Sequence[RecordedEvent]) -> str:
    """Note the languages that were chosen, and return the one after these events. A new one applies to all turns."""
    before = languages.languages_at(connection, events[-1].position).indexed
    chosen = [(item.position, language) for item in events if (language := choice_of(item)) is not None]
    if not chosen:
        return before
    connection.exec_driver_sql("INSERT INTO languages (position, language) VALUES (?, ?)", chosen)
    language = chosen[-1][1]
    if language != before:
        _index_again(connection, language)
    return language


def _index_again(connection: sa.Connection, language: str) -> None:
    """Fill the text index, and the stems for ranking, with the stems of another language."""
    connection.exec_driver_sql(f"INSERT INTO {TEXT_INDEX} ({TEXT_INDEX}) VALUES ('delete-all')")
    query = f"SELECT position, text FROM turns WHERE position > ? ORDER BY position LIMIT {_INDEXED_AT_ONCE}"
    after = 0
    while found := connection.exec_driver_sql(query, (after,)).all():
        after = found[-1][0]
        rows = [(stems_row(text, language), position) for position, text in found]
        connection.exec_driver_sql("UPDATE words SET stems = ? WHERE position = ?", rows)
        connection.exec_driver_sql(f"INSERT INTO {TEXT_INDEX} (body, rowid) VALUES (?, ?)", rows)


def _insert_turns(connection: sa.Connection, events: Sequence[RecordedEvent], language: str) -> None:
    turns = [(recorded, recorded.event) for recorded in events if isinstance(recorded.event, TurnRecorded)]
    if not turns:
        return
    spoken_in = {str(session_of(recorded.stream)) for recorded, _ in turns}
    columns = (SESSIONS.c.session, SESSIONS.c.scope, SESSIONS.c.started_position, SESSIONS.c.turns)
    known = connection.execute(sa.select(*columns).where(SESSIONS.c.session.in_(spoken_in))).all()
    scopes: dict[str, str] = {row.session: row.scope for row in known}
    places = {row.session: row.started_position * PLACES + row.turns for row in known}
    connection.execute(TURNS.insert(), [turn_row(recorded, turn, scopes) for recorded, turn in turns])
    words = [words_row(recorded, turn, places, language) for recorded, turn in passing_over(events, places)]
    connection.execute(WORDS.insert(), words)
    connection.exec_driver_sql(
        f"INSERT INTO {TEXT_INDEX} (rowid, body) VALUES (?, ?)", [(row["position"], row["stems"]) for row in words]
    )
    speakers.insert(connection, turns, scopes)
    turn_metadata.insert(connection, ((recorded.position, turn.metadata) for recorded, turn in turns if turn.metadata))


def _update_sessions(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    turns, forgotten = Counter[str](), Counter[str]()
    last: dict[str, Position] = {}
    ended_at: dict[str, Micros | None] = {}
    for recorded in events:
        session = session_of(recorded.stream)
        if session is None:
            continue
        last[session] = recorded.position
        match recorded.event:
            case TurnRecorded():
                turns[session] += 1
            case Forgotten() if was_turn(recorded.event):
                turns[session] += 1
                forgotten[session] += 1
            case SessionEnded():
                ended_at[session] = recorded.recorded_at
            case SessionResumed():
                ended_at[session] = None
    if last:
        connection.exec_driver_sql(
            "UPDATE sessions SET turns = turns + ?, forgotten = forgotten + ?, last_position = ? WHERE session = ?",
            [(turns[session], forgotten[session], position, session) for session, position in last.items()],
        )
    if ended_at:
        connection.exec_driver_sql(
            "UPDATE sessions SET ended_at = ? WHERE session = ?",
            [(moment, session) for session, moment in ended_at.items()],
        )


def stems_row(text: str, language: str) -> str:
    """Return the stems of a turn as they are stored: separated by spaces, with a leading and a trailing space."""
    return f" {' '.join(stems_of(text, language))} "


def words_row(recorded: RecordedEvent, turn: TurnRecorded, places: dict[str, int], language: str) -> dict[str, Any]:
    """Return the row of a turn for ranking, and advance `places`, the next free place of each session."""
    session = str(session_of(recorded.stream))
    place = places[session]
    places[session] = place + 1
    return {
        "place": place,
        "position": recorded.position,
        "role": turn.role,
        "speaker": turn.speaker,
        "at": recorded.recorded_at if turn.said_at is None else turn.said_at,
        "asks": int(turn.text.rstrip().endswith(_ASKING)),
        "stems": stems_row(turn.text, language),
    }


def turn_row(recorded: RecordedEvent, turn: TurnRecorded, scopes: dict[str, str]) -> dict[str, Any]:
    """Return the row of a turn. `scopes` maps sessions to scopes."""
    session = str(session_of(recorded.stream))
    extra = {"tool_calls": turn.tool_calls, "metadata": turn.metadata}
    return {
        "position": recorded.position,
        "session": session,
        "version": recorded.version,
        "scope": scopes[session],
        "role": turn.role,
        "speaker": turn.speaker,
        "text": turn.text,
        "key": recorded.key,
        "said_at": turn.said_at,
        "recorded_at": recorded.recorded_at,
        "extra": to_msgpack(extra) if turn.tool_calls or turn.metadata else None,
    }
