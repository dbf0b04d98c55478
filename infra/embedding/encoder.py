"""Encoders, as the port of the projections: SentenceTransformer models, and objects of the caller.

A SentenceTransformer model is loaded when the first vector is needed. Identity, dimension and the cutting of texts need
only small files. A BERT such as the default model runs on ONNX Runtime; torch, which takes seconds to import, is loaded
for other models.

An object needs `encode(list[str])`, which returns one row of numbers per text, and a `fingerprint`: a text that changes
whenever a vector would. It may also have `name`, `dimension` and `chunks(list[str])`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import structured_log
from mnemolog.domain.errors import EncodingFailed, Hint, InvalidInput, ModelUnavailable
from mnemolog.domain.values import checked_label, checked_text
from mnemolog.infra.embedding.chunking import CharSpan, chunk
from mnemolog.infra.embedding.model_files import (
    WORDS_ONLY,
    ModelProfile,
    fingerprint,
    published_files,
    read_profile,
    resolve_model,
)
from mnemolog.infra.embedding.onnx_bert import Bert, read_bert
from mnemolog.infra.runtime import cancellation

BATCH_SIZE: Final = 32
BATCH_TOKENS_MAX: Final = 1_024
"""Tokens of a batch, padding included; a single text may have more. It limits one call into torch, which cannot be
interrupted: below 0.3 s for MiniLM on two cores. Above about 300 tokens, a larger batch is no faster per token."""
BERT_TOKENS_MAX: Final = 256
"""Tokens of a batch of `Bert`, padding included, which one thread computes; it is no faster with more."""
THREADS_MAX: Final = 8
"""Threads that compute batches of `Bert` at a time."""
CHARS_PER_TOKEN: Final = 4
"""An estimate for models without a window, whose tokens are not counted."""


class SentenceTransformerEncoder:
    """A SentenceTransformer model, identified by its content.

    `model` is a name or a folder, see `resolve_model`. `recipe` is the version of how turns become text;
    it is part of the identity. Vectors are computed in float32, whatever precision the weights were stored in. Without
    `download` a name is looked up on this machine only.

    Nothing is read at construction: every property and method may raise `ModelUnavailable`, each time it is called.
    Safe for several threads; the model computes one batch at a time.
    """

    def __init__(self, model: str | Path, *, recipe: str = "", download: bool = True) -> None:
        self._asked = model
        self.name = str(model)
        """The name or path that the user gave."""
        self._recipe = recipe
        self._download = download
        self._model_lock = RLock()
        self._model_loaded: Any = None

    @cached_property
    def fingerprint(self) -> str:
        """64 hexadecimal digits, see `fingerprint`. Reads all weights the first time."""
        folder, _ = self._files
        return fingerprint(folder, recipe=self._recipe, published=published_files(self._asked, folder))

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._files[1].dimension

    @property
    def max_tokens(self) -> int | None:
        """Tokens of one input, special tokens and prompt included. None: any number."""
        return self._files[1].max_tokens

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded, so that a text is embedded without delay."""
        return self._model_loaded is not None

    def load(self) -> None:
        """Load the model if it is not loaded: 0.2 s, or seconds where torch must be imported for it."""
        self._model()

    def chunks(self, texts: Sequence[str]) -> list[list[str]]:
        """Cut each text into pieces that fit the model's window; one piece where the text fits.

        Pieces of a text overlap and cover all of it. Imports no torch where the model has a tokenizer.json.
        """
        window = self._window()
        if window is None:
            return [[text] for text in texts]
        pieces: list[list[str]] = []
        for text in texts:
            cancellation.check()
            pieces.append(chunk(text, self._spans, window=window))
        return pieces

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed pieces that fit the model's window.

        Returns shape (len(texts), dimension), float32, every row of length 1, in the order given.
        Loads the model the first time.

        Raises `ModelUnavailable` when the model cannot be loaded, `EncodingFailed` for a text beyond the
        model's window (nothing is cut silently) and for any result that is not a finite vector of the right shape.
        Between two batches it can be stopped (`mnemolog.infra.runtime.cancellation`).
        """
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        tokens = self._tokens(texts)
        counts = [len(text) // CHARS_PER_TOKEN + 1 for text in texts] if tokens is None else list(map(len, tokens))
        model = self._model() if texts else None
        own = isinstance(model, Bert)
        parts = list(batches(counts, size_max=BATCH_SIZE, tokens_max=BERT_TOKENS_MAX if own else BATCH_TOKENS_MAX))
        threads = max(1, min(len(parts), _processors(), THREADS_MAX)) if own else 1

        def embedded(batch: list[int]) -> NDArray[np.float32]:
            return self._encode_batch(model, [texts[at] for at in batch], tokens and [tokens[at] for at in batch])

        pool = ThreadPoolExecutor(threads)
        try:
            made = iter((map if threads == 1 else pool.map)(embedded, parts))
            for batch in parts:
                cancellation.check()
                rows[batch] = next(made)
        finally:
            pool.shutdown(cancel_futures=True)
        cancellation.check()
        return rows

    def _encode_batch(self, model: Any, texts: list[str], tokens: list[list[int]] | None) -> NDArray[np.float32]:
        """Embed one batch. `tokens` are those of each text, or None if they were not counted."""
        try:
            own = isinstance(model, Bert) and tokens is not None
            made = model.encode(tokens) if own else self._by_library(model, texts)
        except Exception as error:
            raise EncodingFailed(f"model {self.name!r} failed on {len(texts)} texts: {error}") from error
        return unit_rows(made, count=len(texts), dimension=self.dimension)

    def _by_library(self, model: Any, texts: list[str]) -> Any:
        # The lock is per batch, so that a query gets its turn while a long rebuild is running. Without it
        # the tokenizer fails ("Already borrowed") when two threads set its padding.
        with self._model_lock:
            return model.encode(
                texts,
                prompt=self._files[1].prompt or None,
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_numpy=True,
            )

    @cached_property
    def _files(self) -> tuple[Path, ModelProfile]:
        folder = resolve_model(self._asked, download=self._download)
        return folder, read_profile(folder)

    def _window(self) -> int | None:
        """Return how many tokens are left for a text, None for any number."""
        if (max_tokens := self.max_tokens) is None:
            return None
        prompt = self._files[1].prompt
        taken = len(self._tokenizer.encode(prompt).ids)
        # The prompt's last token may join the text's first one, and then count differently.
        window = max_tokens - taken - bool(prompt)
        if window < 1:
            raise ModelUnavailable(self.name, f"{taken} special and prompt tokens fill its window of {max_tokens}")
        return window

    def _spans(self, text: str) -> Sequence[CharSpan]:
        spans: list[CharSpan] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans

    def _tokens(self, texts: Sequence[str]) -> list[list[int]] | None:
        """Return the tokens that the model reads for each text; None for a model without a window.

        Raises `EncodingFailed` for a text beyond the window.
        """
        if (max_tokens := self.max_tokens) is None:
            return None
        tokens: list[list[int]] = []
        prompt = self._files[1].prompt
        for text in texts:
            cancellation.check()
            own = self._tokenizer.encode(prompt + text).ids
            if len(own) > max_tokens:
                raise EncodingFailed(
                    f"a text of {len(own):,} tokens exceeds the {max_tokens} that model {self.name!r} reads; "
                    "cut it with chunks()"
                )
            tokens.append(own)
        return tokens

    @cached_property
    def _tokenizer(self) -> Any:
        return _load_tokenizer(self.name, self._files[1])

    def _model(self) -> Any:
        """Return the loaded model: a `Bert` where it is one that runs without torch, else that of the library."""
        with self._model_lock:
            if self._model_loaded is None:
                folder, profile = self._files
                _ = self.fingerprint  # Checks the files of the default model.
                started = perf_counter()
                structured_log.info("model.loading", model=self.name)
                try:
                    own = read_bert(folder, profile, self._tokenizer)
                    self._model_loaded = own or _load_model(self.name, folder, profile)
                except ModelUnavailable as error:
                    structured_log.warning("model.unavailable", model=self.name, error=error)
                    raise
                structured_log.info("model.loaded", model=self.name, seconds=round(perf_counter() - started, 3))
            return self._model_loaded


def batches(tokens: Sequence[int], *, size_max: int, tokens_max: int) -> Iterator[list[int]]:
    """Yield the numbers of all texts in batches, given how many tokens each has.

    Texts of similar length share a batch: a batch costs its longest text times its size. The longest come first, so
    that a lack of memory shows at once.
    """
    order = sorted(range(len(tokens)), key=lambda number: -tokens[number])
    start = 0
    while start < len(order):
        size = max(1, min(size_max, tokens_max // max(1, tokens[order[start]])))
        yield order[start : start + size]
        start += size


def unit_rows(made: Any, *, count: int, dimension: int) -> NDArray[np.float32]:
    """Check what a model returned for `count` texts, and scale every row to length 1.

    Raises `EncodingFailed` unless it is `count` rows of `dimension` finite numbers, none of them all zero.
    """
    try:
        array = np.asarray(made)
    except Exception as error:
        raise EncodingFailed(f"the model gave {type(made).__name__}, which is not an array: {error}") from error
    if array.dtype.kind not in "fiu":
        raise EncodingFailed(f"the model gave {array.dtype} instead of numbers")
    if array.shape != (count, dimension):
        raise EncodingFailed(f"the model gave shape {array.shape} instead of {(count, dimension)}")
    # float64, and the largest component first: squares of float32 may overflow or vanish.
    rows = array.astype(np.float64)
    if not (finite := np.isfinite(rows).all(axis=1)).all():
        raise EncodingFailed(f"the model gave NaN or infinity for {int((~finite).sum())} of {count} texts")
    largest = np.abs(rows).max(axis=1, initial=0.0)
    if not largest.all():
        raise EncodingFailed(f"the model gave a zero vector for {int((largest == 0).sum())} of {count} texts")
    rows /= largest[:, np.newaxis]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def _load_tokenizer(name: str, profile: ModelProfile) -> Any:
    try:
        if (file := profile.tokenizer_folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(file))
        else:
            # An older model, without tokenizer.json. Imports torch.
            from transformers import AutoTokenizer

            with _quiet_transformers():
                tokenizer = AutoTokenizer.from_pretrained(str(profile.tokenizer_folder)).backend_tokenizer
        if profile.lower_case:
            from tokenizers import normalizers

            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
            )
        # The file may set truncation and padding, which would make every count wrong.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:
        raise ModelUnavailable(name, f"its tokenizer cannot be loaded: {error}") from error
    return tokenizer


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load_model(name: str, folder: Path, profile: ModelProfile) -> Any:
    if find_spec("sentence_transformers") is None:
        hint = Hint("`pip install sentence-transformers`", *WORDS_ONLY)
        raise ModelUnavailable(
            name, "this kind of model needs sentence-transformers, which is not installed", hint=hint
        )
    try:
        from sentence_transformers import SentenceTransformer

        with _quiet_transformers():
            # Code elsewhere that a module in the folder names must neither be fetched nor run.
            closed = {"trust_remote_code": False, "local_files_only": True}
            model = SentenceTransformer(str(folder), device="cpu", **closed)
        # Half precision makes a vector depend on its neighbours in the batch.
        model = model.float().eval()
        model.default_prompt_name = None
        reads = model.max_seq_length
    except Exception as error:
        raise ModelUnavailable(name, f"sentence-transformers cannot load it: {error}") from error
    if profile.max_tokens is not None and reads is not None and reads < profile.max_tokens:
        raise ModelUnavailable(name, f"it cuts at {reads} tokens where its files say {profile.max_tokens}")
    return model


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and load reports on stderr; restore the settings of the process afterwards."""
    from transformers import utils

    logging: Any = utils.logging
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


_TAG: Final = b"mnemolog/object-model/1\x00"
_NEEDED: Final = (
    "an object needs encode(list[str]) and a fingerprint: a text that changes whenever a vector would, "
    "such as 'embedder-3/2025-01/512'"
)
FINGERPRINT_BYTES_MAX: Final = 64 << 10
OBJECT_BATCH_SIZE: Final = 256


class ObjectEncoder:
    """A user's own model.

    `recipe` is the version of how turns become text; it is part of the identity. The name is the object's
    `name`, or else its class. Without a `dimension`, one probe text is embedded when it is first needed.
    Without `chunks`, every text is one piece, and the object must read it whole.

    The object is called by one thread at a time, with at most `OBJECT_BATCH_SIZE` texts. Its errors are raised as
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
        for start in range(0, len(texts), OBJECT_BATCH_SIZE):
            cancellation.check()
            batch = list(texts[start : start + OBJECT_BATCH_SIZE])
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
