"""A transaction on the log: reads, and events staged under the write lock."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from mnemolog.domain import chain, errors
from mnemolog.domain.events import Event, RecordedEvent, TurnRecorded
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.redaction import REDACTION_STREAM, Redact, Redaction, evolve_redaction, require_none
from mnemolog.domain.request import current_actor
from mnemolog.domain.stream_fold import (
    Evolve,
    FoldedState,
    Known,
    Past,
    State,
    fold_stream,
    nothing_folded,
    nothing_known,
    of_epoch,
)
from mnemolog.domain.values import (
    CALENDAR_FIRST,
    CALENDAR_LAST,
    INTEGER_MAX,
    NO_STREAM,
    Clock,
    Micros,
    Position,
    Version,
)
from mnemolog.infra.log.engine import StagedRow
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.reader import LogReader

STREAMS_CACHED_MAX: Final = 10_000
LATEST: Final = Position(INTEGER_MAX)

_TURN: Final = TurnRecorded.topic


class Transaction:
    """The log as its one writer knows it, with the rows that the current group will insert.

    It lives as long as the writer and is reset, not recreated: staging a turn is the hot path. What it remembers of
    streams is valid until `forget`, which is called whenever another process may have written.
    """

    reads: LogReader
    """Queries on the writer's connection, which sets it. They do not see staged rows."""

    def __init__(self, clock: Clock, codec: EventCodec, redact: Redact | None = None) -> None:
        """`redact` replaces what a caller wants besides secrets, in a store that replaces these."""
        self._clock = clock
        self.codec = codec
        self._redact = redact
        self.head = Position(0)
        self.head_digest = b""
        self.rows: list[StagedRow] = []
        self._versions: dict[str, Version] = {}
        self._states: dict[str, FoldedState[Any]] = {}
        """States as they are now, staged events included."""
        self._evolving: dict[str, tuple[Evolve[Any], Past[Any]]] = {}
        """How to evolve each of those states."""
        self._folded: dict[str, FoldedState[Any]] = {}
        """States as stored at some version: never wrong, possibly stale."""
        self._keys: dict[tuple[str, str], StagedRow] = {}
        self.assumes_new_keys = False
        """Whether a key that is not staged counts as new, without a look into the log."""
        self._assumed: set[tuple[str, str]] = set()
        self._sparse: list[StagedRow] = []

    def version(self, stream: str) -> Version:
        """Return the version of `stream`, staged rows included."""
        version = self._versions.get(stream)
        if version is None:
            version = self._versions[stream] = Version(self.reads.version(stream))
        return version

    def fold(self, stream: str, evolve: Evolve[State], known: Known[State] = nothing_known) -> State | None:
        """Return the state of `stream`, staged events included. `evolve` must not depend on turns.

        `known` may return a state to start from, which saves reading the events before it.
        """
        latest = self._states.get(stream)
        if latest is not None:
            return latest.state
        epoch = self.version(FORGETTING_STREAM)
        base: FoldedState[State] | None = of_epoch(self._folded.get(stream), epoch)
        offered = of_epoch(known(stream, None), epoch)
        if base is None or (offered is not None and offered.version > base.version):
            base = offered or nothing_folded(epoch)
        begin, past = base, self._past(evolve, known, epoch)

        def known_here(of: str, position: Position | None) -> FoldedState[State] | None:
            return begin if of == stream and position is None else known(of, position)

        self._folded[stream] = base = fold_stream(
            stream, None, evolve, read=self._stored, known=known_here, epoch=epoch
        )
        self._states[stream] = latest = base.through(self._staged(stream, base.version, LATEST), evolve, past)
        self._evolving[stream] = evolve, past
        return latest.state

    def _past(self, evolve: Evolve[State], known: Known[State], epoch: int) -> Past[State]:
        def known_here(stream: str, position: Position | None) -> FoldedState[State] | None:
            latest = self._states.get(stream)
            if latest is not None and position is not None and latest.position <= position:
                return latest
            return known(stream, position)

        def read(stream: str, after: Version, upto: Position | None) -> list[RecordedEvent]:
            staged = self._staged(stream, after, LATEST if upto is None else upto)
            return [*self._stored(stream, after, upto), *staged]

        return lambda stream, position: (
            fold_stream(stream, position, evolve, read=read, known=known_here, epoch=epoch).state
        )

    def _stored(self, stream: str, after: Version, upto: Position | None) -> list[RecordedEvent]:
        return self.codec.not_turns(self.reads, stream, after, upto)

    def _staged(self, stream: str, after: Version, upto: Position) -> list[RecordedEvent]:
        rows = (row for row in self._sparse if row[1] == stream and row[2] > after and row[0] <= upto)
        return [*map(self._recorded, rows)]

    def _recorded(self, row: StagedRow) -> RecordedEvent:
        return self.codec.recorded_event(row[0], row[1], row[2], row[3], row[4], row[7], row[5])

    def events(self, stream: str, *, since: int = 0) -> Iterator[RecordedEvent]:
        """Yield the events of `stream` without turns, staged ones included, one by one: they may be large.

        Stored ones before the position `since` are passed over without being read.
        """
        self.codec.refresh()
        after = NO_STREAM
        if since:
            latest = self.reads.version(stream)
            after = Version(self.reads.version_at(stream, since - 1, latest=latest))
        for row in self.reads.not_turns(stream, after=after):
            yield self.codec.recorded_event(*row)
        yield from self._staged(stream, NO_STREAM, LATEST)

    def find(self, stream: str, key: str) -> RecordedEvent | None:
        """Return the event of `stream` with an idempotency key, None if there is none."""
        row = self._keys.get((stream, key))
        if row is not None:
            return self._recorded(row)
        found = self._stored_with(stream, key)
        return None if found is None else self.codec.recorded_event(*found)

    def position_of(self, stream: str, key: str) -> Position | None:
        """Return the position of the event of `stream` with an idempotency key, forgotten or not; None for none."""
        found = self._keys.get((stream, key)) or self._stored_with(stream, key)
        return None if found is None else Position(found[0])

    def _stored_with(self, stream: str, key: str) -> Any:
        if self.assumes_new_keys:
            self._assumed.add((stream, key))
            return None
        return self.reads.event_with_key(stream, key)

    @property
    def inserts_assumed_keys(self) -> bool:
        """Whether every key that was assumed to be new is staged: the insert then proves that it is."""
        return self._assumed <= self._keys.keys()

    def last_position(self, stream: str) -> Position:
        """Return the position of the last event of `stream`, staged ones included; 0 for none."""
        for row in reversed(self.rows):
            if row[1] == stream:
                return Position(row[0])
        found = self.reads.last_event(stream)
        return Position(0 if found is None else found[0])

    def key_at(self, stream: str, version: int) -> str | None:
        """Return the idempotency key of a version of `stream`, staged ones included; None if it has none."""
        for row in self.rows:
            if row[1] == stream and row[2] == version:
                return row[7]
        return self.reads.key_at(stream, version)

    def last_key(self, stream: str) -> str | None:
        """Return the idempotency key of the last event of `stream`, staged ones included."""
        for row in reversed(self.rows):
            if row[1] == stream:
                return row[7]
        found = self.reads.last_event(stream)
        return None if found is None else found[5]

    def last_turns(self, stream: str, *, after: Position, upto: Position | None, limit: int) -> list[Position]:
        """Return the positions of the last `limit` turns of `stream` in `(after, upto]`, newest first.

        Forgotten ones are left out.
        """
        if limit > INTEGER_MAX:
            raise OverflowError(limit)
        upto = LATEST if upto is None else upto
        staged = [
            Position(row[0])
            for row in reversed(self.rows)
            if row[1] == stream and row[3] == _TURN and after < row[0] <= upto
        ]
        if len(staged) >= limit:
            return staged[:limit]
        latest = Version(self.version(stream) - sum(row[1] == stream for row in self.rows))
        first, last = (self.reads.version_at(stream, position, latest=latest) for position in (after, upto))
        self.codec.refresh()
        stored = self.reads.turn_heads_backward(stream, after=first, upto=last)
        kept = (Position(row[0]) for row in stored if not self.codec.is_forgotten(stream, row[1], row[2]))
        return [*staged, *islice(kept, limit - len(staged))]

    def redaction(self) -> Redaction:
        """Return what `append` replaces secrets with."""
        on = bool(self.version(REDACTION_STREAM)) and self.fold(REDACTION_STREAM, evolve_redaction)
        return Redaction(self._redact, on=bool(on))

    def append(
        self, stream: str, event: Event, *, expected: Version | None = None, key: str | None = None
    ) -> RecordedEvent:
        """Stage one event at the end of `stream`; return it with its position and version.

        With `expected`, raises `WrongExpectedVersion` unless the stream is at that version. Raises
        `InvalidInput` for an event that cannot be stored, `KeysMissing`.
        """
        version = self._versions.get(stream)
        if version is None:
            version = self.version(stream)
        if expected is not None and version != expected:
            raise errors.WrongExpectedVersion(stream=stream, expected=expected, actual=version)
        if (actor := current_actor()) and not event.actor:  # A request to forget made again has its first actor.
            event = msgspec.structs.replace(event, actor=actor)
        if self.version(REDACTION_STREAM) and (redaction := self.redaction()).on:
            event = redaction.event(event)
            require_none("key", key)
            if not version:
                require_none("stream", stream)
        recorded_at = self._now()
        topic = event.topic
        stored = self.codec.encode(stream, version + 1, event, self.reads.holds_sealed)
        position = self._stage(stream, version + 1, topic, stored, key, recorded_at)
        recorded = RecordedEvent(
            position=position,
            stream=stream,
            version=Version(version + 1),
            recorded_at=recorded_at,
            key=key,
            event=event,
        )
        if topic != _TURN and stream in self._states:
            evolve, past = self._evolving[stream]
            state = evolve(self._states[stream].state, recorded, past)
            self._states[stream] = self._states[stream]._replace(
                version=recorded.version, position=position, state=state
            )
        return recorded

    def append_stored(self, stream: str, topic: str, state: bytes, *, key: str | None = None) -> Position:
        """Stage bytes that another library encoded, at the end of `stream`. Raises `DuplicateKey`, `InvalidInput`."""
        if any("\0" in text for text in (stream, topic, key or "")):  # PostgreSQL cannot store it as text.
            raise errors.InvalidInput("stream", "its name, the topic or the key contains a NUL character")
        if key is not None and (taken := self.position_of(stream, key)) is not None:
            raise errors.DuplicateKey(stream=stream, key=key, position=taken)
        self._states.pop(stream, None)
        return self._stage(stream, self.version(stream) + 1, topic, state, key, self._now())

    def undo_to(self, count: int, head: Position, head_digest: bytes) -> None:
        """Unstage all rows but the first `count`, after which the head was as given."""
        rows = self.rows[:count]
        self.forget()
        self.head = head
        self.head_digest = head_digest
        self.rows = rows
        self._versions.update((row[1], Version(row[2])) for row in rows)
        self._keys.update(((row[1], row[7]), row) for row in rows if row[7] is not None)
        self._sparse.extend(row for row in rows if row[3] != _TURN)

    def forget(self) -> None:
        """Unstage everything, and forget what is remembered of streams."""
        self.rows = []
        self._versions.clear()
        self._states.clear()
        self._evolving.clear()
        self._keys.clear()
        self._assumed.clear()
        self.assumes_new_keys = False
        self._sparse.clear()

    def committed(self) -> bool:
        """Begin a new group: the staged rows are stored now. Return whether there were any."""
        wrote = bool(self.rows)
        self.rows = []
        if self._keys:
            self._keys.clear()
        if self._assumed:
            self._assumed.clear()
        if self._sparse:
            self._sparse.clear()
        if len(self._versions) > STREAMS_CACHED_MAX or len(self._folded) > STREAMS_CACHED_MAX:
            self.forget()
            self._folded.clear()
        return wrote

    def _now(self) -> Micros:
        """Return the time of an append. Raises `InvalidInput` for one that could not be read again."""
        now = self._clock.now()
        if not CALENDAR_FIRST <= now <= CALENDAR_LAST:
            raise errors.InvalidInput("clock", f"{now} microseconds since 1970 is not within the years 1 to 9999")
        return now

    def _stage(
        self, stream: str, version: int, topic: str, state: bytes, key: str | None, recorded_at: Micros
    ) -> Position:
        position = Position(self.head + 1)
        linked = chain.link(
            self.head_digest,
            position,
            stream.encode(),
            version,
            topic.encode(),
            state,
            None if key is None else key.encode(),
            recorded_at,
        )
        row = (position, stream, version, topic, bytearray(state), recorded_at, bytearray(linked), key)
        self.rows.append(row)
        self.head, self.head_digest = position, linked
        self._versions[stream] = Version(version)
        if topic != _TURN:
            self._sparse.append(row)
            if stream == FORGETTING_STREAM:  # Content folded in the epoch that ends here may be forgotten now.
                self._states.clear()
                self._evolving.clear()
        if key is not None:
            self._keys[stream, key] = row
        return position
