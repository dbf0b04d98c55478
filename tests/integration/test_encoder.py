"""The real MiniLM behind the `Encoder` port, beside the library, and pieces of long texts as it tokenizes them."""

import json
import random
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mnemolog import MemoryStore
from mnemolog.domain.errors import EncodingFailed, ModelUnavailable, install_command
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder, unit_rows
from mnemolog.infra.embedding.model_files import resolve_model
from mnemolog.infra.embedding.onnx_bert import Bert
from mnemolog.operations.service import WITHOUT_ONNX_RUNTIME
from tests.support import HashEncoder
from tests.unit.test_words import LIGATURE, covers

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
    return SentenceTransformerEncoder(NAME)


@pytest.fixture(scope="module")
def reference():
    """The library itself, without anything of ours around it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(resolve_model(NAME)), device="cpu")


def tiny_model(root: Path, *, pooling: str = "mean", dtype: str = "float32", settings: dict | None = None) -> Path:
    """A BERT of two small layers with MiniLM's tokenizer and weights from a fixed seed."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
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


def furthest(rows, wanted):
    """How far the cosine of two vectors of the same text is from 1, at most."""
    rows, wanted = rows.astype(np.float64), wanted.astype(np.float64)
    cosines = (rows * wanted).sum(1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(wanted, axis=1)
    return np.abs(1 - cosines).max()


@pytest.mark.model
def test_vectors_are_those_of_the_library_whatever_their_batch(encoder, reference):
    """ONNX Runtime instead of torch, sorting and batching change no component. Each row is a float32 of length one."""
    assert isinstance(encoder._model(), Bert)
    rows = encoder.encode(MIXED)
    assert np.abs(rows - reference.encode(MIXED, show_progress_bar=False)).max() < 1e-6
    assert rows.dtype == np.float32
    assert rows.shape == (len(MIXED), encoder.dimension) == (len(MIXED), 384)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    alone = np.vstack([encoder.encode([text]) for text in MIXED[:7]])
    assert np.abs(rows[:7] - alone).max() < 1e-5


def edited(folder: Path, file: str, **values: object) -> None:
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | values))


