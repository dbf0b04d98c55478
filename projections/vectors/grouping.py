"""Which turns share a vector: groups of consecutive turns of one session. Pure, and told by the log alone.

The turns of a session are numbered since its last closing event. A group closes at its N-th turn, or with
fewer where the conversation breaks: its session ends, an agent leaves it by a switch (also a switch to
itself), its turns are rewound, or a checkpoint is restored. What has not closed yet is open. Nothing here
depends on when or in which steps the log is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.events import (
    CheckpointRestored,
    RecordedEvent,
    SessionEnded,
    SessionSwitched,
    TurnRecorded,
    TurnsRewound,
)
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.limits import RETAIN_EVERY_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.session import session_stream
from mnemolog.projections.vectors.rendering import RECIPE, render

GROUPING: Final = "group/1"
"""Version of the rules above, part of the recipe. Change where a group closes or its text: raise it."""

_BETWEEN_TURNS: Final = "\n"


class Group(NamedTuple):
    """Turns of one session that share a vector, in the order they were recorded; one at least when it is closed."""

    turns: tuple[Position, ...]
    texts: tuple[str, ...]
    """The rendered turns, one for one."""
    forgotten: tuple[Position, ...] = ()
    """Turns that are forgotten. They count towards its size, so that the groups behind stay what they are."""

    @property
    def id(self) -> Position:
        """The position of the last turn.

        Every turn is in one group, so no two groups share it; a single turn's group is called by that turn;
        and an open group has one, which a closing position would not give it.
        """
        return self.turns[-1]

    @property
    def size(self) -> int:
        """How many turns it is made of."""
        return len(self.turns) + len(self.forgotten)

    @property
    def text(self) -> str:
        """What is embedded."""
        return self.texts[0] if len(self.texts) == 1 else _BETWEEN_TURNS.join(self.texts)


_EMPTY: Final = Group((), ())


class Closed(NamedTuple):
    """A group that will not change any more, and the position of the event that closed it."""

    at: Position
    group: Group


class Folded(NamedTuple):
    """What events made of the groups that were open before them."""

    opened: dict[str, Group]
    """Groups that are still open, by the stream of their session."""
    closed: list[Closed]
    """In the order they closed. An event closes one group at most."""


def fold(opened: Mapping[str, Group], events: Iterable[RecordedEvent], *, every: int) -> Folded:
    """Return the groups after `events`, which follow those that left `opened`. A group holds `every` turns."""
    if every == 1 and not opened:  # Each turn closes its own group; what a rebuild does most should be quick.
        turns = [(item.position, item.event) for item in events if isinstance(item.event, TurnRecorded)]
        return Folded({}, [Closed(position, Group((position,), (render(turn),))) for position, turn in turns])
    now, closed = dict(opened), list[Closed]()
    for recorded in events:
        event, position = recorded.event, recorded.position
        if isinstance(event, TurnRecorded) or was_turn(event):
            group = now.pop(recorded.stream, _EMPTY)
            if isinstance(event, TurnRecorded):
                group = _grown(group, position, render(event))
            else:
                group = group._replace(forgotten=(*group.forgotten, position))
            if group.size < every:
                now[recorded.stream] = group
            elif group.turns:
                closed.append(Closed(position, group))
        elif (left := _stream_left(recorded)) is not None and now.get(left, _EMPTY).size:
            open_one = now.pop(left)
            if open_one.turns:
                closed.append(Closed(position, open_one))
    return Folded(now, closed)


def recipe(every: int) -> str:
    """Return the recipe of texts that are embedded in groups of `every` turns. It is part of a fingerprint."""
    return RECIPE if every == 1 else f"{RECIPE} {GROUPING} every {every}"


def checked_every(every: int) -> int:
    """Return `every` if it is a number of turns to embed together. Raises `InvalidInput`."""
    if isinstance(every, bool) or not isinstance(every, int) or not 1 <= every <= RETAIN_EVERY_MAX:
        raise errors.InvalidInput("retain_every_n_turns", f"a whole number from 1 to {RETAIN_EVERY_MAX}, got {every!r}")
    return every


def _grown(group: Group, position: Position, text: str) -> Group:
    return Group((*group.turns, position), (*group.texts, text), group.forgotten)


def _stream_left(recorded: RecordedEvent) -> str | None:
    """Return the stream of the session whose group this event closes."""
    match recorded.event:
        case SessionEnded() | TurnsRewound() | CheckpointRestored():
            return recorded.stream
        case SessionSwitched(from_=str(session)):
            return session_stream(session)
        case _:
            return None
