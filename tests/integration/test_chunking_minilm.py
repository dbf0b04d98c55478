"""Pieces of long texts as the real model tokenizes them."""

import random

import pytest

from tests.unit.test_chunking import LIGATURE, covers

pytestmark = pytest.mark.model


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


@pytest.mark.parametrize("text", long_texts(), ids=range(len(long_texts())))
def test_no_piece_is_beyond_what_minilm_reads(text, minilm, count_tokens):
    """Every piece has at most 256 tokens with its special ones, and the pieces cover the whole text."""
    [pieces] = minilm.chunks([text])
    assert minilm.max_tokens == 256
    assert max(map(count_tokens, pieces)) <= 256
    assert covers(text, pieces)
    assert (len(pieces) == 1) == (count_tokens(text) <= 256)


def test_prose_is_cut_between_words(minilm):
    """A piece of prose starts and ends with whole words, and is nearly as long as the model reads."""
    text = " ".join(f"memory{number}" for number in range(1_000))
    known = set(text.split())
    [pieces] = minilm.chunks([text])
    assert all(set(piece.split()) <= known for piece in pieces)
    assert len(pieces) < 25
