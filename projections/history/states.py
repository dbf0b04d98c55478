"""What sessions and threads held at any position, read from the log and cached.

The states of sessions are folded. Of threads there are events by position, and values of channels from their deltas.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from mnemolog.domain import errors, session
from mnemolog.domain.events import Event, Forgotten, RecordedEvent, SessionStarted
from mnemolog.domain.forgetting import is_checkpoint
from mnemolog.domain.scope import UNBOUNDED, Boundary, covered
from mnemolog.domain.session import NO_SESSION, SessionState, session_stream
from mnemolog.domain.spelling import spelled
from mnemolog.domain.stream_fold import FoldedState, Past
from mnemolog.domain.threads import ChannelValue, ThreadCheckpointed, ValueAt, base_number, read_value, stored_value
from mnemolog.domain.values import Position
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.ports import Log, SessionLog
from mnemolog.projections.sql.snapshots import SnapshotStore

CACHE_BYTES: Final = 64 << 20
"""Size of the cache of values of threads, least recently used first out."""
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
    return {name: Position(kept) for name, kept in stored.kept.items()} | {
        value.name: position for value in stored.values
    }


SESSIONS_KEPT_MAX: Final = 256
INSIDE_KEPT_MAX: Final = 10_000
"""Sessions for which the answer whether the boundary covers them is cached. It never changes."""
SNAPSHOT_EVERY: Final = 1_000
"""Events of a session, turns not counted, between one snapshot of it and the next."""

CHECKPOINTS_KEPT_MAX: Final = 1_024
"""States of so many checkpoints are kept for each session. They share what they have in common."""


def evolve(state: SessionState | None, recorded: RecordedEvent, past: Past[SessionState]) -> SessionState | None:
    """Return the state of a session after an event, where `past` gives the states of streams."""

    def past_of_session(session: str, position: Position) -> SessionState:
        found = past(session_stream(session), position)
        if found is None:
            raise errors.LogDamaged(
                f"session {session!r} had not started at position {position}", position=recorded.position
            )
        return found

    return session.evolve(state, recorded, past_of_session)


_position = attrgetter("position")


class _Kept:
    """The cached states of one session: the latest, and those at its checkpoints, by ascending position."""

    def __init__(self, latest: FoldedState[SessionState]) -> None:
        self.latest = latest
        self.unsaved = 0
        """Events since the last snapshot."""
        self.states: list[FoldedState[SessionState]] = []

    def at_or_before(self, position: Position) -> FoldedState[SessionState] | None:
        if self.latest.position <= position:
            return self.latest
        count = bisect_right(self.states, position, key=_position)
        return self.states[count - 1] if count else None

    def add_checkpoint(self, state: FoldedState[SessionState]) -> None:
        place = bisect_right(self.states, state.position, key=_position)
        if place and self.states[place - 1].position == state.position:
            return
        self.states.insert(place, state)
        if len(self.states) > CHECKPOINTS_KEPT_MAX:
            del self.states[0]


class _KeptSessions:
    """The cached states of sessions. Several threads need its `lock`."""

    def __init__(self) -> None:
        self._kept: LruCache[str, _Kept] = LruCache(SESSIONS_KEPT_MAX)
        self._epoch = 0
        """The forgetting epoch in which the cached states were read."""
        self.lock = fork_guard.lock()
        self.get = self._kept.get

    def get_or_add(self, stream: str, state: FoldedState[SessionState]) -> _Kept:
        """Return the cached states of a session; cache `state` if there are none."""
        if (kept := self._kept.get(stream)) is None:
            self._kept.put(stream, kept := _Kept(state))
        return kept

    def is_of_now(self, epoch: int) -> bool:
        """Whether states folded in an epoch may be cached. Drops the states of earlier epochs."""
        if epoch > self._epoch:
            self._kept.clear()
            self._epoch = epoch
        return epoch == self._epoch


class SessionStates:
    """Returns states of sessions. Safe for many threads; includes what other processes have appended.

    A session outside of `boundary` counts as never started.
    """

    def __init__(self, log: SessionLog, snapshots: SnapshotStore, *, boundary: Boundary = UNBOUNDED) -> None:
        self._log = log
        self._snapshots = snapshots
        self.boundary = boundary
        self._inside: LruCache[str, bool] = LruCache(INSIDE_KEPT_MAX)
        self._kept = _KeptSessions()

    def within(self, boundary: Boundary) -> "SessionStates":
        """Return the states of the sessions inside of a boundary, with the same cache."""
        made = SessionStates(self._log, self._snapshots, boundary=boundary)
        made._kept = self._kept
        return made

    def latest(self, session: str) -> SessionState | None:
        """Return the state of a session now, None if it was never started."""
        if not self._may_be_inside(session):
            return None
        stream = session_stream(session)
        folded, events = self._fold(stream, None)
        if folded.state is not None and self._keep(stream, folded, events=events):
            self._snapshots.save(stream, folded)
        return folded.state if self.is_inside(folded.state) else None

    def at(self, session: str, position: Position) -> SessionState | None:
        """Return the state of a session as of `position`, None if it had not started then."""
        if not self._may_be_inside(session):
            return None
        folded, _ = self._fold(session_stream(session), position)
        return folded.state if self.is_inside(folded.state) else None

    def is_outside(self, session: str) -> bool:
        """Whether a session that was started is outside of the boundary. Reads no more of it than its first event."""
        return bool(self.boundary.scopes) and self._known_inside(session) is False

    def _may_be_inside(self, session: str) -> bool:
        """Whether a session can be inside. One outside takes as many questions to the log as one that never was."""
        return not self.boundary.scopes or self._known_inside(session) is True

    def _known_inside(self, session: str) -> bool | None:
        """Whether a session is inside; None if it was never started, which takes as many questions as one outside."""
        inside = self._inside.get(session)
        if inside is False:
            self._log.first_event(NO_SESSION)
        elif inside is None and (inside := self._begins_inside(session)) is not None:
            self._inside.put(session, inside)
        return inside

    def _begins_inside(self, session: str) -> bool | None:
        """Whether a session and all that it inherits from are inside; None if it was not started."""
        first = self._log.first_event(session_stream(session))
        if first is None or not isinstance(first.event, SessionStarted):
            return None
        while covered(self.boundary.scopes, first.event.scope):
            if first.event.parent is None or first.event.branched_at is None:
                return True
            child, first = first, self._log.first_event(session_stream(first.event.parent))
            if first is None or not isinstance(first.event, SessionStarted) or first.position >= child.position:
                return False  # A parent that starts after its branch: such a lineage may be a cycle.
        return False

    def is_inside(self, state: SessionState | None) -> bool:
        """Whether the boundary covers a session and all sessions whose turns and working memory it inherited."""
        if state is None or not self.boundary.scopes:
            return True
        inside = self._inside.get(state.session)
        if inside is None:
            scopes = [state.started.scope]
            for ancestor in state.ancestors:
                found = self._fold(session_stream(ancestor), None)[0].state
                if found is None:  # Not committed yet.
                    return False
                scopes.append(found.started.scope)
            inside = all(covered(self.boundary.scopes, scope) for scope in scopes)
            self._inside.put(state.session, inside)
        return inside

    def holds(self, session: str) -> bool:
        """Whether a session exists and is inside of the boundary."""
        inside = self._inside.get(session)
        return self.latest(session) is not None if inside is None else inside

    def id_of(self, name: str, scope: str | None = None) -> str:
        """Return the id in the log of the session that `name` stands for here. See `Boundary.in_log`."""

        def keeps(name: str) -> bool:
            state = self.latest(name)
            return state is not None and covered(self.boundary.over(scope), state.started.scope)

        found = self.boundary.in_log("session", name, scope, keeps=keeps, has=self.holds)
        return found if found.isascii() else spelled(found, lambda id: id in self.boundary.scopes or self.holds(id))

    def known(self, stream: str, position: Position | None) -> FoldedState[SessionState] | None:
        """Return what is known of a stream at or before `position` without reading the log."""
        with self._kept.lock:
            kept = self._kept.get(stream)
            if kept is not None:
                found = kept.latest if position is None else kept.at_or_before(position)
                if found is not None:
                    return found
        return self._snapshots.find(stream, position)

    def _fold(self, stream: str, position: Position | None) -> tuple[FoldedState[SessionState], int]:
        """Return the state with the number of events that were read for it."""
        passed: list[FoldedState[SessionState]] = []
        events = 0

        def evolve_and_note(
            state: SessionState | None, recorded: RecordedEvent, past: Past[SessionState]
        ) -> SessionState | None:
            nonlocal events
            after = evolve(state, recorded, past)
            if recorded.stream == stream:
                events += 1
                if is_checkpoint(recorded.event):
                    passed.append(FoldedState(recorded.version, recorded.position, after))
            return after

        folded = self._log.fold(stream, evolve_and_note, upto=position, known=self.known)
        with self._kept.lock:
            if self._kept.is_of_now(folded.epoch) and passed:
                kept = self._kept.get_or_add(stream, passed[-1]._replace(epoch=folded.epoch))
                for state in passed:
                    kept.add_checkpoint(state._replace(epoch=folded.epoch))
        return folded, events

    def _keep(self, stream: str, state: FoldedState[SessionState], *, events: int) -> int:
        """Keep the latest state; return how many events came since the last snapshot, if it is due, or 0."""
        with self._kept.lock:
            if not self._kept.is_of_now(state.epoch):
                return 0
            kept = self._kept.get_or_add(stream, state)
            if state.version > kept.latest.version:
                kept.latest = state
            kept.unsaved += events
            due = kept.unsaved if kept.unsaved >= SNAPSHOT_EVERY else 0
            kept.unsaved -= due
            return due
