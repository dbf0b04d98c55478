"""Run a BERT model from its weights file with ONNX Runtime, without torch (docs/adr/0068-onnx-runtime.md).

The graph is written here, for the layers, heads and sizes that a model's configuration states. It has no weights: those
are mapped from the model's file, so that what is not used is not read. Vectors differ from the library's by rounding in
float32: below 1e-6 in each component.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.infra.embedding.model_files import ModelProfile, safetensors_header
from mnemolog.infra.runtime.regular_files import open_file, read_file

Rows = NDArray[np.float32]

_SETTINGS: Final = {"hidden_act": "gelu", "is_decoder": False, "add_cross_attention": False}
"""What the configuration must say, where it says anything; a model of other values goes through the library."""
_OF_TOKENIZER: Final = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_PARTS: Final = ("Transformer", "Pooling", "Normalize")
_TYPES: Final = {"F32": np.float32, "F16": np.float16}

_OPERATORS: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators, each of which is several of the standard's."""
_FLOAT32, _INT32 = 1, 6
_QKV: Final = ("query", "key", "value")


class Bert:
    """A BERT model with mean pooling. Safe for many threads, which do not wait for each other.

    `config` is its config.json; `weights` returns the array of a name. Raises `KeyError` for one that is missing, and
    `ValueError` for one of another shape.
    """

    def __init__(self, config: dict[str, Any], weights: Callable[[str], Rows]) -> None:
        from onnxruntime import InferenceSession, OrtValue, SessionOptions

        graph = _Graph(config, weights)
        width = graph.width
        self._words = graph.taken("embeddings.word_embeddings.weight", int(config["vocab_size"]), width)
        places = graph.taken("embeddings.position_embeddings.weight", int(config["max_position_embeddings"]), width)
        types = graph.taken("embeddings.token_type_embeddings.weight", int(config["type_vocab_size"]), width)
        self._places = places + types[0]
        options = SessionOptions()
        # One thread, the caller's: nothing waits for another thread, let alone by spinning.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._weights = {name: OrtValue.ortvalue_from_numpy(array) for name, array in graph.weights.items()}
        options.add_external_initializers(list(self._weights), list(self._weights.values()))
        self._session = InferenceSession(graph.model(), options, providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[Sequence[int]]) -> Rows:
        """Return the mean of each text's token vectors; shape (len(texts), dimension), in the order given.

        Each text is the tokens that the model reads, special tokens included. It is computed by the calling thread.
        """
        lengths = np.array([len(text) for text in texts], dtype=np.int32)
        tokens = np.zeros((len(texts), lengths.max()), dtype=np.intp)
        for row, text in zip(tokens, texts, strict=True):
            row[: len(text)] = text
        given = {"words": self._words[tokens], "places": self._places[: tokens.shape[1]], "lengths": lengths}
        [states] = self._session.run(None, given)
        return np.stack([state[:length].mean(0) for state, length in zip(states, lengths, strict=True)])


