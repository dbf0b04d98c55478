"""How far each transcript has been read. A cache: it saves time, and can be deleted at any time.

When a file is read again from its beginning, its turns are found in the log by their keys, so none is recorded twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.adapters.importers.turn import Places
from mnemolog.domain.encoding import to_msgpack
from mnemolog.projections.registry import TRANSCRIPT_OFFSETS
from mnemolog.projections.sql.database import Tracked, fetch, track, tracked
from mnemolog.projections.sql.projection import TrackedTables

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
