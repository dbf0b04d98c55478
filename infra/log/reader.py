"""The queries of a log, written once for every SQL database."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from mnemolog.domain.chain import link
from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import SEALED, TurnRecorded

EventRow = Sequence[Any]
"""The columns position, stream, version, topic, state, key, recorded_at of an event."""
PAGE: Final = 50
"""Rows that are fetched together where a caller may stop early. A few of them may be large."""
LONG_PAGE: Final = 250
"""The same of rows without content, and of those that are all kept."""

_COLUMNS: Final = "position, stream, version, topic, state, key, recorded_at"
_DIGEST_BEFORE: Final = (
    "(SELECT digest FROM events AS before WHERE before.position = events.position - 1) AS digest_before"
)
SELECT: Final = f"SELECT {_COLUMNS}, digest, {_DIGEST_BEFORE} FROM events"
"""Begins every query of events: what is returned for it was compared with the digests."""
PAGE_BYTES: Final = 4 << 20
"""Bytes of content after which a page of events ends, however few they are: texts may have a mebibyte each."""
NOT_A_TURN: Final = f"topic <> '{TurnRecorded.topic}'"
_HAS_PREFIX: Final = "substr(stream, 1, length(?)) = ?"
SPARSE: Final = "INDEXED BY events_sparse"
"""In SQLite, have a query use the index that holds no turns."""
_OF_TURNS: Final = f"WHERE stream = ? AND version > ? AND version <= ? AND NOT ({NOT_A_TURN}) ORDER BY version DESC"
_SELECT_RANGE: Final = f"{SELECT} WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
_SELECT_STREAM: Final = f"{SELECT} WHERE stream = ? AND version > ? AND position <= ? ORDER BY version LIMIT ?"
_SELECT_STREAM_NAMES: Final = (
    "SELECT position, stream FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_SELECT_SEALED: Final = "SELECT 1 FROM events WHERE stream = ? AND substr(state, 1, 1) = ? LIMIT 1"
_COUNT_VERSIONS: Final = "SELECT count(*) FROM events WHERE stream = ? AND version > ? AND version <= ?"
_SELECT_STREAMS: Final = (
    "SELECT stream FROM events WHERE position > ? AND position <= ? AND topic = ? ORDER BY position"
)


class LogReader:
    """Queries on one connection. `after` is exclusive and `upto` inclusive throughout.

    `?` is a parameter and `events` the table of the log; a database that writes either differently translates them
    in `_run`.

    An event is returned only as it was recorded: its digest fits its content and the digest of the event before it.
    Otherwise, and where the log continues after a position that has no event, this raises `LogDamaged`.
    """

    __slots__ = ("genesis",)

    genesis: bytes
    """digest(0)."""
    select_stored: ClassVar[str]
    """Begins the queries of `stored`."""

    def head(self, seen: int = 0) -> tuple[int, Any, Any] | None:
        """Return the last position, its digest as stored, and the one at `seen`; None for an empty log."""
        raise NotImplementedError

    def last_given(self) -> int:
        """Return the highest position ever given, which outlives its row; 0 for none."""
        raise NotImplementedError

    def stored(self, *, after: int, upto: int, limit: int) -> list[tuple[Any, ...]]:
        """Return every column as stored, texts as bytes: an event row with the digest as eighth column."""
        return self._page(
            f"{self.select_stored} position > ? AND position <= ? ORDER BY position LIMIT ?", (after, upto, limit)
        )

    def newest(self, limit: int) -> list[tuple[Any, ...]]:
        """Return the last rows as `stored` does, in order; of large ones fewer."""
        return sorted(self._page(f"{self.select_stored} true ORDER BY position DESC LIMIT ?", (limit,)))

    def layout(self) -> int:
        """Return a number that is another one when a table, an index or a trigger was changed, if that can be told."""
        return 0

    def first_stream_with(self, key: str, streams: Sequence[str]) -> str | None:
        """Return which of `streams` has the first event with an idempotency key."""
        raise NotImplementedError

    def _run(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Run a query, and return the cursor of its rows."""
        raise NotImplementedError

    def _page(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Return the first rows whose states, the fifth column, have up to `PAGE_BYTES` and what the last one has."""
        raise NotImplementedError

    def _one(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Return the first row, None if there is none."""
        found = self._run(query, parameters).fetchone()
        return None if found is None else self._checked(query, [found])[0]

    def _all(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Return all rows."""
        return self._checked(query, self._run(query, parameters).fetchall())

    def _checked(self, query: str, rows: list[Any]) -> list[Any]:
        """Return rows: events without their digests, if they are what was recorded."""
        if not query.startswith(SELECT):
            return rows
        found, position = [], 0
        try:
            for position, stream, version, topic, state, key, recorded_at, digest, before in rows:
                if before is None and position != 1:
                    raise self._gone(position - 1)
                row = position, stream.encode(), version, topic.encode(), state, key and key.encode(), recorded_at
                if link(before or self.genesis, *row) != digest:
                    raise LogDamaged("its digest does not match its content and the event before it", position=position)
                found.append((position, stream, version, topic, state, key, recorded_at))
        except (AttributeError, TypeError, struct.error) as error:  # Damage can turn a value into one of another type.
            raise LogDamaged("one of its values has another type", position=position) from error
        return found

    def _require_none(self, position: int) -> None:
        """Raise `LogDamaged` if the log continues after a position that has no event."""
        head = self.head()
        if head is not None and 0 < position < head[0]:
            raise self._gone(position)

    def _gone(self, position: int) -> LogDamaged:
        return LogDamaged("its event is gone, or its position was changed", position=position)

    def _rows(
        self,
        query: str,
        after: Callable[[Any], tuple[Any, ...]],
        *,
        first: Any,
        page: int = PAGE,
        falling: bool = False,
    ) -> Iterator[Any]:
        """Yield rows, page by page: `after(row)` are the parameters for those behind a row.

        Nothing is open between two pages, so a caller may stop at any time. Raises `LogDamaged` where pages lead back.
        """
        query, place = f"{query} LIMIT {page}", after(first)  # As a parameter, SQLite would prepare it at each call.
        while rows := self._all(query, place):
            yield from rows
            if len(rows) < page:
                return
            before, place = place, after(rows[-1])
            if not (place < before if falling else place > before):
                raise LogDamaged(f"its pages lead back from {before} to {place}")

    def _value(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Return the first column of the first row, None if there is none."""
        found = self._one(query, parameters)
        return None if found is None else found[0]

    def digest_at(self, position: int) -> Any:
        """Return the digest as stored at a position, None where there is no event."""
        return self._value("SELECT digest FROM events WHERE position = ?", (position,))

    def recorded_at(self, position: int) -> int | None:
        """Return when the last event at or before a position was recorded, None if there is none."""
        last = f"{SELECT} WHERE position <= ? ORDER BY position DESC LIMIT 1"
        found = self.event_at(position) or self._one(last, (position,))
        return None if found is None else int(found[6])

    def first_position(self) -> int | None:
        """Return the lowest position, None for an empty log."""
        found: int | None = self._value("SELECT position FROM events WHERE true ORDER BY position LIMIT 1", ())
        return found

    def events(self, *, after: int, upto: int, limit: int) -> list[Any]:
        """Return event rows in order, from the first on."""
        found = self._checked(_SELECT_RANGE, self._page(_SELECT_RANGE, (after, upto, limit)))
        if not found and after < upto:
            self._require_none(after + 1)
        return _without_gaps(found, column=0, after=after)

    def events_at(self, positions: Sequence[int], select: str = SELECT) -> list[Any]:
        """Return the event rows at positions, in order; with another `select`, its columns."""
        if not positions:
            return []
        # The last one is repeated up to a power of two, so that there are few queries: each is prepared and kept.
        given = [*positions, *[positions[-1]] * ((1 << (len(positions) - 1).bit_length()) - len(positions))]
        places = ", ".join("?" * len(given))
        found = self._all(f"{select} WHERE position IN ({places}) ORDER BY position", tuple(given))
        if select is SELECT and len(found) < len(set(positions)):
            self._require_none(min({*positions}.difference(row[0] for row in found)))
        return found

    def streams_at(self, positions: Sequence[int]) -> list[tuple[int, str]]:
        """Return position and stream of the events at positions, in order. Must not read more of them."""
        return self.events_at(positions, "SELECT position, stream FROM events")

    def streams(self, *, after: int, upto: int, limit: int) -> list[tuple[int, str]]:
        """Return position and stream of events in order. Must not read more of them."""
        return _without_gaps(self._all(_SELECT_STREAM_NAMES, (after, upto, limit)), column=0, after=after)

    def stream(self, stream: str, *, after: int, upto: int, limit: int) -> list[Any]:
        """Return event rows of a stream after a version, up to a position."""
        found = self._checked(_SELECT_STREAM, self._page(_SELECT_STREAM, (stream, after, upto, limit)))
        return _without_gaps(found, column=2, after=after)

    def event_at(self, position: int) -> Any:
        """Return the event row at a position."""
        found = self._one(f"{SELECT} WHERE position = ?", (position,))
        if found is None:
            self._require_none(position)
        return found

    def first_event(self, stream: str) -> Any:
        """Return the event row of version 1."""
        return self._one(f"{SELECT} WHERE stream = ? AND version = 1", (stream,))

    def last_event(self, stream: str) -> Any:
        """Return the event row of the highest version."""
        return self._one(f"{SELECT} WHERE stream = ? ORDER BY version DESC LIMIT 1", (stream,))

    def event_with_key(self, stream: str, key: str) -> Any:
        """Return the event row with an idempotency key."""
        return self._one(f"{SELECT} WHERE stream = ? AND key = ?", (stream, key))

    def version(self, stream: str) -> int:
        """Return the highest version of a stream, 0 if it has no events."""
        return self._value("SELECT version FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1", (stream,)) or 0

    def key_at(self, stream: str, version: int) -> str | None:
        """Return the idempotency key of a version, None if it has none."""
        found: str | None = self._value("SELECT key FROM events WHERE stream = ? AND version = ?", (stream, version))
        return found

    def keys(self, stream: str) -> list[Any]:
        """Return version and idempotency key of the events of a stream that have one, in order."""
        return self._all(
            "SELECT version, key FROM events WHERE stream = ? AND key IS NOT NULL ORDER BY version", (stream,)
        )

    def position_at(self, stream: str, version: int) -> int:
        """Return the position of a version that exists."""
        found = self._value("SELECT position FROM events WHERE stream = ? AND version = ?", (stream, version))
        if found is None:
            raise LogDamaged(f"version {version} of {stream!r} is gone")
        return int(found)

    def require_versions(self, stream: str, *, after: int, upto: int) -> None:
        """Raise `LogDamaged` if a version in `(after, upto]` is gone. Reads no event."""
        if self._value(_COUNT_VERSIONS, (stream, after, upto)) != upto - after:
            raise LogDamaged(f"{stream!r} has lost some of its versions {after + 1} to {upto}")

    def not_turns(self, stream: str, *, after: int, page: int = PAGE) -> Iterator[EventRow]:
        """Yield event rows of a stream after a version, without turns. Does not read the turns in between."""
        return self._rows(
            f"{SELECT} {SPARSE} WHERE stream = ? AND version > ? AND {NOT_A_TURN} ORDER BY version",
            lambda row: (stream, row[2]),
            first=(0, "", after),
            page=page,
        )

    def turns_backward(self, stream: str, *, after: int, upto: int, page: int = PAGE) -> Iterator[EventRow]:
        """Yield event rows of the turns with versions in `(after, upto]`, newest first."""
        page = min(page, PAGE)
        return self._rows(
            f"{SELECT} {_OF_TURNS}",
            lambda row: (stream, after, row[2] - 1),
            first=(0, "", upto + 1),
            page=page,
            falling=True,
        )

    def turn_heads_backward(self, stream: str, *, after: int, upto: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield position, version and the first three bytes of the state of those turns, newest first."""
        return self._rows(
            f"SELECT position, version, substr(state, 1, 3) FROM events {_OF_TURNS}",
            lambda row: (stream, after, row[1] - 1),
            first=(0, upto + 1),
            falling=True,
        )

    def state_heads(self, stream: str) -> Iterator[tuple[int, int, str, bytes]]:
        """Yield position, version, topic and the first three bytes of the state of every event of a stream."""
        return self._rows(
            "SELECT position, version, topic, substr(state, 1, 3) FROM events "
            "WHERE stream = ? AND version > ? ORDER BY version",
            lambda row: (stream, row[1]),
            first=(0, 0),
            page=LONG_PAGE,
        )

    def beginnings(self, topic: str) -> Iterator[EventRow]:
        """Yield the event row of every first event of a stream that has this topic. No turns."""
        return self._rows(
            f"{SELECT} {SPARSE} WHERE version = 1 AND {NOT_A_TURN} AND topic = ? AND stream > ? ORDER BY stream",
            lambda row: (topic, row[1]),
            first=(0, ""),
        )

    def between(self, first: str, last: str, topic: str) -> Iterator[EventRow]:
        """Yield the event rows of a topic in the streams `first` to `last`, both included. No turns."""
        return self._rows(
            f"{SELECT} {SPARSE} WHERE stream <= ? AND (stream, version) > (?, ?) AND {NOT_A_TURN} "
            "AND topic = ? ORDER BY stream, version",
            lambda row: (last, *row[1:3], topic),
            first=(0, first, 0),
        )

    def holds_sealed(self, stream: str) -> bool:
        """Whether a stream has encrypted content."""
        if self._one(_SELECT_SEALED, (stream, bytes((SEALED,)))) is not None:
            return True
        first = self.first_event(stream)
        return first is not None and b"sealed_name" in first[4]

    def version_at(self, stream: str, position: int, *, latest: int) -> int:
        """Return the version of the last event of `stream` at or before a position, where `latest` is its last.

        Versions rise with positions and have an index: a binary search is quicker than a scan of the stream. The two
        ends come first, because most callers want all of a stream.
        """
        if not latest or position <= 0:
            return 0
        if self.position_at(stream, latest) <= position:
            return latest
        few, many = 0, latest - 1
        while few < many:
            middle = (few + many + 1) // 2
            if self.position_at(stream, middle) <= position:
                few = middle
            else:
                many = middle - 1
        return few

    def count(self, topic: str, *, after: int, upto: int) -> int:
        """Return how many events of a topic lie between two positions."""
        query = "SELECT count(*) FROM events WHERE topic = ? AND position > ? AND position <= ?"
        return int(self._value(query, (topic, after, upto)))

    def streams_with(self, topic: str, *, after: int, upto: int) -> list[str]:
        """Return the stream of every event of a topic between two positions."""
        return [stream for (stream,) in self._all(_SELECT_STREAMS, (after, upto, topic))]

    def state_head_at(self, position: int) -> Any:
        """Return stream, version, topic and the first three bytes of the state of an event."""
        return self._one(
            "SELECT stream, version, topic, substr(state, 1, 3) FROM events WHERE position = ?", (position,)
        )

    def versions(
        self, stream: str, *, after: int | None, upto: int | None, descending: bool, limit: int | None
    ) -> list[Any]:
        """Return event rows of a stream with versions in `(after, upto]`."""
        query, parameters = f"{SELECT} WHERE stream = ?", [stream, after, upto, limit]
        query += " AND version > ?" if after is not None else ""
        query += " AND version <= ?" if upto is not None else ""
        query += " ORDER BY version DESC" if descending else " ORDER BY version"
        query += " LIMIT ?" if limit is not None else ""
        return self._all(query, tuple(value for value in parameters if value is not None))

    def selected(self, *, after: int, upto: int | None, prefix: str, topics: Sequence[str], limit: int) -> list[Any]:
        """Return event rows of the streams whose names begin with `prefix`; of all topics where none is named."""
        query, parameters = f"{SELECT} WHERE position > ?", [after]
        for condition, values in (
            ("position <= ?", () if upto is None else (upto,)),
            (_HAS_PREFIX, (prefix, prefix) if prefix else ()),
            (f"topic IN ({', '.join('?' * len(topics))})", topics),
        ):
            if values:
                query, parameters = f"{query} AND {condition}", [*parameters, *values]
        return self._all(f"{query} ORDER BY position LIMIT ?", (*parameters, limit))

    def last_selected(self, prefix: str) -> int | None:
        """Return the last position in the streams whose names begin with `prefix`."""
        query = f"SELECT position FROM events WHERE {_HAS_PREFIX} ORDER BY position DESC LIMIT 1"
        found: int | None = self._value(query, (prefix, prefix))
        return found


def _without_gaps(rows: list[Any], *, column: int, after: int) -> list[Any]:
    """Return rows. Raises `LogDamaged` unless the numbers in a column follow `after` one by one."""
    for number, row in enumerate(rows, after + 1):
        if row[column] != number:
            raise LogDamaged("the event before it is gone, or the pages lead back to it", position=row[0])
    return rows
