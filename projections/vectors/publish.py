"""Writing and reading a segment's folder: exact vectors, what they are of, an index where they are many.

Files, all numbers little-endian: `vectors.f32`, `blocks.bin` (checksums of the vectors' blocks), `rows.i64` (the
id of each row's group), `members.i64` (position of a turn, id of its group, for every turn; not there where every
turn is a group of its own), `open.i64`, `index.faiss` (not there for small segments), and last `manifest.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mnemolog.projections.durable import publish_folder, temporary_name, write_pieces, write_synced
from mnemolog.projections.embeddings import Vectors
from mnemolog.projections.vectors import coarse
from mnemolog.projections.vectors.coarse import COARSE_ROWS_MIN, METRIC
from mnemolog.projections.vectors.manifest import (
    FORMAT,
    NO_INDEX,
    Damaged,
    FileTag,
    Manifest,
    read_checked,
    segment_name,
    tag_of,
    write_manifest,
)
from mnemolog.projections.vectors.members import (
    Members,
    Positions,
    from_table,
    joined,
    numbered,
    single_turns,
    to_table,
)
from mnemolog.projections.vectors.rows import BLOCK_ROWS, MappedRows, block_digest
from mnemolog.projections.vectors.segment import NO_POSITIONS, Segment, joined_rows

VECTORS_FILE: Final = "vectors.f32"
BLOCKS_FILE: Final = "blocks.bin"
ROWS_FILE: Final = "rows.i64"
MEMBERS_FILE: Final = "members.i64"
OPEN_FILE: Final = "open.i64"
INDEX_FILE: Final = "index.faiss"

_ALWAYS: Final = {VECTORS_FILE, BLOCKS_FILE, ROWS_FILE, OPEN_FILE}
TEMPORARY: Final = "segment"


class Description(NamedTuple):
    """What a manifest says beside the vectors."""

    log_id: str
    fingerprint: str
    model: str
    recipe: str
    dimension: int
    digest_at_upto: str


def publish(parts: Sequence[Segment], generation: Path, description: Description) -> Segment:
    """Write adjoining segments as one into the folder of their generation, manifest last, and return it.

    Vectors go from file to file in pieces; the others are held in memory. Raises `OSError`: then nothing of
    it is there, or a temporary folder that readers pass over.
    """
    first, last = parts[0], parts[-1]
    temporary = generation / temporary_name(TEMPORARY)
    temporary.mkdir(mode=0o700, parents=True)
    rows, members = joined_rows(parts), joined(part.members for part in parts)
    tags = {VECTORS_FILE: _write_vectors(temporary, parts)}
    digests = (temporary / BLOCKS_FILE).read_bytes()
    tags[BLOCKS_FILE] = tag_of(digests)
    files = {ROWS_FILE: _bytes(members.ids[rows]), OPEN_FILE: _bytes(last.open_turns)}
    if not _are_single(members):
        files[MEMBERS_FILE] = _bytes(to_table(members))
    written = MappedRows(temporary / VECTORS_FILE, count=len(rows), dimension=description.dimension, digests=digests)
    index = coarse.build(written, dimension=description.dimension) if len(rows) >= COARSE_ROWS_MIN else None
    if index is not None:
        files[INDEX_FILE] = index.serialised()
    for name, data in files.items():
        write_synced(temporary / name, data)
    skipped = tuple(item for part in parts for item in part.skipped)
    manifest = Manifest(
        format=FORMAT,
        log_id=description.log_id,
        fingerprint=description.fingerprint,
        model=description.model,
        recipe=description.recipe,
        dimension=description.dimension,
        metric=METRIC,
        after=first.after,
        upto=last.upto,
        digest_at_upto=description.digest_at_upto,
        turns=len(members.turns),
        groups=len(members.ends),
        vectors=len(rows),
        open_turns=len(last.open_turns),
        skipped=skipped,
        index=NO_INDEX if index is None else coarse.factory_for(len(rows)),
        probes=0 if index is None else index.probes,
        block_rows=BLOCK_ROWS,
        files=tags | {name: tag_of(data) for name, data in files.items()},
        faiss_version=coarse.version(),
    )
    write_manifest(temporary, manifest)
    final = generation / segment_name(first.after, last.upto)
    publish_folder(temporary, final)
    written.path = final / VECTORS_FILE
    return Segment(first.after, last.upto, rows, members, written, index, last.open_turns, skipped, final)


def load(folder: Path, manifest: Manifest) -> Segment:
    """Return the segment that `manifest` describes.

    Raises `Damaged` unless every byte that is read fits, which for the exact vectors is judged block by block
    when they are used; `ProjectionUnreadable` for what cannot be read just now.
    """
    tags = manifest.files
    if manifest.metric != METRIC or manifest.block_rows != BLOCK_ROWS or not tags.keys() >= _ALWAYS:
        raise Damaged(folder, "the manifest describes another kind of segment")
    data = {name: read_checked(folder, name, tag) for name, tag in tags.items() if name != VECTORS_FILE}
    exact = MappedRows(
        folder / VECTORS_FILE, count=manifest.vectors, dimension=manifest.dimension, digests=data[BLOCKS_FILE]
    )
    ids = _numbers(data[ROWS_FILE])
    rows, open_turns = numbered(ids), _numbers(data[OPEN_FILE])
    try:
        members = from_table(_numbers(data[MEMBERS_FILE]).reshape(-1, 2)) if MEMBERS_FILE in data else _singles(ids)
        index = coarse.parse(data[INDEX_FILE], probes=manifest.probes) if INDEX_FILE in data else None
    except ValueError as error:
        raise Damaged(folder, str(error)) from error
    counts = len(members.turns), len(members.ends), len(rows), len(open_turns)
    if counts != (manifest.turns, manifest.groups, manifest.vectors, manifest.open_turns):
        raise Damaged(folder, "its files and its manifest count differently")
    if len(members.ends) != (int(rows[-1]) + 1 if len(rows) else 0) or not np.array_equal(members.ids[rows], ids):
        raise Damaged(folder, "rows and members name other groups")
    if index is not None and (index.count, index.dimension) != (manifest.vectors, manifest.dimension):
        raise Damaged(folder, "the index is of other vectors")
    after, upto = manifest.after, manifest.upto
    return Segment(after, upto, rows, members, exact, index, open_turns, manifest.skipped, folder)


def _write_vectors(folder: Path, parts: Sequence[Segment]) -> FileTag:
    """Write the exact vectors of `parts` and the checksums of their blocks. Return the tag of the former.

    Its SHA-256 is that of the blocks' checksums, so that a file of gigabytes need not be read to be trusted.
    """
    digests: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for block_rows in _in_blocks(piece for part in parts for piece in part.exact.pieces()):
            rows = np.ascontiguousarray(block_rows, dtype="<f4")
            for start in range(0, len(rows), BLOCK_ROWS):
                digests.append(block_digest(rows[start : start + BLOCK_ROWS]))
            yield rows.tobytes()

    size = write_pieces(folder / VECTORS_FILE, pieces())
    write_synced(folder / BLOCKS_FILE, b"".join(digests))
    return msgspec.structs.replace(tag_of(b"".join(digests)), size_bytes=size)


def _in_blocks(pieces: Iterator[Vectors]) -> Iterator[Vectors]:
    """Yield the same rows in pieces of whole blocks; only the last may end within one."""
    left: Vectors | None = None
    for piece in pieces:
        joined_piece = piece if left is None or not len(left) else np.concatenate((left, piece))
        whole = len(joined_piece) // BLOCK_ROWS * BLOCK_ROWS
        if whole:
            yield joined_piece[:whole]
        left = np.array(joined_piece[whole:])
    if left is not None and len(left):
        yield left


def _are_single(members: Members) -> bool:
    return len(members.turns) == len(members.ends)


def _singles(ids: Positions) -> Members:
    return single_turns(ids[np.flatnonzero(np.diff(ids, prepend=-1))])


def _bytes(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype("<i8").tobytes()


def _numbers(data: bytes) -> Positions:
    return np.frombuffer(data, dtype="<i8").astype(np.int64) if data else NO_POSITIONS
