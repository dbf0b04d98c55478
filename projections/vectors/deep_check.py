"""Check every byte of a segment, including those that no recall has read.

Needs numpy and FAISS, so only full checks import it; a check of manifests does without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnemolog.domain import errors
from mnemolog.projections.ports import Progress
from mnemolog.projections.vectors.manifest import VECTORS_FILE, Manifest, why_size_invalid
from mnemolog.projections.vectors.publish import load
from mnemolog.projections.vectors.segment import Segment


def why_bytes_invalid(folder: Path, manifest: Manifest, *, progress: Progress | None = None) -> str | None:
    """Return why a segment is damaged; None if every byte is as it was written.

    Opens the segment as a recall does, then checks the exact vectors block by block. `progress` counts
    bytes. Raises `ProjectionUnreadable` if memory runs out, which says nothing about the segment.
    """
    if (found := why_size_invalid(folder, manifest)) is not None:
        return found
    total = sum(tag.size_bytes for tag in manifest.files.values())
    try:
        segment = load(folder, manifest)
        segment.read_text_hashes()
        done = total - manifest.files[VECTORS_FILE].size_bytes
        _tell(progress, done, total)
        for read in _by_block(segment):
            done += read
            _tell(progress, done, total)
    except errors.ProjectionUnreadable as error:
        return error.cause if error.path == folder else f"{error.path.name}: {error.cause}"
    except MemoryError as error:
        raise errors.ProjectionUnreadable(folder, "there is too little memory to read it") from error
    return None


def _by_block(segment: Segment) -> Iterator[int]:
    """Read and check the rows; yield the number of bytes of each read."""
    for piece in segment.exact.pieces():
        yield piece.nbytes


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None and done:
        progress(done, total)
