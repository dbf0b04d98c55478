"""The port for the database under a log: `mnemolog.infra.log.sqlite` and `mnemolog.infra.log.postgres` implement it.

Its queries are written once for every SQL database (`LogReader`). Group commit, staging, the digest chain, the event
codec and folding are shared by all engines, so they are not here.

An engine must commit positions in their order, without gaps: it assigns positions and links digests under one lock per
log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from mnemolog.domain.chain import genesis, link
from mnemolog.domain.errors import LogDamaged, MnemologError, StoreNotWritable, StoreReplaced
from mnemolog.domain.events import SEALED, TurnRecorded
from mnemolog.domain.position import Micros
from mnemolog.infra.log.seen_head import SeenHead

if TYPE_CHECKING:
    from mnemolog.infra.log.postgres.heads import LogHeads
    from mnemolog.infra.log.postgres.nodes import PostgresNodes

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


PLAIN_FORMAT: Final = 1
"""The format of a log whose content is stored as it is."""
LOG_FORMAT: Final = 2
"""The newest format: that of a log whose content is encrypted (`mnemolog.infra.keys.keyring`)."""

StagedRow = tuple[int, str, int, str, bytearray, int, bytearray, str | None]
"""A row to insert: position, stream, version, topic, state, recorded_at, digest, key.

Blobs are bytearrays: pysqlite3 binds those directly, and looks for an adapter of bytes first.
"""


class LogIdentity(NamedTuple):
    """The identity of a log, set when it is created."""

    log_id: str
    log_format: int
    created_at: Micros

    @property
    def is_sealed(self) -> bool:
        """Whether its content is encrypted."""
        return self.log_format > PLAIN_FORMAT

    @property
    def genesis(self) -> bytes:
        """digest(0), which the first event follows."""
        return genesis(**self._asdict())


def moved(path: Path, moved_to: str, *, undo: str) -> StoreNotWritable:
    """Return the error of appends to a log that was moved. `undo` says how to give up the move."""
    hint = f"nothing was written; use the store there, or to give up the move: {undo}"
    return StoreNotWritable(path, f"the log was moved to {moved_to}").saying(hint=hint)


class LogConnection(Protocol):
    """The one connection that a process appends through. Used by one thread at a time.

    `append`, `lock` and `commit` raise `StoreReplaced` if the log is no longer where it was opened, and from then on.
    After a commit they look again: what was committed is then in a log that may be gone, so it is not acknowledged.
    """

    reads: LogReader
    """Queries on this connection, inside its transaction where one is open."""
    is_contended: bool = False
    """Whether other processes append so often that the next append had better begin with `lock`."""
    finds_used_keys: bool = False
    """Whether `append` refuses an idempotency key that is used, so that it need not be looked up before."""

    def append(self, rows: Sequence[StagedRow], *, head: int, head_digest: bytes) -> bool:
        """Commit rows that were staged after this head, all or none.

        False: nothing was written, since the head has moved, a key is used, or the connection was lost. Call `lock`
        next: the connection may hold the log's lock already.
        """

    def lock(self, seen: int) -> tuple[int, bytes | None, int, bytes | None]:
        """Begin a transaction under the log's lock. Return the head, the last given position, and the digest at `seen`.

        An empty log has position 0 and digest None.
        """

    def insert(self, rows: Sequence[StagedRow]) -> None:
        """Insert rows in the open transaction."""

    def commit(self) -> None:
        """Commit, durably."""

    def roll_back(self) -> None:
        """Undo what is not committed. Does nothing where no transaction is open."""

    def has_committed(self, row: StagedRow) -> bool:
        """Whether exactly this row is committed, in a log that is where it was opened.

        For use after an interrupt, when the outcome is not known.
        """

    def close(self) -> None:
        """Release the connection."""


class LogEngine(Protocol):
    """The database of one log."""

    seen: SeenHead
    """The last head of the log that was seen."""
    nodes: PostgresNodes | None = None
    """The nodes of the log. None where the log is a file in the only folder that has projections of it."""
    driver_errors: tuple[type[Exception], ...]
    """The exceptions of the driver, for `error_of`."""
    busy_timeout_s: float
    """How long to wait for a lock that another process holds, in seconds."""
    poll_interval_s: float
    """How often a follower has to look for commits of other processes, in seconds. With `commits`, a precaution."""
    commits: LogHeads | None = None
    """Watches for commits of other processes. None where a follower has to look for itself."""

    def reading(self) -> AbstractContextManager[LogReader]:
        """Return a reader. Each query sees what is committed when it runs. Raises only errors of mnemolog."""

    def connect(self) -> LogConnection:
        """Return the connection for appends.

        Raises `StoreNotWritable` if the log was moved, `LogWriteFailed` if it is no longer append-only.
        """

    def is_conflict(self, error: BaseException) -> bool:
        """Whether a constraint refused one of the rows."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether the connection was lost, and nothing was written: the work may be done again."""
        return False

    def error_of(self, error: BaseException) -> MnemologError:
        """Return the error of mnemolog for an exception of the driver."""

    def moved_to(self) -> str:
        """Return where the log was moved; empty if it was not."""

    def set_moved_to(self, place: str, *, head: int) -> bool:
        """Note durably where the log was moved, so that `connect` refuses; with an empty place that it was not.

        Returns False, and notes nothing, if the log has events after `head`.
        """

    def replaced(self) -> StoreReplaced | None:
        """Return the error of calls to a file that is not the one that was opened, None if it is."""
        return None

    def set_back(self) -> None:
        """Let the next append take the position after the last event, whatever was given before."""

    def missing_triggers(self) -> list[str]:
        """Return which of the triggers that keep the log append-only are missing or altered."""

    def contradictions(self) -> list[str]:
        """Return what is wrong with the database beside the content of its rows. Reads all of it."""

    def size_bytes(self) -> int:
        """Return the size of the log on disk."""

    def copy_to(self, target: Path, *, moved: Callable[[int], None]) -> None:
        """Copy the log of one moment into the new file `target`, durably, without holding up writers.

        `moved` is called with the bytes copied by each step, and may raise to stop.
        """

    def close(self) -> None:
        """Close every connection."""


def altered_triggers(found: Mapping[str, str], created: Mapping[str, str]) -> list[str]:
    """Return the names of triggers that are missing, altered or foreign, given the definitions of both."""
    names = created.keys() | found.keys()  # Damage can leave a trigger whose name is not text.
    return sorted(str(name) for name in names if found.get(name) != created.get(name))
