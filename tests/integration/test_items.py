"""Items by namespace and key, with no framework at all."""

from __future__ import annotations

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.items import Items
from mnemolog.domain import errors
from mnemolog.domain.items import ItemDeleted, ItemPut, ItemTouched, Pattern, fits
from mnemolog.projections.sql.packed_vectors import pack

ALICE = ("users", "alice")


@pytest.fixture
def items(store):
    """The items of a store."""
    items = Items(store)
    yield items
    items.close()


def put(items, namespace, key, value, **how):
    with items.batch() as batch:
        batch.put(namespace, key, value, **how)


def get(items, namespace, key, **how):
    with items.batch() as batch:
        return batch.get(namespace, key, **how)


def search(items, *arguments, **how):
    with items.batch() as batch:
        return batch.search(*arguments, **how)


def topics(store):
    return [recorded.event.topic for recorded in store.events()]


def test_a_batch_reads_what_was_before_and_writes_at_its_end(items, store):
    """The last put of a key counts; deleting what is not there appends nothing."""
    with items.batch() as batch:
        batch.put(ALICE, "tea", {"n": 1})
        batch.put(ALICE, "tea", {"n": 2})
        batch.delete(ALICE, "none")
        assert batch.get(ALICE, "tea") is None
        assert store.head().position == 0
    assert topics(store) == [ItemPut.topic]
    found = get(items, ALICE, "tea")
    assert (found.namespace, found.key, found.value, found.score) == (ALICE, "tea", {"n": 2}, None)
    with items.batch() as batch:
        batch.delete(ALICE, "tea")
    assert topics(store) == [ItemPut.topic, ItemDeleted.topic]
    assert get(items, ALICE, "tea") is None


def test_an_error_in_a_batch_leaves_nothing_written(items, store):
    """Whether it is the caller's, or a value that cannot be stored."""

    def put_both():
        with items.batch() as batch:
            batch.put(ALICE, "good", {"n": 1})
            batch.put(ALICE, "bad", {"n": object()})

    with pytest.raises(errors.InvalidInput):
        put_both()
    with pytest.raises(ZeroDivisionError), items.batch() as batch:
        batch.put(ALICE, "good", {"n": 1 / 0})
    with pytest.raises(errors.InvalidInput), items.batch() as batch:
        batch.put((), "k", {})
    assert store.head().position == 0


def test_items_expire_and_live_longer_by_use(items, store, clock):
    """In seconds. A use is written down, unless it was a moment ago or is told not to count."""
    clock.step = 0
    put(items, ALICE, "brief", {"n": 1}, ttl_s=100)
    get(items, ALICE, "brief")
    clock.advance(seconds=50)
    get(items, ALICE, "brief", refresh=False)
    assert topics(store) == [ItemPut.topic]
    get(items, ALICE, "brief")
    assert topics(store) == [ItemPut.topic, ItemTouched.topic]
    clock.advance(seconds=99)
    assert search(items, ("users",), refresh=False)
    clock.advance(seconds=1)
    assert get(items, ALICE, "brief") is None
    assert search(items, ("users",)) == []
    assert (items.sweep(), items.sweep()) == (1, 0)


def test_a_query_ranks_by_the_model_of_the_store(items):
    """By the whole value, or by the fields that an item names; one with none comes last."""
    put(items, ALICE, "tea", {"text": "I like tea"})
    put(items, ALICE, "field", {"text": "rain", "noise": "x"}, paths=["text"])
    put(items, ALICE, "hidden", {"text": "rain"}, paths=[])
    found = search(items, ("users",), query='{"text": "rain"}')
    assert [item.key for item in found] == ["field", "tea", "hidden"]
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert found[2].score is None
    assert [item.key for item in search(items, ("users",), query="rain", where={"text": {"$ne": "rain"}})] == ["tea"]


def test_without_a_query_the_last_put_comes_first_page_by_page(items):
    """Of the namespace and all below it."""
    for number in range(5):
        put(items, (*ALICE, "deep") if number % 2 else ALICE, f"k{number}", {"n": number})
    put(items, ("users", "alicette"), "other", {})
    assert [item.key for item in search(items, ALICE, limit=2, offset=1)] == ["k3", "k2"]
    with items.batch() as batch:
        assert batch.namespaces() == [ALICE, (*ALICE, "deep"), ("users", "alicette")]
        assert batch.namespaces([Pattern(("*", "alice"))], depth_max=2) == [ALICE]
        assert batch.namespaces([Pattern(("deep",), at_end=True)], limit=1) == [(*ALICE, "deep")]


def test_patterns_and_filters_are_a_matter_of_values_alone():
    """What is shorter than a pattern does not match it; what cannot be compared does not fit."""
    assert Pattern(("a", "*")).matches(("a", "b", "c"))
    assert not Pattern(("a", "*")).matches(("a",))
    assert Pattern((), at_end=True).matches(("a",))
    assert not Pattern(("b",), at_end=True).matches(("b", "c"))
    assert fits({"n": 2, "in": {"s": "b"}}, {"n": {"$gt": 1, "$lte": 2}, "in": {"s": {"$gte": "a"}}})
    assert not fits({"n": "2"}, {"n": {"$gt": 1}})
    assert fits({}, None)
    with pytest.raises(errors.InvalidInput):
        fits({"n": 1}, {"n": {"$near": 1}})


def test_forgetting_its_positions_takes_an_item_out_of_every_file(folder, encoder):
    """Its vectors too, also where it was deleted before."""
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        items = Items(store)
        put(items, ALICE, "k", {"text": "the secret of Alice"})
        put(items, ("bob",), "k", {"text": "harmless"})
        assert len(search(items, query="secret")) == 2
        with items.batch() as batch:
            batch.delete(ALICE, "k")
        assert store.forget(positions=items.positions(ALICE)).complete
        assert [item.namespace for item in search(items)] == [("bob",)]
        items.close()
    vector = encoder.encode(['{"text": "the secret of Alice"}'])
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"the secret of Alice" not in path.read_bytes(), path
            assert vector.tobytes() not in path.read_bytes(), path
            assert pack(vector).tobytes() not in path.read_bytes(), path
