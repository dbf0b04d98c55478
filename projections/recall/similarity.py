"""Score items by their similarity to a query. Vectors are cached by content, so each text is embedded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mnemolog.projections.ports import Encoder
from mnemolog.projections.sql.database import ProjectionDatabase

if TYPE_CHECKING:
    from mnemolog.projections.sql.embeddings import EmbeddingCache, Packed

EMBEDDED_TOGETHER: Final = 64
"""Texts per batch of embedding and caching: the most that a crash can lose."""


class Similarity:
    """Scores texts against queries. Exact: every vector is compared."""

    def __init__(self, database: ProjectionDatabase, *, epoch: Callable[[], int]) -> None:
        self._database, self._epoch = database, epoch
        self._caches: dict[str, EmbeddingCache] = {}

    def scores(
        self, encoder: Encoder, query: str, texts: Sequence[Sequence[str]], *, read_in: int
    ) -> list[float | None]:
        """Return the cosine of the best piece of the best text of each item; None for an item without texts.

        Embeds texts that have no vector under this model yet. Their vectors are cached, unless the forgetting epoch has
        changed since the texts were read. Raises `ModelUnavailable`, `EncodingFailed`.
        """
        from mnemolog.projections.sql.embeddings import unpack

        vectors = self._vectors(encoder, list(dict.fromkeys(text for some in texts for text in some)), read_in)
        asked = encoder.encode(encoder.chunks([query])[0])
        best = {
            text: float((unpack(packed, encoder.dimension) @ asked.T).max())
            for text, packed in vectors.items()
            if len(packed)
        }
        return [max((best[text] for text in some if text in best), default=None) for some in texts]

    def _vectors(self, encoder: Encoder, texts: list[str], read_in: int) -> dict[str, Packed]:
        from mnemolog.projections.sql.embeddings import content_hash, pack

        cache, contents = self._cache(encoder), {text: content_hash(text) for text in texts}
        known = cache.look_up(contents.values())
        missing = [text for text in texts if contents[text] not in known]
        for start in range(0, len(missing), EMBEDDED_TOGETHER):
            some = missing[start : start + EMBEDDED_TOGETHER]
            chunks = encoder.chunks(some)
            rows = pack(encoder.encode([piece for pieces in chunks for piece in pieces]))
            fresh, at = dict[bytes, "Packed"](), 0
            for text, pieces in zip(some, chunks, strict=True):
                fresh[contents[text]], at = rows[at : at + len(pieces)], at + len(pieces)
            cache.store(fresh, read_in=read_in)
            known |= fresh
        return {text: known[content] for text, content in contents.items()}

    def _cache(self, encoder: Encoder) -> EmbeddingCache:
        from mnemolog.projections.sql.embeddings import EmbeddingCache

        fingerprint = encoder.fingerprint
        if fingerprint not in self._caches:
            self._caches[fingerprint] = EmbeddingCache(
                self._database, fingerprint=fingerprint, dimension=encoder.dimension, epoch=self._epoch
            )
        return self._caches[fingerprint]
