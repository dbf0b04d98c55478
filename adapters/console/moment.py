"""The moment that a page shows, and the bar to choose another one: `?at=` with a position or a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.domain.result import Result
from mnemolog.domain.scope import ROOT
from mnemolog.store import MemoryStore

BUCKETS: Final = 100
"""Bars of the histogram, each as long as the others in time."""
CROWDED: Final = 0.6
"""Where one bar would have a larger part of all events, as after an import, bars have as many events each instead."""
POSITION_DIGITS_MAX: Final = 18
"""A longer number is read as a time, and refused as one."""


class AsOf(Result, frozen=True, kw_only=True):
    """The moment that a page shows: all events up to `position` count, later ones do not."""

    asked: str
    """The moment as the URL has it: a position, or a time; empty for now."""
    position: Position
    """The last event that counts, 0 before the first one."""
    recorded_at: datetime | None
    """When that event was recorded. UTC. None for an event that the caller may not see."""
    head: Position
    """The last event of the log."""

    @property
    def is_now(self) -> bool:
        """Whether the page shows the present."""
        return not self.asked

    @property
    def when(self) -> Position | None:
        """What to pass to reads of the store: the position, None for now."""
        return None if self.is_now else self.position


class Bucket(Result, frozen=True, kw_only=True):
    """A bar of the histogram."""

    until: datetime
    position: Position
    """The last event recorded in it or before."""
    events: int
    """How many were recorded in it."""


class TimeBar(Result, frozen=True, kw_only=True):
    """What the time bar shows."""

    first: datetime
    """When the first event was recorded."""
    last: datetime
    buckets: tuple[Bucket, ...]
    """At most `BUCKETS` of them."""
    by_time: bool
    """Whether all bars are as long in time. Otherwise they have as many events, as far as that can be."""
    step: int
    """Number of the bucket that the moment lies in, from 1; 0 before the first event."""
    tallest: int
    """The most events of one bucket."""


def as_of(store: MemoryStore, asked: str) -> AsOf:
    """Return the moment that `?at=` names: a position, a time, or now if it is empty. Raises `InvalidInput`."""
    log, wanted = store.parts.log, asked.strip()
    head = log.head().position
    if not wanted:
        position = head
    elif wanted.isdecimal() and len(wanted) <= POSITION_DIGITS_MAX and not _is_date(wanted, head):
        position = checked_position("at", int(wanted), head=head)
    else:
        position = store.position_at(wanted)
    return AsOf(asked=wanted, position=position, recorded_at=recorded_at(store, position), head=head)


def recorded_at(store: MemoryStore, position: Position) -> datetime | None:
    """Return when the event at a position was recorded. When others did something is not told: None."""
    log, sessions = store.parts.log, store.parts.sessions
    if position == ORIGIN:
        return None
    own = sessions.read(after=Position(position - 1), upto=position)
    if sessions.boundary.scope != ROOT and not any(shown for _, shown in own):
        return None
    return to_datetime(log.recorded_at(position))


def _is_date(text: str, head: Position) -> bool:
    """Whether a number is a date such as 20260316 rather than a position of this log."""
    return len(text) == 8 and int(text) > head


def time_bar(store: MemoryStore, at: AsOf) -> TimeBar | None:
    """Return the bar over the whole log, None for an empty one.

    Looks up `BUCKETS` times in the log, and reads no events. A store that is bound to a scope has none: it would count
    events outside of it.
    """
    log = store.parts.log
    if at.head == ORIGIN or store.parts.boundary.scope != ROOT:
        return None
    first, last = log.recorded_at(Position(1)), log.recorded_at(at.head)
    last = max(first, last)
    ends = [Micros(first + (last - first) * (number + 1) // BUCKETS) for number in range(BUCKETS)]
    buckets = _buckets(ends, _positions_at(store, ends, at.head))
    by_time = max(item.events for item in buckets) <= at.head * CROWDED
    if not by_time:
        count = min(BUCKETS, at.head)
        positions = [Position(at.head * (number + 1) // count) for number in range(count)]
        buckets = _buckets([log.recorded_at(position) for position in positions], positions)
    step = next((number for number, item in enumerate(buckets, 1) if item.position >= at.position), len(buckets))
    return TimeBar(
        first=to_datetime(first),
        last=to_datetime(last),
        buckets=tuple(buckets),
        by_time=by_time,
        step=step if at.position else 0,
        tallest=max(item.events for item in buckets),
    )


def _buckets(ends: Sequence[Micros], positions: Sequence[Position]) -> list[Bucket]:
    return [
        Bucket(until=to_datetime(end), position=position, events=max(position - before, 0))
        for end, position, before in zip(ends, positions, [ORIGIN, *positions], strict=False)
    ]


def _positions_at(store: MemoryStore, times: list[Micros], head: Position) -> list[Position]:
    """Return the position at each of rising times. What lies between two equal positions is not looked up."""
    log, found = store.parts.log, {len(times) - 1: head}

    def fill(low: int, high: int, below: Position) -> None:
        if low >= high:
            return
        if below == found[high]:
            found.update(dict.fromkeys(range(low, high), below))
            return
        middle = (low + high - 1) // 2
        found[middle] = min(max(log.position_at(times[middle]), below), found[high])
        fill(low, middle, below)
        fill(middle + 1, high, found[middle])

    fill(0, len(times) - 1, ORIGIN)
    return [found[number] for number in range(len(times))]
