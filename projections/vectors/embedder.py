"""Embed turns: from the cache or a segment if one has the text, otherwise with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.projections.ports import Encoder
from mnemolog.projections.sql.embeddings import EmbeddingCache, content_hash
from mnemolog.projections.sql.packed_vectors import Packed, pack, width_of
from mnemolog.projections.vectors.lookup_by_text import find_vectors
from mnemolog.projections.vectors.rendering import RenderedTurn
from mnemolog.projections.vectors.segment import Segment

_HARMLESS = "hello"


class Embedded(NamedTuple):
    """The outcome of embedding a list of turns."""

    vectors: list[Packed | None]
    """For each turn, one packed row for each chunk; None for turns after the limit of model calls.

    No rows if the model refused the text.
    """
    encoded: int
    """Texts that the model encoded."""
    refused: dict[int, str]
    """Why the model refused the text, by index in the list of turns."""
    hashes: list[bytes]
    """The content hash of each turn."""

    def leading(self) -> list[Packed]:
        """Return the vectors of the turns before the first one without."""
        found: list[Packed] = []
        for made in self.vectors:
            if made is None:
                break
            found.append(made)
        return found


class Embedder:
    """The one way from a turn to its vectors.

    `segments` returns those that may have the vectors of a text. With `skip_bad` a text that the model refuses is
    skipped.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: EmbeddingCache,
        *,
        segments: Callable[[], Iterable[Segment]],
        skip_bad: bool = False,
    ) -> None:
        self._encoder, self._cache, self._segments, self._skip_bad = encoder, cache, segments, skip_bad

    def embed(self, turns: Sequence[RenderedTurn], *, encode_max: int | None, read_in: int = 0) -> Embedded:
        """Embed turns from what is stored, and with the model up to `encode_max` distinct texts that are not.

        `read_in` is the forgetting epoch in which the texts were read. If the epoch has changed, nothing is cached.

        Raises `EncodingFailed` with the turn that the model refuses; nothing is cached.
        """
        hashes = [content_hash(turn.text) for turn in turns]
        known = self._known(hashes)
        missing: dict[bytes, RenderedTurn] = {}
        for turn, content in zip(turns, hashes, strict=True):
            if content not in known and (encode_max is None or len(missing) < encode_max):
                missing.setdefault(content, turn)
        fresh, refused = self._encode(missing)
        self._cache.store(fresh, read_in=read_in)
        nothing = np.empty((0, width_of(self._encoder.dimension)), dtype=np.uint8) if refused else None
        known |= fresh | {content: nothing for content in refused if nothing is not None}
        why = {number: refused[content] for number, content in enumerate(hashes) if content in refused}
        return Embedded([known.get(content) for content in hashes], len(missing), why, hashes)

    def unknown(self, turns: Iterable[RenderedTurn]) -> set[bytes]:
        """Return the content hashes of the texts that would need the model."""
        hashes = {content_hash(turn.text) for turn in turns}
        return hashes - self._known(hashes).keys()

    def _known(self, hashes: Iterable[bytes]) -> dict[bytes, Packed]:
        """Return the vectors that are stored for these content hashes."""
        found = self._cache.look_up(hashes)
        return found | find_vectors(self._segments(), [content for content in hashes if content not in found])

    def _encode(self, missing: Mapping[bytes, RenderedTurn]) -> tuple[dict[bytes, Packed], dict[bytes, str]]:
        """Return vectors, and reasons for missing ones, by content hash."""
        if not missing:
            return {}, {}
        chunks = self._encoder.chunks([turn.text for turn in missing.values()])
        try:
            vectors = self._encoder.encode([piece for pieces in chunks for piece in pieces])
        except errors.EncodingFailed:
            return self._one_by_one(missing, chunks)
        ends = np.cumsum([len(pieces) for pieces in chunks])
        return dict(zip(missing, np.split(pack(vectors), ends[:-1]), strict=True)), {}

    def _one_by_one(
        self, missing: Mapping[bytes, RenderedTurn], chunks: list[list[str]]
    ) -> tuple[dict[bytes, Packed], dict[bytes, str]]:
        """Embed one text at a time after a batch failed: to name the bad one, or to skip it."""
        made: dict[bytes, Packed] = {}
        refused: dict[bytes, str] = {}
        for (content, turn), pieces in zip(missing.items(), chunks, strict=True):
            try:
                made[content] = pack(self._encoder.encode(pieces))
            except errors.EncodingFailed as culprit:
                if not self._skip_bad:
                    why = f"{TurnRecorded.topic}: {culprit}"
                    raise errors.EncodingFailed(why, position=turn.position) from culprit
                refused[content] = str(culprit)
        if refused:
            self._encoder.encode([_HARMLESS])  # A model that refuses everything is broken; the text is not the cause.
        return made, refused
