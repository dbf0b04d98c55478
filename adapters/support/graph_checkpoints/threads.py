"""The threads in the log of a store: what is appended, and what is read."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mnemolog.adapters.support.graph_checkpoints.checkpoint import Checkpoint, Typed, Written, typed
from mnemolog.adapters.support.graph_checkpoints.contents import Contents, Gone, Refs, refs_of
from mnemolog.adapters.support.store_access import log_of, open_tables
from mnemolog.domain import errors
from mnemolog.domain.events import Event
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.limits import CHECKPOINT_BYTES_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.thread_events import (
    ChannelValue,
    ThreadCheckpointed,
    ThreadCopied,
    ThreadDeleted,
    ThreadPruned,
    ThreadWrite,
    ThreadWritten,
)
from mnemolog.domain.threads import ValueAt, checked_thread_id, pack, thread_stream
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.sql.thread_index import FILE, CheckpointAt, ThreadIndex, WriteAt
from mnemolog.store import MemoryStore


class Step(NamedTuple):
    """What a checkpoint has of some channels: values, and what was written behind it."""

    values: dict[str, Typed]
    writes: list[Written]


class Threads:
    """The threads of a store. Safe for many threads and processes; to be closed before the store.

    Every call is one append or none. Nothing is taken out of the log: what is deleted or pruned is hidden, until it
    is forgotten (`positions`). What was forgotten is there for nobody, and neither is what was built on it.

    What appends raises `InvalidInput`, `LimitExceeded` beyond 64 MiB a value (`BLOB_BYTES_MAX`) or 256 MiB a
    checkpoint (`CHECKPOINT_BYTES_MAX`), and what every append raises: nothing was written. What reads raises
    `LogDamaged` for bytes that are not those that were written.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._log = log_of(store)
        self._index = open_tables(store, FILE, ThreadIndex)
        self._lock = threading.Lock()
        self._contents = Contents(self._log, self._log.epoch())

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
        run: str | None = None,
        checkpoint: Typed,
        metadata: Typed,
        channels: Mapping[str, Callable[[], Typed]],
        changed: Collection[str],
    ) -> None:
        """Append a checkpoint, in place of one of the same id. Ids say which is newer: the greater, as text.

        `channels` give the value of each when they are called. Those that the parent has and that are not `changed`
        since are not even called.
        """
        stream = thread_stream(checked_thread_id(thread))
        while True:  # Once more for each request to forget that comes in between: it may take the parent.
            contents = self._contents_now()
            before = {} if parent is None else self._refs_of(contents, thread, ns, parent)
            kept, values, fresh = _taken_in(contents, before, channels, changed)
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
            at = self._log.transact(_append_in(contents.epoch, stream, event))
            if at is not None:
                break
        for name, value in fresh.items():
            contents.keep(name, value._replace(position=at))
        contents.keep_refs(thread, ns, checkpoint_id, {**kept, **dict.fromkeys(fresh, at)})

    def write(
        self, thread: str, ns: str, checkpoint_id: str, task: str, path: str, writes: Iterable[tuple[int, str, Typed]]
    ) -> None:
        """Append what a task wrote behind a checkpoint: place, channel, value.

        What stands at a place already is left out and stays, unless the place is negative: there the last one counts.
        `path` says where the task stands in the order in which writes are applied.
        """
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
            self._append((thread_stream(checked_thread_id(thread)), event))

    def find(self, thread: str, ns: str, checkpoint_id: str | None) -> Checkpoint | None:
        """Return a checkpoint, the newest one for None; None where there is none."""
        contents = self._current()
        if checkpoint_id is None:
            found: Iterable[CheckpointAt] = self._index.newest(thread, ns)
        else:
            at = self._index.find(thread, ns, checkpoint_id)
            found = () if at is None else (at,)
        return next(self._read(contents, found), None)

    def listed(
        self,
        *,
        thread: str | None = None,
        ns: str | None = None,
        checkpoint_id: str | None = None,
        before: str | None = None,
        fits: Callable[[Typed], bool] | None = None,
    ) -> Iterator[Checkpoint]:
        """Yield checkpoints, of all threads and namespaces or of one, the greatest ids first.

        `before` is the id that they are to be less than; `fits` is asked about the metadata of each.
        """
        contents = self._current()
        found = self._index.listed(thread=thread, ns=ns, checkpoint=checkpoint_id, before=before)
        yield from self._read(contents, found, fits)

    def history(self, thread: str, ns: str, checkpoint_id: str | None, channels: Sequence[str]) -> list[Step]:
        """Return what the checkpoints before one, the nearest first, have of channels.

        A channel is left out before the first one that has a value of it. Those that were pruned are there. Nothing
        where there is no such checkpoint.
        """
        contents, left, steps = self._current(), set(channels), list[Step]()
        newest = self._index.newest(thread, ns)
        of = next(newest, None) if checkpoint_id is None else self._index.find(thread, ns, checkpoint_id)
        try:
            for at in () if of is None else self._index.ancestors(of):
                if not left:
                    break
                stored = contents.checkpoint(at.position)
                refs = {name: place for name, place in refs_of(at.position, stored).items() if name in left}
                writes = self._writes(contents, at, frozenset(left))
                steps.append(Step(_values(contents, refs, at.position, stored), writes))
                left -= refs.keys()
        except Gone:  # And so is the one that was asked about: it was built on that.
            return []
        return steps

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
        checked_thread_id(target)
        self._index.catch_up()
        if source != target and self._index.holds(source):
            self._append((thread_stream(target), ThreadCopied(source=source)))

    def positions(self, thread: str) -> list[Position]:
        """Return the log positions of all content of a thread, hidden or not: what is to be forgotten to erase it.

        Of its own events: what it was copied from has its content in the other thread.
        """
        events = self._log.read_stream(thread_stream(thread), upto=self._log.head().position)
        content = (ThreadCheckpointed, ThreadWritten)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, content)]

    def _current(self) -> Contents:
        """Return the contents of the forgetting epoch that is now, with the index read at least as far."""
        contents = self._contents_now()
        self._index.catch_up()
        return contents

    def _contents_now(self) -> Contents:
        """Return the contents of the forgetting epoch that is now."""
        epoch = self._log.epoch()
        with self._lock:
            if self._contents.epoch < epoch:
                self._contents = Contents(self._log, epoch)
            return self._contents

    def _refs_of(self, contents: Contents, thread: str, ns: str, checkpoint_id: str) -> Refs:
        """Return where the values of a checkpoint are; nowhere where it is not there, or not to be read any more."""
        known = contents.refs(thread, ns, checkpoint_id)
        if known is None:
            self._index.catch_up()
            at = self._index.find(thread, ns, checkpoint_id, hidden=True)
            if at is None:
                return {}
            try:
                known = refs_of(at.position, contents.checkpoint(at.position))
            except Gone:
                return {}
            contents.keep_refs(thread, ns, checkpoint_id, known)
        return known

    def _read(
        self, contents: Contents, found: Iterable[CheckpointAt], fits: Callable[[Typed], bool] | None = None
    ) -> Iterator[Checkpoint]:
        """Yield checkpoints. What was forgotten since they were found is passed over."""
        for at in found:
            try:
                stored = contents.checkpoint(at.position)
                metadata = typed(stored.metadata)
                if fits is not None and not fits(metadata):
                    continue
                values = _values(contents, refs_of(at.position, stored), at.position, stored)
            except Gone:
                continue
            yield Checkpoint(
                thread=at.thread,
                ns=at.ns,
                id=at.id,
                parent=at.parent,
                checkpoint=typed(stored.checkpoint),
                metadata=metadata,
                values=values,
                writes=self._writes(contents, at),
            )

    def _writes(self, contents: Contents, at: CheckpointAt, channels: frozenset[str] | None = None) -> list[Written]:
        """Return what was written behind a checkpoint, without what was forgotten of it."""
        found, events = self._index.writes(at, channels), dict[Position, Event | None]()
        for position in {write.position for write in found}:
            try:
                events[position] = contents.event(position)
            except Gone:
                events[position] = None
        there = ((write, event) for write in found if (event := events[write.position]) is not None)
        return [Written(write.task, write.channel, _value_in(event, write)) for write, event in there]

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

    def _append(self, *events: tuple[str, Event]) -> None:
        """Append to streams, all or nothing."""
        self._log.transact(lambda tx: [tx.append(stream, event) for stream, event in events])


