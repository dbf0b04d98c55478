"""The timeline of the log: each event with its time, its session and a description in words, one line per event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mnemolog.domain.display import dated, one_line
from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.position import Micros, Position, UtcTime, Version, to_datetime, within_calendar
from mnemolog.domain.result import Result, brief
from mnemolog.domain.session import session_of
from mnemolog.domain.switching import agent_of
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.history.event_descriptions import describe, signed
from mnemolog.projections.ports import Progress, SessionLog, ShownEvents, tell

BATCH_MAX: Final = 1_000
TITLES_KEPT_MAX: Final = 10_000
"""Sessions whose title is remembered; that of another one is read again."""
_WHO_CHARACTERS: Final = 16


class Moment(Result, frozen=True, kw_only=True):
    """One event of the timeline."""

    position: Position
    at: UtcTime
    """When it was recorded. UTC."""
    said_at: UtcTime | None = None
    """When a turn was said, if the caller gave a time. UTC."""
    stream: str
    version: Version
    topic: str
    session: str | None
    """None for what happened to an agent, or to the store as a whole."""
    who: str
    """The title of the session, or its id, or the agent, or else the stream."""
    what: str
    """What happened, in words, on one line; long texts are cut."""
    actor: str
    """The actor that appended it; empty if none was named, or if its content was forgotten."""
    key: str | None
    event: Event
    """All of it."""

    def __str__(self) -> str:
        return " ".join(self.columns())

    def columns(self) -> tuple[str, str, str, str]:
        """Return position, time, session and what happened, as columns of a line of the timeline."""
        who = one_line(self.who, characters_max=_WHO_CHARACTERS)
        what = signed(self.what, self.event)
        said_at = dated(self.said_at, seconds=True) if self.said_at is not None else ""
        at = dated(self.at, seconds=True)
        said = f"  (said {said_at})" if said_at and said_at[:-3] != at[:-3] else ""
        return f"@{self.position:<6}", at, f"{who:<{_WHO_CHARACTERS}}", what + said

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", brief(self.who), brief(self.what))


def timeline(
    log: SessionLog,
    events: ShownEvents,
    *,
    after: Position,
    upto: Position,
    session: str | None = None,
    said_since: Micros | None = None,
    said_until: Micros | None = None,
    progress: Progress | None = None,
) -> Iterator[Moment]:
    """Yield those of `events` in `(after, upto]` in order, of one session or of all, a batch in memory at a time.

    Turns are those said at `said_since` or later and before `said_until`; what has no said time counts as said when it
    was recorded. Raises `UndecodableEvent`, naming the position.
    """
    titles: LruCache[str, str] = LruCache(TITLES_KEPT_MAX)
    for read_upto, batch in events(after=after, upto=upto, batch_max=BATCH_MAX):
        for recorded in batch:
            if isinstance(recorded.event, SessionStarted):
                titles.put(recorded.stream, recorded.event.title)
            if _is_asked(recorded, session=session, since=said_since, until=said_until):
                yield _moment(recorded, _who(log, titles, recorded))
        tell(progress, read_upto - after, upto - after)


def _is_asked(recorded: RecordedEvent, *, session: str | None, since: Micros | None, until: Micros | None) -> bool:
    event = recorded.event
    said_at = event.said_at if isinstance(event, TurnRecorded) and event.said_at is not None else recorded.recorded_at
    return (
        (session is None or session_of(recorded.stream) == session)
        and (since is None or said_at >= since)
        and (until is None or said_at < until)
    )


def _who(log: SessionLog, titles: LruCache[str, str], recorded: RecordedEvent) -> str:
    stream = recorded.stream
    title = titles.get(stream)
    if title is None:  # It began before what is shown, or long ago.
        first = log.first_event(stream) if session_of(stream) is not None else None
        title = first.event.title if first and isinstance(first.event, SessionStarted) else ""
        titles.put(stream, title)
    return title or session_of(stream) or agent_of(stream) or stream


def _moment(recorded: RecordedEvent, who: str) -> Moment:
    try:
        at = to_datetime(recorded.recorded_at)
    except OverflowError as error:
        raise LogDamaged("it was recorded at no time of the calendar", position=recorded.position) from error
    said_at = recorded.event.said_at if isinstance(recorded.event, TurnRecorded) else None
    return Moment(
        position=recorded.position,
        at=at,
        said_at=None if said_at is None else to_datetime(within_calendar(said_at)),
        stream=recorded.stream,
        version=recorded.version,
        topic=recorded.event.topic,
        session=session_of(recorded.stream),
        who=who,
        what=describe(recorded.event),
        actor=recorded.event.actor,
        key=recorded.key,
        event=recorded.event,
    )
