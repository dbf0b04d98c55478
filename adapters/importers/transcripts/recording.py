"""Record what transcripts have, once; and where each file was read up to, and what state it was in."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.adapters.importers.import_files import Item, Recording
from mnemolog.adapters.importers.turn import ImportedTurn, Places, event_of
from mnemolog.adapters.support.framework_sessions import turns_after
from mnemolog.adapters.support.store_access import (
    begin_session,
    enter_session,
    known_session,
    log_of,
    sessions_of,
    visible_of,
)
from mnemolog.application.commands import state_in
from mnemolog.domain import errors, session
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.events import RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.message import ROLES, Role
from mnemolog.domain.session import SessionState, session_of, session_stream
from mnemolog.domain.switching import agent_stream
from mnemolog.domain.values import NO_STREAM, ORIGIN, Position
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.registry import TRANSCRIPT_OFFSETS
from mnemolog.projections.sql.database import Tracked, TrackedTables, fetch, track, tracked
from mnemolog.store import MemoryStore

FILE: Final = TRANSCRIPT_OFFSETS.file

FILES: Final = sa.Table(
    "files",
    _METADATA := sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("path", sa.Text, nullable=False, unique=True),
    sa.Column("offset", sa.Integer, nullable=False),
    sa.Column("place", sa.BLOB, nullable=False),
    sqlite_strict=True,
)
LINKS: Final = sa.Table(
    "links",
    _METADATA,
    sa.Column("file", sa.Integer, primary_key=True),
    sa.Column("line", sa.Text, primary_key=True),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)


SIDE: Final = "~"
"""Separates the id of a transcript's session from the key of the turn that a branch of it begins with."""


class Anchor(NamedTuple):
    """The turn that a line continues. Without a key: the end of the session, wherever that is."""

    session: str
    key: str
    at: int = 0
    """A log position instead of a turn, 0 if unknown."""


class LineCursor(msgspec.Struct, array_like=True):
    """The last line of a session in a transcript."""

    line: str | None
    home: str | None
    """The session it was recorded in; None if it was a copy of another session's line."""
    anchor: Anchor | None


