"""What one unit of work sees and stages inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from eventsourcing.persistence import StoredEvent

from mnemolog.domain import digest, errors
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import Event, RecordedEvent, TurnRecorded
from mnemolog.domain.position import NO_STREAM, Micros, Position, Version
from mnemolog.infra.mapper import decode, encode
from mnemolog.infra.schema import NOT_A_TURN

State = TypeVar("State")
Evolve = Callable[[State | None, Event], State | None]
Row = tuple[int, str, int, str, bytes, str | None, int, bytes]

_TURN: Final = TurnRecorded.topic

STREAMS_CACHED_MAX: Final = 10_000

_SELECT_VERSION: Final = "SELECT version FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1"
_SELECT_KEY: Final = (
    "SELECT position, version, topic, state, recorded_at FROM events WHERE stream = ? AND key = ?"
)
SELECT_SPARSE: Final = (
    "SELECT position, topic, state FROM events INDEXED BY events_sparse "
    f"WHERE stream = ? AND version > ? AND {NOT_A_TURN} ORDER BY version"
)


class Folded(NamedTuple):
    """The state of a stream as of a version."""

    version: Version
    state: Any


class StreamCache:
    """What the writer knows of streams. Valid until another process writes."""

    def __init__(self) -> None:
        self.versions: dict[str, Version] = {}
        self.folded: dict[str, Folded] = {}

    def another_writer_was_here(self) -> None:
        """Forget versions; folded states stay, because they say as of which version they hold."""
        self.versions.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.versions.clear()
        self.folded.clear()


class Transaction:
    """Reads under the write lock, and stages rows that the writer inserts when the group is complete.

    Everything here is exact: nobody else can append until the transaction ends.
    """

    def __init__(
        self, execute: Callable[..., Any], *, head: Position, head_digest: bytes, cache: StreamCache, clock: Clock
    ) -> None:
        self._execute = execute
        self._cache = cache
        self._clock = clock
        self.head, self.head_digest = head, head_digest
        self.rows: list[Row] = []
        self._staged_versions: dict[str, Version] = {}
        self._staged_keys: dict[tuple[str, str], Row] = {}
        self._staged_sparse: list[Row] = []

    def version(self, stream: str) -> Version:
        """Return the version of `stream`, what this group staged included."""
        staged = self._staged_versions.get(stream)
        return staged if staged is not None else self._committed_version(stream)

    def fold(self, stream: str, evolve: Evolve[State]) -> State | None:
        """Return the state of `stream`. Turns are not read: `evolve` must not depend on them."""
        known = self._cache.folded.get(stream)
        version = self._committed_version(stream)
        if known is None or known.version != version:
            state = None if known is None else known.state
            after = NO_STREAM if known is None else known.version
            for position, topic, stored in self._execute(SELECT_SPARSE, (stream, after)).fetchall():
                state = evolve(state, decode(topic, stored, position=position))
            known = self._cache.folded[stream] = Folded(version, state)
        result: State | None = known.state
        if stream in self._staged_versions:
            for row in self._staged_sparse:
                if row[1] == stream:
                    result = evolve(result, decode(row[3], row[4], position=row[0]))
        return result

    def find(self, stream: str, key: str) -> RecordedEvent | None:
        """Return the event of `stream` that carries the idempotency key, if there is one."""
        staged = self._staged_keys.get((stream, key))
        if staged is not None:
            return _recorded(stream, key, staged[0], staged[2], staged[3], staged[4], staged[6])
        if self._committed_version(stream) == NO_STREAM:
            return None
        found = self._execute(_SELECT_KEY, (stream, key)).fetchone()
        return None if found is None else _recorded(stream, key, *found)

    def append(self, stream: str, event: Event, *, expected: Version, key: str | None = None) -> RecordedEvent:
        """Stage one event behind version `expected` of `stream`, and say which place it will have.

        Raises `WrongExpectedVersion`, or `InvalidInput` for an event that cannot be stored.
        """
        actual = self.version(stream)
        if actual != expected:
            raise errors.WrongExpectedVersion(stream=stream, expected=expected, actual=actual)
        recorded_at = self._clock.now()
        version = Version(actual + 1)
        row = self._stage(stream, version, event.topic, encode(event), key, recorded_at)
        return RecordedEvent(
            position=Position(row[0]),
            stream=stream,
            version=version,
            recorded_at=recorded_at,
            key=key,
            event=event,
        )

    def append_stored(self, stored_events: Sequence[StoredEvent], streams: Sequence[str]) -> list[int]:
        """Stage events of the eventsourcing library under the versions they carry."""
        now = self._clock.now()
        return [
            self._stage(stream, Version(stored.originator_version), stored.topic, stored.state, None, now)[0]
            for stored, stream in zip(stored_events, streams, strict=True)
        ]

    def mark(self) -> tuple[int, Position, bytes]:
        """Return where the staging stands, for `undo`."""
        return len(self.rows), self.head, self.head_digest

    def undo(self, mark: tuple[int, Position, bytes]) -> None:
        """Unstage everything since `mark`."""
        count, self.head, self.head_digest = mark
        del self.rows[count:]
        self._staged_versions = {row[1]: Version(row[2]) for row in self.rows}
        self._staged_keys = {(row[1], row[5]): row for row in self.rows if row[5] is not None}
        self._staged_sparse = [row for row in self.rows if row[3] != _TURN]

    def committed(self) -> None:
        """Carry what was staged over into the cache."""
        if len(self._cache.versions) > STREAMS_CACHED_MAX or len(self._cache.folded) > STREAMS_CACHED_MAX:
            self._cache.clear()
        self._cache.versions.update(self._staged_versions)
        for row in self._staged_sparse:
            self._cache.folded.pop(row[1], None)
        for stream, version in self._staged_versions.items():
            if stream in self._cache.folded:  # Only turns came: the state is the same, one version on.
                self._cache.folded[stream] = Folded(version, self._cache.folded[stream].state)

    def _committed_version(self, stream: str) -> Version:
        version = self._cache.versions.get(stream)
        if version is None:
            found = self._execute(_SELECT_VERSION, (stream,)).fetchone()
            version = self._cache.versions[stream] = NO_STREAM if found is None else Version(found[0])
        return version

    def _stage(
        self, stream: str, version: Version, topic: str, state: bytes, key: str | None, recorded_at: Micros
    ) -> Row:
        position = Position(self.head + 1)
        linked = digest.link(
            self.head_digest,
            position,
            stream.encode(),
            version,
            topic.encode(),
            state,
            None if key is None else key.encode(),
            recorded_at,
        )
        row = (position, stream, version, topic, state, key, recorded_at, linked)
        self.rows.append(row)
        self.head, self.head_digest = position, linked
        self._staged_versions[stream] = version
        if topic != _TURN:
            self._staged_sparse.append(row)
        if key is not None:
            self._staged_keys[stream, key] = row
        return row


def _recorded(
    stream: str, key: str, position: int, version: int, topic: str, state: bytes, recorded_at: int
) -> RecordedEvent:
    return RecordedEvent(
        position=Position(position),
        stream=stream,
        version=Version(version),
        recorded_at=Micros(recorded_at),
        key=key,
        event=decode(topic, state, position=position),
    )
