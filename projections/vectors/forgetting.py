"""Remove forgotten turns from the vectors of every model. No model has to be loaded.

A segment is rewritten without the rows of these turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.infra.runtime import atomic_files
from mnemolog.infra.runtime.os_errors import mapped_to_projection_errors
from mnemolog.projections.ports import Log, Progress
from mnemolog.projections.sql.packed_vectors import Packed, Vectors
from mnemolog.projections.vectors.checked_rows import PIECE_ROWS, ExactRows, Rows
from mnemolog.projections.vectors.folders import GenerationFolder, generation_folders
from mnemolog.projections.vectors.lock import WAIT_S, IndexerLock
from mnemolog.projections.vectors.lookup_by_text import text_hashes_of
from mnemolog.projections.vectors.manifest import (
    Damaged,
    Manifest,
    SegmentState,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
)
from mnemolog.projections.vectors.publish import TEMPORARY, Description, load, publish
from mnemolog.projections.vectors.segment import Positions, Segment
from mnemolog.projections.vectors.text_hashes import TextHashes

BUILDING: Final = ".building-*"
PROBE: Final = "probe"


class Purged(NamedTuple):
    """Counts of the segments that a purge changed."""

    rewritten: int
    removed: int
    """Segments that must be rebuilt from the log, with the model for texts whose vectors are not stored elsewhere."""


Salvage = Callable[[Path], None]
"""Keeps the undamaged vectors of a segment elsewhere, before it is deleted."""


def purge(
    root: Path, log: Log, forgotten: list[Position], *, salvage: Salvage, progress: Progress | None = None
) -> Purged:
    """Remove the turns at these positions from every segment of this log below `root`.

    Segments past the head of this log, or of another history, are deleted: it is unknown whose vectors they hold.
    Raises `IndexerBusy` if another process writes vectors for too long, `ProjectionUnreadable`, and `StorageFull`.
    Segments purged before the error stay purged.
    """
    gone = np.asarray(sorted(forgotten), dtype=np.int64)
    rewritten = removed = 0
    models = sorted({generation.prefix for generation in generation_folders(root)})
    for number, model in enumerate(models):
        with IndexerLock(root, model).held(wait_s=WAIT_S), mapped_to_projection_errors(root):
            # Listed under the lock: a rebuild that held it may have copied the vectors to a new generation.
            for generation in generation_folders(root, model):
                for folder in segment_folders(generation.path):
                    outcome = _purged(folder, log, gone, salvage)
                    rewritten, removed = rewritten + outcome.rewritten, removed + outcome.removed
                _remove_leftovers(root, generation)
        if progress is not None:
            progress(number + 1, len(models))
    with mapped_to_projection_errors(root):
        for folder in (*root.glob(BUILDING), *root.glob(f".{PROBE}.*")):
            # Not a generation yet, but left by an interrupted rebuild. A running rebuild would hold the lock.
            with IndexerLock(root, folder.name.removeprefix(BUILDING[:-1])).held(wait_s=WAIT_S):
                if folder.is_symlink():
                    folder.unlink()
                else:
                    shutil.rmtree(folder)
    return Purged(rewritten, removed)


def _purged(folder: Path, log: Log, gone: Positions, salvage: Salvage) -> Purged:
    try:
        manifest = read_manifest(folder)
    except Damaged:
        offsets = range_of(folder)
        return _removed(folder) if offsets is not None and _any_within(gone, *offsets) else Purged(0, 0)
    state = state_of(manifest, log=log, fingerprint=None)
    if state is SegmentState.OTHER_LOG:
        return Purged(0, 0)
    if state is not SegmentState.USABLE:
        return _removed(folder)
    if not _any_within(gone, manifest.after, manifest.upto):
        return Purged(0, 0)
    try:
        segment = load(folder, manifest)
    except Damaged:
        salvage(folder)
        return _removed(folder)
    skipped = tuple(item for item in segment.skipped if not _holds(gone, item.position))
    held = np.isin(segment.turns, gone)
    if not held.any() and len(skipped) == len(segment.skipped):
        return Purged(0, 0)
    try:
        left = replace(_without(segment, held, text_hashes_of(segment, log)), skipped=skipped)
        publish([left], folder.parent, _described(manifest))
    except Damaged:
        salvage(folder)
        return _removed(folder)
    _removed(folder)
    return Purged(1, 0)


def _without(segment: Segment, held: np.typing.NDArray[np.bool_], hashes: TextHashes) -> Segment:
    """Return a segment without the turns marked in `held`. Its rows stay on disk."""
    left = TextHashes.of(hashes.by_turn()[~held])
    kept = np.flatnonzero(~held[segment.rows])
    numbers = np.cumsum(~held) - 1
    return replace(
        segment,
        turns=segment.turns[~held],
        rows=numbers[segment.rows[kept]],
        exact=_SomeRows(segment.exact, kept),
        coarse=None,
        read_text_hashes=lambda: left,
    )


class _SomeRows:
    """A selection of rows, read on demand."""

    def __init__(self, rows: ExactRows, left: Rows) -> None:
        self._rows, self._left = rows, left

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._left)

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._rows.dimension

    def packed(self, rows: Rows) -> Packed:
        """Return the rows with these numbers (ascending), packed."""
        return self._rows.packed(self._left[rows])

    def pieces(self) -> Iterator[Packed]:
        """Yield all rows in order, packed."""
        for start in range(0, len(self._left), PIECE_ROWS):
            yield self._rows.packed(self._left[start : start + PIECE_ROWS])

    def kept(self) -> Vectors | None:
        """Return nothing: these rows are read once."""
        return None


def _described(manifest: Manifest) -> Description:
    return Description(
        manifest.log_id,
        manifest.fingerprint,
        manifest.model,
        manifest.recipe,
        manifest.dimension,
        manifest.digest_at_upto,
    )


def _removed(folder: Path) -> Purged:
    """Delete a segment: renamed first, so that no reader sees half of it."""
    doomed = folder.with_name(atomic_files.temporary_name("removed"))
    folder.rename(doomed)
    shutil.rmtree(doomed)
    return Purged(0, 1)


def _remove_leftovers(root: Path, generation: GenerationFolder) -> None:
    """Delete files left by interrupted writers; raise an error if that fails."""
    for folder in atomic_files.leftovers(generation.path, TEMPORARY):
        shutil.rmtree(folder)
    for folder in atomic_files.leftovers(root, TEMPORARY):
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise errors.ProjectionUnreadable(folder, "it cannot be deleted")


def _any_within(gone: Positions, after: int, upto: int) -> bool:
    return bool(np.searchsorted(gone, after, side="right") < np.searchsorted(gone, upto, side="right"))


def _holds(gone: Positions, position: int) -> bool:
    return _any_within(gone, position - 1, position)
