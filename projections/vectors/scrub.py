"""Every byte of a segment against what was written, also those that no answer has asked for.

Needs numpy and FAISS, which a look at tags does not: imported only where everything is read.
"""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain import errors
from mnemolog.projections.ports import Progress
from mnemolog.projections.vectors.manifest import Manifest, size_misfit
from mnemolog.projections.vectors.publish import VECTORS_FILE, load


def bytes_misfit(folder: Path, manifest: Manifest, *, progress: Progress | None = None) -> str | None:
    """Return why a segment is not the one that was written, None where every byte is.

    It is opened as for an answer, and then the exact vectors are gone through block by block. `progress` is told
    bytes. Raises `ProjectionUnreadable` where memory is too little, which says nothing about the segment.
    """
    if (found := size_misfit(folder, manifest)) is not None:
        return found
    total = sum(tag.size_bytes for tag in manifest.files.values())
    try:
        segment = load(folder, manifest)
        done = total - manifest.files[VECTORS_FILE].size_bytes
        _tell(progress, done, total)
        for piece in segment.exact.pieces():
            done += piece.nbytes
            _tell(progress, done, total)
    except errors.ProjectionUnreadable as error:
        return error.cause if error.path == folder else f"{error.path.name}: {error.cause}"
    except MemoryError as error:
        raise errors.ProjectionUnreadable(folder, "there is too little memory to read it") from error
    return None


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None and done:
        progress(done, total)
