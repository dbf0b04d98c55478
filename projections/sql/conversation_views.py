"""The views: tables of sessions, turns and their text in `views.db`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.choices import DEFAULT_LANGUAGE, choice_of
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.errors import UndecodableEvent
from mnemolog.domain.events import (
    RECALLS_STREAM,
    CheckpointRestored,
    ContentErased,
    Forgotten,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    TurnRecorded,
    TurnsRewound,
)
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.message import spoken_text
from mnemolog.domain.session import session_of
from mnemolog.domain.validation import NEVER_STARTED, STARTED_AGAIN
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.sql import (
    distrust,
    facts,
    position_blocks,
    shown,
    turn_tables,
)
from mnemolog.projections.sql.database import METADATA, SqlProjection, fetch, listed
from mnemolog.projections.sql.words import stems_of_each

VIEWS: Final = "views/22"
"""Name and version of this projection. Increase the number when the tables or the code that fills them change."""

_INDEXED_AT_ONCE: Final = 1_000
ASKING: Final = ("?", "\uff1f", "\u061f")
"""Latin, full-width and Arabic question marks."""

SESSIONS: Final = sa.Table(
    "sessions",
    METADATA,
    sa.Column("started_position", sa.Integer, primary_key=True),
    sa.Column("session", sa.Text, nullable=False, unique=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("parent", sa.Text),
    sa.Column("branched_at", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("started_at", sa.Integer, nullable=False),
    sa.Column("ended_at", sa.Integer),
    sa.Column("turns", sa.Integer, nullable=False),  # Includes forgotten turns: the next place depends on it.
    sa.Column("forgotten", sa.Integer, nullable=False),
    sa.Column("last_position", sa.Integer, nullable=False),
    sa.Column("hides", sa.Integer, nullable=False),  # Whether it was ever rewound or restored.
    sqlite_strict=True,
)

TURNS: Final = sa.Table(
    "turns",
    METADATA,
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("speaker", sa.Text),
    sa.Column("said_at", sa.Integer),
    sa.Column("recorded_at", sa.Integer, nullable=False),
    sa.Column("asks", sa.Integer, nullable=False),
    sa.Column("stems", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("actor", sa.Text),
    sa.Column("extra", sa.BLOB),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_strict=True,
)
"""The turns, ordered by place: consecutive turns of a session are adjacent. The session and its scope follow from it.

What ranking reads comes first, so that a long text is not read with it.
"""

CHOICES: Final = sa.Table(
    "languages",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("language", sa.Text, nullable=False),
    sqlite_strict=True,
)
"""The languages that a store has had. The text index is in the last one, with the turns from before it too."""

TEXT_INDEX: Final = position_blocks.TEXT_INDEX
TOKENIZER: Final = "ascii tokenchars '_'"
"""The tokenizer splits at spaces only, because stems are inserted (`mnemolog.projections.sql.words`)."""
VOCABULARY: Final = "turns_vocabulary"
PLACES_OF_WORDS: Final = "turns_word_places"
CREATE_TEXT_INDEX: Final = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {TEXT_INDEX} USING fts5("
    f"body, content='', contentless_delete=1, tokenize=\"{TOKENIZER}\")",
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {VOCABULARY} USING fts5vocab({TEXT_INDEX}, row)",
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {PLACES_OF_WORDS} USING fts5vocab({TEXT_INDEX}, instance)",
)
"""The index, the table with the number of turns that contain a word, and the one with each place of a word."""


_INSERT_SESSION: Final = (
    "INSERT INTO sessions (started_position, session, title, agent, scope, parent, branched_at, reason, started_at, "
    "turns, forgotten, last_position, hides) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, 0)"
)
_SELECT_KNOWN: Final = (
    "SELECT session, started_position, scope, turns FROM sessions WHERE session IN (SELECT value FROM json_each(?))"
)
_INSERT_TURN: Final = f"INSERT INTO turns ({', '.join(TURNS.c.keys())}) VALUES ({', '.join('?' * len(TURNS.c))})"
_INDEX_STEMS: Final = (
    f"INSERT INTO {TEXT_INDEX} (rowid, body) SELECT position, stems FROM turns "
    "WHERE position BETWEEN ? AND ? ORDER BY position"
)


class Views(SqlProjection):
    """The projection behind `sessions`, `show`, `status` and the text search of recall."""

    name = VIEWS
    metadata = METADATA

    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Apply a batch of events: sessions first, then turns, then erasures."""
        started = [
            _session_row(recorded, recorded.event) for recorded in events if isinstance(recorded.event, SessionStarted)
        ]
        if started:
            connection.exec_driver_sql(_INSERT_SESSION, started)
        language = _follow_language(connection, events)
        known = _known_sessions(connection, events)
        _insert_turns(connection, events, known, language)
        _update_sessions(connection, events, known)
        turn_tables.end_standing(connection, events)
        facts.take(connection, events)
        shown.take(connection, events)
        distrust.take(connection, events)
        for recorded in events:
            if isinstance(recorded.event, ContentErased):
                _erase(connection, recorded, recorded.event)
        position_blocks.close_blocks(connection, upto=events[-1].position)

    def erase(self, connection: sa.Connection, erased: Sequence[RecordedEvent], *, upto: Position) -> None:
        """Do nothing: `take` erases."""

    def scrub(self) -> bool:
        """Remove forgotten content from the bytes of the file. False while another connection prevents that."""
        with self.database.writing() as connection:
            # The text index only marks entries as deleted: this rewrites it without them.
            connection.exec_driver_sql(f"INSERT INTO {TEXT_INDEX} ({TEXT_INDEX}) VALUES ('optimize')")
        return self.database.scrub()

    def _start_over(self, connection: sa.Connection) -> None:
        for table in (PLACES_OF_WORDS, VOCABULARY, TEXT_INDEX):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        super()._start_over(connection)

    @classmethod
    def create_tables(cls, connection: sa.Connection) -> None:
        """Create the tables and the text index."""
        super().create_tables(connection)
        for statement in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(statement)


