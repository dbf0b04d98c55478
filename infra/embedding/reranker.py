"""Rerankers: cross-encoders of sentence-transformers, by name or folder, or an object of the caller's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard


class CrossEncoderReranker:
    """A CrossEncoder, loaded when it is first used. Safe for many threads, which take turns."""

    def __init__(self, model: str | Path) -> None:
        self.name = str(model)
        self._lock = fork_guard.lock()
        self._model: Any = None

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how well texts answer a query. Raises `ModelUnavailable`."""
        with self._lock:
            if self._model is None:
                try:
                    from sentence_transformers import CrossEncoder

                    self._model = CrossEncoder(self.name)
                except Exception as error:  # The library raises many kinds of errors when a model cannot be loaded.
                    raise errors.ModelUnavailable(self.name, str(error)) from error
            scores: list[float] = self._model.predict(
                [(query, text) for text in texts], show_progress_bar=False
            ).tolist()
        return scores


def make_reranker(given: Any) -> Any:
    """Return the reranker for a model name, a folder, or an object with `score` and a `name`; None for None.

    Raises `InvalidInput` for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str | Path):
        return CrossEncoderReranker(given)
    if not callable(getattr(given, "score", None)) or not isinstance(getattr(given, "name", None), str):
        raise errors.InvalidInput("reranker", "expected a name, a folder, or an object with `score` and a `name`")
    return given
