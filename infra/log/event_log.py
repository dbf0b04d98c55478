"""The event log of a store: what reads it, the parts that append to it and follow it, and copies of it.

A copy has the rows of another log. Nothing of them is decoded: every digest stays.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, Finding, LogRow, damage_in
from mnemolog.domain.events import LOSS_STREAM, Event, LossAccepted, RecordedEvent, TurnRecorded
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.head import Head
from mnemolog.domain.redaction import REDACTION_STREAM, Redact, Redaction, evolve_redaction
from mnemolog.domain.request import REPORTS, as_it_is
from mnemolog.domain.stream_fold import Evolve, FoldedState, Known, State, fold_stream, nothing_known
from mnemolog.domain.values import NO_STREAM, ORIGIN, Clock, Micros, Position, Version, within_calendar
from mnemolog.infra.keys.keyring import Keyring
from mnemolog.infra.log import seen_head
from mnemolog.infra.log.appends import Appends, Followers
from mnemolog.infra.log.engine import LogEngine, LogIdentity, StagedRow
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.reader import PAGE, EventRow, LogReader
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import fork_guard

Result = TypeVar("Result")
EVENTS_FOLLOWED: Final = 500
"""Events at the end of the log that a process follows before it answers from what it does not find: under 1 ms."""
ANSWERS_KEPT: Final = 1_000
"""Texts whose answer by `redact` is kept: a unit of work may run twice, and a retry is compared with what is there."""


class EventLog(fork_guard.OfOneProcess):
    """One log. Safe for many threads and many processes; not to be carried across a fork."""

    def __init__(
        self,
        path: Path,
        identity: LogIdentity,
        engine: LogEngine,
        codec: EventCodec,
        clock: Clock,
        *,
        read_only: bool = False,
        redact: Redact | None = None,
    ) -> None:
        self.path = path
        self.identity = identity
        self.log_id = identity.log_id
        """The random identity this log was created with."""
        self.engine = engine
        self.busy_timeout_s = engine.busy_timeout_s
        """How long to wait for a lock that another process holds, in seconds."""
        self.is_read_only = read_only
        """Whether nothing in its folder may be written."""
        self.keyring: Keyring | None = None if codec.sealer is None else codec.sealer.keyring
        """The keys of its content, None where content is stored in the clear."""
        self.genesis = identity.genesis
        self._codec, self._redact = codec, None if redact is None else lru_cache(ANSWERS_KEPT)(redact)
        self.followers = Followers(engine)
        self.appends = Appends(
            engine,
            path=path,
            transaction=Transaction(clock, codec, self._redact),
            genesis=self.genesis,
            committed=self.followers.notify,
            read_only=read_only,
        )
        self._origin, self._closed = fork_guard.Origin(), False
        self._damage: tuple[int, list[Finding]] | None = None
        """What was found when the log was followed, with its layout at that time."""
        self._fitting: seen_head.Known | None = None
        """The last head whose event fits."""

    @property
    def usable_engine(self) -> LogEngine:
        """The engine, for calls on it alone. Raises `StoreClosed`, `StoreForked`."""
        self.require_usable()
        return self.engine

    def epoch(self) -> int:
        """Return the forgetting epoch. Reads after this call return nothing that was forgotten up to that epoch."""
        with self.reading() as reads:
            return reads.version(FORGETTING_STREAM)

    @property
    def is_inherited(self) -> bool:
        """Whether it was opened in another process, of which this one is a fork."""
        return not self._origin.is_here

    def close(self) -> None:
        """Finish queued appends and close the file. Appends after this raise `StoreClosed`."""
        if not self._closed and self._origin.is_here:
            self._closed = True
            self.appends.close()
            self.followers.notify()  # Subscriptions wake up, find the log closed, and end with `StoreClosed`.
            self.engine.close()
            if self.keyring is not None:
                self.keyring.close()

    def head(self) -> Head:
        """Return the last committed position and its digest; position 0 and digest(0) for an empty log.

        Raises `HistoryLost` if the log does not have the last head that was seen.
        """
        before = self.engine.seen.known  # Before the query: what other threads append meanwhile may be missing in it.
        with self.reading() as reads:
            position, stored, digest_there = reads.head(before.position) or (ORIGIN, self.genesis, None)
            head = seen_head.Known(position, _digest(stored, position=position))
            fits = not position or head in (before, self._fitting) or self._fits(reads, position)
        if fits and head != before:
            self._fitting = head
            self.engine.seen.compare(before, head, digest_there)
            self.engine.seen.require()
        return Head(position=Position(position), digest=head.digest.hex())

    @staticmethod
    def _fits(reads: LogReader, position: int) -> bool:
        """Whether the event at a head fits: one that does not is no head that was seen. Raises `LogDamaged`."""
        try:
            return reads.event_at(position) is not None
        except errors.LogDamaged:
            if not REPORTS.get():
                raise
            return False

    def last_given(self) -> Position:
        """Return the highest position ever given, which outlives its event."""
        with self.reading() as reads:
            return Position(reads.last_given())

    def ends(self) -> tuple[tuple[Position, Position], Position]:
        """Return what the counter of positions says before and after, and the last position.

        Others append meanwhile, so that it may have moved on: but not back, and not in between.
        """
        with self.reading() as reads:
            before = reads.last_given()
            head = reads.head()
            after = reads.last_given()
        return (Position(before), Position(after)), ORIGIN if head is None else Position(head[0])

    def digest_at(self, position: Position) -> bytes | None:
        """Return the stored digest at exactly `position`, digest(0) at 0, None where there is no event."""
        if position == ORIGIN:
            return self.genesis
        with self.reading() as reads:
            found = reads.digest_at(position)
        if found is None:
            return None
        digest = _digest(found, position=position)
        # The caller may build a projection from what it is of.
        self.engine.seen.saw(seen_head.Known(position, digest))
        return digest

    def require_whole(self) -> None:
        """Raise `HistoryLost` if the log has lost events, also for who reports on that."""
        self.engine.seen.require(always=True)

    def losses(self) -> list[RecordedEvent]:
        """Return the losses that were accepted, in order; none where damage hides them."""
        with as_it_is(), suppress(errors.LogDamaged):
            return self._codec.recorded_events(self.stored_versions(LOSS_STREAM))
        return []

    def accepted(self) -> set[str]:
        """Return the heads that the log has lost and whose loss was accepted, as `POSITION:DIGEST`.

        By an operator; by a power cut only where one may take what this folder has seen.
        """
        losses = [item.event for item in self.losses() if isinstance(item.event, LossAccepted)]
        return {head for loss in losses if loss.reason or self.engine.seen.may_lose for head in loss.lost}

    def accept_loss(self, loss: LossAccepted) -> None:
        """Append that a loss is accepted, and continue with the log as it is, for callers that report on the log.

        Raises `HistoryLost` for a loss since it was opened: what this process remembers may be lost.
        """
        if not self.engine.seen.was_lost:
            self.require_whole()
        self.engine.set_back()
        self.appends.transact(lambda tx: tx.append(LOSS_STREAM, loss))
        self.engine.seen.take()

    def head_at(self, position: int) -> Head:
        """Return a position with the digest there, as the head was then; an empty digest where there is no event."""
        with self.reading() as reads:
            reads.event_at(position)
        return Head(position=Position(position), digest=(self.digest_at(Position(position)) or b"").hex())

    def read(self, *, after: Position, upto: Position, batch_max: int = 500) -> Iterator[list[RecordedEvent]]:
        """Yield events of `(after, upto]` in order, in batches of at most `batch_max`, and of a few MiB.

        Raises `UndecodableEvent`, naming the position.
        """
        # Each page is a read transaction of its own, so that a long read does not hold the WAL.
        while after < upto:
            with self.reading() as reads:
                rows = reads.events(after=after, upto=upto, limit=batch_max)
                events = self._codec.recorded_events(rows)
            if not rows:
                return
            yield events
            after = events[-1].position

    def read_at(self, positions: Sequence[int]) -> list[RecordedEvent]:
        """Return the events at these positions, in order. Raises `UndecodableEvent`."""
        with self.reading() as reads:
            return self._codec.recorded_events(reads.events_at(positions))

    def require_recorded(self, positions: Sequence[int]) -> None:
        """Raise `LogDamaged` unless the events at these positions are those that were recorded there."""
        with self.reading() as reads:
            for place in range(0, len(positions), PAGE):  # They may be large.
                reads.events_at(positions[place : place + PAGE])

    def streams(self, *, after: Position, upto: Position, limit: int) -> list[tuple[int, str]]:
        """Return position and stream of the first `limit` events of `(after, upto]`, whose content is not read."""
        with self.reading() as reads:
            return reads.streams(after=after, upto=upto, limit=limit)

    def streams_at(self, positions: Sequence[int]) -> list[tuple[int, str]]:
        """Return position and stream of the events at these positions, in order. Content is not read."""
        with self.reading() as reads:
            return reads.streams_at(positions)

    def stored_rows(self, *, after: Position, upto: Position, batch_max: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of `(after, upto]` undecoded: every column, texts as bytes."""
        while after < upto:
            with self.reading() as reads:
                rows = reads.stored(after=after, upto=upto, limit=batch_max)
            if not rows:
                return
            yield rows
            before, after = after, Position(rows[-1][0])
            if after <= before:  # Reading on from there would never end.
                raise errors.LogDamaged(f"{self.path}: its pages lead back from position {before}", position=after)

    def decode(self, position: int, stream: str, version: int, topic: str, state: bytes) -> Event:
        """Return the event of stored bytes. Raises `UndecodableEvent`, `LogDamaged`, `KeysMissing`."""
        return self._codec.decode(stream, version, topic, state, position=position)

    def read_stream(
        self, stream: str, *, after: Version = NO_STREAM, upto: Position, batch_max: int = 500
    ) -> Iterator[list[RecordedEvent]]:
        """Yield events of one stream after version `after`, up to position `upto`, in batches."""
        while True:
            with self._reading_of(stream, upto) as reads:
                rows = reads.stream(stream, after=after, upto=upto, limit=batch_max)
                events = self._codec.recorded_events(rows)
            if not rows:
                return
            yield events
            after = events[-1].version

    def first_event(self, stream: str) -> RecordedEvent | None:
        """Return the first event of a stream, None if nothing was appended to it. Both take as many questions."""
        with self._reading_of(stream) as reads:
            if (row := reads.first_event(stream)) is None:
                self._codec.refresh()
            return self._recorded(row)

    def last_event(self, stream: str) -> RecordedEvent | None:
        """Return the last event of a stream, None if nothing was appended to it."""
        with self._reading_of(stream) as reads:
            return self._recorded(reads.last_event(stream))

    def last_turns(self, stream: str, *, after: Position, upto: Position | None, limit: int) -> list[RecordedEvent]:
        """Return the last `limit` turns of a stream in `(after, upto]`, newest first, without forgotten ones."""
        with self._reading_of(stream, upto) as reads:
            latest = reads.version(stream)
            first = reads.version_at(stream, after, latest=latest)
            last = latest if upto is None else reads.version_at(stream, upto, latest=latest)
            self._codec.refresh()
            rows = reads.turns_backward(stream, after=first, upto=last, page=limit)
            read = (self._codec.recorded_event(*row) for row in rows)
            found = list(islice((item for item in read if isinstance(item.event, TurnRecorded)), limit))
            reads.require_versions(stream, after=found[-1].version - 1 if len(found) == limit else first, upto=last)
            return found

    def event_at(self, position: Position) -> RecordedEvent | None:
        """Return the event at a position, None if there is none."""
        with self.reading() as reads:
            return self._recorded(reads.event_at(position))

    def _recorded(self, row: EventRow | None) -> RecordedEvent | None:
        return None if row is None else self._codec.recorded_events([row])[0]

    def position_of(self, stream: str, key: str) -> Position | None:
        """Return the position of the event of `stream` with an idempotency key, forgotten or not; None for none."""
        with self._reading_of(stream) as reads:
            found = reads.event_with_key(stream, key)
        return None if found is None else Position(found[0])

    def streams_with(self, topic: str, *, after: Position, upto: Position) -> list[str]:
        """Return the stream of every event of `topic` in `(after, upto]`, in order."""
        with self.reading() as reads:
            return reads.streams_with(topic, after=after, upto=upto)

    def keys(self, stream: str) -> list[tuple[int, str]]:
        """Return version and idempotency key of the events of a stream that have one, in order."""
        with self._reading_of(stream) as reads:
            return reads.keys(stream)

    def stored_versions(
        self,
        stream: str,
        *,
        after: int | None = None,
        upto: int | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> list[EventRow]:
        """Return event rows of a stream with versions in `(after, upto]`, undecoded."""
        with self._reading_of(stream) as reads:
            return reads.versions(stream, after=after, upto=upto, descending=descending, limit=limit)

    def stored_events(
        self, *, after: int, upto: int | None, prefix: str, topics: Sequence[str], limit: int
    ) -> list[EventRow]:
        """Return event rows of `(after, upto]`, undecoded: of streams that begin with `prefix`, of `topics` or all."""
        with self.reading() as reads:
            return reads.selected(after=after, upto=upto, prefix=prefix, topics=topics, limit=limit)

    def last_position(self, prefix: str) -> Position | None:
        """Return the last position in the streams whose names begin with `prefix`, None if there is none."""
        with self.reading() as reads:
            found = reads.last_selected(prefix)
        return None if found is None else Position(found)

    def redaction(self) -> Redaction:
        """Return what replaces secrets in an event that is appended now."""
        on = self.version(REDACTION_STREAM) and self.fold(REDACTION_STREAM, evolve_redaction).state
        return Redaction(self._redact, on=bool(on))

    def fold(
        self,
        stream: str,
        evolve: Evolve[State],
        *,
        upto: Position | None = None,
        known: Known[State] = nothing_known,
    ) -> FoldedState[State]:
        """Return the state of `stream`, now or as of position `upto`. `evolve` must not depend on turns.

        `known` may return a state to start from, which saves reading the events before it.
        """
        with self.reading() as reads:

            def read(stream: str, after: Version, upto: Position | None) -> list[RecordedEvent]:
                self._require(reads, stream, upto)
                return self._codec.not_turns(reads, stream, after, upto)

            return fold_stream(stream, upto, evolve, read=read, known=known, epoch=reads.version(FORGETTING_STREAM))

    def version(self, stream: str) -> Version:
        """Return the version of `stream`, 0 if nothing was appended to it."""
        with self._reading_of(stream) as reads:
            return Version(reads.version(stream))

    def version_at(self, stream: str, position: Position) -> Version:
        """Return the version that `stream` had at a position, 0 if nothing had been appended to it."""
        with self._reading_of(stream, position) as reads:
            return Version(reads.version_at(stream, position, latest=reads.version(stream)))

    def recorded_at(self, position: Position) -> Micros:
        """Return when the event at `position`, or the last one before it, was recorded."""
        with self.reading() as reads:
            found = reads.recorded_at(position)
        return within_calendar(self.identity.created_at if found is None else found)

    def position_at(self, time: Micros) -> Position:
        """Return the position of the last event recorded at or before `time`, 0 if there is none.

        Reads the times of O(log n) events. Times rise with positions unless a clock was set back. Then several events
        can be recorded at or before `time` with the next one after it: this returns one of them, and events recorded
        after `time` do not change which.
        """
        with self.reading() as reads:
            newest = reads.head()
            head = 0 if newest is None else newest[0]
            found = 0
            # Only fixed positions are compared, sums of powers of two: their order does not depend on the head.
            for power in reversed(range(head.bit_length())):
                position = found + (1 << power)
                recorded_at = reads.recorded_at(position) if position <= head else None
                if recorded_at is not None and recorded_at <= time:
                    found = position
        return Position(found)

    def count(self, *, topic: str, after: Position, upto: Position) -> int:
        """Return how many events of `topic` lie in `(after, upto]`."""
        with self.reading() as reads:
            return reads.count(topic, after=after, upto=upto)

    def missing_triggers(self) -> list[str]:
        """Return which of the append-only triggers are missing or altered."""
        return self.usable_engine.missing_triggers()

    def contradictions(self) -> list[str]:
        """Return what is wrong with the database beside the content of its rows. Reads all of it."""
        return self.usable_engine.contradictions()

    def reading(self) -> AbstractContextManager[LogReader]:
        """Return a reader, for queries of stored rows. Raises `StoreClosed`, `StoreForked`, `HistoryLost`."""
        if self._closed or self.engine.seen.lost or not self._origin.is_here:
            self.require_usable()
            self.engine.seen.require()
        return self.engine.reading()

    @contextmanager
    def _reading_of(self, stream: str, upto: int | None = None) -> Iterator[LogReader]:
        """Give a reader for a stream. Raises `LogDamaged` if it may lack an event up to a position."""
        with self.reading() as reads:
            self._require(reads, stream, upto)
            yield reads

    def _require(self, reads: LogReader, stream: str, upto: int | None) -> None:
        for found in () if REPORTS.get() else self.damage(reads):
            if found.stream in (None, stream) and (upto is None or found.position <= upto):
                raise errors.LogDamaged(
                    f"{found.detail}; so {stream!r} may lack what was recorded", position=found.position
                )

    def damage(self, reads: LogReader) -> list[Finding]:
        """Return what does not fit among the newest events. They are followed once, and again in another layout."""
        layout = reads.layout()
        if self._damage is None or self._damage[0] != layout:
            rows, place = reads.newest(EVENTS_FOLLOWED + 1), Chain(self.genesis)
            if rows and rows[0][0] > 1 == reads.first_position():
                place = Chain(rows[0][7], position=rows.pop(0)[0])
            self._damage = layout, damage_in(rows, place, seen=self.engine.seen.known)
        return self._damage[1]

    def require_usable(self) -> None:
        """Raise `StoreClosed` if the log was closed, `StoreForked` if another process opened it."""
        if self._closed:
            raise errors.StoreClosed
        if not self._origin.is_here:
            self._origin.require_here()


def _digest(stored: object, *, position: int) -> bytes:
    """Return a stored digest. Raises `LogDamaged` where it is not bytes."""
    if not isinstance(stored, bytes):
        raise errors.LogDamaged("its digest is damaged", position=position)
    return stored


COPIED_TOGETHER: Final = 500
"""Rows that are committed together. A copy that is killed continues after the last of them."""

RowsAfter = Callable[[Position, bytes], Iterator[LogRow]]
"""Yields the rows after a position with this digest, checked. Raises where they do not follow it."""


def append_rows(log: EventLog, rows_after: RowsAfter, *, appended: Callable[[Position], None] | None = None) -> int:
    """Append rows in pages. Return how many.

    `rows_after` is called with the head of `log`, under its lock, and again if another process has appended meanwhile.
    `appended` is called with the last position of every page that is durable, and may raise to stop. Raises what these
    raise, `LogDamaged` for rows that no log can have, and the errors of an append.
    """
    engine = log.engine
    count = 0
    position = int(ORIGIN)
    head: tuple[int, bytes] | None = None
    rows: Iterator[LogRow] = iter(())
    try:
        connection = engine.connect()
        try:
            while True:
                position, digest, given, _ = connection.lock(0)
                if position != given:
                    raise errors.LogDamaged(
                        f"{log.path}: the log ends at {position}, and had {given} events: some were cut off",
                        position=position + 1,
                    )
                found = position, log.genesis if digest is None else bytes(digest)
                if found != head:
                    rows = rows_after(Position(position), found[1])
                page = list(islice(rows, COPIED_TOGETHER))
                if not page:
                    return count
                connection.insert([_staged(row) for row in page])
                connection.commit()
                count, head = count + len(page), (page[-1].position, page[-1].digest)
                if appended is not None:
                    appended(Position(page[-1].position))
        finally:
            connection.roll_back()
            connection.close()
    except engine.driver_errors as error:
        if engine.is_conflict(error):
            raise errors.LogDamaged(
                "a stream has one of its versions or idempotency keys twice; nothing from there on was written",
                position=position + 1,
            ) from error
        raise engine.error_of(error) from error


def copy_rows(source: EventLog, target: EventLog, *, upto: Position, copied: Callable[[Position], None]) -> int:
    """Copy what `target` does not have yet of the events of `source` up to a position. Return how many were copied.

    Several copies may run at once. `copied` is called with the last position of every page that is durable, and may
    raise to stop. Raises `BackupRefused` where `target` has other events, `LogDamaged` at the first event that is not
    what was recorded, and the errors of an append.
    """

    def rows_after(position: Position, digest: bytes) -> Iterator[LogRow]:
        _require_beginning(source, target, position, digest)
        rows = chain.from_iterable(source.stored_rows(after=position, upto=upto, batch_max=COPIED_TOGETHER))
        return Chain(digest, position=position).checked(rows, outcome="nothing from there on was copied")

    return append_rows(target, rows_after, appended=copied)


def require_beginning(source: EventLog, target: EventLog) -> Position:
    """Return the head of `target`, up to which it has the events of `source`. Raises `BackupRefused` where it has not.

    The digest at a position is proof of all events up to it.
    """
    head, given = target.head(), target.last_given()
    if target.identity != source.identity:
        raise _refused(target, f"it holds log {target.log_id}, not {source.log_id}")
    if head.position != given:
        raise _refused(target, f"its log ends at {head.position}, and had {given} events: some were cut off")
    _require_beginning(source, target, head.position, head.digest_bytes)
    return head.position


def _require_beginning(source: EventLog, target: EventLog, position: Position, digest: bytes) -> None:
    expected = source.genesis if position == ORIGIN else source.digest_at(position)
    if digest != expected:
        here = "that are not in the source" if expected is None else "that differ from the source"
        raise _refused(target, f"its log has events up to position {position} {here}: the two have diverged")


def _refused(target: EventLog, why: str) -> errors.BackupRefused:
    return errors.BackupRefused(target.path.parent, why).saying(
        hint="nothing there was changed; name another folder, or another log of the database"
    )


def _staged(row: LogRow) -> StagedRow:
    """Return a row as it is inserted. Raises `LogDamaged` for a text that is not UTF-8."""
    try:
        stream = row.stream.decode()
        topic = row.topic.decode()
        key = None if row.key is None else row.key.decode()
    except UnicodeDecodeError as error:
        raise errors.LogDamaged(
            "one of its names is not UTF-8; nothing from there on was written", position=row.position
        ) from error
    return row.position, stream, row.version, topic, bytearray(row.state), row.recorded_at, bytearray(row.digest), key