@pytest.mark.model
@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True}),
        ("1_Pooling/config.json", {"include_prompt": False}),
        ("config.json", {"hidden_act": "gelu_new"}),
        ("config_sentence_transformers.json", {"truncate_dim": 8}),
        ("tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_a_model_with_a_part_that_our_graph_lacks_is_run_by_the_library(tmp_path, file, values):
    """Same numbers, in the order given. The model is one of ours, with other sizes than MiniLM, but for one setting."""
    from sentence_transformers import SentenceTransformer

    folder, texts = tiny_model(tmp_path, settings={}), ["tea", "green tea and cake", "", "x"]
    for ours in (True, False):
        encoder = SentenceTransformerEncoder(folder)
        wanted = SentenceTransformer(str(tmp_path), device="cpu").encode(texts, normalize_embeddings=True)
        assert np.abs(encoder.encode(texts) - wanted).max() < (1e-6 if ours else 1e-5)
        assert isinstance(encoder._model(), Bert) == ours
        edited(folder, file, **values)


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
def test_a_question_is_embedded_by_the_calling_thread(encoder):
    """Two threads would wait for each other on a busy machine. The tokenizer and ONNX Runtime have none either."""
    encoder.encode(["Where did Ana buy the tea?"])
    before = sorted(Path("/proc/self/task").iterdir())
    SentenceTransformerEncoder(NAME).encode(["Where did Ana buy the tea?"])
    assert sorted(Path("/proc/self/task").iterdir()) == before


@pytest.mark.model
def test_without_onnx_runtime_the_library_runs_the_model_and_status_says_so(tmp_path, monkeypatch, reference):
    """Where there is no wheel of it."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    rows = SentenceTransformerEncoder(NAME).encode(["tea"])
    assert np.abs(rows - reference.encode(["tea"], show_progress_bar=False)).max() < 1e-6
    with MemoryStore.open(tmp_path, background=False) as store:
        [told] = store.status().warnings
        assert told == f"{WITHOUT_ONNX_RUNTIME}: `{install_command('minilm')}`"
    with MemoryStore.open(tmp_path, model=HashEncoder(), background=False) as store:
        assert store.status().warnings == ()


@pytest.mark.model
def test_no_texts_give_no_rows_and_load_nothing(monkeypatch):
    """An empty call is not worth loading a model."""
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda *_, **__: pytest.fail("loaded"))
    assert SentenceTransformerEncoder(NAME).encode([]).shape == (0, 384)


@pytest.mark.model
def test_threads_share_one_model(reference, monkeypatch):
    """The first calls of several threads load it once, and each gets its own rows."""
    encoder = SentenceTransformerEncoder(NAME)
    monkeypatch.setattr("mnemolog.infra.embedding.encoder.BATCH_SIZE", 2)
    texts = [[f"turn {thread} {number} " * (1 + number) for number in range(6)] for thread in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(encoder.encode, texts))
    for rows, asked in zip(made, texts, strict=True):
        assert furthest(rows, reference.encode(asked, show_progress_bar=False)) < 1e-6


@pytest.mark.model
def test_loading_and_encoding_print_nothing(capfd):
    """No progress bar and no load report of the libraries; the process keeps its own settings for them."""
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    SentenceTransformerEncoder(NAME).encode(["tea"])
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.model
def test_a_text_beyond_the_window_is_refused_not_cut(encoder):
    """A caller that forgot to cut hears of it, instead of losing the end of a text."""
    with pytest.raises(EncodingFailed, match=r"1,002 tokens exceeds the 256"):
        encoder.encode(["tea", "tea " * 1_000])
    [pieces] = encoder.chunks(["tea " * 1_000])
    assert encoder.encode(pieces).shape == (len(pieces), 384)


@pytest.mark.model
def test_every_name_of_minilm_is_one_model(encoder):
    """The short name, the full name and the folder lead to the same content."""
    for other in (f"sentence-transformers/{NAME}", str(resolve_model(NAME)), resolve_model(NAME)):
        assert SentenceTransformerEncoder(other).fingerprint == encoder.fingerprint
    assert SentenceTransformerEncoder(NAME, recipe="2").fingerprint != encoder.fingerprint


@pytest.fixture(params=["by ONNX Runtime", "by the library"])
def replaceable(request, tmp_path):
    """An encoder, and the method that computes its vectors."""
    if request.param == "by ONNX Runtime":
        return SentenceTransformerEncoder(NAME), "mnemolog.infra.embedding.onnx_bert.Bert.encode"
    encoder = SentenceTransformerEncoder(tiny_model(tmp_path, pooling="max"))
    return encoder, "sentence_transformers.SentenceTransformer.encode"


@pytest.mark.model
def test_a_model_that_gives_nan_or_fails_is_refused(replaceable, monkeypatch):
    """Nothing that is no vector leaves the encoder; the library's own error stays visible behind ours."""
    encoder, method = replaceable
    encoder.load()
    bad = np.full((2, encoder.dimension), np.nan)
    monkeypatch.setattr(method, lambda *_, **__: bad)
    with pytest.raises(EncodingFailed, match="NaN or infinity for 2 of 2"):
        encoder.encode(["tea", "coffee"])

    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(method, fail)
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
    """A model of the same weights without a prompt reads as many tokens more."""
    own = {"prompts": {"document": "passage of the memory: "}, "default_prompt_name": "document"}
    with_prompt = SentenceTransformerEncoder(tiny_model(tmp_path / "one", settings=own))
    without = SentenceTransformerEncoder(tiny_model(tmp_path / "other"))
    assert np.allclose(with_prompt.encode(["tea"]), without.encode(["passage of the memory: tea"]), atol=1e-6)
    assert with_prompt.fingerprint != without.fingerprint
    [pieces] = with_prompt.chunks(["tea " * 200])
    assert len(pieces) > len(without.chunks(["tea " * 200])[0])
    assert with_prompt.encode(pieces).shape == (len(pieces), 32)


@pytest.mark.model
def test_an_old_model_without_a_tokenizer_file_is_cut_alike(tmp_path):
    """Its tokenizer is built from the vocabulary, at the price of importing the library."""
    folder = tiny_model(tmp_path)
    wanted = SentenceTransformerEncoder(folder).chunks(["green tea " * 200])
    (folder / "tokenizer.json").unlink()
    assert SentenceTransformerEncoder(folder).chunks(["green tea " * 200]) == wanted


@pytest.mark.model
def test_a_model_that_cannot_be_used_is_unavailable(tmp_path):
    """A prompt without room for a text, damaged weights, which are looked at again on each try."""
    long = {"prompts": {"document": "tea " * 60}, "default_prompt_name": "document"}
    with pytest.raises(ModelUnavailable, match="fill its window of 48"):
        SentenceTransformerEncoder(tiny_model(tmp_path / "long", settings=long)).chunks(["tea"])
    folder = tiny_model(tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"damaged")
    encoder = SentenceTransformerEncoder(folder)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="cannot load it"):
            encoder.encode(["tea"])


