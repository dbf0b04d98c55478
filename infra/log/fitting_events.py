"""Set apart events of a log that do not fit what comes before them. Every read of events passes here."""

from __future__ import annotations

from typing import Final

import msgspec

from mnemolog.domain.errors import UndecodableEvent
from mnemolog.domain.events import CheckpointRestored, RecordedEvent, SessionStarted, UnfitEvent
from mnemolog.domain.fitting import CreatedCheckpoint, Start, checkpoint_in, start_in, why_unfit
from mnemolog.domain.session import session_of, session_stream
from mnemolog.infra.log.engine import LogReader
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.lru_cache import LruCache

STARTS_KEPT_MAX: Final = 10_000
"""Sessions whose start is remembered. It never changes."""
_PLAIN: Final = EventCodec()
_LOOKS_FURTHER: Final = (SessionStarted, CheckpointRestored)
"""Events of a session for which it is not enough that the session was started."""


class FittingEvents:
    """Replaces events that do not fit by an `UnfitEvent`. Safe for many threads."""

    def __init__(self, codec: EventCodec) -> None:
        self._codec = codec
        self._starts: LruCache[str, Start] = LruCache(STARTS_KEPT_MAX)
        self._lock = fork_guard.lock()

    def of(self, reads: LogReader, events: list[RecordedEvent]) -> list[RecordedEvent]:
        """Return events of the log, read in order, with an `UnfitEvent` for each one that does not fit."""
        before, started = _Before(self, reads), set[str]()
        for place, recorded in enumerate(events):
            stream, event = recorded.stream, recorded.event
            if isinstance(event, UnfitEvent) or (stream in started and not isinstance(event, _LOOKS_FURTHER)):
                continue
            if (why := why_unfit(recorded, before)) is not None:
                events[place] = msgspec.structs.replace(recorded, event=UnfitEvent(was=event.topic, why=why))
            elif (session := session_of(stream)) is not None:
                started.add(stream)
                if (start := start_in(recorded)) is not None:
                    self.remember(session, start)
        return events

    def known(self, session: str) -> Start | None:
        """Return the start of a session, if it is remembered."""
        with self._lock:
            return self._starts.get(session)

    def remember(self, session: str, start: Start) -> None:
        """Remember the start of a session, which fits."""
        with self._lock:
            self._starts.put(session, start)

    def checkpoint_at(self, reads: LogReader, position: int) -> CreatedCheckpoint | None:
        """Return the checkpoint that the event at a position created, None if it created none."""
        row = reads.event_at(position)
        return None if row is None else checkpoint_in(self._codec.recorded_event(*row))


class _Before:
    """What a log says before an event, looked up on one connection."""

    def __init__(self, fitting: FittingEvents, reads: LogReader) -> None:
        self._fitting, self._reads = fitting, reads

    def start_of(self, session: str) -> Start | None:
        """Return the start of a session, None if it was not started.

        A start fits only if that of the parent does, and so on: the ancestors are read first, in a loop and not by
        recursion, because a lineage may have any depth.
        """
        if (known := self._fitting.known(session)) is not None:
            return known
        line: list[RecordedEvent] = []
        while (first := self._first(session)) is not None:
            line.append(first)
            start = start_in(first)
            if start is None or start.parent is None or start.branched_at is None:
                break
            if self._fitting.known(start.parent) is not None:
                break
            if len(line) > 1 and first.position >= line[-2].position:
                break  # It is no ancestor. Positions that fall end every cycle.
            session = start.parent
        found: Start | None = None
        for first in reversed(line):
            start = start_in(first)
            if start is None or why_unfit(first, _Ancestors(self._fitting)) is not None:
                return None
            self._fitting.remember(str(session_of(first.stream)), start)
            found = start
        return found

    def checkpoint_at(self, position: int) -> CreatedCheckpoint | None:
        """Return the checkpoint that the event at a position created, None if it created none."""
        return self._fitting.checkpoint_at(self._reads, position)

    def _first(self, session: str) -> RecordedEvent | None:
        """Return the first event of a session if it is a start without flaws. Its title stays encrypted."""
        row = self._reads.first_event(session_stream(session))
        if row is None or row[3] != SessionStarted.topic:
            return None
        try:
            first = _PLAIN.recorded_event(*row)
        except UndecodableEvent:
            return None
        return first if isinstance(first.event, SessionStarted) else None


class _Ancestors:
    """The starts that are remembered, and no checkpoints: enough to tell whether a start fits."""

    def __init__(self, fitting: FittingEvents) -> None:
        self.start_of = fitting.known

    def checkpoint_at(self, position: int) -> CreatedCheckpoint | None:
        """Return None."""
        return None
