"""Adapt any object that embeds texts to the `Encoder` port of the projections.

The object needs `encode(list[str])`, which returns one row of numbers per text, and a `fingerprint`: a text that
changes whenever a vector would. It may also have `name`, `dimension` and `chunks(list[str])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from threading import RLock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain.errors import EncodingFailed, InvalidInput
from mnemolog.domain.values import checked_label, checked_text
from mnemolog.infra.embedding.encoder import unit_rows
from mnemolog.infra.runtime import cancellation

_TAG: Final = b"mnemolog/object-model/1\x00"
_NEEDED: Final = (
    "an object needs encode(list[str]) and a fingerprint: a text that changes whenever a vector would, "
    "such as 'embedder-3/2025-01/512'"
)
FINGERPRINT_BYTES_MAX: Final = 64 << 10
BATCH_SIZE: Final = 256


class ObjectEncoder:
    """A user's own model.

    `recipe` is the version of how turns become text; it is part of the identity. The name is the object's
    `name`, or else its class. Without a `dimension`, one probe text is embedded when it is first needed.
    Without `chunks`, every text is one piece, and the object must read it whole.

    The object is called by one thread at a time, with at most `BATCH_SIZE` texts. Its errors are raised as
    `EncodingFailed` with the original as cause. Raises `InvalidInput` for an object without a required attribute.
    """

    def __init__(self, model: Any, *, recipe: str = "") -> None:
        if isinstance(model, type) or not callable(getattr(model, "encode", None)):
            raise InvalidInput("model", f"{_kind(model)} has no encode method; {_NEEDED}")
        self._model = model
        self.fingerprint = _identity(model, recipe=recipe)
        """64 hexadecimal digits: the object's own fingerprint, hashed with the recipe."""
        self.name = checked_label("model.name", getattr(model, "name", None) or _kind(model))
        """The object's `name`, or the name of its class."""
        self._dimension = _stated_dimension(model)
        self._chunks = _own_chunks(model)
        self._lock = RLock()

    @property
    def dimension(self) -> int:
        """Components of a vector. May embed one text to find out; raises `EncodingFailed` if that fails."""
        with self._lock:
            if self._dimension is None:
                made = self._call(["dimension"])
                shape = np.shape(made)
                if len(shape) != 2 or shape[0] != 1 or shape[1] < 1:
                    raise EncodingFailed(f"model {self.name!r} gave shape {shape} for one text, not (1, n)")
                unit_rows(made, count=1, dimension=shape[1])
                self._dimension = shape[1]
            return self._dimension

    @property
    def loaded(self) -> bool:
        """Whether the object's dimension is known: stated by the object, or found by a probe."""
        return self._dimension is not None

    def load(self) -> None:
        """Find the dimension if it is not known. The object loads itself."""
        _ = self.dimension

    def chunks(self, texts: Sequence[str]) -> list[list[str]]:
        """Cut each text with the object's `chunks`; one piece each where it has none.

        Raises `EncodingFailed` when the object fails or does not return at least one piece for each text.
        """
        if self._chunks is None:
            return [[text] for text in texts]
        try:
            with self._lock:
                pieces = [list(cut) for cut in self._chunks(list(texts))]
        except Exception as error:
            raise EncodingFailed(f"model {self.name!r} could not cut its texts: {error!r}") from error
        if len(pieces) != len(texts):
            raise EncodingFailed(f"model {self.name!r} cut {len(texts)} texts into {len(pieces)} lists")
        if not all(cut and all(isinstance(piece, str) and piece for piece in cut) for cut in pieces):
            raise EncodingFailed(f"model {self.name!r} cut a text into nothing, or into something else")
        return pieces

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Returns shape (len(texts), dimension), float32, every row of length 1, in the order given.
        Between two batches it can be stopped (`mnemolog.infra.runtime.cancellation`).

        Raises `EncodingFailed` when the object fails or returns anything but finite vectors of the right shape.
        """
        dimension = self.dimension
        rows = np.empty((len(texts), dimension), dtype=np.float32)
        for start in range(0, len(texts), BATCH_SIZE):
            cancellation.check()
            batch = list(texts[start : start + BATCH_SIZE])
            rows[start : start + len(batch)] = unit_rows(self._call(batch), count=len(batch), dimension=dimension)
        cancellation.check()
        return rows

    def _call(self, texts: list[str]) -> Any:
        try:
            with self._lock:
                return np.asarray(self._model.encode(texts))
        except Exception as error:
            raise EncodingFailed(f"model {self.name!r} failed on {len(texts)} texts: {error!r}") from error


def _kind(model: Any) -> str:
    return model.__name__ if isinstance(model, type) else type(model).__name__


def _identity(model: Any, *, recipe: str) -> str:
    try:
        given = model.fingerprint
    except AttributeError as error:
        raise InvalidInput("model", f"{_kind(model)} has no fingerprint; {_NEEDED}") from error
    if not isinstance(given, str):
        raise InvalidInput("model", f"its fingerprint is {type(given).__name__}, not a text; {_NEEDED}")
    if not given or given.isspace():
        raise InvalidInput("model", f"its fingerprint is empty; {_NEEDED}")
    checked_text("model.fingerprint", given, bytes_max=FINGERPRINT_BYTES_MAX)
    hasher = sha256(_TAG)
    for field in (given.encode(), recipe.encode()):
        hasher.update(len(field).to_bytes(8, "big") + field)
    return hasher.hexdigest()


def _stated_dimension(model: Any) -> int | None:
    stated = getattr(model, "dimension", None)
    if stated is None:
        return None
    if isinstance(stated, bool) or not isinstance(stated, (int, np.integer)) or stated < 1:
        raise InvalidInput("model", f"its dimension must be a whole number above 0, got {stated!r}")
    return int(stated)


def _own_chunks(model: Any) -> Callable[[list[str]], Any] | None:
    own: Callable[[list[str]], Any] | None = getattr(model, "chunks", None)
    if own is not None and not callable(own):
        raise InvalidInput("model", f"its chunks must be a method, got {type(own).__name__}")
    return own
