"""Work with a model ends between two of its calls when it is told to, and nobody else's does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.infra.embedding.encoder import ObjectEncoder, batches
from mnemolog.infra.runtime import cancellation
from tests.support import HashEncoder, in_thread


def test_an_encoder_stops_before_its_next_batch(monkeypatch):
    """What it was doing is finished, and nothing of it is given back."""
    model = HashEncoder()
    monkeypatch.setattr("mnemolog.infra.embedding.encoder.OBJECT_BATCH_SIZE", 2)
    encoder = ObjectEncoder(model)
    with cancellation.when(lambda: len(model.calls) == 2), pytest.raises(cancellation.Stopped):
        encoder.encode([f"tea {n}" for n in range(10)])
    assert [len(batch) for batch in model.calls] == [2, 2]


def test_even_after_the_last_batch():
    """So that one who was abandoned writes nothing."""
    model = HashEncoder()
    with cancellation.when(lambda: bool(model.calls)), pytest.raises(cancellation.Stopped):
        ObjectEncoder(model).encode(["tea"])


def test_only_the_work_of_that_thread_and_block_is_stopped():
    """A recall that uses the same encoder meanwhile goes on."""
    encoder = ObjectEncoder(HashEncoder())
    with cancellation.when(lambda: True):
        assert in_thread(lambda: encoder.encode(["tea"])).result().shape == (1, 384)
        with pytest.raises(cancellation.Stopped):
            encoder.encode(["tea"])
    assert encoder.encode(["tea"]).shape == (1, 384)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 40), st.integers(1, 2_000))
def test_batches_hold_every_text_once_within_both_limits(tokens, size_max, tokens_max):
    """Longest first; only a text that is too long by itself exceeds the limit, and it is alone."""
    made = list(batches(tokens, size_max=size_max, tokens_max=tokens_max))
    order = [number for batch in made for number in batch]
    assert sorted(order) == list(range(len(tokens)))
    assert [tokens[number] for number in order] == sorted(tokens, reverse=True)
    for batch in made:
        assert len(batch) <= size_max
        assert len(batch) == 1 or max(tokens[number] for number in batch) * len(batch) <= tokens_max


def test_short_texts_still_fill_a_batch():
    """Thirty-two turns of chat are one call, as before there was a limit."""
    assert [len(batch) for batch in batches([32] * 64, size_max=32, tokens_max=1_024)] == [32, 32]


def test_work_inside_other_work_is_stopped_with_it():
    """Whoever says so, the inner or the outer."""
    told = []
    with cancellation.when(lambda: "outer" in told):
        with cancellation.when(lambda: "inner" in told):
            cancellation.check()
            told.append("inner")
            with pytest.raises(cancellation.Stopped):
                cancellation.check()
            told[:] = ["outer"]
            with pytest.raises(cancellation.Stopped):
                cancellation.check()
        told[:] = ["inner"]
        cancellation.check()
