"""The written segments of a generation: the longest chain from 0 that fits log, model and recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections import durable
from mnemolog.projections.ports import Log
from mnemolog.projections.vectors import segment as segments
from mnemolog.projections.vectors.grouping import Group, fold
from mnemolog.projections.vectors.manifest import Manifest, SegmentState, read_manifest, state_of
from mnemolog.projections.vectors.segment import Segment

READ_TOGETHER: Final = 64
"""Turns that lie this close in the log are read in one go, with what lies between them."""


class Maker(NamedTuple):
    """What made a segment that may be used."""

    fingerprint: str
    recipe: str
    format: int
    every: int
    """Turns of a group."""


class Chain(NamedTuple):
    """Segments, each beginning where the one before ends, and what is open at the end of the last."""

    segments: tuple[Segment, ...]
    opened: dict[str, Group]

    @property
    def upto(self) -> Position:
        """The end of the last segment."""
        return self.segments[-1].upto if self.segments else ORIGIN


def load_chain(folder: Path, *, log: Log, maker: Maker, quarantine: Path) -> Chain:
    """Read the segments in `folder`, and from the log the turns that were open at their end.

    What cannot be used goes to quarantine; the segments before it are used.
    """
    chain = _load_segments(folder, log=log, maker=maker, quarantine=quarantine)
    while chain:
        last = chain[-1]
        opened = _opened(log, last, maker)
        if opened is not None:
            return Chain(tuple(chain), opened)
        error = errors.ProjectionUnreadable(last.folder or folder, "the turns it calls open are not in the log")
        _set_aside(error.path, error, quarantine)
        chain.pop()
    return Chain((), {})


def _load_segments(folder: Path, *, log: Log, maker: Maker, quarantine: Path) -> list[Segment]:
    found: list[tuple[Manifest, Path]] = []
    for part in sorted(folder.glob("[0-9]*-[0-9]*")):
        try:
            manifest = read_manifest(part)
            state = state_of(manifest, log=log, fingerprint=maker.fingerprint)
            if state is not SegmentState.USABLE:
                raise errors.ProjectionUnreadable(part, f"the segment is {state.value}")
            if (manifest.recipe, manifest.format) != (maker.recipe, maker.format):
                raise errors.ProjectionUnreadable(part, f"it was made by another recipe, {manifest.recipe!r}")
            found.append((manifest, part))
        except errors.ProjectionUnreadable as error:
            _set_aside(part, error, quarantine)
    chain: list[Segment] = []
    reached = ORIGIN
    # Ranges may overlap when two processes wrote at once: of those that begin here, take the longest.
    while options := [(m, f) for m, f in found if m.after == reached and m.upto > reached]:
        manifest, part = max(options, key=lambda option: option[0].upto)
        try:
            chain.append(segments.load(part, manifest))
            reached = manifest.upto
        except errors.ProjectionUnreadable as error:
            _set_aside(part, error, quarantine)
            found.remove((manifest, part))
    return chain


def _opened(log: Log, last: Segment, maker: Maker) -> dict[str, Group] | None:
    """Return the groups that are open at the end of a segment, or None where the log has no such turns."""
    positions = [Position(position) for position in last.open_turns.tolist()]
    turns = list(_turns_at(log, positions))
    folded = fold({}, turns, every=maker.every)
    return folded.opened if len(turns) == len(positions) and not folded.closed else None


def _turns_at(log: Log, positions: Sequence[Position]) -> Iterator[RecordedEvent]:
    """Yield the turns at `positions`, which rise; those that the log does not have are left out."""
    for run in _runs(positions):
        wanted = set(run)
        for events in log.read(after=Position(run[0] - 1), upto=run[-1]):
            yield from (e for e in events if e.position in wanted and isinstance(e.event, TurnRecorded))


def _runs(positions: Sequence[Position]) -> Iterator[list[Position]]:
    run: list[Position] = []
    for position in positions:
        if run and position - run[-1] > READ_TOGETHER:
            yield run
            run = []
        run.append(position)
    if run:
        yield run


def _set_aside(folder: Path, error: errors.ProjectionUnreadable, quarantine: Path) -> None:
    # A folder that vanished meanwhile was merged away by another process: nothing is wrong with it.
    if folder.exists():
        durable.quarantine(folder, quarantine, reason=error.cause)
