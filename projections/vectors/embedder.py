"""Vectors of groups: from the cache where it knows the text, else through the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.projections.embeddings import EmbeddingCache, Vectors, content_hash
from mnemolog.projections.ports import Encoder
from mnemolog.projections.vectors.grouping import Group


class Embedded(NamedTuple):
    """What became of a row of groups."""

    vectors: list[Vectors | None]
    """For each group, shape (chunks, dimension); None where the model was not to be called any more."""
    encoded: int
    """Texts the model was called for."""

    def leading(self) -> list[Vectors]:
        """Return the vectors of the groups before the first that has none."""
        found: list[Vectors] = []
        for made in self.vectors:
            if made is None:
                break
            found.append(made)
        return found


class Embedder:
    """The one way from a group to its vectors."""

    def __init__(self, encoder: Encoder, cache: EmbeddingCache) -> None:
        self._encoder, self._cache = encoder, cache

    def embed(self, groups: Sequence[Group], *, encode_max: int | None) -> Embedded:
        """Embed what the cache knows, and the first `encode_max` distinct texts that it does not know.

        Raises `EncodingFailed`, naming the last turn of the group that the model refuses; nothing is cached.
        """
        contents = [content_hash(group.text) for group in groups]
        known = self._cache.look_up(contents)
        missing: dict[bytes, Group] = {}
        for group, content in zip(groups, contents, strict=True):
            if content not in known and (encode_max is None or len(missing) < encode_max):
                missing.setdefault(content, group)
        fresh = self._encode(missing)
        self._cache.store(fresh)
        known |= fresh
        return Embedded([known.get(content) for content in contents], len(missing))

    def unknown(self, groups: Iterable[Group]) -> set[bytes]:
        """Return the content hashes of the texts that would need the model."""
        contents = {content_hash(group.text) for group in groups}
        return contents - self._cache.look_up(contents).keys()

    def _encode(self, missing: Mapping[bytes, Group]) -> dict[bytes, Vectors]:
        if not missing:
            return {}
        chunks = self._encoder.chunks([group.text for group in missing.values()])
        try:
            vectors = self._encoder.encode([piece for pieces in chunks for piece in pieces])
        except errors.EncodingFailed as error:
            self._name_the_culprit(missing, chunks)
            raise error from None
        ends = np.cumsum([len(pieces) for pieces in chunks])
        return dict(zip(missing, np.split(vectors, ends[:-1]), strict=True))

    def _name_the_culprit(self, missing: Mapping[bytes, Group], chunks: list[list[str]]) -> None:
        for group, pieces in zip(missing.values(), chunks, strict=True):
            try:
                self._encoder.encode(pieces)
            except errors.EncodingFailed as error:
                raise errors.EncodingFailed(str(error), position=group.id) from error
