"""Run a BERT model from its weights file with ONNX Runtime, without torch (docs/adr/0068-onnx-runtime.md).

The graph is written here, for the layers, heads and sizes that a model's configuration states. It has no weights: those
are mapped from the model's file, so that what is not used is not read. Vectors differ from the library's by rounding in
float32: below 1e-6 in each component.
"""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.infra.embedding.model_files import ModelProfile, safetensors_header
from mnemolog.infra.runtime.files import open_file, read_file

Rows = NDArray[np.float32]
Field = tuple[int, int | float | str | bytes]

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
_EMBEDDINGS: Final = "state0 SkipLayerNormalization words places embeddings.LayerNorm.weight embeddings.LayerNorm.bias"
_LAYER: Final = """
    query{n}   FusedMatMul            state{n} {at}attention.self.query.weight
    key{n}     FusedMatMul            state{n} {at}attention.self.key.weight
    value{n}   FusedMatMul            state{n} {at}attention.self.value.weight
    seen{n}    MultiHeadAttention     query{n} key{n} value{n} {at}attention.self.bias lengths
    told{n}    FusedMatMul            seen{n} {at}attention.output.dense.weight
    middle{n}  SkipLayerNormalization told{n} state{n} {norm}.weight {norm}.bias {at}attention.output.dense.bias
    wide{n}    FusedMatMul            middle{n} {at}intermediate.dense.weight
    chosen{n}  BiasGelu               wide{n} {at}intermediate.dense.bias
    narrow{n}  FusedMatMul            chosen{n} {at}output.dense.weight
    state{m}   SkipLayerNormalization narrow{n} middle{n} {last}.weight {last}.bias {at}output.dense.bias
"""
"""The operators of a layer: output, operator, inputs. An input with a dot is a weight, by its name in the file."""


class Bert:
    """A BERT model with mean pooling. Safe for many threads, which do not wait for each other.

    `config` is its config.json; `weights` returns the array of a name. Raises `KeyError` for one that is missing,
    `ValueError` for too few positions, and an error of ONNX Runtime where shapes do not fit together.
    """

    def __init__(self, config: dict[str, Any], weights: Callable[[str], Rows]) -> None:
        from onnxruntime import InferenceSession, OrtValue, SessionOptions

        self._words = weights("embeddings.word_embeddings.weight")
        types = weights("embeddings.token_type_embeddings.weight")
        self._places = weights("embeddings.position_embeddings.weight") + types[0]
        options = SessionOptions()
        # One thread, the caller's: nothing waits for another thread, let alone by spinning.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        graph, given = _graph(config, weights)
        self._weights = {name: OrtValue.ortvalue_from_numpy(array) for name, array in given.items()}
        options.add_external_initializers(list(self._weights), list(self._weights.values()))
        self._session = InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        if len(self._places) < config["max_position_embeddings"]:
            raise ValueError("the weights have fewer positions than the configuration says")
        self.encode([[0]])  # Some shapes are looked at only now.

    def encode(self, texts: Sequence[Sequence[int]]) -> Rows:
        """Return the mean of each text's token vectors; shape (len(texts), dimension), in the order given.

        Each text is the tokens that the model reads, special tokens included. It is computed by the calling thread.
        """
        lengths = np.array([len(text) for text in texts], dtype=np.int32)
        tokens = np.zeros((len(texts), lengths.max()), dtype=np.intp)
        for row, text in zip(tokens, texts, strict=True):
            row[: len(text)] = text
        [states] = self._session.run(
            None, {"words": self._words[tokens], "places": self._places[: tokens.shape[1]], "lengths": lengths}
        )
        return np.stack([state[:length].mean(0) for state, length in zip(states, lengths, strict=True)])


def _graph(config: dict[str, Any], read: Callable[[str], Rows]) -> tuple[bytes, dict[str, Rows]]:
    """Return the layers of a BERT as an ONNX model, and the weights that it names.

    The numbers of the fields of its messages: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
    """
    width = int(config["hidden_size"])
    weights = dict[str, Rows]()
    lines = [_EMBEDDINGS]
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}."
        named = {"at": at, "norm": f"{at}attention.output.LayerNorm", "last": f"{at}output.LayerNorm"}
        lines += _LAYER.strip().format(n=number, m=number + 1, **named).splitlines()
        own = [read(f"{at}attention.self.{part}.bias") for part in ("query", "key", "value")]
        weights[f"{at}attention.self.bias"] = np.concatenate(own)
    settings: dict[str, list[Field]] = {
        "BiasGelu": [],
        "FusedMatMul": [(5, _message((1, "transB"), (3, 1), (20, 2)))],
        "MultiHeadAttention": [(5, _message((1, "num_heads"), (3, int(config["num_attention_heads"])), (20, 2)))],
        "SkipLayerNormalization": [(5, _message((1, "epsilon"), (2, float(config["layer_norm_eps"])), (20, 1)))],
    }
    nodes = []
    for output, operator, *inputs in map(str.split, lines):
        weights |= {name: read(name) for name in inputs if "." in name and name not in weights}
        fields = [(2, output), (4, operator), *settings[operator], (7, _OPERATORS)]
        nodes.append((1, _message(*((1, name) for name in inputs), *fields)))
    elsewhere: list[Field] = [(13, _message((1, "location"), (2, "elsewhere"))), (14, 1)]
    tensors = [
        (5, _message(*((1, size) for size in array.shape), (2, _FLOAT32), (8, name), *elsewhere))
        for name, array in weights.items()
    ]
    words = _variable("words", _FLOAT32, "texts", "tokens", width)
    given = [words, _variable("places", _FLOAT32, "tokens", width), _variable("lengths", _INT32, "texts")]
    last = _variable(f"state{config['num_hidden_layers']}", _FLOAT32, "texts", "tokens", width)
    graph = _message(*nodes, (2, "bert"), *tensors, *((11, each) for each in given), (12, last))
    return _message((1, 8), (7, graph), (8, _message((1, _OPERATORS), (2, 1)))), weights


def _message(*fields: Field) -> bytes:
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


def _variable(name: str, kind: int, *shape: int | str) -> bytes:
    """Describe an input or the output of the graph. A size that is a word may be any."""
    sizes = [(1, _message((2 if isinstance(size, str) else 1, size))) for size in shape]
    return _message((1, name), (2, _message((1, _message((1, kind), (2, _message(*sizes)))))))


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
        made: Rows = content[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        return made.astype(np.float32, copy=False)

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
