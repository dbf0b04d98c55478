"""Checking every byte of a segment, also those that no recall has read.

Needs numpy and FAISS, which a look at tags does not: imported only where everything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnemolog.domain import errors
from mnemolog.projections.ports import Progress
from mnemolog.projections.vectors.manifest import Manifest, why_size_invalid
from mnemolog.projections.vectors.publish import BY_BLOCK, load
from mnemolog.projections.vectors.segment import Segment


def why_bytes_invalid(folder: Path, manifest: Manifest, *, progress: Progress | None = None) -> str | None:
    """Return why a segment is not the one that was written, None where every byte is.

    It is opened as for a recall, then the exact vectors are checked block by block. `progress` counts
    bytes. Raises `ProjectionUnreadable` where memory is too little, which says nothing about the segment.
    """
    if (found := why_size_invalid(folder, manifest)) is not None or manifest.of_groups:
        return found
    total = sum(tag.size_bytes for tag in manifest.files.values())
    try:
        segment = load(folder, manifest)
        done = total - sum(tag.size_bytes for name, tag in manifest.files.items() if name in BY_BLOCK)
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
    """Read, and so check, what is judged block by block; yield how many bytes at a time."""
    for piece in segment.exact.pieces():
        yield piece.nbytes
    if segment.sketch is not None:
        yield from segment.sketch.check()


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None and done:
        progress(done, total)
