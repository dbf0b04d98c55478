"""A fingerprint is an identity of content: it follows what a model computes, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

from mnemolog.domain.errors import ModelUnavailable
from mnemolog.infra.embedding import fingerprint as module
from mnemolog.infra.embedding.fingerprint import fingerprint
from mnemolog.infra.embedding.model_files import read_profile


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


def identity(folder, *, recipe="1", prompt=None):
    return fingerprint(folder, recipe=recipe, prompt=prompt)


def test_it_is_64_hexadecimal_digits(folder):
    """The form that generations and keys of vectors rely on."""
    assert re.fullmatch("[0-9a-f]{64}", identity(folder))


@pytest.mark.parametrize("at", [0, 1 << 20, 2_999_999])
def test_one_changed_byte_of_the_weights_is_another_model(folder, at):
    """At the start, at the edge of a block that is read, and at the end."""
    before = identity(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(at)
        file.write(b"\x01")
    assert identity(folder) != before


def test_other_pooling_is_another_model(folder):
    """Same weights, pooled in another way, give other vectors."""
    before = identity(folder)
    edit(folder / "1_Pooling" / "config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    assert identity(folder) != before
    assert read_profile(folder).pooling == "cls"


def test_without_normalisation_it_is_another_model(folder):
    """The list of modules counts."""
    before = identity(folder)
    write(folder / "modules.json", json.loads((folder / "modules.json").read_text())[:2])
    assert identity(folder) != before
    assert not read_profile(folder).normalised


def test_another_window_is_another_model(folder):
    """A model that reads 128 tokens has other pieces of a long text than one that reads 256."""
    before = identity(folder)
    edit(folder / "sentence_bert_config.json", max_seq_length=128)
    assert identity(folder) != before


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json", "vocab.txt"])
def test_every_file_that_the_model_reads_counts(folder, file):
    """A token more or a setting changed, even in a file that was not there before."""
    before = identity(folder)
    with (folder / file).open("a") as text:
        text.write("\n")
    assert identity(folder) != before


def test_another_recipe_or_prompt_is_another_model(folder):
    """What is embedded for a turn is part of the identity."""
    made = [
        identity(folder),
        identity(folder, recipe="2"),
        identity(folder, prompt="passage: "),
        identity(folder, recipe="1passage: "),
    ]
    assert len(set(made)) == len(made)


def test_the_models_own_prompt_is_the_same_stated_or_not(folder):
    """None stands for the model's default prompt, which most models leave empty."""
    assert identity(folder, prompt="") == identity(folder)
    edit(folder / "config_sentence_transformers.json", default_prompt_name="query")
    assert identity(folder, prompt="query: ") == identity(folder)
    assert identity(folder, prompt="") != identity(folder)


def test_another_chunker_is_another_model(folder, monkeypatch):
    """Vectors of differently cut texts are never mixed."""
    before = identity(folder)
    monkeypatch.setattr(module, "CHUNKER_VERSION", "other")
    assert identity(folder) != before


def test_a_renamed_copy_is_the_same_model(folder, tmp_path):
    """Neither name nor path nor time of change plays a part."""
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    assert identity(copy) == identity(folder)


def test_a_folder_of_links_is_the_same_model(folder, tmp_path):
    """The hub's cache holds links to files; a module's folder may be one as well."""
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert identity(linked) == identity(folder)


@pytest.mark.parametrize(
    "file",
    [
        *("README.md", ".gitattributes", "data_config.json", "train_script.py", "LICENSE"),
        *(".cache/huggingface/model.metadata", "onnx/model.onnx", "openvino/openvino_model.bin"),
        *("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "pytorch_model.bin", "__pycache__/a.pyc"),
    ],
)
def test_what_no_vector_depends_on_does_not_count(folder, file):
    """A copy from a package and one from the hub are one model, whatever else lies beside the weights."""
    before = identity(folder)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(b"anything")
    assert identity(folder) == before


def test_pytorch_weights_count_where_they_are_the_only_ones(folder):
    """Beside safetensors they are never loaded; alone they are the model."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"one")
    before = identity(folder)
    (folder / "pytorch_model.bin").write_bytes(b"two")
    assert identity(folder) != before


def test_a_byte_moved_between_two_files_is_another_model(folder):
    """Lengths are hashed before contents, so contents cannot flow into each other."""
    (folder / "a.txt").write_bytes(b"xy")
    (folder / "b.txt").write_bytes(b"z")
    before = identity(folder)
    (folder / "a.txt").write_bytes(b"x")
    (folder / "b.txt").write_bytes(b"yz")
    assert identity(folder) != before


def test_a_folder_without_weights_is_no_model(folder):
    """A download that was broken off has no identity."""
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match="weights"):
        identity(folder)


def test_an_adapter_is_refused(folder):
    """Its vectors depend on weights that lie elsewhere and could change unseen."""
    write(folder / "adapter_config.json", {"base_model_name_or_path": "other/model"})
    with pytest.raises(ModelUnavailable, match="merge"):
        identity(folder)


def test_a_link_to_nowhere_is_reported(folder):
    """A file that cannot be read is an error of the model, not of the operating system."""
    (folder / "lost.json").symlink_to(folder / "nothing")
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        identity(folder)


def test_a_folder_of_everything_is_refused(folder, monkeypatch):
    """A wrong path must not make us read a whole disk."""
    monkeypatch.setattr(module, "FILES_MAX", 5)
    with pytest.raises(ModelUnavailable, match="more than 5 files"):
        identity(folder)


@pytest.mark.model
def test_the_weights_of_minilm_are_the_published_ones():
    """The packaged copy is the model that everybody knows by this name."""
    from mnemolog.infra.embedding.model_files import resolve_model

    weights = resolve_model("all-MiniLM-L6-v2") / "model.safetensors"
    assert module._digest(weights).hex().startswith("53aa5117")
    assert module._digest(weights).hex().endswith("28d9db")
