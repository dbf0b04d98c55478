"""Any object with `encode` and a `fingerprint` can be the model of a store."""

import re

import numpy as np
import pytest

from mnemolog.domain.errors import EncodingFailed, InvalidInput
from mnemolog.infra.embedding.encoder import ObjectEncoder


class Letters:
    """Counts letters: a model of 26 dimensions."""

    fingerprint = "letters/1"

    def __init__(self):
        self.calls = []

    def encode(self, texts):
        self.calls.append(list(texts))
        return np.array([[1 + text.count(chr(97 + at)) for at in range(26)] for text in texts], dtype=float)


@pytest.fixture
def model():
    return Letters()


class Giving(Letters):
    """Gives the same rows whatever it is asked, once it has a dimension."""

    dimension = 2

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def encode(self, texts):
        return self.rows


def test_rows_come_back_with_length_one_in_the_order_given(monkeypatch):
    """The port's promise, whatever the object's own scale. An empty call asks the object for no text."""
    texts = ["tea", "a", "coffee and cake"]
    monkeypatch.setattr("mnemolog.infra.embedding.encoder.OBJECT_BATCH_SIZE", 2)
    rows = ObjectEncoder(Letters()).encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (3, 26)
    wanted = Letters().encode(texts)
    assert np.allclose(rows, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-6)
    assert ObjectEncoder(Giving([[1.0, 0.0]])).encode([]).shape == (0, 2)
    for scale in (1e-320, 1e-200, 1e200, 1e308):
        rows = ObjectEncoder(Giving([[scale, -scale]])).encode(["text"])
        assert np.allclose(rows, [[0.70710678, -0.70710678]], atol=1e-3), "scaling neither overflows nor vanishes"


def test_the_dimension_is_learned_from_one_probe_unless_it_is_stated(model):
    """Opening a store must not call a paid service."""
    encoder = ObjectEncoder(model)
    assert (encoder.dimension, encoder.dimension) == (26, 26)
    assert len(model.calls) == 1
    model.dimension = 26
    assert ObjectEncoder(model).dimension == 26
    assert len(model.calls) == 1


def test_a_dimension_that_changes_later_is_refused(model):
    """Vectors of two sizes never reach one index."""
    encoder = ObjectEncoder(model)
    encoder.encode(["a"])
    model.encode = lambda texts: np.ones((len(texts), 27))
    with pytest.raises(EncodingFailed, match=re.escape("(1, 27) instead of (1, 26)")):
        encoder.encode(["a"])


def test_fingerprints_are_64_digits_and_follow_text_and_recipe(model):
    """Any text will do; two texts, or two recipes, are two models."""
    first = ObjectEncoder(model, recipe="1").fingerprint
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert ObjectEncoder(Letters(), recipe="1").fingerprint == first
    assert ObjectEncoder(model, recipe="2").fingerprint != first
    model.fingerprint = "letters/2"
    assert ObjectEncoder(model, recipe="1").fingerprint != first
    computed = type("Computed", (Letters,), {"fingerprint": property(lambda _: "letters/1")})()
    assert ObjectEncoder(computed, recipe="1").fingerprint == first


def without_fingerprint():
    class Nameless:
        def encode(self, texts):
            return texts

    return Nameless()


def with_fingerprint(value):
    model = Letters()
    model.fingerprint = value
    return model


@pytest.mark.parametrize(
    "model",
    [
        *(object(), "all-MiniLM-L6-v2", Letters, without_fingerprint()),
        *(with_fingerprint(value) for value in (None, "", "  ", b"bytes", lambda: "text", "\ud800", 7)),
    ],
)
def test_an_object_that_lacks_something_is_refused_at_once(model):
    """Before anything is stored under an identity that means nothing."""
    with pytest.raises(InvalidInput) as caught:
        ObjectEncoder(model)
    assert caught.value.field.startswith("model")


def test_the_error_says_what_is_needed():
    """A SentenceTransformer handed over as it is lacks only a fingerprint."""
    with pytest.raises(InvalidInput, match=r"Nameless has no fingerprint; .* changes whenever a vector would"):
        ObjectEncoder(without_fingerprint())


@pytest.mark.parametrize("dimension", [0, -1, 2.5, True, "384"])
def test_a_dimension_that_is_no_number_is_refused(dimension, model):
    """Whole numbers above 0 only."""
    model.dimension = dimension
    with pytest.raises(InvalidInput, match="dimension"):
        ObjectEncoder(model)


@pytest.mark.parametrize(
    "rows",
    [
        *([[1.0, float("nan")]], [[1.0, float("inf")]], [[0.0, 0.0]], [[1.0]], [1.0, 0.0], [[1.0, 0.0]] * 2),
        *(None, [["1", "2"]], [[1j, 1]], [[1.0, None]], [[1.0], [1.0, 2.0]], [[True, False]], []),
    ],
)
def test_what_is_no_embedding_is_refused(rows):
    """NaN, infinity, zero vectors, other shapes and other types: nothing of it is stored."""
    with pytest.raises(EncodingFailed):
        ObjectEncoder(Giving(rows)).encode(["text"])


def test_one_bad_row_spoils_the_call():
    """Nothing half-embedded comes back."""
    rows = np.ones((3, 2))
    rows[1, 0] = np.nan
    with pytest.raises(EncodingFailed, match="1 of 3"):
        ObjectEncoder(Giving(rows)).encode(["a", "b", "c"])


def test_the_objects_own_error_is_the_cause(model):
    """The user finds the error of their own code behind ours."""
    model.encode = lambda texts: 1 / 0
    with pytest.raises(EncodingFailed, match="Letters") as caught:
        ObjectEncoder(model).encode(["a"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    model.encode = lambda texts: np.ones(3)
    with pytest.raises(EncodingFailed, match="for one text"):
        _ = ObjectEncoder(model).dimension


def test_the_name_is_the_objects_own_or_that_of_its_class(model):
    """What a hit shows as the model it came from."""
    assert ObjectEncoder(model).name == "Letters"
    model.name = "my letters"
    assert ObjectEncoder(model).name == "my letters"


def test_an_object_may_cut_texts_itself(model):
    """Its pieces are taken as they are; else every text is one piece."""
    assert ObjectEncoder(model).chunks(["a b", "c"]) == [["a b"], ["c"]]
    model.chunks = lambda texts: [text.split() for text in texts]
    assert ObjectEncoder(model).chunks(["a b", "c"]) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("given", [[], [[]], [[1]], [[""]], [["a"], ["b"]], None, 7])
def test_pieces_that_lose_a_text_are_refused(given, model):
    """One list of at least one text for each text."""
    model.chunks = lambda texts: given
    with pytest.raises(EncodingFailed):
        ObjectEncoder(model).chunks(["a"])
