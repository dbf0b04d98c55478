"""A model without weights, for measuring a store and not a model: the vector of a text is the sum of its words'.

Texts that share words are similar, as in feature hashing (Weinberger et al., "Feature hashing for large scale multitask
learning", ICML 2009), but each word has a dense vector, so that rows are as hard to round as those of a model.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

DIMENSION: Final = 384
WORDS_KEPT: Final = 1 << 16
"""Words whose vectors stay in memory: 100 MB."""


class HashedWords:
    """An encoder for `MemoryStore.open(model=...)`. Equal texts have equal vectors in every process."""

    name, fingerprint, dimension = "hashed-words", "hashed-words/2", DIMENSION

    def encode(self, texts: Sequence[str]) -> Any:
        """Return the vectors of texts, one row each, of length 1."""
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            words = re.findall(r"\w+", text.lower()) or [text]
            np.sum([_vector(word) for word in words], axis=0, out=row)
            row /= np.linalg.norm(row)
        return rows


@lru_cache(WORDS_KEPT)
def _vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION, dtype=np.float32)
