"""Run a BERT model from its weights file with numpy, without torch (docs/adr/0052-a-question-without-torch.md).

A question has about 12 tokens, so its time is that of reading 42 MB of weights. BLAS copies a whole matrix before it
multiplies a few rows with it. Here weights are cut into blocks small enough that it multiplies them as they are, and
in the calling thread. The tokens of several texts lie end to end without padding; query, key and value are one product.

Vectors differ from the library's by rounding in float32: below 1e-6 in each component.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.infra.embedding.model_files import ModelProfile
from mnemolog.infra.runtime.regular_files import read_file

Rows = NDArray[np.float32]

ROWS: Final = 40
INPUTS: Final = 384
OUTPUTS: Final = 64
"""The largest product: so many tokens, inputs and outputs. OpenBLAS copies nothing for up to a million multiplications,
and is then as fast for a few tokens as for many."""
_NORMAL: Final = np.array(
    [
        *(-3.61123283698117e-09, 2.668928189713835e-07, -7.938218916769699e-06, 1.1048031687618427e-04),
        *(6.62599880152863e-05, -7.266856702994692e-02, -1.5957684322301633),
    ],
    dtype=np.float32,
)
"""Of P, the highest power first, so that 1 / (1 + exp(x * P(x * x))) is the distribution function of the normal
distribution. Fitted by reweighted least squares on 0 to 6.5; x times the function is off by 7e-8 at most."""
_SETTINGS: Final = {"hidden_act": "gelu", "is_decoder": False, "add_cross_attention": False}
"""What the configuration must say, where it says anything; a model of other values goes through the library."""
_OF_TOKENIZER: Final = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_PARTS: Final = ("Transformer", "Pooling", "Normalize")


class Bert:
    """A BERT model with mean pooling. Safe for many threads, which do not wait for each other.

    `config` is its config.json; `weights` returns the array of a name. Raises `KeyError` for one that is missing, and
    `ValueError` for one of another shape.
    """

    def __init__(self, config: dict[str, Any], weights: Callable[[str], Rows]) -> None:
        self._heads, self._width = int(config["num_attention_heads"]), int(config["hidden_size"])
        width, inner = self._width, int(config["intermediate_size"])
        epsilon = float(config["layer_norm_eps"])

        def taken(name: str, *shape: int) -> Rows:
            array = weights(name)
            if array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape} instead of {shape}")
            return array.astype(np.float32, copy=False)

        def norm(name: str) -> _Norm:
            return _Norm(taken(f"{name}.weight", width), taken(f"{name}.bias", width), epsilon)

        def linear(*names: str, inputs: int = width, outputs: int = width) -> _Linear:
            parts = [(taken(f"{one}.weight", outputs, inputs), taken(f"{one}.bias", outputs)) for one in names]
            return _Linear(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

        self._words = taken("embeddings.word_embeddings.weight", int(config["vocab_size"]), width)
        places = taken("embeddings.position_embeddings.weight", int(config["max_position_embeddings"]), width)
        self._places = places + taken("embeddings.token_type_embeddings.weight", config["type_vocab_size"], width)[0]
        self._norm = norm("embeddings.LayerNorm")
        self._layers = []
        for number in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{number}."
            self._layers.append(
                _Layer(
                    linear(*(f"{at}attention.self.{part}" for part in ("query", "key", "value"))),
                    linear(f"{at}attention.output.dense"),
                    norm(f"{at}attention.output.LayerNorm"),
                    linear(f"{at}intermediate.dense", outputs=inner),
                    linear(f"{at}output.dense", inputs=inner),
                    norm(f"{at}output.LayerNorm"),
                )
            )

    def encode(self, texts: Sequence[Sequence[int]]) -> Rows:
        """Return the mean of each text's token vectors; shape (len(texts), dimension), in the order given.

        Each text is the tokens that the model reads, special tokens included.
        """
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        runs = [(length, len(list(same))) for length, same in groupby(len(texts[number]) for number in order)]
        tokens = [token for number in order for token in texts[number]]
        places = [place for number in order for place in range(len(texts[number]))]
        state = self._words[tokens]
        state += self._places[places]
        self._norm(state)
        # Scores and activations far from zero overflow to infinity on their way to 0.
        with np.errstate(over="ignore", under="ignore"):
            for layer in self._layers:
                layer(state, runs, self._heads)
        rows = np.empty((len(texts), self._width), dtype=np.float32)
        rows[order] = np.concatenate([part.mean(1) for part in _split(state, runs)])
        return rows


class _Norm:
    """Scale rows to mean 0 and variance 1, then by weights, in place."""

    def __init__(self, weight: Rows, bias: Rows, epsilon: float) -> None:
        self._weight, self._bias, self._epsilon = weight, bias, np.float32(epsilon)
        self._averaging = np.full(len(weight), 1 / len(weight), dtype=np.float32)

    def __call__(self, state: Rows) -> None:
        state -= (state @ self._averaging)[:, np.newaxis]
        variance = (state * state) @ self._averaging
        state *= (1 / np.sqrt(variance + self._epsilon))[:, np.newaxis]
        state *= self._weight
        state += self._bias


class _Linear:
    """A linear layer, its weights cut into blocks that each lie in one piece of memory."""

    def __init__(self, weight: Rows, bias: Rows) -> None:
        outputs, inputs = weight.shape
        own_inputs, own_outputs = _divisor(inputs, INPUTS), _divisor(outputs, OUTPUTS)
        cut = weight.reshape(outputs // own_outputs, own_outputs, inputs // own_inputs, own_inputs)
        self._blocks, self._bias = np.ascontiguousarray(cut.transpose(2, 0, 3, 1)), bias

    def __call__(self, state: Rows) -> Rows:
        """Multiply up to `ROWS` rows."""
        _, _, own_inputs, own_outputs = self._blocks.shape
        made = np.empty((len(state), len(self._bias)), dtype=np.float32)
        by_block = made.reshape(len(state), -1, own_outputs).transpose(1, 0, 2)
        np.matmul(state[:, :own_inputs], self._blocks[0], out=by_block)
        for number, blocks in enumerate(self._blocks[1:], start=1):
            by_block += state[:, number * own_inputs : (number + 1) * own_inputs] @ blocks
        made += self._bias
        return made


class _Layer:
    """Attention within each text, then the feed-forward step of each token."""

    def __init__(self, joint: _Linear, output: _Linear, norm: _Norm, widen: _Linear, narrow: _Linear, last: _Norm):
        self._joint, self._output, self._norm = joint, output, norm
        self._widen, self._narrow, self._last_norm = widen, narrow, last

    def __call__(self, state: Rows, runs: list[tuple[int, int]], heads: int) -> None:
        """Replace the rows of `state`, which are those of texts, by length: `runs` are (length, count)."""
        joint = np.concatenate([self._joint(part) for part in _pieces(state)])
        seen = np.empty_like(state)
        for each, found in zip(_split(joint, runs), _split(seen, runs), strict=True):
            count, length, width = found.shape
            query, key, value = each.reshape(count, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
            query *= np.float32((width // heads) ** -0.5)
            scores = query @ key.transpose(0, 1, 3, 2)
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            found = found.reshape(count, length, heads, -1).transpose(0, 2, 1, 3)
            np.matmul(scores, value, out=found)
            found /= scores.sum(-1, keepdims=True)
        for part, attended in zip(_pieces(state), _pieces(seen), strict=True):
            part += self._output(attended)
            self._norm(part)
            part += self._narrow(_gelu(self._widen(part)))
            self._last_norm(part)


def read_bert(folder: Path, profile: ModelProfile, tokenizer: Any) -> Bert | None:
    """Return the model in a folder if its files say no more than this module knows; else None.

    That is a BERT with absolute positions, exact GELU and mean pooling, whose weights are model.safetensors in float32
    or float16, with a window and the tokenizer that its tokenizer.json describes. None also for damaged files.
    """
    part = profile.tokenizer_folder
    try:
        from safetensors import safe_open

        config = json.loads(read_file(part / "config.json", follow=True))
        if not (_is_known(config, profile) and _is_tokenizer(part, tokenizer)):
            return None
        with safe_open(part / "model.safetensors", framework="numpy") as file:
            return Bert(config, file.get_tensor)
    except Exception:  # The library says what is wrong with a file, in its own words.
        return None


def _is_known(config: dict[str, Any], profile: ModelProfile) -> bool:
    return bool(
        config["model_type"] == "bert"
        and all(config.get(name, value) == value for name, value in _SETTINGS.items())
        and config.get("position_embedding_type") in ("absolute", None)
        and "quantization_config" not in config
        and profile.modules in (_PARTS[:1], _PARTS[:2], _PARTS)
        and profile.pooling == "mean"
        and profile.plain
        and profile.dimension == config["hidden_size"]
        and profile.max_tokens is not None
        and profile.max_tokens <= config["max_position_embeddings"]
    )


def _is_tokenizer(part: Path, tokenizer: Any) -> bool:
    """Whether tokenizer_config.json, which the library puts above tokenizer.json, says nothing else."""
    file = part / "tokenizer_config.json"
    config = json.loads(read_file(file, follow=True)) if file.is_file() else {}
    steps = json.loads(tokenizer.to_str())["normalizer"] or {}
    return all(config[name] == steps.get(own) for name, own in _OF_TOKENIZER.items() if name in config)


def _divisor(number: int, limit: int) -> int:
    """Return the largest divisor up to a limit."""
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)


def _gelu(x: Rows) -> Rows:
    """Return x times the distribution function of the normal distribution."""
    square = x * x
    made: Rows = square * _NORMAL[0]
    for factor in _NORMAL[1:-1]:
        made += factor
        made *= square
    made += _NORMAL[-1]
    made *= x
    np.exp(made, out=made)
    made += np.float32(1)
    np.divide(x, made, out=made)
    return made


def _pieces(rows: Rows) -> Iterator[Rows]:
    """Yield the rows in pieces of `ROWS`, so that what a piece becomes stays in the processor's cache."""
    return (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))


def _split(rows: Rows, runs: list[tuple[int, int]]) -> Iterator[Rows]:
    """Yield each run of texts of one length as (count, length, width)."""
    start = 0
    for length, count in runs:
        yield rows[start : start + length * count].reshape(count, length, -1)
        start += length * count
