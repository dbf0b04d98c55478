"""The fingerprint of a model: its identity, derived from what it computes and not from its name.

    fingerprint = SHA-256(tag ‖ fields ‖ number of files ‖ (path, SHA-256) of every file that counts)

Every name and value is preceded by its length, so no two inputs share a preimage. The name of the model, the
path of its folder, times and the order of a directory do not count: a renamed copy is the same model.

Every file in the folder counts, except those that cannot change a vector:

- documentation and provenance: `*.md`, `*.csv`, `data_config.json`, `train_script.py`, `LICENSE`;
- hidden files and folders (`.git*`, `.cache/`) and `__pycache__/`;
- the same weights in formats that are never loaded: `onnx/`, `openvino/`, `coreml/`, TensorFlow, Flax, Rust,
  GGUF, and `pytorch_model*.bin` beside `*.safetensors`.

An unknown file counts: an unneeded rebuild is cheap, answers from another model's vectors are wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from mnemolog.domain.errors import ModelUnavailable
from mnemolog.infra.embedding.chunking import CHUNKER_VERSION
from mnemolog.infra.embedding.model_files import read_profile
from mnemolog.infra.runtime.regular_files import open_file

_TAG: Final = b"mnemolog/model/1\x00"
_BLOCK_BYTES: Final = 1 << 20
FILES_MAX: Final = 10_000

_FOLDERS_UNREAD: Final = {"__pycache__", "onnx", "openvino", "coreml"}
_NAMES_UNREAD: Final = {"data_config.json", "train_script.py", "LICENSE"}
_SUFFIXES_UNREAD: Final = {".md", ".csv", ".onnx", ".h5", ".ot", ".msgpack", ".tflite", ".gguf"}


def fingerprint(folder: Path, *, recipe: str) -> str:
    """Return 64 hexadecimal digits that differ whenever a text could get another vector.

    `recipe` is the version of how a turn is rendered as text. Reads every weight once; imports no torch.

    Raises `ModelUnavailable` for a folder that cannot be read, has no weights that PyTorch loads, needs
    another model's weights (an adapter), or has more than 10,000 files.
    """
    profile = read_profile(folder)
    hasher = sha256(_TAG)
    for field, value in (
        ("pooling", profile.pooling),
        ("normalised", str(profile.normalised)),
        ("prompt", profile.prompt),
        ("max_tokens", str(profile.max_tokens)),
        ("dimension", str(profile.dimension)),
        ("chunker", CHUNKER_VERSION),
        ("recipe", recipe),
    ):
        hasher.update(_prefixed(field.encode()) + _prefixed(value.encode()))
    try:
        files = sorted((path.relative_to(folder).as_posix(), path) for path in _files_that_count(folder))
        hasher.update(len(files).to_bytes(8, "big"))
        for name, path in files:
            hasher.update(_prefixed(os.fsencode(name)) + _digest(path))
    except OSError as error:
        raise ModelUnavailable(str(folder), f"its files cannot be read: {error}") from error
    return hasher.hexdigest()


def _files_that_count(folder: Path) -> Iterator[Path]:
    seen, weights = 0, False
    # Links are followed: the hub's cache consists of them, and the libraries that load the model follow them.
    for where, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if name not in _FOLDERS_UNREAD and not name.startswith(".")]
        has_safetensors = any(name.endswith(".safetensors") for name in names)
        seen += len(names)
        if seen > FILES_MAX:
            raise ModelUnavailable(str(folder), f"more than {FILES_MAX:,} files: is this a model's folder?")
        for name in names:
            if name == "adapter_config.json":
                raise ModelUnavailable(str(folder), "it is an adapter for other weights; merge them and save the model")
            if not _counts(name, has_safetensors=has_safetensors):
                continue
            weights = weights or name.endswith((".safetensors", ".bin"))
            yield Path(where, name)
    if not weights:
        raise ModelUnavailable(str(folder), "it has neither *.safetensors nor *.bin weights")


def _raise(error: OSError) -> None:
    raise error


def _counts(name: str, *, has_safetensors: bool) -> bool:
    if name.startswith((".", "openvino_")) or name in _NAMES_UNREAD:
        return False
    if has_safetensors and name.startswith("pytorch_model") and name.endswith((".bin", ".bin.index.json")):
        return False
    return Path(name).suffix.lower() not in _SUFFIXES_UNREAD


def _prefixed(value: bytes) -> bytes:
    return len(value).to_bytes(8, "big") + value


def _digest(path: Path) -> bytes:
    hasher = sha256()
    with open_file(path, follow=True) as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.digest()