def _append_in(epoch: int, stream: str, event: Event) -> Callable[[Transaction], Position | None]:
    """Return the work that appends, unless something was requested to be forgotten since: then it does nothing."""

    def work(tx: Transaction) -> Position | None:
        return tx.append(stream, event).position if tx.version(FORGETTING_STREAM) == epoch else None

    return work


def _taken_in(
    contents: Contents, before: Refs, channels: Mapping[str, Callable[[], Typed]], changed: Collection[str]
) -> tuple[Refs, list[ChannelValue], dict[str, ValueAt]]:
    """Return where the values are that a checkpoint keeps, and the others: as stored, and as they are kept in memory.

    Raises `LimitExceeded`.
    """
    kept, values, fresh, size = Refs(), list[ChannelValue](), dict[str, ValueAt](), 0
    for name, value in channels.items():
        if name in before and name not in changed:
            kept[name] = before[name]
            continue
        kind, data = value()
        size += len(data)
        if size > CHECKPOINT_BYTES_MAX:
            raise errors.LimitExceeded("checkpoint", limit=CHECKPOINT_BYTES_MAX, actual=size, unit="bytes")
        last = before.get(name)
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
    """Return values by where they are; `stored` is the checkpoint that is at `at`."""
    found = {name: contents.value(place, name, of=stored if place == at else None) for name, place in refs.items()}
    return {name: Typed(value.kind, value.data) for name, value in found.items()}


def _value_in(event: Event, at: WriteAt) -> Typed:
    if isinstance(event, ThreadWritten):
        for write in event.writes:
            if write.place == at.place:
                return typed(write.blob)
    raise errors.LogDamaged(f"position {at.position} has no write {at.place} of task {at.task!r}")
