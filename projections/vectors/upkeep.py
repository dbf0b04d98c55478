"""Examine segments on disk, rescue the vectors of damaged ones, and remove forgotten turns. No model has to be loaded.

Damaged segments go to quarantine. Their undamaged vectors are kept: only the others need the model. A segment with
forgotten turns is rewritten without their rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from mnemolog.domain import errors, structured_log
from mnemolog.domain.display import Bytes
from mnemolog.domain.position import Position
from mnemolog.infra.runtime import files
from mnemolog.infra.runtime.files import mapped_to_projection_errors
from mnemolog.projections.ports import Log, Progress, tell
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache
from mnemolog.projections.vectors.checked_rows import SomeRows
from mnemolog.projections.vectors.embedder import hashes_in_log, text_hashes_of, vectors_at
from mnemolog.projections.vectors.folders import (
    VECTORS_FILE,
    WAIT_S,
    Damaged,
    IndexerLock,
    Manifest,
    SegmentState,
    generation_folders,
    log_range_of,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
    why_size_invalid,
)
from mnemolog.projections.vectors.rendering import RECIPE
from mnemolog.projections.vectors.segment import TEMPORARY, Description, Positions, Segment, TextHashes, load, publish


def why_bytes_invalid(folder: Path, manifest: Manifest, *, progress: Progress | None = None) -> str | None:
    """Return why a segment is damaged; None if every byte is as it was written.

    Opens the segment as a recall does, then checks the exact vectors block by block. `progress` counts
    bytes. Raises `ProjectionUnreadable` if memory runs out, which says nothing about the segment.
    """
    if (found := why_size_invalid(folder, manifest)) is not None:
        return found
    total = Bytes(sum(tag.size_bytes for tag in manifest.files.values()))
    try:
        segment = load(folder, manifest)
        segment.read_text_hashes()
        done = total - manifest.files[VECTORS_FILE].size_bytes
        tell(progress, done, total)
        for piece in segment.exact.pieces():
            done += piece.nbytes
            tell(progress, done, total)
    except errors.ProjectionUnreadable as error:
        return error.cause if error.path == folder else f"{error.path.name}: {error.cause}"
    except MemoryError as error:
        raise errors.ProjectionUnreadable(folder, "there is too little memory to read it") from error
    return None


def set_aside(folder: Path, why: str, *, log: Log, cache: ProjectionDatabase, quarantine: Path) -> None:
    """Move a damaged segment to quarantine, after `salvage`."""
    salvage(folder, log, cache)
    Quarantine(quarantine).add(folder, reason=why, built_from=log_range_of(folder))


def salvage(folder: Path, log: Log, database: ProjectionDatabase) -> None:
    """Store the undamaged vectors of a segment in the embedding cache, by the texts that the log has for its turns.

    Does nothing for a segment of another log. If the log cannot be read or the cache cannot be written, or what says
    where its vectors are is damaged, the rest is for the model.
    """
    epoch = log.epoch()
    try:
        manifest = read_manifest(folder)
        if manifest.recipe != RECIPE or state_of(manifest, log=log, fingerprint=None) is not SegmentState.USABLE:
            return
        segment = load(folder, manifest, with_index=False)
        cache = EmbeddingCache(
            database, fingerprint=manifest.fingerprint, dimension=manifest.dimension, epoch=log.epoch
        )
        for numbers, hashes in hashes_in_log(log, segment):
            cache.store(vectors_at(segment, dict(zip(hashes, numbers.tolist(), strict=True))), read_in=epoch)
    except errors.MnemologError as error:
        structured_log.warning("vectors.not_salvaged", segment=str(folder), error=error)


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
                files.remove(folder)


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
