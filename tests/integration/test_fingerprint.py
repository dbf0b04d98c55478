"""A fingerprint is an identity of content: it follows what a model computes, and nothing else."""

import json
import os
import re
import shutil

import pytest

from mnemolog.domain.errors import ModelUnavailable
from mnemolog.infra.embedding import model_files as module
from mnemolog.infra.embedding.model_files import fingerprint, read_profile


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def edit(path, **changes):
    write(path, json.loads(path.read_text(encoding="utf-8")) | changes)


@pytest.fixture
def folder(tmp_path):
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


def identity(folder, *, recipe="1"):
    return fingerprint(folder, recipe=recipe)


def append_to(folder, file, data=b"\n"):
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    with (folder / file).open("ab") as changed:
        changed.write(data)


def flip(folder, at):
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(at)
        file.write(b"\x01")


def pool_by_cls(folder):
    edit(folder / "1_Pooling" / "config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    assert read_profile(folder).pooling == "cls"


def leave_out_normalisation(folder):
    write(folder / "modules.json", json.loads((folder / "modules.json").read_text())[:2])
    assert not read_profile(folder).normalised


OTHER_MODELS = {
    "first byte of the weights": lambda folder: flip(folder, 0),
    "byte at the edge of a block that is read": lambda folder: flip(folder, 1 << 20),
    "last byte of the weights": lambda folder: flip(folder, 2_999_999),
    "pooling": pool_by_cls,
    "normalisation": leave_out_normalisation,
    "window": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length=128),
    "tokenizer": lambda folder: append_to(folder, "tokenizer.json"),
    "settings of the tokenizer": lambda folder: append_to(folder, "tokenizer_config.json"),
    "settings": lambda folder: append_to(folder, "config.json"),
    "a file that was not there before": lambda folder: append_to(folder, "vocab.txt"),
}


@pytest.mark.parametrize("change", OTHER_MODELS)
def test_what_changes_a_vector_is_another_model(folder, change):
    """Vectors of two models are never mixed."""
    before = identity(folder)
    assert re.fullmatch("[0-9a-f]{64}", before)
    OTHER_MODELS[change](folder)
    assert identity(folder) != before


def test_another_recipe_prompt_or_chunker_is_another_model(folder, monkeypatch):
    """What is embedded for a turn is part of the identity."""
    made = [identity(folder), identity(folder, recipe="2"), identity(folder, recipe="1query: ")]
    edit(folder / "config_sentence_transformers.json", default_prompt_name="query")
    made.append(identity(folder))
    monkeypatch.setattr(module, "CHUNKER_VERSION", "other")
    assert len({*made, identity(folder)}) == 5


def test_a_byte_moved_between_two_files_is_another_model(folder):
    """Lengths are hashed before contents, so contents cannot flow into each other."""
    append_to(folder, "a.txt", b"xy")
    append_to(folder, "b.txt", b"z")
    before = identity(folder)
    (folder / "a.txt").write_bytes(b"x")
    (folder / "b.txt").write_bytes(b"yz")
    assert identity(folder) != before


def test_what_no_vector_depends_on_does_not_count(folder, tmp_path):
    """Neither names, paths, times nor links; and whatever else lies beside the weights."""
    before, copy, linked = identity(folder), tmp_path / "elsewhere" / "renamed", tmp_path / "snapshot"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert identity(copy) == identity(linked) == before
    for file in (
        *("README.md", ".gitattributes", "data_config.json", "train_script.py", "LICENSE"),
        *(".cache/huggingface/model.metadata", "onnx/model.onnx", "openvino/openvino_model.bin"),
        *("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "pytorch_model.bin", "__pycache__/a.pyc"),
    ):
        append_to(folder, file, b"anything")
        assert identity(folder) == before, file
    (folder / "model.safetensors").unlink()
    alone = identity(folder)
    append_to(folder, "pytorch_model.bin", b"other")
    assert identity(folder) != alone, "PyTorch weights count where they are the only ones"


NO_MODELS = {
    "weights": lambda folder: (folder / "model.safetensors").unlink(),
    "merge": lambda folder: write(folder / "adapter_config.json", {"base_model_name_or_path": "other/model"}),
    "cannot be read": lambda folder: (folder / "lost.json").symlink_to(folder / "nothing"),
    "more than 9 files": lambda folder: [append_to(folder, f"{number}.txt") for number in range(9)],
}


@pytest.mark.parametrize("why", NO_MODELS)
def test_a_folder_whose_content_is_not_a_whole_model_is_refused(folder, monkeypatch, why):
    """Without weights, with weights that lie elsewhere, with a link to nowhere, or a whole disk."""
    monkeypatch.setattr(module, "FILES_MAX", 9)
    assert identity(folder)
    NO_MODELS[why](folder)
    with pytest.raises(ModelUnavailable, match=why):
        identity(folder)


@pytest.mark.model
def test_the_weights_of_minilm_are_the_published_ones():
    """The packaged copy is the model that everybody knows by this name."""
    from mnemolog.infra.embedding.model_files import resolve_model

    weights = resolve_model("all-MiniLM-L6-v2") / "model.safetensors"
    assert module._digest(weights).hex().startswith("53aa5117")
    assert module._digest(weights).hex().endswith("28d9db")
