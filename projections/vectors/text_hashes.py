"""The hashes of the texts of a segment's turns, by which a text finds its vectors.

The file has the first `CONTENT_BYTES` of every turn's content hash, ascending, then the number of each one's
turn in the segment (uint32, little-endian).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
    def of(cls, hashes: Hashes) -> TextHashes:
        """Index hashes that are given in the order of the turns."""
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.uint32))

    @classmethod
    def parse(cls, data: bytes, *, turns: int) -> TextHashes:
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


NO_HASHES: Final = TextHashes(np.empty(0, dtype=HASH), np.empty(0, dtype=np.uint32))


def hashes_of(contents: Iterable[bytes]) -> Hashes:
    """Return content hashes as a segment keeps them."""
    cut = b"".join(content[:CONTENT_BYTES].ljust(CONTENT_BYTES, b"\0") for content in contents)
    return np.frombuffer(cut, dtype=HASH)
