"""An immutable part of a generation: the vectors of a range of positions `(after, upto]`.

A segment holds the vectors of the turns in its range, and lists the turns that the model refused. So every turn in the
range is accounted for.

In its folder, all numbers little-endian: `vectors.q12` (packed vectors), `blocks.bin` (checksums of their blocks),
`rows.i64` (the position of each row's turn), `contents.bin` (which text each turn has), for many rows `index.faiss`,
and last `manifest.json`. `contents.bin` has the first `CONTENT_BYTES` of every turn's content hash, ascending, then the
number of each one's turn in the segment (uint32): by it a text finds its vectors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import faiss
import msgspec
import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import structured_log
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.domain.values import Position
from mnemolog.infra.runtime.files import (
    make_folder,
    publish_folder,
    temporary_name,
    write_pieces,
    write_synced,
)
from mnemolog.projections.sql.embeddings import Packed, width_of
from mnemolog.projections.vectors import ann_index
from mnemolog.projections.vectors.ann_index import COARSE_ROWS_MIN, METRIC, Coarse
from mnemolog.projections.vectors.checked_rows import (
    BLOCK_ROWS,
    DIGEST_BYTES,
    ExactRows,
    MemoryRows,
    Rows,
    StoredRows,
    block_digests,
)
from mnemolog.projections.vectors.folders import (
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
    Skipped,
    read_checked,
    segment_name,
    tag_of,
    write_manifest,
)

CONTENT_BYTES: Final = 16
"""Bytes of a content hash that are kept. No two texts share them by chance, and none can be made to."""
NUMBER_BYTES: Final = 4
HASH: Final = np.dtype(f"S{CONTENT_BYTES}")

Hashes = NDArray[np.bytes_]
"""The first `CONTENT_BYTES` of content hashes. Shape (turns,)."""


class TextHashes:
    """The hashes of a segment's texts. Immutable; safe for many threads."""

    def __init__(self, ascending: Hashes, numbers: NDArray[np.uint32]) -> None:
        self._ascending, self._numbers = ascending, numbers

    @classmethod
    def of(cls, hashes: Hashes) -> "TextHashes":
        """Index hashes that are given in the order of the turns."""
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.uint32))

    @classmethod
    def parse(cls, data: bytes, *, turns: int) -> "TextHashes":
        """Return the hashes in the bytes of a file. Raises `ValueError` if they are not those of so many turns."""
        if len(data) != turns * (CONTENT_BYTES + NUMBER_BYTES):
            raise ValueError("it has another number of texts than turns")
        hashes = np.frombuffer(data, dtype=HASH, count=turns)
        numbers = np.frombuffer(data, dtype="<u4", offset=turns * CONTENT_BYTES)
        # A right digest does not prove that: the manifest may come from an untrusted source.
        if turns and (numbers.max() >= turns or (np.bincount(numbers, minlength=turns) != 1).any()):
            raise ValueError("it numbers the turns wrongly")
        return cls(hashes, numbers)

    def serialised(self) -> bytes:
        """Return the bytes to write."""
        return self._ascending.tobytes() + self._numbers.astype("<u4").tobytes()

    def by_turn(self) -> Hashes:
        """Return the hashes in the order of the turns."""
        hashes = np.empty_like(self._ascending)
        hashes[self._numbers] = self._ascending
        return hashes

    def numbers_of(self, wanted: Sequence[bytes]) -> dict[bytes, int]:
        """Return the number of a turn for each of these content hashes that the segment has."""
        if not wanted or not len(self._ascending):
            return {}
        places, is_held = places_in(self._ascending, hashes_of(wanted))
        held = np.flatnonzero(is_held)
        numbers = self._numbers[places[held]].tolist()
        return {wanted[at]: number for at, number in zip(held.tolist(), numbers, strict=True)}


