"""An immutable part of a generation: the vectors of an offset range `(after, upto]` under one FAISS index."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections.durable import publish_folder, remove_folder, temporary_name, write_synced
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.manifest import (
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    Manifest,
    read_checked,
    tag_of,
    write_manifest,
)

INDEX_FILE: Final = "index.faiss"
POSITIONS_FILE: Final = "positions.npy"
METRIC: Final = "inner-product"

Positions = NDArray[np.int64]


class Segment(NamedTuple):
    """Vectors in memory with the positions they belong to, row by row; positions rise."""

    after: Position
    upto: Position
    positions: Positions
    faiss_index: Any
    folder: Path | None
    """Where it was read from; None for the tail that is not written yet."""

    @property
    def vectors(self) -> Vectors:
        """The exact vectors, shape (rows, dimension)."""
        count = self.faiss_index.ntotal
        if count == 0:
            return np.empty((0, self.faiss_index.d), dtype=np.float32)
        exact: Vectors = faiss.rev_swig_ptr(self.faiss_index.get_xb(), count * self.faiss_index.d).reshape(
            count, self.faiss_index.d
        )
        return exact


class Description(NamedTuple):
    """What a manifest says beside the vectors."""

    log_id: str
    fingerprint: str
    model: str
    recipe: str
    digest_at_upto: str


def build(positions: Positions, vectors: Vectors, *, after: Position, upto: Position, dimension: int) -> Segment:
    """Return a segment in memory. `vectors` has shape (len(positions), dimension), rows of length 1."""
    index = faiss.IndexFlatIP(dimension)
    if len(positions):
        index.add(np.ascontiguousarray(vectors, dtype=np.float32))
    return Segment(after, upto, np.asarray(positions, dtype=np.int64), index, None)


def publish(segment: Segment, generation: Path, description: Description) -> Segment:
    """Write `segment` into the folder of its generation, manifest last, and return it as written.

    A segment of the same range that is there already is left: it says the same.
    """
    final = generation / f"{segment.after:012d}-{segment.upto:012d}"
    temporary = generation / temporary_name("segment")
    temporary.mkdir(parents=True)
    index = faiss.serialize_index(segment.faiss_index).tobytes()
    positions = segment.positions.astype("<i8").tobytes()
    write_synced(temporary / INDEX_FILE, index)
    write_synced(temporary / POSITIONS_FILE, positions)
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        log_id=description.log_id,
        fingerprint=description.fingerprint,
        model=description.model,
        recipe=description.recipe,
        dimension=segment.faiss_index.d,
        metric=METRIC,
        after=segment.after,
        upto=segment.upto,
        digest_at_upto=description.digest_at_upto,
        turns=len(np.unique(segment.positions)),
        vectors=len(segment.positions),
        files={INDEX_FILE: tag_of(index), POSITIONS_FILE: tag_of(positions)},
        faiss_version=faiss.__version__,
    )
    write_manifest(temporary, manifest)
    try:
        publish_folder(temporary, final)
    except OSError:
        remove_folder(temporary)
        if not (final / MANIFEST_FILE).exists():
            raise
    return segment._replace(folder=final)


def load(folder: Path, manifest: Manifest) -> Segment:
    """Return the segment that `manifest` describes. Raises `ProjectionUnreadable` unless every byte fits."""
    names = {INDEX_FILE, POSITIONS_FILE}
    if manifest.files.keys() != names or manifest.metric != METRIC:
        raise errors.ProjectionUnreadable(folder, "the manifest describes another kind of segment")
    data = {name: read_checked(folder, name, manifest.files[name]) for name in names}
    positions = np.frombuffer(data[POSITIONS_FILE], dtype="<i8").astype(np.int64)
    try:
        index = faiss.deserialize_index(np.frombuffer(data[INDEX_FILE], dtype=np.uint8))
    except (RuntimeError, MemoryError) as error:
        raise errors.ProjectionUnreadable(folder / INDEX_FILE, str(error)) from error
    if not (index.ntotal == len(positions) == manifest.vectors and index.d == manifest.dimension):
        raise errors.ProjectionUnreadable(folder, "counts of index, positions and manifest differ")
    return Segment(manifest.after, manifest.upto, positions, index, folder)