def _session_row(recorded: RecordedEvent, started: SessionStarted) -> tuple[Any, ...]:
    if recorded.version != 1:
        raise UndecodableEvent(position=recorded.position, topic=started.topic, why=STARTED_AGAIN)
    return (
        recorded.position,
        session_of(recorded.stream),
        started.title,
        started.agent,
        started.scope,
        started.parent,
        started.branched_at,
        started.reason,
        recorded.recorded_at,
        recorded.position,
    )


class Languages(NamedTuple):
    """The language at a position, and that of the text index."""

    then: str
    indexed: str


def languages_at(connection: sa.Connection, position: Position) -> Languages:
    """Return the language at `position`, and that of the text index."""
    then = indexed = DEFAULT_LANGUAGE
    for chosen_at, language in fetch(connection, "SELECT position, language FROM languages ORDER BY position"):
        indexed = language
        then = language if chosen_at <= position else then
    return Languages(then, indexed)


class _Known(NamedTuple):
    """A session as the views have it."""

    started_position: int
    scope: str
    turns: int


def _known_sessions(connection: sa.Connection, events: Sequence[RecordedEvent]) -> dict[str, _Known]:
    """Return the sessions that events belong to, by id."""
    named = {session for recorded in events if (session := session_of(recorded.stream)) is not None}
    return {session: _Known(*of) for session, *of in fetch(connection, _SELECT_KNOWN, listed(list(named)))}


def _follow_language(connection: sa.Connection, events: Sequence[RecordedEvent]) -> str:
    """Note the languages that were chosen, and return the one after these events. A new one applies to all turns."""
    before = languages_at(connection, events[-1].position).indexed
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
    query = (  # A turn without stems has no text for search.
        "SELECT position, text FROM turns WHERE position > ? AND stems != '' "
        f"ORDER BY position LIMIT {_INDEXED_AT_ONCE}"
    )
    after = 0
    while found := connection.exec_driver_sql(query, (after,)).all():
        first, after = found[0][0], found[-1][0]
        stems = stems_of_each([text for _, text in found], language)
        rows = [(row, position) for row, (position, _) in zip(stems, found, strict=True)]
        connection.exec_driver_sql("UPDATE turns SET stems = ? WHERE position = ?", rows)
        connection.exec_driver_sql(_INDEX_STEMS, (first, after))
    position_blocks.count_words_again(connection)


def _insert_turns(
    connection: sa.Connection, events: Sequence[RecordedEvent], known: dict[str, _Known], language: str
) -> None:
    turns = [(recorded, recorded.event) for recorded in events if isinstance(recorded.event, TurnRecorded)]
    if not turns:
        return
    places = {session: of.started_position * turn_tables.PLACES + of.turns for session, of in known.items()}
    connection.exec_driver_sql(_INSERT_TURN, turn_rows(events, places, language))
    connection.exec_driver_sql(_INDEX_STEMS, (turns[0][0].position, turns[-1][0].position))
    scopes = {session: of.scope for session, of in known.items()}
    turn_tables.insert_speakers(connection, turns, scopes)
    turn_tables.insert_standing(connection, turns, scopes)
    turn_tables.insert_metadata(connection, turns)


