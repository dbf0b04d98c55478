"""Fold a stream into a state, starting from any known state of it.

The state at a version never changes, because events never change: with a known state only later events are read.
Forgetting content is the exception: a state of an earlier epoch may still contain it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.forgetting import is_checkpoint
from mnemolog.domain.values import NO_STREAM, ORIGIN, Position, Version

State = TypeVar("State")

Past = Callable[[str, Position], State | None]
"""Returns the state of a stream as of a position."""

Evolve = Callable[[State | None, RecordedEvent, Past[State]], State | None]
"""Returns the state after an event; events of other kinds change nothing. It must not depend on turns."""


class FoldedState(NamedTuple, Generic[State]):
    """A state, and the last event of its stream that went into it."""

    version: Version
    position: Position
    state: State | None
    epoch: int = 0
    """The forgetting epoch (`mnemolog.domain.forgetting`) in which its events were read."""

    def through(
        self, events: Iterable[RecordedEvent], evolve: Evolve[State], past: Past[State]
    ) -> "FoldedState[State]":
        """Return the state after `events`, which follow this state in its stream."""
        version, position, state, epoch = self
        for recorded in events:
            version, position, state = recorded.version, recorded.position, evolve(state, recorded, past)
        return FoldedState(version, position, state, epoch)


Read = Callable[[str, Version, Position | None], Sequence[RecordedEvent]]
"""Returns the events of a stream, without turns, after a version and up to a position (None: all)."""

Known = Callable[[str, Position | None], FoldedState[State] | None]
"""Returns a known state of a stream at or before a position (None: the latest one known)."""


def nothing_folded(epoch: int = 0) -> FoldedState[State]:
    """Return the state of a stream before its first event."""
    return FoldedState(NO_STREAM, ORIGIN, None, epoch)


def nothing_known(_stream: str, _position: Position | None) -> None:
    """Know no state: fold from the start."""
    return


def of_epoch(folded: FoldedState[State] | None, epoch: int) -> FoldedState[State] | None:
    """Return the folded state if it is of this epoch, else None."""
    return folded if folded is not None and folded.epoch == epoch else None


class _Needed(Exception):
    """A fold needs the state of another stream, or of an earlier position of its own, to continue."""

    def __init__(self, stream: str, position: Position) -> None:
        self.stream, self.position = stream, position


class _Fold(Generic[State]):
    """A fold that can be suspended and continued."""

    def __init__(
        self, stream: str, upto: Position | None, base: FoldedState[State], events: Sequence[RecordedEvent]
    ) -> None:
        self.stream = stream
        self.upto = upto
        self.reached = base
        self._events, self._done = events, 0

    def resume(self, evolve: Evolve[State], pasts: dict[tuple[str, Position], State | None]) -> None:
        """Fold to the end, or raise `_Needed`."""

        def past(stream: str, position: Position) -> State | None:
            try:
                return pasts[stream, position]
            except KeyError:
                raise _Needed(stream, position) from None

        for recorded in self._events[self._done :]:
            state = evolve(self.reached.state, recorded, past)
            self.reached = FoldedState(recorded.version, recorded.position, state, self.reached.epoch)
            self._done += 1
            if is_checkpoint(recorded.event):
                pasts[self.stream, recorded.position] = state  # A restore will ask for it.


def fold_stream(
    stream: str, upto: Position | None, evolve: Evolve[State], *, read: Read, known: Known[State], epoch: int
) -> FoldedState[State]:
    """Return the state of a stream as of a position (None: the latest).

    `epoch` is sampled before anything is read: states of another epoch are not used.

    A past state is folded once, however many restores and branches need it: if each folded its own, and in it the
    ones before, there would be 2^n folds. Suspended folds wait on an explicit stack, not on the interpreter's, so a
    lineage may have any depth.
    """
    pasts: dict[tuple[str, Position], State | None] = {}

    def begin(stream: str, upto: Position | None) -> _Fold[State]:
        base = of_epoch(known(stream, upto), epoch) or nothing_folded(epoch)
        return _Fold(stream, upto, base, read(stream, base.version, upto))

    waiting = [begin(stream, upto)]
    while True:
        fold = waiting[-1]
        try:
            fold.resume(evolve, pasts)
        except _Needed as needed:
            waiting.append(begin(needed.stream, needed.position))
            continue
        waiting.pop()
        if not waiting:
            return fold.reached
        if fold.upto is not None:
            pasts[fold.stream, fold.upto] = fold.reached.state