class _Graph:
    """The layers of a BERT as an ONNX model, and the weights that its parts name."""

    def __init__(self, config: dict[str, Any], read: Callable[[str], Rows]) -> None:
        self.width, self.weights = int(config["hidden_size"]), dict[str, Rows]()
        self._read, self._epsilon, self._nodes = read, float(config["layer_norm_eps"]), list[bytes]()
        heads, inner = int(config["num_attention_heads"]), int(config["intermediate_size"])
        state = self._norm("embeddings.LayerNorm", "words", "places")
        for number in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{number}."
            own = f"{at}attention.self."
            self.weights[f"{own}bias"] = np.concatenate([self.taken(f"{own}{part}.bias", self.width) for part in _QKV])
            parts = [self._product(f"{own}{part}", state, self.width) for part in _QKV]
            seen = self._add("MultiHeadAttention", *parts, f"{own}bias", "lengths", num_heads=heads)
            state = self._merged(f"{at}attention.output", state, seen, self.width)
            wide = self._product(f"{at}intermediate.dense", state, self.width, inner)
            wide = self._add("BiasGelu", wide, self._weight(f"{at}intermediate.dense.bias", inner))
            state = self._merged(f"{at}output", state, wide, inner)
        self._last = state

    def taken(self, name: str, *shape: int) -> Rows:
        """Return the array of a name in float32. Raises `ValueError` if it has another shape."""
        array = self._read(name)
        if array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape} instead of {shape}")
        return array.astype(np.float32, copy=False)

    def model(self) -> bytes:
        """Return the ONNX model. The numbers of its fields: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto."""
        weights = (
            _message(*((1, size) for size in array.shape), (2, _FLOAT32), (8, name), (13, _ELSEWHERE), (14, 1))
            for name, array in self.weights.items()
        )
        given = [
            _variable("words", _FLOAT32, "texts", "tokens", self.width),
            _variable("places", _FLOAT32, "tokens", self.width),
            _variable("lengths", _INT32, "texts"),
        ]
        graph = _message(
            *((1, node) for node in self._nodes),
            (2, "bert"),
            *((5, each) for each in weights),
            *((11, each) for each in given),
            (12, _variable(self._last, _FLOAT32, "texts", "tokens", self.width)),
        )
        return _message((1, 8), (7, graph), (8, _message((1, _OPERATORS), (2, 1))))

    def _weight(self, name: str, *shape: int) -> str:
        self.weights[name] = self.taken(name, *shape)
        return name

    def _product(self, name: str, state: str, inputs: int, outputs: int | None = None) -> str:
        weight = self._weight(f"{name}.weight", outputs or self.width, inputs)
        return self._add("FusedMatMul", state, weight, transB=1)

    def _merged(self, name: str, state: str, change: str, inputs: int) -> str:
        """Add what a linear layer makes of a change to the state, and normalise it."""
        change = self._product(f"{name}.dense", change, inputs)
        return self._norm(f"{name}.LayerNorm", change, state, self._weight(f"{name}.dense.bias", self.width))

    def _norm(self, name: str, one: str, other: str, *bias: str) -> str:
        weights = (self._weight(f"{name}.{part}", self.width) for part in ("weight", "bias"))
        return self._add("SkipLayerNormalization", one, other, *weights, *bias, epsilon=self._epsilon)

    def _add(self, operator: str, *inputs: str, **settings: float) -> str:
        output = f"{operator} {len(self._nodes)}"
        names = [*((1, name) for name in inputs), (2, output), (4, operator), (7, _OPERATORS)]
        self._nodes.append(_message(*names, *((5, _setting(name, value)) for name, value in settings.items())))
        return output


def _message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Return a message of protocol buffers with these fields: pairs of number and value."""
    made = bytearray()
    for number, value in fields:
        if isinstance(value, float):
            made += _varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            made += _varint(number << 3) + _varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            made += _varint(number << 3 | 2) + _varint(len(content)) + content
    return bytes(made)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def _setting(name: str, value: float) -> bytes:
    at, kind = (2, 1) if isinstance(value, float) else (3, 2)
    return _message((1, name), (at, value), (20, kind))


def _variable(name: str, kind: int, *shape: int | str) -> bytes:
    """Describe an input or the output of the graph. A size that is a word may be any."""
    sizes = [(1, _message((2 if isinstance(size, str) else 1, size))) for size in shape]
    return _message((1, name), (2, _message((1, _message((1, kind), (2, _message(*sizes)))))))


_ELSEWHERE: Final = _message((1, "location"), (2, "elsewhere"))


def read_bert(folder: Path, profile: ModelProfile, tokenizer: Any) -> Bert | None:
    """Return the model in a folder if its files say no more than this module knows; else None.

    That is a BERT with absolute positions, exact GELU and mean pooling, whose weights are model.safetensors in float32
    or float16, with a window and the tokenizer that its tokenizer.json describes. None also for damaged files, and
    where ONNX Runtime is not installed.
    """
    part = profile.tokenizer_folder
    try:
        config = json.loads(read_file(part / "config.json", follow=True))
        if not (_is_known(config, profile) and _is_tokenizer(part, tokenizer)):
            return None
        return Bert(config, _weights(part / "model.safetensors"))
    except Exception:  # The library says what is wrong with a file, in its own words.
        return None


def _weights(path: Path) -> Callable[[str], Rows]:
    """Return what gives the array of a name, mapped from the file. Raises `KeyError` and `ValueError` when called."""
    with open_file(path, follow=True) as file:
        header = safetensors_header(file)
        content = np.asarray(np.memmap(file, np.uint8, "r", offset=file.tell()))

    def array(name: str) -> Rows:
        entry = header[name]
        return content[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])

    return array


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
