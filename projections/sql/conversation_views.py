"""Tables of sessions, turns, their text and the models in use: everything in `views.db`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mnemolog.domain.events import (
    ContentErased,
    Forgotten,
    ModelActivated,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    TurnRecorded,
)
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.model import MODELS_STREAM
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.domain.session import session_of
from mnemolog.projections.catch_up import BATCH_MAX
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql import speakers, tracking, turn_metadata
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.erasing import erase, merge_text_index, passing_over
from mnemolog.projections.sql.tracking import METADATA, Tracked
from mnemolog.projections.sql.words import stems_of

VIEWS: Final = "views/6"
"""Name and version of this projection. Change a table or what fills it: raise the number."""

_ASKING: Final = ("?", "\uff1f", "\u061f")
"""Latin, full-width and Arabic question mark."""

SESSIONS: Final = sa.Table(
    "sessions",
    METADATA,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("parent", sa.Text),
    sa.Column("branched_at", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("started_at", sa.Integer, nullable=False),
    sa.Column("started_position", sa.Integer, nullable=False),
    sa.Column("ended_at", sa.Integer),
    sa.Column("turns", sa.Integer, nullable=False),  # Forgotten ones included: the next place depends on it.
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

ACTIVATIONS: Final = sa.Table(
    "activations",
    METADATA,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("dimension", sa.Integer, nullable=False),
    sa.Column("every", sa.Integer, nullable=False),
    sqlite_strict=True,
)

WORDS: Final = sa.Table(
    "words",
    METADATA,
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False, unique=True),
    sa.Column("speaker", sa.Text),
    sa.Column("at", sa.Integer, nullable=False),
    sa.Column("asks", sa.Integer, nullable=False),
    sa.Column("stems", sa.Text, nullable=False),
    sqlite_strict=True,
)
"""What the ranking looks at, by place: turns that follow one another in a session lie side by side."""
PLACES: Final = 1 << 24
"""Places of a session: from the position of its start times this on."""

TEXT_INDEX: Final = "turns_text"
TOKENIZER: Final = "ascii tokenchars '_'"
"""The words it gets are made already (`mnemolog.projections.sql.words`): it only parts them at the spaces."""
VOCABULARY: Final = "turns_vocabulary"
CREATE_TEXT_INDEX: Final = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {TEXT_INDEX} USING fts5("
    f"body, content='', contentless_delete=1, tokenize=\"{TOKENIZER}\")",
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {VOCABULARY} USING fts5vocab({TEXT_INDEX}, row)",
)
"""The index, and the table that tells how many turns hold a word."""


class ViewsState(StrEnum):
    """What the views are to the log at hand. Decided from their tag alone."""

    USABLE = "usable"
    MISSING = "missing"
    OTHER_LOG = "other-log"
    AHEAD = "ahead"
    """They have read positions that the log does not have: the log has lost history."""
    DIVERGED = "diverged"
    """The log tells another history up to the same position."""


def standing(connection: sa.Connection, log: Log, name: str = VIEWS) -> tuple[ViewsState, Position]:
    """Return what these views, or other tables, are worth, and how far they have read. Changes nothing."""
    if not sa.inspect(connection).has_table(tracking.TRACKING.name):
        return ViewsState.MISSING, ORIGIN
    at = tracking.tracked(connection, name)
    if at == tracking.NOTHING_READ:
        return ViewsState.MISSING, ORIGIN
    if at.log_id != log.log_id:
        return ViewsState.OTHER_LOG, at.position
    if at.position > log.head().position:
        return ViewsState.AHEAD, at.position
    if at.digest != log.digest_at(at.position):
        return ViewsState.DIVERGED, at.position
    return ViewsState.USABLE, at.position


class Views:
    """The projection behind `sessions`, `show`, `status` and the text leg of recall.

    Made anew when opened on a file that another log, or another version of these tables, has filled.
    """

    name = VIEWS

    def __init__(self, database: ProjectionDatabase, log: Log) -> None:
        self.database = database
        self._log = log
        with database.reading() as connection:
            state, _ = standing(connection, log)
        if state is ViewsState.USABLE:
            return
        with database.writing() as connection:
            # Asked again under the lock: another process may have begun them anew in between, and filled them.
            state, _ = standing(connection, log)
            if state is not ViewsState.USABLE:
                self._start_over(connection)

    def position(self) -> Position:
        """How far these views have read."""
        with self.database.reading() as connection:
            return tracking.tracked(connection, VIEWS).position

    def apply(self, events: Sequence[RecordedEvent]) -> None:
        """Take in events; those at or before the own position change nothing."""
        with self.database.writing() as connection:
            self._apply(connection, events)

    def rebuild(self, *, upto: Position, progress: Progress | None = None) -> int:
        """Make everything anew from the log, in one transaction: readers see the old until the end.

        It never goes back behind where the views were: who has read that position goes on from there.
        Returns the number of turns.
        """
        with self.database.writing() as connection:
            state, read_to = standing(connection, self._log)
            if state is ViewsState.USABLE:
                upto = max(upto, read_to)
            self._start_over(connection)
            for events in self._log.read(after=ORIGIN, upto=upto, batch_max=BATCH_MAX):
                self._apply(connection, events)
                if progress is not None:
                    progress(events[-1].position, upto)
            return connection.execute(sa.select(sa.func.count()).select_from(TURNS)).scalar_one()

    def scrub(self) -> bool:
        """Take what was forgotten out of the file. False where another connection does not let that happen."""
        with self.database.writing() as connection:
            merge_text_index(connection)
        return self.database.scrub()

    def _start_over(self, connection: sa.Connection) -> None:
        for table in (VOCABULARY, TEXT_INDEX):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        connection.exec_driver_sql("DROP TABLE IF EXISTS switches")  # Development versions of 0.1 wrote it.
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
        for made in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(made)
        genesis = self._log.digest_at(ORIGIN) or b""
        connection.execute(
            tracking.TRACKING.insert(),
            {"name": VIEWS, "position": ORIGIN, "log_id": self._log.log_id, "digest": genesis},
        )

    def _apply(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        seen = tracking.tracked(connection, VIEWS).position
        fresh = [event for event in events if event.position > seen]
        if not fresh:
            return
        for recorded in fresh:
            match recorded.event:
                case SessionStarted() as started:
                    _insert_session(connection, recorded, started)
                case ModelActivated() as activated:
                    _insert_activation(connection, recorded, activated)
        _insert_turns(connection, fresh)
        _update_sessions(connection, fresh)
        for recorded in fresh:
            if isinstance(recorded.event, ContentErased):
                erase(connection, recorded, recorded.event)
        last = fresh[-1].position
        digest = self._log.digest_at(last) or b""
        tracking.track(connection, VIEWS, Tracked(last, self._log.log_id, digest))


def _insert_session(connection: sa.Connection, recorded: RecordedEvent, started: SessionStarted) -> None:
    connection.execute(
        SESSIONS.insert(),
        {
            "session": session_of(recorded.stream),
            "name": started.name,
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


def _insert_activation(connection: sa.Connection, recorded: RecordedEvent, activated: ModelActivated) -> None:
    if recorded.stream != MODELS_STREAM:  # It activates nothing outside the stream of models.
        return
    connection.execute(
        ACTIVATIONS.insert(),
        {
            "position": recorded.position,
            "fingerprint": activated.fingerprint,
            "model": activated.model,
            "dimension": activated.dimension,
            "every": activated.retain_every_n_turns,
        },
    )


def _insert_turns(connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
    turns = [(recorded, recorded.event) for recorded in events if isinstance(recorded.event, TurnRecorded)]
    if not turns:
        return
    spoken_in = {str(session_of(recorded.stream)) for recorded, _ in turns}
    columns = (SESSIONS.c.session, SESSIONS.c.scope, SESSIONS.c.started_position, SESSIONS.c.turns)
    known = connection.execute(sa.select(*columns).where(SESSIONS.c.session.in_(spoken_in))).all()
    scopes: dict[str, str] = {row.session: row.scope for row in known}
    places = {row.session: row.started_position * PLACES + row.turns for row in known}
    connection.execute(TURNS.insert(), [turn_row(recorded, turn, scopes) for recorded, turn in turns])
    words = [words_row(recorded, turn, places) for recorded, turn in passing_over(events, places)]
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


def words_row(recorded: RecordedEvent, turn: TurnRecorded, places: dict[str, int]) -> dict[str, Any]:
    """Return what the ranking looks at of a turn. `places` has the next free place of each session, and goes on."""
    session = str(session_of(recorded.stream))
    place = places[session]
    places[session] = place + 1
    return {
        "place": place,
        "position": recorded.position,
        "speaker": turn.speaker,
        "at": recorded.recorded_at if turn.said_at is None else turn.said_at,
        "asks": int(turn.text.rstrip().endswith(_ASKING)),
        "stems": f" {' '.join(stems_of(turn.text))} ",
    }


def turn_row(recorded: RecordedEvent, turn: TurnRecorded, scopes: dict[str, str]) -> dict[str, Any]:
    """Return the row of a turn, where `scopes` has the scope of each session."""
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
        "extra": msgspec.msgpack.encode(extra) if turn.tool_calls or turn.metadata else None,
    }
