"""Where the lines of a lineage go: one row for each session, time from left to right.

Places are not proportional to time. What happened at different positions stands one step apart, so that sessions of a
minute and pauses of a month can be seen side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Switch
from mnemolog.server.console.session_marks import Mark

ROW: Final = 44
"""Height of a row, in units of the picture: the label of a session stands above its line."""
REASON_BELOW: Final = 14
"""How far below its line the reason of a switch stands: above the label of the next session."""
LEFT: Final = 12
WIDTH: Final = 1_000
STEP_MIN: Final = 5
STEP_MAX: Final = 120
REASON_ROOM: Final = 68
"""Room to the right of a switch, for its reason: without so much before the next one, it is in the table only."""
LABEL_ROOM: Final = 260
"""Room to the right of the last step, for the label of a session that started there."""


class Line(NamedTuple):
    """A session to draw."""

    session: str
    label: str
    parent: str | None
    branched_at: Position | None
    started: Position
    last: Position
    ended: bool
    marks: Sequence[Mark]


class Row(NamedTuple):
    """A session in the picture."""

    session: str
    label: str
    x: float
    y: int
    x_last: float
    """Where its last event is, or the last point that a session was branched from."""
    ended: bool
    join: str
    """The path from the parent; empty without one."""
    shares: bool
    """Whether it was branched, and not only started, from the parent."""
    rewinds: tuple[Rewind, ...]
    checkpoints: tuple[Point, ...]


class Rewind(NamedTuple):
    """What a rewind or a restore hid."""

    x_from: float
    x_to: float
    path: str
    """An arc back."""
    mark: Mark


class Point(NamedTuple):
    """A checkpoint."""

    x: float
    mark: Mark


class Arc(NamedTuple):
    """A switch of an agent between two sessions of the picture."""

    path: str
    x: float
    """Where the reason stands: right of the arc, below the line of the upper session."""
    y: int
    has_room: bool
    """Whether the reason fits in before the next one."""
    switch: Switch


class Drawing(NamedTuple):
    """The picture."""

    width: int
    height: int
    rows: tuple[Row, ...]
    arcs: tuple[Arc, ...]


def draw(lines: Sequence[Line], switches: Sequence[Switch]) -> Drawing:
    """Return where everything goes."""
    y_of = {line.session: ROW * (number + 1) for number, line in enumerate(lines)}
    shown = [switch for switch in switches if switch.to in y_of and switch.from_ in y_of and switch.from_ != switch.to]
    places = sorted(set(_places(lines, y_of)) | {switch.position for switch in shown})
    step = min(max(STEP_MIN, (WIDTH - LEFT - LABEL_ROOM) / max(len(places), 1)), STEP_MAX)
    x_of = {place: round(LEFT + step * number, 1) for number, place in enumerate(places)}
    return Drawing(
        width=round(LEFT + step * len(places) + LABEL_ROOM),
        height=ROW * len(lines) + ROW // 2,
        rows=tuple(_row(line, lines, x_of, y_of) for line in lines),
        arcs=tuple(_arcs(shown, x_of, y_of)),
    )


def _places(lines: Sequence[Line], y_of: dict[str, int]) -> Iterator[Position]:
    for line in lines:
        yield line.started
        yield line.last
        if line.parent in y_of and line.branched_at is not None:
            yield line.branched_at
        for mark in line.marks:
            if mark.kind in ("rewind", "restore", "checkpoint"):
                yield mark.position
            if mark.to is not None:
                yield mark.to


def _row(line: Line, lines: Sequence[Line], x_of: dict[Position, float], y_of: dict[str, int]) -> Row:
    x, y, join = x_of[line.started], y_of[line.session], ""
    if line.parent in y_of:
        begin = x_of[line.started if line.branched_at is None else line.branched_at]
        above = y_of[line.parent]
        join = f"M{begin} {above} C{begin} {(above + y) / 2:g} {begin} {y} {x} {y}"
    rewinds = tuple(
        Rewind(x_of[mark.to], x_of[mark.position], _back(x_of[mark.position], x_of[mark.to], y), mark)
        for mark in line.marks
        if mark.to is not None
    )
    checkpoints = tuple(Point(x_of[mark.position], mark) for mark in line.marks if mark.kind == "checkpoint")
    shares = line.branched_at is not None
    return Row(line.session, line.label, x, y, max(x_of[line.last], x), line.ended, join, shares, rewinds, checkpoints)


def _back(begin: float, end: float, y: int) -> str:
    rise = 10
    return f"M{begin} {y} C{begin} {y - rise} {end} {y - rise} {end} {y - 3}"


def _arcs(switches: Sequence[Switch], x_of: dict[Position, float], y_of: dict[str, int]) -> Iterator[Arc]:
    """Yield the arcs, the last first: then it is known of each where the next one begins."""
    bow = 14
    next_at: dict[int, float] = {}
    for switch in sorted(switches, key=lambda item: -item.position):
        x, begin, end = x_of[switch.position], y_of[switch.from_ or ""], y_of[switch.to]
        y = min(begin, end) + REASON_BELOW
        has_room = next_at.get(y, inf) - x >= REASON_ROOM
        path = f"M{x} {begin} C{x + bow} {begin} {x + bow} {end} {x} {end}"
        yield Arc(path, x + bow, y, has_room, switch)
        next_at[y] = x
