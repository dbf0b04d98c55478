"""Folding a stream into a state, from any state of it that is known already.

A state that was true at a version stays true of that version, because events are never changed: whoever
has one needs only what came after it. That ends when content is forgotten: a state of an earlier epoch may hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.forgetting import is_checkpoint
from mnemolog.domain.position import NO_STREAM, ORIGIN, Position, Version

State = TypeVar("State")

Past = Callable[[str, Position], State | None]
"""Gives the state of a stream as it was at a position."""

Evolve = Callable[[State | None, RecordedEvent, Past[State]], State | None]
"""Gives the state after an event; events of other kinds change nothing. It must not depend on turns."""


class FoldedState(NamedTuple, Generic[State]):
    """A state, and the last event of its stream that went into it."""

    version: Version
    position: Position
    state: State | None
    epoch: int = 0
    """The forgetting epoch (`mnemolog.domain.forgetting`) in which its events were read."""

    def through(self, events: Iterable[RecordedEvent], evolve: Evolve[State], past: Past[State]) -> FoldedState[State]:
        """Return what follows when `events`, which come behind this one in its stream, have happened."""
        version, position, state, epoch = self
        for recorded in events:
            version, position, state = recorded.version, recorded.position, evolve(state, recorded, past)
        return FoldedState(version, position, state, epoch)


Read = Callable[[str, Version, Position | None], Sequence[RecordedEvent]]
"""Gives the events of a stream, turns left out, behind a version and up to a position; all, if that is None."""

Known = Callable[[str, Position | None], FoldedState[State] | None]
"""Says what is known of a stream at or before a position; at the latest, if that is None."""


def nothing_folded(epoch: int = 0) -> FoldedState[State]:
    """Return the state of a stream before its first event."""
    return FoldedState(NO_STREAM, ORIGIN, None, epoch)


def nothing_known(_stream: str, _position: Position | None) -> None:
    """Know nothing: fold from the beginning."""
    return


def of_epoch(folded: FoldedState[State] | None, epoch: int) -> FoldedState[State] | None:
    """Return what was folded if that was in this epoch."""
    return folded if folded is not None and folded.epoch == epoch else None


class _Needed(Exception):
    """A fold cannot go on without the state of another stream, or of an earlier position of its own."""

    def __init__(self, stream: str, position: Position) -> None:
        self.stream, self.position = stream, position


class _Fold(Generic[State]):
    """A fold that can be left in its middle and gone on with."""

    def __init__(
        self, stream: str, upto: Position | None, base: FoldedState[State], events: Sequence[RecordedEvent]
    ) -> None:
        self.stream, self.upto, self.reached = stream, upto, base
        self._events, self._done = events, 0

    def go_on(self, evolve: Evolve[State], pasts: dict[tuple[str, Position], State | None]) -> None:
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
    """Return the state of a stream as of a position; its latest, if that is None.

    `epoch` is the one that everything is read in, sampled before: what is known of another is of no use.

    A past is folded once, however many restores and branches ask for it: each of them folding its own, and in
    it those before, would be 2^n folds. Whose past is missing waits on a stack of ours and not on the
    interpreter's: a lineage may be of any depth.
    """
    pasts: dict[tuple[str, Position], State | None] = {}

    def begin(stream: str, upto: Position | None) -> _Fold[State]:
        base = of_epoch(known(stream, upto), epoch) or nothing_folded(epoch)
        return _Fold(stream, upto, base, read(stream, base.version, upto))

    waiting = [begin(stream, upto)]
    while True:
        fold = waiting[-1]
        try:
            fold.go_on(evolve, pasts)
        except _Needed as needed:
            waiting.append(begin(needed.stream, needed.position))
            continue
        waiting.pop()
        if not waiting:
            return fold.reached
        if fold.upto is not None:
            pasts[fold.stream, fold.upto] = fold.reached.state
