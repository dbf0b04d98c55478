"""Threads of graphs in the log of a store: what is appended, and what is read. Knows bytes, and no serialiser."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mnemolog.adapters.langgraph.index import FILE, CheckpointAt, ThreadIndex, WriteAt
from mnemolog.adapters.langgraph.values import Contents
from mnemolog.domain import errors
from mnemolog.domain.events import Event
from mnemolog.domain.limits import CHECKPOINT_BYTES_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.thread_events import (
    Blob,
    ThreadCheckpointed,
    ThreadCopied,
    ThreadDeleted,
    ThreadPruned,
    ThreadWrite,
    ThreadWritten,
)
from mnemolog.domain.threads import ValueAt, pack, thread_stream, unpack
from mnemolog.seam import log_of, open_tables
from mnemolog.store import MemoryStore

Typed = tuple[str, bytes]
"""What a serialiser calls a form, and bytes in it."""
Refs = dict[str, Position]
"""By channel, the position of the checkpoint that has its value."""

REFS_CACHED_MAX: Final = 10_000


class Written(NamedTuple):
    """What a task wrote to a channel."""

    task: str
    channel: str
    value: Typed


class Threads:
    """The threads in the log of a store. Safe for many threads and processes."""

    def __init__(self, store: MemoryStore) -> None:
        self._log = log_of(store)
        self._index = open_tables(store, FILE, ThreadIndex)
        self._contents = Contents(self._log)
        self._lock = threading.Lock()
        self._refs: OrderedDict[tuple[str, str, str], Refs] = OrderedDict()

    def close(self) -> None:
        """Let go of the index."""
        self._index.database.close()

    def checkpoint(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        *,
        parent: str | None,
        run: str | None,
        checkpoint: Typed,
        metadata: Typed,
        channels: Mapping[str, Callable[[], Typed]],
        changed: Collection[str],
    ) -> None:
        """Append a checkpoint. Channels that are not `changed` since its parent are not even serialised.

        Raises `LimitExceeded` and what every append raises: nothing was written.
        """
        before = {} if parent is None else self._refs_of(thread, ns, parent)
        kept, fresh = Refs(), dict[str, ValueAt]()
        values, size = [], 0
        for name, serialise in channels.items():
            if name in before and name not in changed:
                kept[name] = before[name]
                continue
            kind, data = serialise()
            size += len(data)
            if size > CHECKPOINT_BYTES_MAX:
                raise errors.LimitExceeded("checkpoint", limit=CHECKPOINT_BYTES_MAX, actual=size, unit="bytes")
            if name in before and self._contents.value(before[name], name)[3:] == (kind, data):
                kept[name] = before[name]
                continue
            stored, fresh[name] = self._contents.changed(name, kind, data, before.get(name))
            values.append(stored)
        event = ThreadCheckpointed(
            id=checkpoint_id,
            ns=ns,
            parent=parent,
            run=run,
            checkpoint=pack(*checkpoint),
            metadata=pack(*metadata),
            values=values,
            kept=dict(kept),
        )
        at = self._append((thread_stream(thread), event))
        for name, value in fresh.items():
            self._contents.keep(name, value._replace(position=at))
        self._know((thread, ns, checkpoint_id), {**kept, **dict.fromkeys(fresh, at)})

    def write(
        self, thread: str, ns: str, checkpoint_id: str, task: str, path: str, writes: Iterable[tuple[int, str, Typed]]
    ) -> None:
        """Append what a task wrote: place, channel, value. What is known to be written already is left out."""
        known = self._index.written(thread, ns, checkpoint_id, task)
        fresh = [
            ThreadWrite(channel=channel, blob=pack(*value), place=place)
            for place, channel, value in writes
            if place < 0 or place not in known
        ]
        size = sum(len(write.blob.data) for write in fresh)
        if size > CHECKPOINT_BYTES_MAX:
            raise errors.LimitExceeded("writes", limit=CHECKPOINT_BYTES_MAX, actual=size, unit="bytes")
        if fresh:
            event = ThreadWritten(checkpoint=checkpoint_id, ns=ns, task=task, path=path, writes=fresh)
            self._append((thread_stream(thread), event))

    def find(self, thread: str, ns: str, checkpoint_id: str | None) -> CheckpointAt | None:
        """Return where a checkpoint is, the newest one for None, or None."""
        self._contents.forget()
        self._index.catch_up()
        return self._index.find(thread, ns, checkpoint_id)

    def listed(
        self, *, thread: str | None, ns: str | None, checkpoint_id: str | None, before: str | None
    ) -> list[CheckpointAt]:
        """Return where checkpoints are, newest first."""
        self._contents.forget()
        self._index.catch_up()
        return self._index.listed(thread=thread, ns=ns, checkpoint=checkpoint_id, before=before)

    def stored(self, at: CheckpointAt) -> ThreadCheckpointed:
        """Return a checkpoint as it is stored."""
        return self._contents.checkpoint(at.position)

    def values(self, at: CheckpointAt, stored: ThreadCheckpointed) -> dict[str, Typed]:
        """Return what the channels held at a checkpoint."""
        refs = _refs(at.position, stored)
        return {name: self._typed_value(position, name, of=at, stored=stored) for name, position in refs.items()}

    def writes(self, at: CheckpointAt, channels: frozenset[str] | None = None) -> list[Written]:
        """Return what was written behind a checkpoint, in the order in which a graph applies it."""
        found = self._index.writes(at, channels)
        events = {position: self._contents.event(position) for position in {write.position for write in found}}
        return [Written(write.task, write.channel, _value_in(events[write.position], write)) for write in found]

    def history(self, of: CheckpointAt, channels: Sequence[str]) -> Iterator[tuple[dict[str, Typed], list[Written]]]:
        """Yield what the checkpoints before one, nearest first, have of channels: values, and the writes behind them.

        A channel is left out before the first one that has a value of it. Those that were pruned are there.
        """
        left = set(channels)
        for at in self._index.ancestors(of):
            if not left:
                return
            stored = self.stored(at)
            refs = {name: position for name, position in _refs(at.position, stored).items() if name in left}
            values = {name: self._typed_value(place, name, of=at, stored=stored) for name, place in refs.items()}
            yield values, self.writes(at, frozenset(left))
            left -= refs.keys()

    def delete(self, thread: str) -> None:
        """Hide all that a thread has. Appends nothing where it has nothing."""
        self._index.catch_up()
        if self._index.holds(thread):
            self._append((thread_stream(thread), ThreadDeleted()))

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Hide the checkpoints that runs made, of all threads at once."""
        self._index.catch_up()
        self._hide(self._index.of_runs(list(dict.fromkeys(runs))), reason="runs")

    def keep_latest(self, threads: Sequence[str]) -> None:
        """Hide all checkpoints of threads but the newest in each namespace."""
        self._index.catch_up()
        old = []
        for thread in dict.fromkeys(threads):
            seen = set[str]()
            for at in self._index.listed(thread=thread, ns=None, checkpoint=None, before=None):
                if at.ns in seen:
                    old.append(at)
                seen.add(at.ns)
        self._hide(old, reason="keep_latest")

    def copy(self, source: str, target: str) -> None:
        """Have a thread begin with what another one has. No content is copied: both point to the same."""
        self._index.catch_up()
        if source != target and self._index.holds(source):
            self._append((thread_stream(target), ThreadCopied(source=source)))

    def positions(self, thread: str) -> list[Position]:
        """Return where the log has content of a thread: of its own events, not of a thread it was copied from."""
        events = self._log.read_stream(thread_stream(thread), upto=self._log.head().position)
        content = (ThreadCheckpointed, ThreadWritten)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, content)]

    def _hide(self, found: Sequence[CheckpointAt], *, reason: str) -> None:
        by_thread: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for at in found:
            by_thread[at.thread][at.ns].append(at.id)
        events = [
            (thread_stream(thread), ThreadPruned(hidden={ns: list(ids) for ns, ids in hidden.items()}, reason=reason))
            for thread, hidden in by_thread.items()
        ]
        if events:
            self._append(*events)

    def _append(self, *events: tuple[str, Event]) -> Position:
        """Append to streams, all or nothing. Return the last position."""
        return self._log.transact(lambda tx: [tx.append(stream, event) for stream, event in events])[-1].position

    def _refs_of(self, thread: str, ns: str, checkpoint_id: str) -> Refs:
        name = (thread, ns, checkpoint_id)
        with self._lock:
            known = self._refs.get(name)
        if known is None:
            self._index.catch_up()
            at = self._index.find(thread, ns, checkpoint_id, hidden=True)
            if at is None:
                return {}
            known = _refs(at.position, self.stored(at))
            self._know(name, known)
        return known

    def _typed_value(self, position: Position, channel: str, *, of: CheckpointAt, stored: ThreadCheckpointed) -> Typed:
        value = self._contents.value(position, channel, of=stored if position == of.position else None)
        return value.kind, value.data

    def _know(self, name: tuple[str, str, str], refs: Refs) -> None:
        with self._lock:
            self._refs[name] = refs
            self._refs.move_to_end(name)
            while len(self._refs) > REFS_CACHED_MAX:
                self._refs.popitem(last=False)


def _refs(position: Position, stored: ThreadCheckpointed) -> Refs:
    """Return where the values are of the channels of a checkpoint that is at `position`."""
    refs = {name: Position(kept) for name, kept in stored.kept.items()}
    return {**refs, **{value.name: position for value in stored.values}}


def typed(blob: Blob) -> Typed:
    """Return what a blob holds, for a serialiser. Raises `LogDamaged`."""
    try:
        return blob.kind, unpack(blob)
    except ValueError as error:
        raise errors.LogDamaged(f"bytes of a checkpoint cannot be read: {error}") from error


def _value_in(event: Event, at: WriteAt) -> Typed:
    if isinstance(event, ThreadWritten):
        for write in event.writes:
            if write.place == at.place:
                return typed(write.blob)
    raise errors.LogDamaged(f"position {at.position} has no write {at.place} of task {at.task!r}")
