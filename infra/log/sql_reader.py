"""The queries of `mnemolog.infra.log.engine.LogReader` that read alike in every SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mnemolog.domain.events import TurnRecorded

COLUMNS: Final = "position, stream, version, topic, state, key, recorded_at"
STATE: Final = "stream, version, topic, state"
SELECT: Final = f"SELECT {COLUMNS} FROM events"
PAGE_BYTES: Final = 4 << 20
"""Bytes of content after which a page of events ends, however few they are: texts may have a mebibyte each."""
NOT_A_TURN: Final = f"topic <> '{TurnRecorded.topic}'"
HAS_PREFIX: Final = "substr(stream, 1, length(?)) = ?"
OF_TURNS: Final = (
    f"FROM events WHERE stream = ? AND version > ? AND version <= ? AND NOT ({NOT_A_TURN}) ORDER BY version DESC"
)
SELECT_TURNS: Final = f"SELECT {COLUMNS} {OF_TURNS}"
SELECT_TURN_HEADS: Final = f"SELECT position, version, substr(state, 1, 3) {OF_TURNS}"
_SELECT_DIGEST: Final = "SELECT digest FROM events WHERE position = ?"
_SELECT_RECORDED_AT: Final = "SELECT recorded_at FROM events WHERE position <= ? ORDER BY position DESC LIMIT 1"
_SELECT_RANGE: Final = f"{SELECT} WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
_SELECT_STREAM_NAMES: Final = (
    "SELECT position, stream FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_SELECT_STREAM: Final = f"{SELECT} WHERE stream = ? AND version > ? AND position <= ? ORDER BY version LIMIT ?"
_SELECT_AT: Final = f"{SELECT} WHERE position = ?"
_SELECT_FIRST: Final = f"{SELECT} WHERE stream = ? AND version = 1"
_SELECT_LAST: Final = f"{SELECT} WHERE stream = ? ORDER BY version DESC LIMIT 1"
_SELECT_KEY: Final = "SELECT position, version, topic, state, recorded_at FROM events WHERE stream = ? AND key = ?"
_SELECT_KEY_AT: Final = "SELECT key FROM events WHERE stream = ? AND version = ?"
_SELECT_KEYS: Final = "SELECT version, key FROM events WHERE stream = ? AND key IS NOT NULL ORDER BY version"
_SELECT_POSITION_OF: Final = "SELECT position FROM events WHERE stream = ? AND key = ?"
_SELECT_VERSION: Final = "SELECT version FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1"
_SELECT_LAST_POSITION: Final = "SELECT position FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1"
_SELECT_POSITION_AT: Final = "SELECT position FROM events WHERE stream = ? AND version = ?"
_COUNT: Final = "SELECT count(*) FROM events WHERE topic = ? AND position > ? AND position <= ?"
_SELECT_TOPICS: Final = (
    "SELECT position, topic FROM events WHERE stream = ? AND version BETWEEN ? AND ? AND position < ? ORDER BY version"
)
_SELECT_STREAMS: Final = (
    "SELECT stream FROM events WHERE position > ? AND position <= ? AND topic = ? ORDER BY position"
)
_SELECT_HEAD_AT: Final = "SELECT stream, version, topic, substr(state, 1, 3) FROM events WHERE position = ?"


class SqlReader:
    """The part of a `LogReader` that a database adds its own queries to.

    `?` is a parameter and `events` the table of the log; a database that writes either differently translates them
    in `_one` and `_all`.
    """

    __slots__ = ()

    def _one(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Return the first row, None if there is none."""
        raise NotImplementedError

    def _all(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Return all rows."""
        raise NotImplementedError

    def _page(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Return the first rows whose states, the fifth column, have up to `PAGE_BYTES` and what the last one has."""
        raise NotImplementedError

    def _value(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Return the first column of the first row, None if there is none."""
        found = self._one(query, parameters)
        return None if found is None else found[0]

    def digest_at(self, position: int) -> Any:
        """See `LogReader`."""
        return self._value(_SELECT_DIGEST, (position,))

    def recorded_at(self, position: int) -> int | None:
        """See `LogReader`."""
        found: int | None = self._value(_SELECT_RECORDED_AT, (position,))
        return found

    def events(self, *, after: int, upto: int, limit: int) -> list[Any]:
        """See `LogReader`."""
        return self._page(_SELECT_RANGE, (after, upto, limit))

    def events_at(self, positions: Sequence[int]) -> list[Any]:
        """See `LogReader`."""
        if not positions:
            return []
        # The last one is repeated up to a power of two, so that there are few queries: each is prepared and kept.
        given = [*positions, *[positions[-1]] * ((1 << (len(positions) - 1).bit_length()) - len(positions))]
        places = ", ".join("?" * len(given))
        return self._all(f"{SELECT} WHERE position IN ({places}) ORDER BY position", tuple(given))

    def streams(self, *, after: int, upto: int, limit: int) -> list[tuple[int, str]]:
        """See `LogReader`."""
        return self._all(_SELECT_STREAM_NAMES, (after, upto, limit))

    def stream(self, stream: str, *, after: int, upto: int, limit: int) -> list[Any]:
        """See `LogReader`."""
        return self._page(_SELECT_STREAM, (stream, after, upto, limit))

    def event_at(self, position: int) -> Any:
        """See `LogReader`."""
        return self._one(_SELECT_AT, (position,))

    def first_event(self, stream: str) -> Any:
        """See `LogReader`."""
        return self._one(_SELECT_FIRST, (stream,))

    def last_event(self, stream: str) -> Any:
        """See `LogReader`."""
        return self._one(_SELECT_LAST, (stream,))

    def event_with_key(self, stream: str, key: str) -> Any:
        """See `LogReader`."""
        return self._one(_SELECT_KEY, (stream, key))

    def position_of(self, stream: str, key: str) -> int | None:
        """See `LogReader`."""
        found: int | None = self._value(_SELECT_POSITION_OF, (stream, key))
        return found

    def version(self, stream: str) -> int:
        """See `LogReader`."""
        return self._value(_SELECT_VERSION, (stream,)) or 0

    def key_at(self, stream: str, version: int) -> str | None:
        """See `LogReader`."""
        found: str | None = self._value(_SELECT_KEY_AT, (stream, version))
        return found

    def keys(self, stream: str) -> list[Any]:
        """See `LogReader`."""
        return self._all(_SELECT_KEYS, (stream,))

    def last_position(self, stream: str) -> int:
        """See `LogReader`."""
        return self._value(_SELECT_LAST_POSITION, (stream,)) or 0

    def position_at(self, stream: str, version: int) -> int:
        """See `LogReader`."""
        return int(self._one(_SELECT_POSITION_AT, (stream, version))[0])

    def count(self, topic: str, *, after: int, upto: int) -> int:
        """See `LogReader`."""
        return int(self._one(_COUNT, (topic, after, upto))[0])

    def topics(self, stream: str, *, first: int, last: int, before: int) -> list[Any]:
        """See `LogReader`."""
        return self._all(_SELECT_TOPICS, (stream, first, last, before))

    def streams_with(self, topic: str, *, after: int, upto: int) -> list[str]:
        """See `LogReader`."""
        return [stream for (stream,) in self._all(_SELECT_STREAMS, (after, upto, topic))]

    def state_head_at(self, position: int) -> Any:
        """See `LogReader`."""
        return self._one(_SELECT_HEAD_AT, (position,))

    def states(
        self, stream: str, *, after: int | None, upto: int | None, descending: bool, limit: int | None
    ) -> list[Any]:
        """See `LogReader`."""
        query, parameters = "SELECT version, topic, state FROM events WHERE stream = ?", [stream, after, upto, limit]
        query += " AND version > ?" if after is not None else ""
        query += " AND version <= ?" if upto is not None else ""
        query += " ORDER BY version DESC" if descending else " ORDER BY version"
        query += " LIMIT ?" if limit is not None else ""
        return self._all(query, tuple(value for value in parameters if value is not None))

    def selected(self, *, after: int, upto: int | None, prefix: str, topics: Sequence[str], limit: int) -> list[Any]:
        """See `LogReader`."""
        query, parameters = f"{SELECT} WHERE position > ?", [after]
        for condition, values in (
            ("position <= ?", () if upto is None else (upto,)),
            (HAS_PREFIX, (prefix, prefix) if prefix else ()),
            (f"topic IN ({', '.join('?' * len(topics))})", topics),
        ):
            if values:
                query, parameters = f"{query} AND {condition}", [*parameters, *values]
        return self._all(f"{query} ORDER BY position LIMIT ?", (*parameters, limit))

    def last_selected(self, prefix: str) -> int | None:
        """See `LogReader`."""
        query = f"SELECT position FROM events WHERE {HAS_PREFIX} ORDER BY position DESC LIMIT 1"
        found: int | None = self._value(query, (prefix, prefix))
        return found
