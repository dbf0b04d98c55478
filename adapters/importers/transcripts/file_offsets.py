"""How far each transcript has been read. It saves reading, and nothing else: all of it may be deleted at any time.

Who reads a file anew finds its turns in the log by their keys, and records none of them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import sqlalchemy as sa

from mnemolog.adapters.importers.transcripts.place import Anchor, Place
from mnemolog.domain.events import RecordedEvent
from mnemolog.projections.registry.projections import TRANSCRIPT_OFFSETS
from mnemolog.projections.sql import tracking
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.projection import SqlProjection
from mnemolog.projections.sql.tracking import Tracked

Key = TypeVar("Key")
Value = TypeVar("Value")

FILE: Final = TRANSCRIPT_OFFSETS.file
_SIGNED: Final = 1 << 63

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
COUNTS: Final = sa.Table(
    "counts",
    _METADATA,
    sa.Column("file", sa.Integer, primary_key=True),
    sa.Column("text", sa.Integer, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)


class Overtaken(Exception):
    """Somebody else has saved how far the file was read, or deleted it, meanwhile."""


class Places(SqlProjection):
    """The places of all transcripts. Of no use where the log has lost what was recorded: then they are begun anew."""

    name = TRANSCRIPT_OFFSETS.tracked_as
    metadata = _METADATA

    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Pass over events: this is no reading of the log. It only says up to where the log held what was read."""

    def find(self, path: Path) -> tuple[int | None, Place]:
        """Return the number and the place of a file; one that was never read has no number."""
        with self.database.reading() as connection:
            rows = fetch(connection, "SELECT id, place FROM files WHERE path = ?", str(path))
        return (rows[0][0], msgspec.msgpack.decode(rows[0][1], type=Place)) if rows else (None, Place())

    def drop(self, path: Path) -> None:
        """Forget a file: it is to be read from its beginning."""
        with self.database.writing() as connection:
            for table in (LINKS, COUNTS):
                of = sa.select(FILES.c.id).where(FILES.c.path == str(path)).scalar_subquery()
                connection.execute(table.delete().where(table.c.file == of))
            connection.execute(FILES.delete().where(FILES.c.path == str(path)))

    def save(
        self, path: Path, place: Place, *, began: int, links: Mapping[str, Anchor], counts: Mapping[int, int]
    ) -> int:
        """Save how far a file was read, from `began` on, and return its number. Raises `Overtaken`: nothing was saved.

        To be called when all that was read is in the log, and not before.
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
                place.offset,
                msgspec.msgpack.encode(place),
            )[0][0]
            if links:
                rows = [(number, line, anchor.session, anchor.key) for line, anchor in links.items()]
                connection.exec_driver_sql("INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)", rows)
            if counts:
                rows = [(number, text - _SIGNED, count) for text, count in counts.items()]
                connection.exec_driver_sql("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", rows)
            if tracking.tracked(connection, self.name).position < head.position:
                tracking.track(connection, self.name, Tracked(head.position, self.log.log_id, head.digest_bytes))
        return int(number)

    def link(self, number: int, line: str) -> Anchor | None:
        """Return what a line without turns goes on from."""
        query = "SELECT session, key FROM links WHERE file = ? AND line = ?"
        with self.database.reading() as connection:
            return next((Anchor(*row) for row in fetch(connection, query, number, line)), None)

    def count(self, number: int, text: int) -> int | None:
        """Return how often a text was met in a file."""
        query = "SELECT count FROM counts WHERE file = ? AND text = ?"
        with self.database.reading() as connection:
            return next((row[0] for row in fetch(connection, query, number, text - _SIGNED)), None)


class Kept(MutableMapping[Key, Value]):
    """What was noted of a file under a key: what is new, over what was saved."""

    def __init__(self, find: Callable[[int, Key], Value | None], number: int | None) -> None:
        self._find = find
        self._number = number
        self.fresh: dict[Key, Value] = {}
        """What is not saved yet."""

    def saved(self, number: int) -> None:
        """Note that all of it was saved, under the number of the file."""
        self._number = number
        self.fresh.clear()

    def __getitem__(self, key: Key) -> Value:
        found = self.fresh.get(key)
        if found is None and self._number is not None:
            found = self._find(self._number, key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Key, value: Value) -> None:
        self.fresh[key] = value

    def __delitem__(self, key: Key) -> None:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Key]:
        return iter(self.fresh)

    def __len__(self) -> int:
        return len(self.fresh)
