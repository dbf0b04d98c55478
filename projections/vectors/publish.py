"""Write and read the folder of a segment: exact vectors, positions of their turns, and an index if there are many.

Files, all numbers little-endian: `vectors.q12` (packed vectors), `blocks.bin` (checksums of the vectors' blocks),
`rows.i64` (the position of each row's turn), `contents.bin` (which text each turn has), for many rows `index.faiss`,
and last `manifest.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import faiss
import msgspec
import numpy as np

from mnemolog.domain import structured_log
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.infra.runtime.files import (
    make_folder,
    publish_folder,
    temporary_name,
    write_pieces,
    write_synced,
)
from mnemolog.projections.sql.packed_vectors import Packed, width_of
from mnemolog.projections.vectors import ann_index
from mnemolog.projections.vectors.ann_index import COARSE_ROWS_MIN, METRIC
from mnemolog.projections.vectors.checked_rows import BLOCK_ROWS, DIGEST_BYTES, StoredRows, block_digests
from mnemolog.projections.vectors.manifest import (
    BLOCKS_FILE,
    CONTENTS_FILE,
    FILES,
    FORMAT,
    INDEX_FILE,
    NO_INDEX,
    ROWS_FILE,
    VECTORS_FILE,
    Damaged,
    FileTag,
    Manifest,
    read_checked,
    segment_name,
    tag_of,
    write_manifest,
)
from mnemolog.projections.vectors.segment import (
    Segment,
    joined_rows,
    joined_text_hashes,
    joined_turns,
)
from mnemolog.projections.vectors.text_hashes import TextHashes

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
    tags, digests = _write_rows(temporary, pieces)
    dimension = description.dimension
    exact = StoredRows(temporary / VECTORS_FILE, count=len(rows), dimension=dimension, digests=digests)
    hashes = joined_text_hashes(parts)
    files = {ROWS_FILE: turns[rows].astype("<i8").tobytes(), CONTENTS_FILE: hashes.serialised()}
    proposing = None
    if index and len(rows) >= COARSE_ROWS_MIN:
        # A segment that is written alone has the rows that it had, for which its index was built.
        only = parts[0].coarse if len(parts) == 1 else None
        proposing = only or ann_index.build(exact, dimension=dimension)
        files[INDEX_FILE] = proposing.serialised()
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
        faiss_version=str(faiss.__version__),
    )
    write_manifest(temporary, manifest)
    final = generation / segment_name(first.after, last.upto)
    publish_folder(temporary, final)
    structured_log.debug(
        "vectors.written", generation=generation.name, after=first.after, upto=last.upto, vectors=len(rows)
    )
    exact.path = final / VECTORS_FILE
    read_text_hashes = partial(_read_text_hashes, final, manifest)
    return Segment(first.after, last.upto, turns, rows, exact, read_text_hashes, proposing, skipped, final)


def load(folder: Path, manifest: Manifest, *, with_index: bool = True) -> Segment:
    """Return the segment that `manifest` describes.

    Raises `Damaged` if a file differs from what was written, and `ProjectionUnreadable` if it cannot be read just now.
    Neither exact vectors nor the hashes of texts are read here: they are checked on use. `with_index=False` leaves out
    the index.
    """
    tags = manifest.files
    needed = FILES - {INDEX_FILE}
    if (manifest.metric, manifest.block_rows) != (METRIC, BLOCK_ROWS) or not tags.keys() >= needed:
        raise Damaged(folder, "the manifest describes another kind of segment")
    if (why := _why_sizes_impossible(manifest)) is not None:
        raise Damaged(folder, why)
    read = tags.keys() - {VECTORS_FILE, CONTENTS_FILE} - (set() if with_index else {INDEX_FILE})
    data = {name: read_checked(folder, name, tags[name]) for name in sorted(read)}
    count, dimension = manifest.vectors, manifest.dimension
    exact = StoredRows(folder / VECTORS_FILE, count=count, dimension=dimension, digests=data[BLOCKS_FILE])
    ids = np.frombuffer(data[ROWS_FILE], dtype="<i8").astype(np.int64)
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
    read_text_hashes = partial(_read_text_hashes, folder, manifest)
    after, upto, skipped = manifest.after, manifest.upto, manifest.skipped
    return Segment(after, upto, turns, rows, exact, read_text_hashes, index, skipped, folder)


def _read_text_hashes(folder: Path, manifest: Manifest) -> TextHashes:
    """Return which text each turn has. Raises `Damaged`, `ProjectionUnreadable`."""
    data = read_checked(folder, CONTENTS_FILE, manifest.files[CONTENTS_FILE])
    try:
        return TextHashes.parse(data, turns=manifest.turns)
    except ValueError as error:
        raise Damaged(folder / CONTENTS_FILE, str(error)) from error


def _why_sizes_impossible(manifest: Manifest) -> str | None:
    """Compare the sizes of the files with the number of vectors, before any of them is read."""
    if manifest.dimension < 1:
        return "its vectors have no components"
    count, digests = manifest.vectors, -(-manifest.vectors // BLOCK_ROWS) * DIGEST_BYTES
    wanted = {
        VECTORS_FILE: count * width_of(manifest.dimension),
        ROWS_FILE: count * 8,
        BLOCKS_FILE: digests,
    }
    for name, size in wanted.items():
        if name in manifest.files and manifest.files[name].size_bytes != size:
            return f"{name} has another size than its vectors need"
    return None


def _write_rows(folder: Path, pieces: Iterator[Packed]) -> tuple[dict[str, FileTag], bytes]:
    """Write rows, and the checksums of their blocks to a separate file. Return the tags of both, and the checksums.

    The SHA-256 in the tag of the rows is that of the checksums, so that gigabytes need not be read to verify it.
    """
    digests: list[bytes] = []

    def written() -> Iterator[bytes]:
        for rows in _in_blocks(pieces):
            digests.append(block_digests(rows))
            yield rows.tobytes()

    size = write_pieces(folder / VECTORS_FILE, written())
    joined = b"".join(digests)
    tag = tag_of(joined)
    write_synced(folder / BLOCKS_FILE, joined)
    return {VECTORS_FILE: msgspec.structs.replace(tag, size_bytes=size), BLOCKS_FILE: tag}, joined


def _in_blocks(pieces: Iterator[Packed]) -> Iterator[Packed]:
    """Yield the same rows in pieces of whole blocks; only the last piece may end within a block."""
    left: Packed | None = None
    for piece in pieces:
        joined_piece = piece if left is None or not len(left) else np.concatenate((left, piece))
        whole = len(joined_piece) // BLOCK_ROWS * BLOCK_ROWS
        if whole:
            yield joined_piece[:whole]
        left = np.array(joined_piece[whole:])
    if left is not None and len(left):
        yield left
