"""An immutable part of a generation: the vectors of an offset range `(after, upto]` under one FAISS index.

A segment holds the groups of turns that closed in its range, in the order they closed, and says which turns
up to its end are in groups that were still open: with the segments before it, it accounts for every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections.durable import publish_folder, remove_folder, temporary_name, write_synced
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors.grouping import Group
from mnemolog.projections.vectors.manifest import (
    FORMAT_GROUPS,
    FORMAT_SINGLE_TURNS,
    MANIFEST_FILE,
    Manifest,
    read_checked,
    tag_of,
    write_manifest,
)
from mnemolog.projections.vectors.members import (
    Members,
    Positions,
    from_table,
    joined,
    members_of,
    numbered,
    single_turns,
    to_table,
)

INDEX_FILE: Final = "index.faiss"
POSITIONS_FILE: Final = "positions.npy"
"""The id of each row's group, `<i8`. For single turns that is the turn."""
MEMBERS_FILE: Final = "members.bin"
"""(position of a turn, id of its group) for every turn, `<i8`. Not there for single turns."""
OPEN_FILE: Final = "open.bin"
"""Positions of the turns in groups that are open at the end of the range, rising, `<i8`. As above."""
METRIC: Final = "inner-product"

_FILES: Final = {
    FORMAT_SINGLE_TURNS: {INDEX_FILE, POSITIONS_FILE},
    FORMAT_GROUPS: {INDEX_FILE, POSITIONS_FILE, MEMBERS_FILE, OPEN_FILE},
}
_NO_POSITIONS: Final[Positions] = np.empty(0, dtype=np.int64)


class Segment(NamedTuple):
    """Vectors in memory, row by row, with the groups of turns they belong to."""

    after: Position
    upto: Position
    rows: NDArray[np.int64]
    """The number of each row's group in `members`, rising: a group of several chunks has several rows."""
    members: Members
    faiss_index: Any
    open_turns: Positions = _NO_POSITIONS
    """Turns up to `upto` whose group closes later. Known of segments that are written."""
    folder: Path | None = None
    """Where it was read from; None for what is in memory only."""

    @property
    def positions(self) -> Positions:
        """The id of each row's group: the position of its last turn. Shape (rows,)."""
        return self.members.ids[self.rows]

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
    format: int


def build(
    groups: Sequence[Group], vectors: Sequence[Vectors], *, after: Position, upto: Position, dimension: int
) -> Segment:
    """Return a segment in memory. `vectors` has shape (chunks, dimension) for each group, rows of length 1."""
    rows = np.repeat(np.arange(len(groups), dtype=np.int64), [len(made) for made in vectors])
    return Segment(after, upto, rows, members_of([group.turns for group in groups]), _index(vectors, dimension))


def merge(parts: Sequence[Segment]) -> Segment:
    """Return adjoining segments as one in memory. Needs at least one."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    before = np.cumsum([0, *(len(part.members.ends) for part in parts[:-1])])
    rows = np.concatenate([part.rows + offset for part, offset in zip(parts, before, strict=True)])
    index = _index([part.vectors for part in parts], first.faiss_index.d)
    return Segment(first.after, last.upto, rows, joined(part.members for part in parts), index, last.open_turns)


def publish(segment: Segment, generation: Path, description: Description) -> Segment:
    """Write `segment` into the folder of its generation, manifest last, and return it as written.

    A segment of the same range that is there already is left: it says the same.
    """
    final = generation / f"{segment.after:012d}-{segment.upto:012d}"
    temporary = generation / temporary_name("segment")
    temporary.mkdir(parents=True)
    grouped = description.format == FORMAT_GROUPS
    files = {
        INDEX_FILE: faiss.serialize_index(segment.faiss_index).tobytes(),
        POSITIONS_FILE: _bytes(segment.positions),
    }
    if grouped:
        files |= {MEMBERS_FILE: _bytes(to_table(segment.members)), OPEN_FILE: _bytes(segment.open_turns)}
    for name, data in files.items():
        write_synced(temporary / name, data)
    manifest = Manifest(
        format=description.format,
        log_id=description.log_id,
        fingerprint=description.fingerprint,
        model=description.model,
        recipe=description.recipe,
        dimension=segment.faiss_index.d,
        metric=METRIC,
        after=segment.after,
        upto=segment.upto,
        digest_at_upto=description.digest_at_upto,
        turns=len(segment.members.turns),
        vectors=len(segment.rows),
        files={name: tag_of(data) for name, data in files.items()},
        faiss_version=faiss.__version__,
        groups=len(segment.members.ends) if grouped else None,
        open_turns=len(segment.open_turns) if grouped else None,
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
    names = _FILES[manifest.format]
    if manifest.files.keys() != names or manifest.metric != METRIC:
        raise errors.ProjectionUnreadable(folder, "the manifest describes another kind of segment")
    data = {name: read_checked(folder, name, manifest.files[name]) for name in names}
    positions = _numbers(data[POSITIONS_FILE])
    rows = numbered(positions)
    try:
        index = faiss.deserialize_index(np.frombuffer(data[INDEX_FILE], dtype=np.uint8))
        if manifest.format == FORMAT_GROUPS:
            members = from_table(_numbers(data[MEMBERS_FILE]).reshape(-1, 2))
            open_turns = _numbers(data[OPEN_FILE])
        else:
            members, open_turns = single_turns(np.unique(positions)), _NO_POSITIONS
    except (RuntimeError, MemoryError, ValueError) as error:
        raise errors.ProjectionUnreadable(folder, str(error)) from error
    segment = Segment(manifest.after, manifest.upto, rows, members, index, open_turns, folder)
    if not (index.ntotal == len(positions) == manifest.vectors and index.d == manifest.dimension):
        raise errors.ProjectionUnreadable(folder, "counts of index, positions and manifest differ")
    if len(members.turns) != manifest.turns or len(open_turns) != (manifest.open_turns or 0):
        raise errors.ProjectionUnreadable(folder, "counts of turns and manifest differ")
    if not _every_group_has_its_rows(rows, positions, members, manifest):
        raise errors.ProjectionUnreadable(folder, "positions and members name other groups")
    return segment


def _every_group_has_its_rows(rows: NDArray[np.int64], positions: Positions, members: Members, tag: Manifest) -> bool:
    groups = len(members.ends)
    if groups != (tag.turns if tag.groups is None else tag.groups):
        return False
    if groups != (int(rows[-1]) + 1 if len(rows) else 0):
        return False
    return bool(np.array_equal(members.ids[rows], positions))


def _index(vectors: Sequence[Vectors], dimension: int) -> Any:
    index = faiss.IndexFlatIP(dimension)
    if any(len(made) for made in vectors):
        index.add(np.ascontiguousarray(np.concatenate(vectors), dtype=np.float32))
    return index


def _bytes(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype("<i8").tobytes()


def _numbers(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)
