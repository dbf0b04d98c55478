"""Load the segments of a generation: the longest chain from position 0 that matches the log, model and recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import Quarantine
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

LISTINGS_MAX: Final = 100
"""How often a folder is listed again because a segment was merged away while it was read."""


class Maker(NamedTuple):
    """The model and recipe that a usable segment must have been made with."""

    fingerprint: str
    recipe: str


class _Vanished(Exception):
    """A segment was merged away while it was read."""


def load_chain(
    folder: Path, *, log: Log, maker: Maker, quarantine: Path, known: Mapping[Path, Segment] | None = None
) -> tuple[Segment, ...]:
    """Read the matching segments in `folder`, each beginning where the one before ends.

    Segments in `known` (by folder) are not read again. Damaged ones go to quarantine if the log covers them; others
    that do not match are ignored and stay. Raises `ProjectionUnreadable` if a file cannot be read just now.
    """
    for _ in range(LISTINGS_MAX):
        try:
            usable = _usable(folder, log, maker, quarantine)
            return _longest(usable, log, known or {}, quarantine)
        except _Vanished:
            continue
    raise errors.ProjectionUnreadable(folder, "its segments change more quickly than they can be read")


def _usable(folder: Path, log: Log, maker: Maker, quarantine: Path) -> list[tuple[Manifest, Path]]:
    """Return the segments whose manifests match."""
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
) -> tuple[Segment, ...]:
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
        except MemoryError as error:  # The files are fine.
            raise errors.ProjectionUnreadable(part, "there is too little memory to read it") from error
    return tuple(chain)


def _quarantine(folder: Path, why: str, log: Log, quarantine: Path) -> None:
    """Move a damaged segment to quarantine, if the log has the events it was built from."""
    if not folder.exists():
        raise _Vanished
    offsets = range_of(folder)
    if offsets is not None and covered_by(log, offsets):
        Quarantine(quarantine).add(folder, reason=why, built_from=log_range_of(folder))
