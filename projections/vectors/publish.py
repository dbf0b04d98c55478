"""Write and read the folder of a segment: exact vectors, positions of their turns, and an index if there are many.

Files, all numbers little-endian: `vectors.f32`, `blocks.bin` (checksums of the vectors' blocks), `rows.i64` (the
position of each row's turn), for many rows `index.faiss`, `sketch.u8` and `sketch_blocks.bin` (approximate
vectors and the checksums of their blocks), and last `manifest.json`. Earlier versions also wrote an empty `open.i64`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import structured_log
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.infra.runtime.atomic_files import (
    make_folder,
    publish_folder,
    temporary_name,
    write_pieces,
    write_synced,
)
from mnemolog.projections.vectors import ann_index
from mnemolog.projections.vectors.ann_index import COARSE_ROWS_MIN, METRIC
from mnemolog.projections.vectors.checked_rows import BLOCK_ROWS, DIGEST_BYTES, MappedRows, ReadRows, block_digest
from mnemolog.projections.vectors.manifest import (
    ALWAYS,
    BLOCKS_FILE,
    FORMAT,
    INDEX_FILE,
    NO_INDEX,
    OF_INDEX,
    ROWS_FILE,
    SKETCH_BLOCKS_FILE,
    SKETCH_FILE,
    VECTORS_FILE,
    Damaged,
    FileTag,
    Manifest,
    read_bytes,
    read_checked,
    segment_name,
    tag_of,
    write_manifest,
)
from mnemolog.projections.vectors.quantized_rows import KIND, Sketch, sketched, width_of
from mnemolog.projections.vectors.segment import NO_POSITIONS, Positions, Segment, joined_rows, joined_turns

BY_BLOCK: Final = {VECTORS_FILE, SKETCH_FILE}
"""Files that are checked block by block on use."""
TEMPORARY: Final = "segment"


class Description(NamedTuple):
    """The parts of a manifest that do not follow from the vectors."""

    log_id: str
    fingerprint: str
    model: str
    recipe: str
    dimension: int
    digest_at_upto: str


def publish(parts: Sequence[Segment], generation: Path, description: Description, *, index: bool = True) -> Segment:
    """Write adjacent segments as one into the folder of their generation, manifest last, and return it.

    Vectors are copied in pieces; everything else is held in memory. With `index=False` every answer scans the segment,
    however large it is. Raises `OSError`: then nothing is left, or a temporary folder that readers ignore.
    """
    first, last = parts[0], parts[-1]
    temporary = generation / temporary_name(TEMPORARY)
    make_folder(temporary, root=PROJECTIONS)
    rows, turns = joined_rows(parts), joined_turns(parts)
    pieces = (piece for part in parts for piece in part.exact.pieces())
    tags = _write_rows(temporary, VECTORS_FILE, BLOCKS_FILE, pieces, kind="<f4")
    digests, dimension = read_bytes(temporary / BLOCKS_FILE), description.dimension
    exact = _exact_rows(temporary, len(rows), dimension, digests)
    files = {ROWS_FILE: _bytes(turns[rows])}
    proposing, sketch = None, None
    if index and len(rows) >= COARSE_ROWS_MIN:
        proposing = ann_index.build(exact, dimension=dimension)
        files[INDEX_FILE] = proposing.serialised()
        tags |= _write_rows(temporary, SKETCH_FILE, SKETCH_BLOCKS_FILE, sketched(exact), kind=KIND)
        sketch = _sketch(temporary, len(rows), dimension, read_bytes(temporary / SKETCH_BLOCKS_FILE))
        exact = _exact_rows(temporary, len(rows), dimension, digests, sketched=True)
    for name, data in files.items():
        write_synced(temporary / name, data)
    skipped = tuple(item for part in parts for item in part.skipped)
    manifest = Manifest(
        format=FORMAT,
        log_id=description.log_id,
        fingerprint=description.fingerprint,
        model=description.model,
        recipe=description.recipe,
        dimension=dimension,
        metric=METRIC,
        after=first.after,
        upto=last.upto,
        digest_at_upto=description.digest_at_upto,
        turns=len(turns),
        vectors=len(rows),
        skipped=skipped,
        index=NO_INDEX if proposing is None else proposing.kind,
        probes=0 if proposing is None else proposing.effort.probes,
        candidates=0 if proposing is None else proposing.effort.candidates,
        block_rows=BLOCK_ROWS,
        files=tags | {name: tag_of(data) for name, data in files.items()},
        faiss_version=ann_index.version(),
    )
    write_manifest(temporary, manifest)
    final = generation / segment_name(first.after, last.upto)
    publish_folder(temporary, final)
    structured_log.debug(
        "vectors.written", generation=generation.name, after=first.after, upto=last.upto, vectors=len(rows)
    )
    exact.path = final / VECTORS_FILE
    if sketch is not None:
        sketch.path = final / SKETCH_FILE
    return Segment(first.after, last.upto, turns, rows, exact, proposing, sketch, skipped, final)


def load(folder: Path, manifest: Manifest) -> Segment:
    """Return the segment that `manifest` describes.

    Raises `Damaged` if a file differs from what was written, and `ProjectionUnreadable` if it cannot be read just now.
    Exact vectors are not read here; their blocks are checked on use.
    """
    tags = manifest.files
    if (manifest.metric, manifest.block_rows) != (METRIC, BLOCK_ROWS) or not tags.keys() >= ALWAYS:
        raise Damaged(folder, "the manifest describes another kind of segment")
    if tags.keys() & OF_INDEX not in (set(), OF_INDEX):
        raise Damaged(folder, "the manifest names a part of an index")
    if (why := _why_sizes_impossible(manifest)) is not None:
        raise Damaged(folder, why)
    data = {name: read_checked(folder, name, tag) for name, tag in tags.items() if name not in BY_BLOCK}
    count, dimension = manifest.vectors, manifest.dimension
    exact = _exact_rows(folder, count, dimension, data[BLOCKS_FILE], sketched=SKETCH_FILE in tags)
    sketch = _sketch(folder, count, dimension, data[SKETCH_BLOCKS_FILE]) if SKETCH_FILE in tags else None
    ids = _numbers(data[ROWS_FILE])
    first_rows = np.diff(ids, prepend=-1) != 0
    turns, rows = ids[first_rows], np.cumsum(first_rows, dtype=np.int64) - 1
    try:
        effort = ann_index.Effort(manifest.probes, manifest.candidates)
        index = None
        if INDEX_FILE in data:
            index = ann_index.parse(data[INDEX_FILE], effort, dimension=dimension, count=count)
    except ValueError as error:
        raise Damaged(folder, str(error)) from error
    if (len(turns), len(rows)) != (manifest.turns, manifest.vectors):
        raise Damaged(folder, "its files and its manifest count differently")
    if (np.diff(turns) <= 0).any() or (len(turns) and not manifest.after < turns[0] <= turns[-1] <= manifest.upto):
        raise Damaged(folder, "its turns are out of order")
    if index is not None and (index.count, index.dimension) != (manifest.vectors, manifest.dimension):
        raise Damaged(folder, "the index is of other vectors")
    after, upto = manifest.after, manifest.upto
    return Segment(after, upto, turns, rows, exact, index, sketch, manifest.skipped, folder)


def _why_sizes_impossible(manifest: Manifest) -> str | None:
    """Compare the sizes of the files with the number of vectors, before any of them is read."""
    if manifest.dimension < 1:
        return "its vectors have no components"
    count, digests = manifest.vectors, -(-manifest.vectors // BLOCK_ROWS) * DIGEST_BYTES
    wanted = {
        VECTORS_FILE: count * manifest.dimension * 4,
        ROWS_FILE: count * 8,
        BLOCKS_FILE: digests,
        SKETCH_FILE: count * width_of(manifest.dimension),
        SKETCH_BLOCKS_FILE: digests,
    }
    for name, size in wanted.items():
        if name in manifest.files and manifest.files[name].size_bytes != size:
            return f"{name} has another size than its vectors need"
    return None


def _exact_rows(
    folder: Path, count: int, dimension: int, digests: bytes, *, sketched: bool = False
) -> MappedRows | ReadRows:
    """Return the exact vectors. With a sketch, which selects the few rows to read, they stay out of memory."""
    kind = ReadRows if sketched else MappedRows
    return kind(folder / VECTORS_FILE, count=count, width=dimension, digests=digests)


def _sketch(folder: Path, count: int, dimension: int, digests: bytes) -> Sketch:
    rows = MappedRows(folder / SKETCH_FILE, count=count, width=width_of(dimension), kind=KIND, digests=digests)
    return Sketch(rows, dimension=dimension)


def _write_rows(
    folder: Path, name: str, blocks_name: str, pieces: Iterator[NDArray[Any]], *, kind: str
) -> dict[str, FileTag]:
    """Write rows, and the checksums of their blocks to a separate file. Return the tags of both.

    The SHA-256 in the tag of the rows is that of the checksums, so that gigabytes need not be read to verify it.
    """
    digests: list[bytes] = []

    def written() -> Iterator[bytes]:
        for block_rows in _in_blocks(pieces):
            rows = np.ascontiguousarray(block_rows, dtype=kind)
            for start in range(0, len(rows), BLOCK_ROWS):
                digests.append(block_digest(rows[start : start + BLOCK_ROWS]))
            yield rows.tobytes()

    size = write_pieces(folder / name, written())
    tag = tag_of(b"".join(digests))
    write_synced(folder / blocks_name, b"".join(digests))
    return {name: msgspec.structs.replace(tag, size_bytes=size), blocks_name: tag}


def _in_blocks(pieces: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the same rows in pieces of whole blocks; only the last piece may end within a block."""
    left: NDArray[Any] | None = None
    for piece in pieces:
        joined_piece = piece if left is None or not len(left) else np.concatenate((left, piece))
        whole = len(joined_piece) // BLOCK_ROWS * BLOCK_ROWS
        if whole:
            yield joined_piece[:whole]
        left = np.array(joined_piece[whole:])
    if left is not None and len(left):
        yield left


def _bytes(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype("<i8").tobytes()


def _numbers(data: bytes) -> Positions:
    return np.frombuffer(data, dtype="<i8").astype(np.int64) if data else NO_POSITIONS