@pytest.mark.model
def test_a_cross_encoder_is_loaded_from_a_folder_when_it_is_needed(folder, tmp_path):
    """The real library, with a model of no weights worth the name."""
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "green", "no"]))
    size = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertForSequenceClassification(BertConfig(**size, num_labels=1)).save_pretrained(tmp_path / "cross")
    BertTokenizerFast(vocab_file=str(words)).save_pretrained(tmp_path / "cross")
    expected = CrossEncoder(str(tmp_path / "cross")).predict([("tea", "green tea"), ("tea", "no tea")])
    with MemoryStore.open(folder, model=HashEncoder(), reranker=tmp_path / "cross", background=False) as store:
        session = store.start_session("s")
        for text in ("green tea", "no tea"):
            session.record("user", text)
        best_first = ["green tea", "no tea"] if expected[0] > expected[1] else ["no tea", "green tea"]
        assert [hit.text for hit in store.recall("tea").hits] == best_first
    with MemoryStore.open(folder, model=HashEncoder(), reranker="no/such-reranker", background=False) as store:
        assert "no/such-reranker" in store.recall("tea").unavailable_legs["reranker"]


def test_unit_rows_has_the_shape_asked_for():
    """Neither a missing row nor a missing component passes."""
    for shape in [(1, 3), (2, 2), (2,), (2, 3, 1)]:
        with pytest.raises(EncodingFailed, match="shape"):
            unit_rows(np.ones(shape), count=2, dimension=3)
    assert np.allclose(np.linalg.norm(unit_rows(np.ones((2, 3)), count=2, dimension=3), axis=1), 1)


@pytest.fixture(scope="module")
def minilm():
    from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder

    return SentenceTransformerEncoder("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def count_tokens():
    """Tokens that the real model would read, counted by its own tokenizer without any cutting."""
    from tokenizers import Tokenizer

    from mnemolog.infra.embedding.model_files import resolve_model

    tokenizer = Tokenizer.from_file(str(resolve_model("all-MiniLM-L6-v2") / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text).ids)


def long_texts() -> list[str]:
    seed = 20_240_607
    draw = random.Random(seed)
    prose = " ".join(draw.choice(["memory", "offset", "antidisestablishmentarianism", "x"]) for _ in range(3_000))
    anything = "".join(chr(draw.choice([draw.randrange(32, 0xD7FF), 32, 97])) for _ in range(5_000))
    return [
        prose,
        anything,
        "\u6771\u4eac\u90fd" * 500,
        "\uac01\ub098" * 400,
        "supercalifragilistic" * 200,
        "https://example.org/" + "a1b2/c3d4?" * 300,
        "def f(x):\n    return {x: [x ** 2, -x]}\n" * 120,
        "cafe\u0301 na\u00efve \U0001f44d\U0001f3fd " * 300,
        LIGATURE * 300,
        "word " * 254,
        "word " * 255,
    ]


@pytest.mark.model
@pytest.mark.parametrize("text", long_texts(), ids=range(len(long_texts())))
def test_no_piece_is_beyond_what_minilm_reads(text, minilm, count_tokens):
    """Every piece has at most 256 tokens with its special ones, and the pieces cover the whole text."""
    [pieces] = minilm.chunks([text])
    assert minilm.max_tokens == 256
    assert max(map(count_tokens, pieces)) <= 256
    assert covers(text, pieces)
    assert (len(pieces) == 1) == (count_tokens(text) <= 256)


@pytest.mark.model
def test_prose_is_cut_between_words(minilm):
    """A piece of prose starts and ends with whole words, and is nearly as long as the model reads."""
    text = " ".join(f"memory{number}" for number in range(1_000))
    known = set(text.split())
    [pieces] = minilm.chunks([text])
    assert all(set(piece.split()) <= known for piece in pieces)
    assert len(pieces) < 25
