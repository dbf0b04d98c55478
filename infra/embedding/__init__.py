"""Embedding models and rerankers: SentenceTransformers, or objects of the caller. Heavy libraries load when needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemolog.infra.embedding.encoder import ObjectEncoder, SentenceTransformerEncoder


def make_encoder(model: Any, *, recipe: str, download: bool = True) -> SentenceTransformerEncoder | ObjectEncoder:
    """Return the encoder for a model name, a model folder, or an object with `encode` and `fingerprint`.

    `recipe` says how turns become the texts that are embedded; it is part of the encoder's fingerprint.
    """
    from mnemolog.infra.embedding.encoder import ObjectEncoder, SentenceTransformerEncoder

    if isinstance(model, str | Path):
        return SentenceTransformerEncoder(model, recipe=recipe, download=download)
    return ObjectEncoder(model, recipe=recipe)
