"""Threads: checkpoints of named channels, each stored as the changes since its parent, and pending writes.

For frameworks that keep the state of a run step by step and can return to any step. Independent of frameworks and
serialisers: values are bytes with the name of their format. Adapters convert them (docs/adapters/README.md).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.adapters.support.store_access import log_of, open_tables
from mnemolog.domain import errors
from mnemolog.domain.events import Event
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.redaction import Redaction
from mnemolog.domain.threads import (
    Blob,
    ChannelValue,
    ThreadCheckpointed,
    ThreadCopied,
    ThreadDeleted,
    ThreadPruned,
    ThreadWrite,
    ThreadWritten,
    ValueAt,
    checked_thread_id,
    pack,
    thread_stream,
    unpack,
)
from mnemolog.domain.values import CHECKPOINT_BYTES_MAX, Position, check_count
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import fork_guard
from mnemolog.projections.history.states import Contents, Gone, Refs, refs_of
from mnemolog.projections.sql import thread_index
from mnemolog.store import MemoryStore


class Typed(NamedTuple):
    """Serialised bytes, with the serialiser's name of their format."""

    kind: str
    data: bytes


class Written(NamedTuple):
    """A write of a task to a channel."""

    task: str
    channel: str
    value: Typed


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a thread, as it was passed in."""

    thread: str
    ns: str
    """Its namespace in the thread; empty for the root."""
    id: str
    parent: str | None
    checkpoint: Typed
    """Everything but the values of its channels."""
    metadata: Typed
    values: dict[str, Typed]
    """By channel."""
    writes: list[Written]
    """Writes of tasks after it, in the order of task path, task and place."""


class Step(NamedTuple):
    """Values and pending writes of a checkpoint for some channels."""

    values: dict[str, Typed]
    writes: list[Written]


class Threads:
    """The threads of a store. Safe for many OS threads and processes. Close it before the store.

    Every call is at most one append. Nothing is removed from the log: deleted and pruned checkpoints are hidden until
    they are forgotten (`positions`). Forgotten content, and content that depends on it, cannot be read.

    Methods that append raise `InvalidInput`, `LimitExceeded` beyond 64 MiB a value (`BLOB_BYTES_MAX`) or 256 MiB a
    checkpoint (`CHECKPOINT_BYTES_MAX`), and the errors of every append: nothing was written. Methods that read raise
    `LogDamaged` for bytes that differ from those that were written.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._log = log_of(store)
        self._index = open_tables(store, thread_index.FILE, thread_index.ThreadIndex)
        self._lock = fork_guard.lock()
        self._contents = Contents(self._log, self._log.epoch())

    def close(self) -> None:
        """Close the index."""
        self._index.database.close()

    def checkpoint(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        *,
        parent: str | None,
        run: str | None = None,
        checkpoint: Typed,
        metadata: Typed,
        channels: Mapping[str, Callable[[], Typed]],
        changed: Collection[str],
    ) -> None:
        """Append a checkpoint; it replaces one with the same id. The greatest id, as text, is the newest checkpoint.

        `channels` has a function for each value. It is not called for channels that the parent has and that are not in
        `changed`.
        """
        stream = thread_stream(checked_thread_id(thread))
        while True:  # Retry after each concurrent request to forget: it may remove the parent.
            contents, redaction = self._contents_now(), self._log.redaction()
            before = {} if parent is None else self._refs_of(contents, thread, ns, parent)
            kept, values, fresh = _taken_in(contents, redaction, before, channels, changed)
            event = ThreadCheckpointed(
                id=checkpoint_id,
                ns=ns,
                parent=parent,
                run=run,
                checkpoint=pack(checkpoint.kind, redaction.data(checkpoint.data)),
                metadata=pack(metadata.kind, redaction.data(metadata.data)),
                values=values,
                kept=dict(kept),
                redacted=redaction.counts or None,
            )
            at = self._log.appends.transact(partial(_append_in, contents.epoch, stream, event))
            if at is not None:
                break
        for name, value in fresh.items():
            contents.keep(name, value._replace(position=at))
        contents.refs.put((thread, ns, checkpoint_id), {**kept, **dict.fromkeys(fresh, at)})

    def write(
        self, thread: str, ns: str, checkpoint_id: str, task: str, path: str, writes: Iterable[tuple[int, str, Typed]]
    ) -> None:
        """Append the writes of a task after a checkpoint: place, channel, value.

        Writes to a place that has one already are ignored, unless the place is negative: there the last write wins.
        `path` gives the order of the task among others when writes are applied.
        """
        with self._index.database.reading() as connection:
            known = thread_index.written(connection, thread, ns, checkpoint_id, task)
        redaction = self._log.redaction()
        fresh = [
            ThreadWrite(channel=channel, blob=pack(value.kind, redaction.data(value.data)), place=place)
            for place, channel, value in writes
            if place < 0 or place not in known
        ]
        size = sum(len(write.blob.data) for write in fresh)
        check_count("writes", size, limit=CHECKPOINT_BYTES_MAX, unit="bytes")
        if fresh:
            event = ThreadWritten(
                checkpoint=checkpoint_id,
                ns=ns,
                task=task,
                path=path,
                writes=fresh,
                redacted=redaction.counts or None,
            )
            self._append((thread_stream(checked_thread_id(thread)), event))

    def find(self, thread: str, ns: str, checkpoint_id: str | None) -> Checkpoint | None:
        """Return a checkpoint, by default the newest; None if there is none."""
        while True:
            contents = self._contents_now()
            with self._index.current() as connection:
                for at in _named(connection, thread, ns, checkpoint_id):
                    try:
                        stored = contents.checkpoint(at.position)
                        return _checkpoint(contents, at, thread_index.writes(connection, at), stored)
                    except Gone:
                        if self._log.epoch() != contents.epoch:  # It was forgotten meanwhile.
                            break
                else:
                    return None

    def listed(
        self,
        *,
        thread: str | None = None,
        ns: str | None = None,
        checkpoint_id: str | None = None,
        before: str | None = None,
        fits: Callable[[Typed], bool] | None = None,
    ) -> Iterator[Checkpoint]:
        """Yield checkpoints of all threads and namespaces or of one, the greatest ids first.

        Ids are less than `before`, and `fits` is true for the metadata.
        """
        contents = self._contents_now()
        with self._index.current() as connection:
            found = thread_index.listed(connection, thread=thread, ns=ns, checkpoint=checkpoint_id, before=before)
        for at in found:
            try:
                stored = contents.checkpoint(at.position)
                if fits is not None and not fits(_typed(stored.metadata)):
                    continue
                with self._index.database.reading() as connection:
                    writes = thread_index.writes(connection, at)
                yield _checkpoint(contents, at, writes, stored)
            except Gone:  # It was forgotten meanwhile.
                continue

    def history(self, thread: str, ns: str, checkpoint_id: str | None, channels: Sequence[str]) -> list[Step]:
        """Return values and writes of channels at the ancestors of a checkpoint, nearest first.

        A channel is complete with the first value that is found for it. Pruned checkpoints are included. Empty if there
        is no such checkpoint.
        """
        contents = self._contents_now()
        left = set(channels)
        steps = list[Step]()
        with self._index.current() as connection:
            of = next(_named(connection, thread, ns, checkpoint_id), None)
            try:
                for at in () if of is None else thread_index.ancestors(connection, of):
                    if not left:
                        break
                    stored = contents.checkpoint(at.position)
                    refs = {name: place for name, place in refs_of(at.position, stored).items() if name in left}
                    writes = _written(contents, thread_index.writes(connection, at, frozenset(left)))
                    steps.append(Step(_values(contents, refs, at.position, stored), writes))
                    left -= refs.keys()
            except Gone:  # The checkpoint depends on it, so it cannot be read either.
                return []
        return steps

    def delete(self, thread: str) -> None:
        """Hide all content of a thread. Appends nothing if it has none."""
        if self._holds(thread):
            self._append((thread_stream(thread), ThreadDeleted()))

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Hide the checkpoints of runs, in all threads at once."""
        with self._index.current() as connection:
            found = thread_index.of_runs(connection, list(dict.fromkeys(runs)))
        self._hide(found, reason="runs")

    def keep_latest(self, threads: Sequence[str]) -> None:
        """Hide all checkpoints of threads except the newest in each namespace."""
        old = []
        with self._index.current() as connection:
            for thread in dict.fromkeys(threads):
                seen = set[str]()
                for at in thread_index.listed(connection, thread=thread, ns=None, checkpoint=None, before=None):
                    if at.ns in seen:
                        old.append(at)
                    seen.add(at.ns)
        self._hide(old, reason="keep_latest")

    def copy(self, source: str, target: str) -> None:
        """Start a thread with the content of another. No content is copied: both refer to the same events."""
        checked_thread_id(target)
        if source != target and self._holds(source):
            self._append((thread_stream(target), ThreadCopied(source=source)))

    def positions(self, thread: str) -> list[Position]:
        """Return the log positions of all content of a thread, hidden or not: forget them to erase it.

        Only of its own events: a copied thread shares the content of the original.
        """
        events = self._log.read_stream(thread_stream(thread), upto=self._log.head().position)
        content = (ThreadCheckpointed, ThreadWritten)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, content)]

    def _holds(self, thread: str) -> bool:
        with self._index.current() as connection:
            return thread_index.holds(connection, thread)

    def _contents_now(self) -> Contents:
        """Return the contents of the current forgetting epoch."""
        epoch = self._log.epoch()
        with self._lock:
            if self._contents.epoch < epoch:
                self._contents = Contents(self._log, epoch)
            return self._contents

    def _refs_of(self, contents: Contents, thread: str, ns: str, checkpoint_id: str) -> Refs:
        """Return the positions of the values of a checkpoint; empty if it does not exist or was forgotten."""
        known = contents.refs.get((thread, ns, checkpoint_id))
        if known is None:
            with self._index.current() as connection:
                at = thread_index.find(connection, thread, ns, checkpoint_id, hidden=True)
            if at is None:
                return {}
            try:
                known = refs_of(at.position, contents.checkpoint(at.position))
            except Gone:
                return {}
            contents.refs.put((thread, ns, checkpoint_id), known)
        return known

    def _hide(self, found: Sequence[thread_index.CheckpointAt], *, reason: str) -> None:
        by_thread: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for at in found:
            by_thread[at.thread][at.ns].append(at.id)
        events = [
            (thread_stream(thread), ThreadPruned(hidden={ns: list(ids) for ns, ids in hidden.items()}, reason=reason))
            for thread, hidden in by_thread.items()
        ]
        if events:
            self._append(*events)

    def _append(self, *events: tuple[str, Event]) -> None:
        """Append to streams, all or nothing."""
        self._log.appends.transact(lambda tx: [tx.append(stream, event) for stream, event in events])


def _named(
    connection: sa.Connection, thread: str, ns: str, checkpoint_id: str | None
) -> Iterator[thread_index.CheckpointAt]:
    """Yield the checkpoint with an id; without one, the visible checkpoints of a thread, newest first."""
    if checkpoint_id is None:
        yield from thread_index.newest(connection, thread, ns)
    elif (at := thread_index.find(connection, thread, ns, checkpoint_id)) is not None:
        yield at


def _checkpoint(
    contents: Contents,
    at: thread_index.CheckpointAt,
    writes: Sequence[thread_index.WriteAt],
    stored: ThreadCheckpointed,
) -> Checkpoint:
    """Return a checkpoint with its content. Raises `Gone`."""
    return Checkpoint(
        thread=at.thread,
        ns=at.ns,
        id=at.id,
        parent=at.parent,
        checkpoint=_typed(stored.checkpoint),
        metadata=_typed(stored.metadata),
        values=_values(contents, refs_of(at.position, stored), at.position, stored),
        writes=_written(contents, writes),
    )


def _written(contents: Contents, found: Sequence[thread_index.WriteAt]) -> list[Written]:
    """Return the writes with their content, except forgotten ones."""
    events = dict[Position, Event | None]()
    for position in {write.position for write in found}:
        try:
            events[position] = contents.event(position)
        except Gone:
            events[position] = None
    there = ((write, event) for write in found if (event := events[write.position]) is not None)
    return [Written(write.task, write.channel, _value_in(event, write)) for write, event in there]


def _append_in(epoch: int, stream: str, event: Event, tx: Transaction) -> Position | None:
    """Append, or do nothing if a request to forget came in after `epoch`."""
    return tx.append(stream, event).position if tx.version(FORGETTING_STREAM) == epoch else None


def _taken_in(
    contents: Contents,
    redaction: Redaction,
    before: Refs,
    channels: Mapping[str, Callable[[], Typed]],
    changed: Collection[str],
) -> tuple[Refs, list[ChannelValue], dict[str, ValueAt]]:
    """Return positions of unchanged values, new values as they are stored, and new values as they are cached.

    Raises `LimitExceeded`.
    """
    kept = Refs()
    values = list[ChannelValue]()
    fresh = dict[str, ValueAt]()
    size = 0
    for name, value in channels.items():
        if name in before and name not in changed:
            kept[name] = before[name]
            continue
        kind, data = value()
        size += len(data)
        check_count("checkpoint", size, limit=CHECKPOINT_BYTES_MAX, unit="bytes")
        data, last = redaction.data(data), before.get(name)
        try:
            if last is not None and contents.value(last, name)[3:] == (kind, data):
                kept[name] = last
                continue
            stored, fresh[name] = contents.changed(name, kind, data, last)
        except Gone:
            stored, fresh[name] = contents.changed(name, kind, data, None)
        values.append(stored)
    return kept, values, fresh


def _values(contents: Contents, refs: Refs, at: Position, stored: ThreadCheckpointed) -> dict[str, Typed]:
    """Return the values at positions; `stored` is the checkpoint at `at`."""
    found = {name: contents.value(place, name, of=stored if place == at else None) for name, place in refs.items()}
    return {name: Typed(value.kind, value.data) for name, value in found.items()}


def _value_in(event: Event, at: thread_index.WriteAt) -> Typed:
    if isinstance(event, ThreadWritten):
        for write in event.writes:
            if write.place == at.place:
                return _typed(write.blob)
    raise errors.LogDamaged(f"position {at.position} has no write {at.place} of task {at.task!r}")


def _typed(blob: Blob) -> Typed:
    """Return the content of a blob. Raises `LogDamaged`."""
    try:
        return Typed(blob.kind, unpack(blob))
    except ValueError as error:
        raise errors.LogDamaged(f"bytes of a checkpoint cannot be read: {error}") from error