def _update_sessions(connection: sa.Connection, events: Sequence[RecordedEvent], known: dict[str, _Known]) -> None:
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
            case TurnsRewound() | CheckpointRestored():
                connection.exec_driver_sql("UPDATE sessions SET hides = 1 WHERE session = ?", (session,))
    if last:
        connection.exec_driver_sql(
            "UPDATE sessions SET turns = turns + ?, forgotten = forgotten + ?, last_position = ? "
            "WHERE started_position = ?",
            [
                (turns[session], forgotten[session], position, known[session].started_position)
                for session, position in last.items()
                if session in known
            ],
        )
    if ended_at:
        connection.exec_driver_sql(
            "UPDATE sessions SET ended_at = ? WHERE session = ?",
            [(moment, session) for session, moment in ended_at.items()],
        )


def turn_rows(events: Iterable[RecordedEvent], places: dict[str, int], language: str) -> list[tuple[Any, ...]]:
    """Return the rows of the turns among events, and advance `places`, the next free place of each session."""
    found: list[tuple[int, RecordedEvent, TurnRecorded]] = []
    for recorded, turn in _passing_over(events, places):
        session = str(session_of(recorded.stream))
        if session not in places:
            raise UndecodableEvent(position=recorded.position, topic=turn.topic, why=NEVER_STARTED)
        place = places[session]
        places[session] = place + 1
        found.append((place, recorded, turn))
    stems = stems_of_each([spoken_text(turn.text, turn.tool_calls) for _, _, turn in found], language)
    return [_turn_row(place, recorded, turn, of) for (place, recorded, turn), of in zip(found, stems, strict=True)]


def _turn_row(place: int, recorded: RecordedEvent, turn: TurnRecorded, stems: str) -> tuple[Any, ...]:
    extra = {"tool_calls": turn.tool_calls, "metadata": turn.metadata}
    return (
        place,
        recorded.position,
        turn.role.value,
        turn.speaker,
        turn.said_at,
        recorded.recorded_at,
        int(turn.text.rstrip().endswith(ASKING)),
        stems,
        recorded.version,
        recorded.key,
        turn.actor or None,
        to_msgpack(extra) if turn.tool_calls or turn.metadata else None,
        turn.text,
    )


def _passing_over(
    events: Iterable[RecordedEvent], places: dict[str, int]
) -> Iterator[tuple[RecordedEvent, TurnRecorded]]:
    """Yield the turns among events. A forgotten turn still takes up the next place of its session."""
    for recorded in events:
        if isinstance(recorded.event, TurnRecorded):
            yield recorded, recorded.event
        elif was_turn(recorded.event) and (session := session_of(recorded.stream)) in places:
            places[str(session)] += 1


def _erase(connection: sa.Connection, recorded: RecordedEvent, erased: ContentErased) -> None:
    """Delete the rows of erased versions of turns, facts and receipts. Places and counts of turns stay. Idempotent.

    The text index only marks them as deleted; `scrub` removes their words from the file.
    """
    if (scope := facts_scope(recorded.stream)) is not None:
        facts.erase(connection, scope, erased)
    if recorded.stream == RECALLS_STREAM:
        shown.erase(connection, erased)
    session = session_of(recorded.stream)
    if session is None:
        return
    of = connection.exec_driver_sql(
        "SELECT started_position, scope FROM sessions WHERE session = ?", (session,)
    ).first()
    if of is None:
        return
    place, end = turn_tables.places_of(of[0])
    turns: list[tuple[int, str | None]] = []
    for first, last in erased.versions:
        # A turn's number in its session is less than its version.
        found = connection.exec_driver_sql(
            "SELECT position, speaker FROM turns WHERE place BETWEEN ? AND ? AND version BETWEEN ? AND ?",
            (place, min(place + last, end), first, last),
        )
        turns += [(row[0], row[1]) for row in found]
        if first == 1:
            connection.exec_driver_sql("UPDATE sessions SET title = '' WHERE session = ?", (session,))
    positions = [(position,) for position, _ in turns]
    if not positions:
        return
    position_blocks.forget(connection, [position for position, _ in turns])
    for table, column in (
        ("turns_text", "rowid"),
        ("turn_metadata", "position"),
        ("standing", "position"),
        ("distrusted", "position"),
        ("turns", "position"),
    ):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} = ?", positions)
    connection.exec_driver_sql(
        "UPDATE sessions SET forgotten = forgotten + ? WHERE session = ?", (len(positions), session)
    )
    for speaker in {speaker for _, speaker in turns if speaker}:
        turn_tables.forget_speaker(connection, speaker, of[1])