class ReadState(msgspec.Struct):
    """The saved state of reading one transcript."""

    format: str = ""
    offset: int = 0
    line: int = 0
    mark: bytes = b""
    """Digest of the bytes before the offset (`mark_at`)."""
    reader: dict[str, Any] = {}
    cursors: dict[str, LineCursor] = {}
    compacted: dict[str, list[str]] = {}
    """By session, the keys of compactions that no turn has followed yet."""
    places: Places = {}
    """Where the numbering of turns without ids continues."""
    is_first_pass: bool = False
    """Whether turns of earlier runs are still being recognised. If it is interrupted, it starts over."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.msgpack.Decoder(ReadState)


class Overtaken(Exception):
    """Another process has saved or deleted the offset of the file meanwhile."""


class FileOffsets(TrackedTables):
    """The offsets of all transcripts, with the log position up to which the log holds what was read.

    No projection: it is not derived from events. Offsets that the log does not cover any more are dropped when the
    tables are opened.
    """

    name = TRANSCRIPT_OFFSETS.tracked_as
    metadata = _METADATA
    secret = b""
    """The secret of the store, which goes into the marks of files."""

    def find(self, path: Path) -> tuple[int | None, ReadState]:
        """Return the number and the state of a file; a file that was never read has no number."""
        with self.database.reading() as connection:
            rows = fetch(connection, "SELECT id, place FROM files WHERE path = ?", str(path))
        return (rows[0][0], _DECODER.decode(rows[0][1])) if rows else (None, ReadState())

    def drop(self, path: Path) -> None:
        """Delete the offset of a file: it is read from its beginning next time."""
        with self.database.writing() as connection:
            of = sa.select(FILES.c.id).where(FILES.c.path == str(path)).scalar_subquery()
            connection.execute(LINKS.delete().where(LINKS.c.file == of))
            connection.execute(FILES.delete().where(FILES.c.path == str(path)))

    def save(self, path: Path, state: ReadState, *, began: int, links: Mapping[str, Anchor]) -> int:
        """Save how far a file was read, starting at offset `began`, and return its number.

        Call it only when everything that was read is in the log. Raises `Overtaken`: nothing was saved.
        """
        head = self.log.head()
        with self.database.writing() as connection:
            rows = fetch(connection, "SELECT offset FROM files WHERE path = ?", str(path))
            if (rows[0][0] if rows else 0) != began:
                raise Overtaken
            number = fetch(
                connection,
                "INSERT INTO files (path, offset, place) VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE "
                "SET offset = excluded.offset, place = excluded.place RETURNING id",
                str(path),
                state.offset,
                to_msgpack(state),
            )[0][0]
            if links:
                rows = [(number, line, anchor.session, anchor.key) for line, anchor in links.items()]
                connection.exec_driver_sql("INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)", rows)
            if tracked(connection, self.name).position < head.position:
                track(connection, self.name, Tracked(head.position, self.log.log_id, head.digest_bytes))
        return int(number)


class Links:
    """The links of one file: unsaved ones, on top of those in the database."""

    def __init__(self, offsets: FileOffsets, number: int | None) -> None:
        self._offsets, self.number = offsets, number
        self.fresh: dict[str, Anchor] = {}
        """Those that are not saved yet."""

    def get(self, line: str | None) -> Anchor | None:
        """Return the turn that a line continues or copies. Raises `Overtaken`: then the saved ones are unknown."""
        if line is None or line in self.fresh or self.number is None:
            return self.fresh.get(line or "")
        query = "SELECT session, key FROM files LEFT JOIN links ON file = id AND line = ? WHERE id = ?"
        with self._offsets.database.reading() as connection:
            rows = fetch(connection, query, line, self.number)
        if not rows:
            raise Overtaken
        return None if rows[0][0] is None else Anchor(*rows[0])


REFUSED_LISTED_MAX: Final = 100


class Report(msgspec.Struct, kw_only=True):
    """The result of reading transcripts."""

    files: int = 0
    """Files with anything new."""
    lines: int = 0
    recorded: int = 0
    """Turns that were added to the log."""
    already_there: int = 0
    """Turns that were in the log before, copies from other sessions included."""
    sessions: int = 0
    """Sessions that were started."""
    switches: dict[str, int] = {}
    """By reason: `new`, `branch`, `compress`, `rewind`."""
    left_out: dict[str, int] = {}
    """Messages, and parts of them, that are not turns, by reason: `empty`, `not said`, `unknown kind ...`."""
    refused: int = 0
    """Lines that cannot be recorded."""
    refusals: list[str] = []
    """The first of those lines, with file, line and reason."""

    def refuse(self, error: errors.ImportRefused) -> None:
        """Count a line that cannot be recorded."""
        self.refused += 1
        if len(self.refusals) < REFUSED_LISTED_MAX:
            self.refusals.append(str(error))

    @property
    def is_news(self) -> bool:
        """Whether anything changed that is worth reporting."""
        return bool(self.recorded or self.sessions or self.switches or self.refused)


class Recorder:
    """Records one transcript: turns in batches, everything else at once.

    `flush` ends a batch: everything said before it is in the log when it returns. Methods raise `InvalidInput` and
    `SessionError` for what the store refuses.
    """

    def __init__(self, store: MemoryStore, report: Report, *, agent: str, upto: Position) -> None:
        self._store = store
        self.report = report
        self.agent = agent
        self.recording = Recording(visible_of(store).log, upto, self._write)

    def flush(self) -> None:
        """Record the batch."""
        for _, outcome in self.recording.record_batch():
            if isinstance(outcome, errors.ImportRefused):
                self.report.refuse(outcome)
            else:
                self.report.recorded += outcome is True
                self.report.already_there += outcome is not True

    def start(self, name: str, *, title: str, scope: str, parent: str | None = None) -> None:
        """Start a session; the agent stays in its current one. A subagent sees no turns of its `parent`."""
        begin_session(self._store, name, title=title, agent=self.agent, scope=scope, parent=parent)
        self.report.sessions += 1

    def branch(self, name: str, *, left: str, at: Position, title: str) -> None:
        """Branch a session from another; the agent stays in its current one."""
        known_session(self._store, left).branch(name, at=at, title=title)
        self.report.sessions += 1

    def switch(self, reason: str, to: str | None = None, *, left: str | None = None, **how: Any) -> None:
        """Switch the agent (docs/sessions.md); to the session `to`, or in place."""
        if to is None:
            sessions_of(self._store).decide(left or "", lambda state, _: list(session.resume(left or "", state)))
        enter_session(self._store, to, reason=reason, session=left, agent=self.agent, **how)
        self.report.sessions += to is not None
        self.report.switches[reason] = self.report.switches.get(reason, 0) + 1

    def _write(self, tx: Transaction, item: Item, recording: Recording) -> bool:
        if (key := recording.new_key(tx, item)) is None:
            return False
        stream = session.session_stream(item.session)
        for event in session.resume(item.session, state_in(tx, item.session, visible_of(self._store).states)):
            tx.append(stream, event)
        tx.append(stream, event_of(item.turn), key=key)
        return True


class StoreLookup:
    """Looks up the sessions of a store, recorded by transcripts or not."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.log = store, log_of(store)
        self._all: list[str] = []
        self._sides: dict[str, list[str]] = {}
        self._read_to: Position = ORIGIN

    def of(self, session: str) -> list[str]:
        """Return the started sessions of a transcript's session: itself, and the branches that left it."""
        head = self.log.head().position
        for stream in self.log.streams_with(SessionStarted.topic, after=self._read_to, upto=head):
            started = session_of(stream) or ""
            self._all.append(started)
            if SIDE in started:
                self._sides.setdefault(started.partition(SIDE)[0], []).append(started)
        self._read_to = head
        own = [session] if self.log.first_event(session_stream(session)) is not None else []
        return own + self._sides.get(session, [])

    def at(self, session: str, key: str) -> Position | None:
        """Return the position of a turn in a session, None if it has no such turn."""
        return self.log.position_of(session_stream(session), key)

    def anywhere(self, key: str) -> str | None:
        """Return the session that was the first to have a turn."""
        with self.log.reading() as reads:
            found = reads.first_stream_with(key, [session_stream(session) for session in self._all])
        return session_of(found) if found is not None else None

    def inherited(self, session: str, key: str) -> str | None:
        """Return the ancestor that has a turn, recorded before the session branched off."""
        state = self.state(session)
        seen_to = self.log.head().position
        for ancestor in reversed(state.ancestors):
            # Turns after the branch point are never inherited, no matter when this session began.
            seen_to = min(seen_to, Position(state.started.branched_at or 0))
            found = self.at(ancestor, key)
            if found is not None and found <= seen_to:
                return ancestor
            state = self.state(ancestor)
        return None

    def reached(self, session: str, key: str) -> Anchor | None:
        """Return a turn that is the session's own or inherited, in the session that has it."""
        holder = self.inherited(session, key) or session
        at = self.at(holder, key)
        return None if at is None else Anchor(holder, key, at)

    def end_of_line(self, anchor: Anchor) -> Position | None:
        """Return the position of the last turn of a line, None if it is not in the log."""
        if anchor.at:
            return Position(anchor.at)
        if not anchor.key:
            return None
        found, number = self.at(anchor.session, anchor.key), 2
        while found is not None and (more := self.at(anchor.session, f"{anchor.key}/{number}")) is not None:
            found, number = more, number + 1
        return found

    def sees(self, session: str, other: str, position: Position) -> bool:
        """Whether a session sees a turn, of another session or its own."""
        return any(span.holds(other, position) for span in self.state(session).spans)

    def user_spoke_after(self, session: str, position: Position) -> bool:
        """Whether the session sees a turn of a user after a position."""
        return any(turn.role is Role.USER for turn in turns_after(known_session(self.store, session), position))

    def is_end(self, session: str, position: Position) -> bool:
        """Whether a session sees nothing after a position."""
        return not known_session(self.store, session).turns(after=position, limit=1)

    def turns(self, session: str, after: Position) -> Iterator[RecordedEvent]:
        """Yield the turns of a session and of its ancestors, hidden and forgotten ones included."""
        head, last = self.log.head().position, self.log.event_at(after)
        for span in visible_of(self.store).spans(session, hidden=True):
            stream, upto = session_stream(span.session), head if span.upto is None else span.upto
            first = last.version if last is not None and last.stream == stream else NO_STREAM
            for events in self.log.read_stream(stream, after=first, upto=upto) if after < upto else ():
                later = (item for item in events if item.position > max(after, span.after))
                yield from (item for item in later if isinstance(item.event, TurnRecorded) or was_turn(item.event))

    def switched(self, agent: str, key: str) -> Position | None:
        """Return the position of the agent's switch with this key, None if it was not made."""
        return self.log.position_of(agent_stream(agent), key)

    def state(self, session: str) -> SessionState:
        """Return the state of a session."""
        return visible_of(self.store).state(session)


def is_copy(said: ImportedTurn, turn: RecordedEvent) -> bool:
    """Whether a turn may be a copy of a recorded one. Of a forgotten one, at most the key tells the role."""
    if isinstance(turn.event, TurnRecorded):
        return (said.role, said.text) == (turn.event.role, turn.event.text)
    role = (turn.key or "").partition("/")[0].partition("@")[0]
    return role == said.role or role not in ROLES
