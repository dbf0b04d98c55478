"""The moment that a page shows, and the bar to choose another one: `?at=` with a position or a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from mnemolog.domain.result import Result
from mnemolog.domain.values import (
    ORIGIN,
    Micros,
    Position,
    checked_position,
    parse_position_or_time,
    to_datetime,
    to_micros,
)
from mnemolog.infra.log.event_log import EventLog
from mnemolog.server.console.rendering import moment, zone
from mnemolog.store import MemoryStore

if TYPE_CHECKING:
    from mnemolog.projections.sql.filtering import TurnTimes  # Imports numpy.

BUCKETS: Final = 100
"""Bars of the histogram, each as long as the others in time."""
CROWDED: Final = 0.6
"""Where one bar would have a larger part of all events, as after an import, bars have as many events each instead."""
VISIT_COOKIE: Final = "mnemolog_visit"
PAUSE: Final = timedelta(minutes=30)
AT: Final = "Moment"
"""How a page names the moment that it shows."""
BOXES: Final = {
    "at": AT,
    "then": "Compare with the answer of",
    "from": "From",
    "to": "To",
    "since": "From",
    "until": "Before",
}
"""Parameters of pages that are moments, and how their boxes are named."""
BEGIN: Final = ("from", "since", "until")
"""Those in which a day is its beginning; in the others it is its end."""
_UNITS: Final = (60_000_000, 1_000_000)
"""Bars that are this long, in microseconds, end at a whole minute or a whole second: such times are short to write."""


class AsOf(Result, frozen=True, kw_only=True):
    """The moment that a page shows: all events up to `position` count, later ones do not."""

    text: str
    """The moment as the URL has it: a position, or a time in UTC; empty for now."""
    time: datetime | None
    """The moment, if it is a time. UTC. Of a day, its last microsecond."""
    position: Position
    """The last event that counts, 0 before the first one."""
    recorded_at: datetime | None
    """When that event was recorded. UTC. None for an event that the caller may not see."""
    head: Position
    """The last event of the log."""

    @property
    def is_now(self) -> bool:
        """Whether the page shows the present."""
        return not self.text

    @property
    def when(self) -> Position | None:
        """What to pass to reads of the store: the position, None for now."""
        return None if self.is_now else self.position


class Visit(NamedTuple):
    """When a person last looked at the console with this browser, from what its cookie says."""

    since: Position
    """The last event at the end of the visit before this one."""
    at: datetime
    """When that was. UTC."""
    last: Position
    """The last event when a page was shown last."""
    last_at: datetime

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> Visit | None:
        """Return the visit; None for a first one."""
        numbers = cookies.get(VISIT_COOKIE, "").split("-")
        if len(numbers) != 4 or not all(number.isdecimal() and len(number) < 11 for number in numbers):
            return None
        since, at, last, last_at = map(int, numbers)
        times = (datetime.fromtimestamp(time, UTC) for time in (at, last_at))
        return cls(Position(since), next(times), Position(last), next(times))

    @staticmethod
    def cookie(visit: Visit | None, head: Position) -> str:
        """Return what the cookie says after another page. After a pause of `PAUSE` the next visit begins."""
        now = datetime.now(UTC)
        if visit is None:
            visit = Visit(head, now, head, now)
        elif now - visit.last_at > PAUSE:
            visit = Visit(visit.last, visit.last_at, head, now)
        return f"{visit.since}-{int(visit.at.timestamp())}-{head}-{int(now.timestamp())}"


class Bucket(Result, frozen=True, kw_only=True):
    """A bar of the histogram. Its end is a step of the slider."""

    until: datetime
    at: str
    """The moment at its end for a URL: a time, or a position where bars have as many events each; empty for now."""
    position: Position | None
    """The last event recorded in it or before. None in the bar of a scope, where it would tell what others recorded."""
    events: int
    """How many were recorded in it."""


class TimeBar(Result, frozen=True, kw_only=True):
    """What the time bar shows."""

    of: Literal["event", "turn"]
    """What is counted: all events, or the turns of the scope that the store is open for."""
    first: datetime
    """When the first one was recorded."""
    last: datetime
    buckets: tuple[Bucket, ...]
    """At most `BUCKETS` of them. The last one ends now."""
    cut: int
    """How many of the first ones lie before the bar: a few that are so much older that all others would be one bar."""
    by_time: bool
    """Whether all bars are as long in time. Otherwise they have as many events, as far as that can be."""
    step: int
    """Number of the bucket that the moment lies in, from 1; 0 before the first event.

    The last one only where there is nothing after the moment: from everywhere else the slider can move to now.
    """
    events: int
    """How many had been recorded at the moment."""
    previous: Position | None
    """The moment with one event less; None if there is none to leave out."""
    next: Position | None
    """The moment with one event more; None if there are no more."""

    @property
    def tallest(self) -> int:
        """The most events of one bucket."""
        return max(item.events for item in self.buckets)

    @property
    def steps(self) -> list[tuple[str, str, str]]:
        """The steps of the slider: each moment for the URL, and its time and its position in words."""
        found = [("0", "before the first event", "")]
        for item in self.buckets:
            place = "" if item.position is None else f"position {item.position:,}"
            found.append((item.at, moment(item.until, exact=True), place))
        return found


class _WholeLog:
    """All events of the log, as `TurnTimes` has turns."""

    def __init__(self, log: EventLog, head: Position) -> None:
        self._log, self._head = log, head

    def __len__(self) -> int:
        return self._head

    def position(self, number: int) -> Position:
        return Position(number)

    def recorded_at(self, number: int) -> Micros:
        return self._log.recorded_at(Position(number))

    def until(self, time: Micros) -> int:
        return self._log.position_at(time)

    def up_to(self, position: Position) -> int:
        return position


def as_of(store: MemoryStore, text: str, *, name: str = "at") -> AsOf:
    """Return the moment that the parameter `name` has: a position, a time as people write it, or now if it is empty.

    A text without a zone is in that of the reader. It becomes the time in UTC that it stands for, which stays the
    same when the URL is sent to others. Raises `InvalidInput`, naming the box.
    """
    field, head = BOXES[name], store.parts.log.head().position
    found: int | datetime = head
    if text:
        found = parse_position_or_time(field, text, clock=store.parts.clock, zone=zone(), to_end=name not in BEGIN)
    if isinstance(found, int):
        position, time = checked_position(field, found, head=head), None
    else:
        position, time = store.parts.log.position_at(to_micros(field, found)), found
        text = _url_time(to_micros(field, found))
    return AsOf(text=text, time=time, position=position, recorded_at=recorded_at(store, position), head=head)


def recorded_at(store: MemoryStore, position: Position) -> datetime | None:
    """Return when the event at a position was recorded. When others did something is not told: None."""
    visible = store.parts.visible
    if position == ORIGIN:
        return None
    own = visible.read(after=Position(position - 1), upto=position)
    if visible.boundary.scopes and not any(shown for _, shown in own):
        return None
    return to_datetime(store.parts.log.recorded_at(position))


def time_bar(store: MemoryStore, at: AsOf) -> TimeBar | None:
    """Return the bar over the whole log, or over the turns of the scope that the store is open for; None without any.

    Looks up a time for each of `BUCKETS`, and reads no events. Of a scope only turns are counted, because other
    events have no index by scope. Nothing in its bar depends on what was recorded outside of it.
    """
    if not store.parts.boundary.scopes:
        return _bar(_WholeLog(store.parts.log, at.head), at, of="event")
    with store.parts.session_list.turn_times() as turns:
        return _bar(turns, at, of="turn")


def _bar(recorded: _WholeLog | TurnTimes, at: AsOf, *, of: Literal["event", "turn"]) -> TimeBar | None:
    count = len(recorded)
    if not count:
        return None
    is_whole, reached = of == "event", recorded.up_to(at.position)
    cut, (ends, counts, is_spread) = 0, _laid_out(recorded, 0)
    older = max(count // 100, 1)
    if not is_spread and older < count:
        later = _laid_out(recorded, older)
        if later[2]:
            cut, (ends, counts, is_spread) = older, later
    first, last = recorded.recorded_at(cut + 1), ends[-1]
    by_time = not is_whole or is_spread
    if not by_time:
        number = min(BUCKETS, count)
        counts = [count * (end + 1) // number for end in range(number)]
        ends = [recorded.recorded_at(end) for end in counts]
    buckets = [
        Bucket(
            until=to_datetime(end),
            at=_url_time(end) if by_time else str(recorded.position(total)),
            position=recorded.position(total) if is_whole else None,
            events=events,
        )
        for end, total, events in zip(ends, counts, _differences(counts), strict=True)
    ]
    buckets[-1] = msgspec.structs.replace(buckets[-1], at="")
    if reached in (0, count):
        step = len(buckets) if reached else 0
    else:
        time = recorded.recorded_at(reached) if at.time is None else to_micros(AT, at.time)
        step = min((bisect_left(ends, time) if by_time else bisect_left(counts, reached)) + 1, len(buckets) - 1)
    return TimeBar(
        of=of,
        first=to_datetime(first),
        last=to_datetime(last),
        cut=cut,
        buckets=tuple(buckets),
        by_time=by_time,
        step=step,
        events=reached,
        previous=recorded.position(reached - 1) if reached else None,
        next=recorded.position(reached + 1) if reached < count else None,
    )


def _laid_out(recorded: _WholeLog | TurnTimes, cut: int) -> tuple[list[Micros], list[int], bool]:
    """Return the ends of bars over all but the first `cut` events, how many there were until then, if they differ."""
    count = len(recorded)
    first = recorded.recorded_at(min(cut + 1, count))
    ends = _ends(first, max(first, recorded.recorded_at(count)))
    counts = [*accumulate(map(recorded.until, ends[:-1]), max), count]
    return ends, counts, max(_differences([max(item - cut, 0) for item in counts])) <= (count - cut) * CROWDED


def _ends(first: Micros, last: Micros) -> list[Micros]:
    """Return the ends of up to `BUCKETS` spans of time that are as long as each other."""
    if first == last:
        return [last]
    unit = next((unit for unit in _UNITS if (last - first) // BUCKETS >= unit), 1)
    ends = [first + (last - first) * (number + 1) // BUCKETS for number in range(BUCKETS - 1)]
    return [*(Micros(end - end % unit) for end in ends), last]


def _differences(counts: Sequence[int]) -> list[int]:
    return [count - before for count, before in zip(counts, [0, *counts], strict=False)]


def _url_time(time: Micros) -> str:
    """Return a time in UTC as short as it is exact, such as `2026-03-16T12:04Z`."""
    found = to_datetime(time)
    exact = "auto" if found.second or found.microsecond else "minutes"
    return f"{found.replace(tzinfo=None).isoformat(timespec=exact)}Z"
