"""The written segments of a generation: the longest chain from 0 that fits log, model and recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.vectors.grouping import Group, fold
from mnemolog.projections.vectors.manifest import (
    Damaged,
    Manifest,
    SegmentState,
    covered_by,
    log_range_of,
    next_of_chain,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
)
from mnemolog.projections.vectors.publish import load
from mnemolog.projections.vectors.segment import Segment

READ_TOGETHER: Final = 64
"""Turns that lie this close in the log are read in one go, with what lies between them."""
LISTINGS_MAX: Final = 100
"""Times a folder is listed anew because a segment of it was merged away while it was read."""


class Maker(NamedTuple):
    """What made a segment that may be used."""

    fingerprint: str
    recipe: str
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


class _Vanished(Exception):
    """A segment was merged away while it was read."""


def load_chain(
    folder: Path, *, log: Log, maker: Maker, quarantine: Path, known: Mapping[Path, Segment] | None = None
) -> Chain:
    """Read the segments in `folder`, and from the log the turns that were open at their end.

    Those that are `known` by their folder are not read again. What is damaged goes to quarantine, if the log
    covers it; what the log knows nothing of is passed over and stays. Raises `ProjectionUnreadable` when
    something cannot be read just now.
    """
    for _ in range(LISTINGS_MAX):
        try:
            usable = _usable(folder, log, maker, quarantine)
            return _with_opened(_longest(usable, log, known or {}, quarantine), log, maker, quarantine)
        except _Vanished:
            continue
    raise errors.ProjectionUnreadable(folder, "its segments change more quickly than they can be read")


def _usable(folder: Path, log: Log, maker: Maker, quarantine: Path) -> list[tuple[Manifest, Path]]:
    """Return the segments whose tags fit."""
    found: list[tuple[Manifest, Path]] = []
    for part in segment_folders(folder):
        try:
            manifest = read_manifest(part)
            if range_of(part) != (manifest.after, manifest.upto):
                raise Damaged(part, "its name and its manifest tell of other offsets")
            if manifest.recipe != maker.recipe:
                raise Damaged(part, f"it was made by another recipe, {manifest.recipe!r}")
            if state_of(manifest, log=log, fingerprint=maker.fingerprint) is SegmentState.USABLE:
                found.append((manifest, part))
        except Damaged as error:
            _quarantine(part, error.cause, log, quarantine)
    return found


def _longest(
    found: list[tuple[Manifest, Path]], log: Log, known: Mapping[Path, Segment], quarantine: Path
) -> list[Segment]:
    chain: list[Segment] = []
    reached = ORIGIN
    while (following := next_of_chain(found, reached)) is not None:
        manifest, part = following
        try:
            chain.append(known[part] if part in known else load(part, manifest))
            reached = manifest.upto
        except Damaged as error:
            _quarantine(part, error.cause, log, quarantine)
            found.remove((manifest, part))
        except MemoryError as error:  # Nothing is wrong with the files.
            raise errors.ProjectionUnreadable(part, "there is too little memory to read it") from error
    return chain


def _with_opened(segments: list[Segment], log: Log, maker: Maker, quarantine: Path) -> Chain:
    while segments:
        last = segments.pop()
        opened = _opened(log, last, maker)
        if opened is not None:
            return Chain((*segments, last), opened)
        if last.folder is not None:
            _quarantine(last.folder, "the turns it calls open are not in the log", log, quarantine)
    return Chain((), {})


def _opened(log: Log, last: Segment, maker: Maker) -> dict[str, Group] | None:
    """Return the groups that are open at the end of a segment, or None where the log has no such turns."""
    positions = [Position(position) for position in last.open_turns.tolist()]
    turns = list(_turns_at(log, positions))
    folded = fold({}, turns, every=maker.every)
    return folded.opened if len(turns) == len(positions) and not folded.closed else None


def _turns_at(log: Log, positions: Sequence[Position]) -> Iterator[RecordedEvent]:
    """Yield the turns at `positions`, which rise, as events; what the log does not have is left out."""
    for run in _runs(positions):
        wanted = set(run)
        for events in log.read(after=Position(run[0] - 1), upto=run[-1]):
            yield from (
                e for e in events if e.position in wanted and (isinstance(e.event, TurnRecorded) or was_turn(e.event))
            )


def _runs(positions: Sequence[Position]) -> Iterator[list[Position]]:
    run: list[Position] = []
    for position in positions:
        if run and position - run[-1] > READ_TOGETHER:
            yield run
            run = []
        run.append(position)
    if run:
        yield run


def _quarantine(folder: Path, why: str, log: Log, quarantine: Path) -> None:
    """Move a damaged segment to quarantine, if the log has the events it was built from."""
    if not folder.exists():
        raise _Vanished
    offsets = range_of(folder)
    if offsets is not None and covered_by(log, offsets):
        Quarantine(quarantine).add(folder, reason=why, built_from=log_range_of(folder))
