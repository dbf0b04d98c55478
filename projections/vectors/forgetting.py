"""Remove forgotten turns from the vectors of every model. No model has to be loaded.

A segment is rewritten without the rows of these turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.infra.runtime import files
from mnemolog.infra.runtime.files import mapped_to_projection_errors
from mnemolog.projections.ports import Log
from mnemolog.projections.vectors.checked_rows import SomeRows
from mnemolog.projections.vectors.embedder import text_hashes_of
from mnemolog.projections.vectors.lock import WAIT_S, IndexerLock
from mnemolog.projections.vectors.manifest import (
    Damaged,
    SegmentState,
    generation_folders,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
)
from mnemolog.projections.vectors.segment import TEMPORARY, Description, Positions, Segment, TextHashes, load, publish

BUILDING: Final = ".building-*"


def purge(
    root: Path,
    log: Log,
    forgotten: Sequence[Position],
    *,
    salvage: Callable[[Path], None],
) -> None:
    """Remove the turns at these positions from every segment of this log below `root`.

    `salvage` keeps the undamaged vectors of a segment elsewhere before it is deleted. Segments past the head of this
    log, or of another history, are deleted: it is unknown whose vectors they hold.
    Raises `IndexerBusy` if another process writes vectors for too long, `ProjectionUnreadable`, and `StorageFull`.
    Segments purged before the error stay purged.
    """
    gone = np.asarray(sorted(forgotten), dtype=np.int64)
    models = sorted({generation.prefix for generation in generation_folders(root)})
    for model in models:
        with IndexerLock(root, model).held(wait_s=WAIT_S), mapped_to_projection_errors(root):
            # Listed under the lock: a rebuild that held it may have copied the vectors to a new generation.
            for generation in generation_folders(root, model):
                for folder in segment_folders(generation.path):
                    _purge(folder, log, gone, salvage)
                for place in (generation.path, root):
                    for left in files.leftovers(place, TEMPORARY):
                        shutil.rmtree(left, ignore_errors=True)
                        if left.exists():
                            raise errors.ProjectionUnreadable(left, "it cannot be deleted")
    with mapped_to_projection_errors(root):
        for folder in root.glob(BUILDING):
            # Not a generation yet, but left by an interrupted rebuild. A running rebuild would hold the lock.
            with IndexerLock(root, folder.name.removeprefix(BUILDING[:-1])).held(wait_s=WAIT_S):
                if folder.is_symlink():
                    folder.unlink()
                else:
                    shutil.rmtree(folder)


def _purge(folder: Path, log: Log, gone: Positions, salvage: Callable[[Path], None]) -> None:
    """Rewrite a segment without these turns, or delete it if that is not possible."""
    try:
        manifest = read_manifest(folder)
    except Damaged:
        if (span := range_of(folder)) is not None and _any_within(gone, *span):
            _remove(folder)
        return
    state = state_of(manifest, log=log, fingerprint=None)
    if state is SegmentState.OTHER_LOG:
        return
    if state is SegmentState.USABLE:
        if not _any_within(gone, manifest.after, manifest.upto):
            return
        try:
            segment = load(folder, manifest)
            skipped = tuple(item for item in segment.skipped if not _any_within(gone, item.position - 1, item.position))
            held = np.isin(segment.turns, gone)
            if not held.any() and len(skipped) == len(segment.skipped):
                return
            left = replace(_without(segment, held, text_hashes_of(segment, log)), skipped=skipped)
            description = Description(
                manifest.log_id,
                manifest.fingerprint,
                manifest.model,
                manifest.recipe,
                manifest.dimension,
                manifest.digest_at_upto,
            )
            publish([left], folder.parent, description)
        except Damaged:
            salvage(folder)
    _remove(folder)


def _without(segment: Segment, held: np.typing.NDArray[np.bool_], hashes: TextHashes) -> Segment:
    """Return a segment without the turns marked in `held`. Its rows stay on disk."""
    left = TextHashes.of(hashes.by_turn()[~held])
    kept = np.flatnonzero(~held[segment.rows])
    numbers = np.cumsum(~held) - 1
    return replace(
        segment,
        turns=segment.turns[~held],
        rows=numbers[segment.rows[kept]],
        exact=SomeRows(segment.exact, kept),
        coarse=None,
        read_text_hashes=lambda: left,
    )


def _remove(folder: Path) -> None:
    """Delete a segment: renamed first, so that no reader sees half of it."""
    doomed = folder.with_name(files.temporary_name("removed"))
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _any_within(gone: Positions, after: int, upto: int) -> bool:
    return bool(np.searchsorted(gone, after, side="right") < np.searchsorted(gone, upto, side="right"))
