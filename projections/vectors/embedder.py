"""Vectors of groups: from the cache where it knows the text, else through the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.projections.ports import Encoder
from mnemolog.projections.sql.embeddings import EmbeddingCache, Vectors, content_hash
from mnemolog.projections.vectors.grouping import Group

_HARMLESS = "hello"


class Embedded(NamedTuple):
    """What became of a row of groups."""

    vectors: list[Vectors | None]
    """For each group, shape (chunks, dimension); None where the model was not to be called any more.

    Shape (0, dimension) where the model refused the text.
    """
    encoded: int
    """Texts the model was called for."""
    refused: dict[int, str]
    """Why, by the number of the group, where the model refused the text."""

    def leading(self) -> list[Vectors]:
        """Return the vectors of the groups before the first that has none."""
        found: list[Vectors] = []
        for made in self.vectors:
            if made is None:
                break
            found.append(made)
        return found


class Embedder:
    """The one way from a group to its vectors.

    With `skip_bad` a text that the model refuses is passed over. With `ask_cache=False` nothing is taken from
    the cache; what the model gives is stored in it all the same.
    """

    def __init__(
        self, encoder: Encoder, cache: EmbeddingCache, *, skip_bad: bool = False, ask_cache: bool = True
    ) -> None:
        self._encoder, self._cache = encoder, cache
        self._skip_bad, self._ask_cache = skip_bad, ask_cache

    def embed(self, groups: Sequence[Group], *, encode_max: int | None, read_in: int = 0) -> Embedded:
        """Embed what the cache knows, and the first `encode_max` distinct texts that it does not know.

        `read_in` is the forgetting epoch that the texts were read in: if it is over, nothing is kept.

        Raises `EncodingFailed`, naming the last turn of the group that the model refuses; nothing is cached.
        """
        contents = [content_hash(group.text) for group in groups]
        known = self._cache.look_up(contents) if self._ask_cache else {}
        missing: dict[bytes, Group] = {}
        for group, content in zip(groups, contents, strict=True):
            if content not in known and (encode_max is None or len(missing) < encode_max):
                missing.setdefault(content, group)
        fresh, refused = self._encode(missing)
        self._cache.store(fresh, read_in=read_in)
        nothing = np.empty((0, self._encoder.dimension), dtype=np.float32) if refused else None
        known |= fresh | {content: nothing for content in refused if nothing is not None}
        why = {number: refused[content] for number, content in enumerate(contents) if content in refused}
        return Embedded([known.get(content) for content in contents], len(missing), why)

    def unknown(self, groups: Iterable[Group]) -> set[bytes]:
        """Return the content hashes of the texts that would need the model."""
        contents = {content_hash(group.text) for group in groups}
        return contents - self._cache.look_up(contents).keys() if self._ask_cache else contents

    def _encode(self, missing: Mapping[bytes, Group]) -> tuple[dict[bytes, Vectors], dict[bytes, str]]:
        """Return vectors, and why there are none, by content."""
        if not missing:
            return {}, {}
        chunks = self._encoder.chunks([group.text for group in missing.values()])
        try:
            vectors = self._encoder.encode([piece for pieces in chunks for piece in pieces])
        except errors.EncodingFailed:
            return self._one_by_one(missing, chunks)
        ends = np.cumsum([len(pieces) for pieces in chunks])
        return dict(zip(missing, np.split(vectors, ends[:-1]), strict=True)), {}

    def _one_by_one(
        self, missing: Mapping[bytes, Group], chunks: list[list[str]]
    ) -> tuple[dict[bytes, Vectors], dict[bytes, str]]:
        """Embed text by text after a failure of them all: to name the one it was, or to go on without it."""
        made: dict[bytes, Vectors] = {}
        refused: dict[bytes, str] = {}
        for (content, group), pieces in zip(missing.items(), chunks, strict=True):
            try:
                made[content] = self._encoder.encode(pieces)
            except errors.EncodingFailed as culprit:
                if not self._skip_bad:
                    why = f"{TurnRecorded.topic}: {culprit}"
                    raise errors.EncodingFailed(why, position=group.id) from culprit
                refused[content] = str(culprit)
        if refused:
            self._encoder.encode([_HARMLESS])  # A model that refuses everything is broken: no text is to blame.
        return made, refused