def places_in(ascending: Hashes, asked: Hashes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each of these hashes where it is among at least one in ascending order, and whether it is there."""
    places = np.minimum(np.searchsorted(ascending, asked), len(ascending) - 1)
    return places, ascending[places] == asked


def hashes_of(contents: Iterable[bytes]) -> Hashes:
    """Return content hashes as a segment keeps them."""
    cut = b"".join(content[:CONTENT_BYTES].ljust(CONTENT_BYTES, b"\0") for content in contents)
    return np.frombuffer(cut, dtype=HASH)


Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segment:
    """Vectors row by row, with the turns they belong to."""

    after: Position
    upto: Position
    turns: Positions
    """The turns that have vectors here, ascending. Shape (turns,)."""
    rows: Rows
    """The index in `turns` of each row's turn, ascending: a turn of several chunks has several rows. Shape (rows,)."""
    exact: ExactRows
    read_text_hashes: Callable[[], TextHashes]
    """Reads the hashes of the turns' texts. Raises `Damaged`."""
    coarse: Coarse | None = None
    """Proposes candidate rows, if the segment is too large to scan."""
    skipped: tuple[Skipped, ...] = ()
    folder: Path | None = None
    """The folder that it was read from; None for a segment in memory."""

    @cached_property
    def text_hashes(self) -> TextHashes:
        """The hashes of the texts that this segment has vectors of. Empty if their file is damaged."""
        try:
            return self.read_text_hashes()
        except Damaged as error:
            structured_log.warning("vectors.contents_damaged", segment=str(self.folder), error=error)
            return TextHashes(np.empty(0, dtype=HASH), np.empty(0, dtype=np.uint32))

    @cached_property
    def row_starts(self) -> Rows:
        """The first row of each turn, and the number of rows after the last. Shape (turns + 1,)."""
        return np.append(np.flatnonzero(np.diff(self.rows, prepend=-1)), len(self.rows))

    def numbers_of(self, wanted: Positions) -> Rows:
        """Return the indexes in `turns` of those of `wanted` (ascending) that are in this segment."""
        if not len(self.turns):
            return np.empty(0, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.turns, wanted), len(self.turns) - 1)
        where: Rows = found[self.turns[found] == wanted]
        return where


def build(
    turns: Sequence[Position],
    vectors: Sequence[Packed],
    *,
    after: Position,
    upto: Position,
    dimension: int,
    skipped: Sequence[Skipped] = (),
    hashes: Sequence[bytes],
) -> Segment:
    """Return a segment in memory. `vectors` has the packed chunks of each turn, `hashes` that of its text."""
    rows = np.repeat(np.arange(len(turns), dtype=np.int64), [len(made) for made in vectors])
    made = np.concatenate(vectors) if vectors else np.empty((0, width_of(dimension)), dtype=np.uint8)
    exact = MemoryRows(made, dimension)
    text_hashes = TextHashes.of(hashes_of(hashes))
    return Segment(
        after,
        upto,
        np.asarray(turns, dtype=np.int64),
        rows,
        exact,
        skipped=tuple(skipped),
        read_text_hashes=lambda: text_hashes,
    )


def joined_turns(parts: Sequence[Segment]) -> Positions:
    """Return the turns of adjacent segments."""
    return np.concatenate([part.turns for part in parts])


def joined_rows(parts: Sequence[Segment]) -> Rows:
    """Return the rows of adjacent segments, as indexes in their `joined_turns`."""
    before = np.cumsum([0, *(len(part.turns) for part in parts[:-1])])
    return np.concatenate([part.rows + offset for part, offset in zip(parts, before, strict=True)])


def joined_text_hashes(parts: Sequence[Segment]) -> TextHashes:
    """Return the hashes of the texts of adjacent segments. Raises `Damaged`."""
    read = [part.read_text_hashes() for part in parts]
    return read[0] if len(read) == 1 else TextHashes.of(np.concatenate([hashes.by_turn() for hashes in read]))


def merge(parts: Sequence[Segment]) -> Segment:
    """Merge adjacent segments in memory into one. Needs at least one."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    pieces = [piece for part in parts for piece in part.exact.pieces()]
    # Ranges without turns are parts without rows.
    exact = MemoryRows(np.concatenate(pieces), first.exact.dimension) if pieces else first.exact
    skipped = tuple(item for part in parts for item in part.skipped)
    text_hashes = joined_text_hashes(parts)
    return Segment(
        first.after,
        last.upto,
        joined_turns(parts),
        joined_rows(parts),
        exact,
        skipped=skipped,
        read_text_hashes=lambda: text_hashes,
    )


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
    assert all(one.upto == following.after for one, following in pairwise(parts)), "its range would claim what none has"
    temporary = generation / temporary_name(TEMPORARY)
    make_folder(temporary, root=PROJECTIONS)
    rows, turns = joined_rows(parts), joined_turns(parts)
    tags, digests = _write_rows(temporary, (piece for part in parts for piece in part.exact.pieces()))
    dimension = description.dimension
    exact = StoredRows(temporary / VECTORS_FILE, count=len(rows), dimension=dimension, digests=digests)
    files = {ROWS_FILE: turns[rows].astype("<i8").tobytes(), CONTENTS_FILE: joined_text_hashes(parts).serialised()}
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
    if (manifest.metric, manifest.block_rows) != (METRIC, BLOCK_ROWS) or not tags.keys() >= (FILES - {INDEX_FILE}):
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
    after = manifest.after
    upto = manifest.upto
    return Segment(after, upto, turns, rows, exact, read_text_hashes, index, manifest.skipped, folder)


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
