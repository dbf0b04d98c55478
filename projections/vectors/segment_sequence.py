"""Load the segments of a generation: the longest chain from position 0 that matches the log, model and recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN
from mnemolog.projections.ports import Log
from mnemolog.projections.vectors.manifest import (
    Damaged,
    Manifest,
    SegmentState,
    covered_by,
    next_of_chain,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
)
from mnemolog.projections.vectors.publish import load
from mnemolog.projections.vectors.rendering import RECIPE
from mnemolog.projections.vectors.segment import Segment

LISTINGS_MAX: Final = 100
"""How often a folder is listed again because a segment was merged away while it was read."""


class Chain(NamedTuple):
    """The usable segments of a generation."""

    used: tuple[Segment, ...]
    """Each begins where the one before ends."""
    beyond: tuple[Segment, ...] = ()
    """Those that follow a gap: look-ups by text find their vectors."""


SetAside = Callable[[Path, str], None]
"""Moves a damaged segment to quarantine, with the reason."""


class _Vanished(Exception):
    """A segment was merged away while it was read."""


def load_chain(
    folder: Path, *, log: Log, fingerprint: str, set_aside: SetAside, known: Mapping[Path, Segment] | None = None
) -> Chain:
    """Read the matching segments in `folder`.

    Segments in `known` (by folder) are not read again. Damaged ones are quarantined if the log covers them; others
    that do not match are ignored and stay. Raises `ProjectionUnreadable` if a file cannot be read just now.
    """
    for _ in range(LISTINGS_MAX):
        try:
            usable = _usable(folder, log, fingerprint, set_aside)
            return _chain(usable, log, known or {}, set_aside)
        except _Vanished:
            continue
    raise errors.ProjectionUnreadable(folder, "its segments change more quickly than they can be read")


def _usable(folder: Path, log: Log, fingerprint: str, set_aside: SetAside) -> list[tuple[Manifest, Path]]:
    """Return the segments whose manifests match."""
    found: list[tuple[Manifest, Path]] = []
    for part in segment_folders(folder):
        try:
            manifest = read_manifest(part)
            if range_of(part) != (manifest.after, manifest.upto):
                raise Damaged(part, "its name and its manifest have different positions")
            if manifest.recipe != RECIPE:
                raise Damaged(part, f"it was made by another recipe, {manifest.recipe!r}")
            if state_of(manifest, log=log, fingerprint=fingerprint) is SegmentState.USABLE:
                found.append((manifest, part))
        except Damaged as error:
            _quarantine(part, error.cause, log, set_aside)
    return found


def _chain(found: list[tuple[Manifest, Path]], log: Log, known: Mapping[Path, Segment], set_aside: SetAside) -> Chain:
    def read(manifest: Manifest, part: Path) -> Segment | None:
        try:
            return known[part] if part in known else load(part, manifest)
        except Damaged as error:
            _quarantine(part, error.cause, log, set_aside)
            return None
        except MemoryError as error:  # The files are fine.
            raise errors.ProjectionUnreadable(part, "there is too little memory to read it") from error

    used: list[Segment] = []
    reached = ORIGIN
    while (following := next_of_chain(found, reached)) is not None:
        if (segment := read(*following)) is None:
            found.remove(following)
        else:
            used.append(segment)
            reached = following[0].upto
    beyond = [read(manifest, part) for manifest, part in found if manifest.upto > reached]
    return Chain(tuple(used), tuple(segment for segment in beyond if segment is not None))


def _quarantine(folder: Path, why: str, log: Log, set_aside: SetAside) -> None:
    """Quarantine a damaged segment, if the log has the events it was built from."""
    if not folder.exists():
        raise _Vanished
    offsets = range_of(folder)
    if offsets is not None and covered_by(log, offsets):
        set_aside(folder, why)
