"""The content of threads, read from the log: events by position, and values of channels from their deltas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.events import Event, Forgotten
from mnemolog.domain.position import Position
from mnemolog.domain.threads import ChannelValue, ThreadCheckpointed, ValueAt, base_number, read_value, stored_value
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.ports import Log

CACHE_BYTES: Final = 64 << 20
"""Size of the cache of values, least recently used first out."""
REFS_CACHED_MAX: Final = 10_000

Refs = dict[str, Position]
"""By channel, the position of the checkpoint that has its value."""


class Gone(Exception):
    """The content at a position, or a value it is a delta against, was forgotten. Never leaves this package."""


class Contents:
    """Reads the log at positions, within one forgetting epoch: content does not change, so it is cached.

    The next epoch gets a new object, and the cache of this one is dropped.
    """

    def __init__(self, log: Log, epoch: int) -> None:
        self._log, self.epoch = log, epoch
        self._values: LruCache[tuple[int, str], ValueAt] = LruCache(CACHE_BYTES, size_of=lambda value: len(value.data))
        self.refs: LruCache[tuple[str, str, str], Refs] = LruCache(REFS_CACHED_MAX)
        """The positions of the values of checkpoints, by thread, namespace and id."""

    def event(self, position: Position) -> Event:
        """Return the event at a position. Raises `Gone`, or `LogDamaged` if there is none."""
        for events in self._log.read(after=Position(position - 1), upto=position, batch_max=1):
            if isinstance(events[0].event, Forgotten):
                raise Gone
            return events[0].event
        raise errors.LogDamaged(f"there is no event at position {position}, to which a checkpoint points")

    def checkpoint(self, position: Position) -> ThreadCheckpointed:
        """Return the checkpoint at a position. Raises `Gone`, `LogDamaged` for anything else."""
        event = self.event(position)
        if not isinstance(event, ThreadCheckpointed):
            raise errors.LogDamaged(f"there is no checkpoint at position {position}, but {event.topic}")
        return event

    def value(self, position: Position, channel: str, *, of: ThreadCheckpointed | None = None) -> ValueAt:
        """Return the value of a channel at the checkpoint at a position. Pass the checkpoint as `of` if you have it."""
        *_, found = self._back(position, channel, of)
        return found

    def _back(self, position: Position, channel: str, of: ThreadCheckpointed | None) -> Iterator[ValueAt]:
        """Yield the values that a channel's value is a delta against, the complete one first, then the value itself."""
        deltas: list[tuple[Position, ChannelValue]] = []
        at: int | None = position
        known: ValueAt | None = None
        while at is not None and (known := self._values.get((at, channel))) is None:
            event = of if of is not None and at == position else self.checkpoint(Position(at))
            stored = next((value for value in event.values if value.name == channel), None)
            if stored is None:
                raise errors.LogDamaged(f"the checkpoint at position {at} has no value of channel {channel!r}")
            deltas.append((Position(at), stored))
            at = stored.base
        if known is not None:
            yield known
        for place, stored in reversed(deltas):
            try:
                data = read_value(stored, None if known is None else known.data)
            except ValueError as error:
                raise errors.LogDamaged(f"channel {channel!r} at position {place} cannot be read: {error}") from error
            known = ValueAt(place, stored.number, stored.base, stored.blob.kind, data)
            self.keep(channel, known)
            yield known

    def changed(self, channel: str, kind: str, data: bytes, before: Position | None) -> tuple[ChannelValue, ValueAt]:
        """Return a new value of a channel, as it is stored and as it is cached once its position is known.

        `before` is the position of the checkpoint with the previous value. Raises `LimitExceeded`.
        """
        last = None if before is None else self.value(before, channel)
        base = last
        while base is not None and last is not None and base.number > base_number(last.number + 1):
            base = None if base.base is None else self.value(Position(base.base), channel)
        stored = stored_value(channel, kind, data, last, base)
        return stored, ValueAt(0, stored.number, stored.base, kind, data)

    def keep(self, channel: str, value: ValueAt) -> None:
        """Cache a value."""
        self._values.put((value.position, channel), value)


def refs_of(position: Position, stored: ThreadCheckpointed) -> Refs:
    """Return the positions of the channel values of the checkpoint at `position`."""
    refs = {name: Position(kept) for name, kept in stored.kept.items()}
    return {**refs, **{value.name: position for value in stored.values}}
