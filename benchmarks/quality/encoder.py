"""An encoder that counts what it is asked for and remembers the vectors of questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np


class EncoderCost(msgspec.Struct):
    """What went through the model for the corpus."""

    texts: int = 0
    characters: int = 0
    seconds: float = 0.0


class Remembering:
    """The encoder `inner` under its own fingerprint.

    While the corpus is embedded it counts texts. After `ask`, every text is a question: it is embedded once, its
    time is kept in `question_ms`, and asked again it costs nothing.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.name, self.fingerprint, self.dimension = inner.name, inner.fingerprint, inner.dimension
        self.corpus = EncoderCost()
        self.question_ms: dict[str, float] = {}
        self._asking = False
        self._vectors: dict[str, Any] = {}

    def ask(self) -> None:
        """From now on the texts are questions. The model is loaded here, so that no question pays for it."""
        self._inner.encode(["warm up"])
        self._asking = True

    def chunks(self, texts: Sequence[str]) -> list[list[str]]:
        """Cut texts as the inner encoder does."""
        own = getattr(self._inner, "chunks", None)
        cut: list[list[str]] = own(texts) if own is not None else [[text] for text in texts]
        return cut

    def encode(self, texts: Sequence[str]) -> Any:
        """Return the vectors of texts."""
        if not self._asking:
            started = perf_counter()
            rows = self._inner.encode(list(texts))
            self.corpus.texts += len(texts)
            self.corpus.characters += sum(map(len, texts))
            self.corpus.seconds += perf_counter() - started
            return rows
        for text in texts:
            if text not in self._vectors:
                started = perf_counter()
                self._vectors[text] = self._inner.encode([text])[0]
                self.question_ms[text] = 1e3 * (perf_counter() - started)
        return np.stack([self._vectors[text] for text in texts])


def add_to_ledger(path: Path, fingerprint: str, spent: EncoderCost) -> EncoderCost:
    """Add what a run spent to what earlier runs spent on the same vectors; return the sum.

    The vectors of a store that is kept cost nothing in the next run: the ledger beside it still knows what they
    did cost.
    """
    costs = msgspec.json.decode(path.read_bytes(), type=dict[str, EncoderCost]) if path.exists() else {}
    before = costs.get(fingerprint, EncoderCost())
    costs[fingerprint] = EncoderCost(
        before.texts + spent.texts, before.characters + spent.characters, round(before.seconds + spent.seconds, 3)
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(costs)) + b"\n")
    return costs[fingerprint]
