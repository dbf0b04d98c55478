"""Which generations lie on the disk and what each is worth: read from tags, without FAISS."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log
from mnemolog.projections.vectors.manifest import SegmentState, read_manifest, state_of


class GenerationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model's vectors, as their manifests describe them. File contents are not checked here."""

    generation: str
    model: str
    fingerprint: str
    recipe: str
    """How turns become the texts that are embedded, the size of groups included."""
    state: str
    """`current`, `behind`, `other-log`, `ahead`, `diverged` or `damaged`."""
    covers: Position
    """How far the segments go. Turns up to here whose group is open are embedded in memory by whoever recalls."""
    behind_events: int
    vectors: int
    open_turns: int
    """Turns up to `covers` that no vector on disk stands for, because their group was open there."""


def generations(root: Path, log: Log) -> list[GenerationStatus]:
    """Return the state of every generation below `root`."""
    return [_status(folder, log) for folder in sorted(root.glob("[0-9a-f]*-[0-9]*")) if folder.is_dir()]


def _status(folder: Path, log: Log) -> GenerationStatus:
    head = log.head().position
    covers, vectors, open_turns = ORIGIN, 0, 0
    model, fingerprint, recipe = "", folder.name.split("-")[0], ""
    state = "current"
    for part in sorted(folder.glob("[0-9]*-[0-9]*")):
        try:
            manifest = read_manifest(part)
        except errors.ProjectionUnreadable:
            state = SegmentState.DAMAGED.value
            continue
        model, fingerprint, recipe = manifest.model, manifest.fingerprint, manifest.recipe
        worth = state_of(manifest, log=log, fingerprint=None)
        if worth is not SegmentState.USABLE:
            state = worth.value
        elif manifest.after == covers:
            covers, vectors, open_turns = manifest.upto, vectors + manifest.vectors, manifest.open_turns or 0
    if state == "current" and covers < head:
        state = "behind"
    return GenerationStatus(
        generation=folder.name,
        model=model,
        fingerprint=fingerprint,
        recipe=recipe,
        state=state,
        covers=covers,
        behind_events=max(0, head - covers),
        vectors=vectors,
        open_turns=open_turns,
    )
