"""Which text each turn of a segment has: the vectors of a text are found in the segment that has them.

A file of contents has the first `CONTENT_BYTES` of every turn's content hash, ascending, then the number of each one's
turn in the segment (uint32, little-endian).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.projections.ports import Log
from mnemolog.projections.sql.embeddings import content_hash
from mnemolog.projections.sql.packed_vectors import Packed
from mnemolog.projections.vectors.manifest import Damaged
from mnemolog.projections.vectors.rendering import rendered_turns

if TYPE_CHECKING:
    from mnemolog.projections.vectors.segment import Positions, Segment

CONTENT_BYTES: Final = 16
"""Bytes of a content hash that are kept. No two texts share them by chance, and none can be made to."""
NUMBER_BYTES: Final = 4
READ_BATCH: Final = 1_000
_HASH: Final = np.dtype(f"S{CONTENT_BYTES}")

Hashes = NDArray[np.bytes_]
"""The first `CONTENT_BYTES` of content hashes. Shape (turns,)."""


class Contents:
    """The contents of a segment's turns. Immutable; safe for many threads."""

    def __init__(self, ascending: Hashes, numbers: NDArray[np.uint32]) -> None:
        self._ascending, self._numbers = ascending, numbers

    @classmethod
    def of(cls, hashes: Hashes) -> Contents:
        """Return the contents of turns from their hashes, in the order of the turns."""
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.uint32))

    @classmethod
    def parse(cls, data: bytes, *, turns: int) -> Contents:
        """Return the contents in the bytes of a file. Raises `ValueError` if they are not those of so many turns."""
        if len(data) != turns * (CONTENT_BYTES + NUMBER_BYTES):
            raise ValueError("it has another number of texts than turns")
        hashes = np.frombuffer(data, dtype=_HASH, count=turns)
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
        asked = hashes_of(wanted)
        places = np.minimum(np.searchsorted(self._ascending, asked), len(self._ascending) - 1)
        held = np.flatnonzero(self._ascending[places] == asked)
        numbers = self._numbers[places[held]].tolist()
        return {wanted[at]: number for at, number in zip(held.tolist(), numbers, strict=True)}


NO_CONTENTS: Final = Contents(np.empty(0, dtype=_HASH), np.empty(0, dtype=np.uint32))


def hashes_of(contents: Iterable[bytes]) -> Hashes:
    """Return content hashes as a segment keeps them."""
    cut = b"".join(content[:CONTENT_BYTES].ljust(CONTENT_BYTES, b"\0") for content in contents)
    return np.frombuffer(cut, dtype=_HASH)


def find_vectors(segments: Iterable[Segment], contents: Iterable[bytes]) -> dict[bytes, Packed]:
    """Return the packed vectors of those of these content hashes that a segment has, one row for each chunk.

    Damaged rows count as missing.
    """
    found: dict[bytes, Packed] = {}
    missing = list(dict.fromkeys(contents))
    for segment in segments:
        if not missing:
            break
        found |= vectors_at(segment, segment.findable.numbers_of(missing))
        missing = [content for content in missing if content not in found]
    return found


def vectors_at(segment: Segment, numbers: Mapping[bytes, int]) -> dict[bytes, Packed]:
    """Return the packed vectors of these turns, given by number, without those that are damaged."""
    if not numbers:
        return {}
    starts = segment.row_starts
    in_order = sorted(numbers.items(), key=lambda item: item[1])
    spans = [(content, int(starts[number]), int(starts[number + 1])) for content, number in in_order]
    try:
        rows = segment.exact.packed(np.concatenate([np.arange(start, end) for _, start, end in spans]))
        ends = np.cumsum([end - start for _, start, end in spans])
        return dict(zip([content for content, *_ in spans], np.split(rows, ends[:-1]), strict=True))
    except Damaged:
        found: dict[bytes, Packed] = {}
        for content, start, end in spans:  # One block of rows is damaged; the others are as they were written.
            with suppress(Damaged):
                found[content] = segment.exact.packed(np.arange(start, end))
        return found


def contents_of(segment: Segment, log: Log) -> Contents:
    """Return the contents of a segment: from the log if its file is damaged."""
    with suppress(Damaged):
        return segment.read_contents()
    made = np.zeros(len(segment.turns), dtype=_HASH)
    for numbers, hashes in hashes_in_log(log, segment):
        made[numbers] = hashes_of(hashes)
    return Contents.of(made)


def hashes_in_log(log: Log, segment: Segment) -> Iterator[tuple[Positions, list[bytes]]]:
    """Yield numbers of turns of a segment, with the whole content hashes of the texts that the log has for them."""
    for events in log.read(after=segment.after, upto=segment.upto, batch_max=READ_BATCH):
        turns = rendered_turns(events)
        positions = np.asarray([turn.position for turn in turns], dtype=np.int64)
        held = np.isin(positions, segment.turns)
        if held.any():
            hashes = [content_hash(turn.text) for turn, is_held in zip(turns, held.tolist(), strict=True) if is_held]
            yield np.searchsorted(segment.turns, positions[held]), hashes
