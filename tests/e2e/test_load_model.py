"""A recall need not wait for the model to be loaded; it says so, and can be gone on with."""

import asyncio

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, ModelUnavailable
from mnemolog.domain.errors import EncodingFailed
from tests.support import Picky, SlowToLoad


@pytest.fixture
def model():
    return SlowToLoad()


@pytest.fixture
def store(folder, clock, model):
    with MemoryStore.open(folder, model=model, clock=clock, background=False) as store:
        session = store.start_session("trip")
        for number in range(6):
            session.record("user", f"tea number{number}")
        yield store


def test_a_hybrid_recall_that_does_not_wait_is_answered_by_text_until_the_model_is_loaded(store, model):
    """Of the store, of a session, as of an offset; it calls no model and says why. Then it is as any other."""
    session = store.session("trip")

    def asked():
        yield store.recall("tea", wait_for_model=False)
        yield session.recall("tea", wait_for_model=False)
        yield store.recall("tea", as_of=4, wait_for_model=False)

    for answer in asked():
        assert answer.legs == ("text",)
        assert answer.vectors_cover is None
        assert "not loaded" in answer.unavailable_legs["vector"]
        assert answer.hits
    assert model.calls == []
    model.may.set()
    store.models.load()
    for answer in asked():
        assert answer.legs == ("text", "vector")
        assert answer.unavailable_legs == {}


def test_what_must_have_vectors_waits_for_the_model(store, model):
    """The vector mode, and a recall at least up to a position, whatever else was said."""
    for how in ({"mode": "vector"}, {"min_position": 3}):
        with MemoryStore.open(store.path, model=(fresh := SlowToLoad()), background=False) as other:
            fresh.may.set()
            assert "vector" in other.recall("tea", wait_for_model=False, **how).legs


def test_later_pages_of_a_recall_without_the_model_do_without_it(store, model):
    """Loaded in between: no turn comes twice, none is left out."""
    pages = [store.recall("tea", k=2, wait_for_model=False)]
    model.may.set()
    store.models.load()
    while pages[-1].next is not None:
        pages.append(store.recall("tea", k=2, after=pages[-1].next))
    positions = [hit.position for page in pages for hit in page.hits]
    assert len(positions) == len(set(positions)) == 6
    assert {page.legs for page in pages} == {("text",)}


def test_the_receipt_of_such_a_recall_reproduces(store, model):
    """An audit asks it without vectors too, though the model is there now."""
    store.recall("tea", k=2, wait_for_model=False, receipt=True)
    model.may.set()
    store.models.load()
    assert store.audit.receipts().sound


def test_a_model_that_is_not_there_or_fails_gives_its_own_reason(folder, store):
    """And not that it would be loaded some day."""
    with MemoryStore.open(folder, model=None) as other:
        assert other.recall("tea", wait_for_model=False).unavailable_legs == {}
        with pytest.raises(ModelUnavailable):
            other.models.load()

    class Broken(SlowToLoad):
        def encode(self, texts):
            raise RuntimeError("no weights")

    with MemoryStore.open(folder, model=Broken(), background=False) as other, pytest.raises(EncodingFailed):
        other.models.load()


def test_an_answer_before_any_turn_has_a_vector_says_that_it_is_by_words_alone(folder):
    """Though the model is there, and embedded the question."""
    with MemoryStore.open(folder, model=Picky("tea"), background=False) as store:
        store.start_session("trip").record("user", "tea")
        answer = store.recall("green")
        assert (answer.legs, answer.vectors_cover) == (("text",), 0)
        assert "not this" in answer.unavailable_legs["vector"]


async def test_asyncio_records_and_recalls_while_the_model_is_loading(folder, model):
    """The loading is in a thread of the store's own."""
    async with AsyncMemoryStore.open(folder, model=model, background=False) as store:
        loading = asyncio.create_task(store.models.load())
        session = await store.start_session("trip")
        await session.record("user", "tea")
        early = await session.recall("tea", wait_for_model=False)
        assert not loading.done()
        model.may.set()
        await loading
        late = await session.recall("tea", wait_for_model=False)
    assert (early.legs, late.legs) == (("text",), ("text", "vector"))
