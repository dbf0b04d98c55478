"""Find damage in segments, quarantine them, and keep their undamaged vectors: only the others need the model."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain import errors, structured_log
from mnemolog.domain.display import Bytes
from mnemolog.projections.ports import Log, Progress, tell
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache
from mnemolog.projections.vectors.embedder import hashes_in_log, vectors_at
from mnemolog.projections.vectors.manifest import (
    VECTORS_FILE,
    Manifest,
    SegmentState,
    log_range_of,
    read_manifest,
    state_of,
    why_size_invalid,
)
from mnemolog.projections.vectors.rendering import RECIPE
from mnemolog.projections.vectors.segment import load


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
