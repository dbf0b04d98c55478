"""Items by namespace and key, with no framework at all; tests/adapters/langgraph tries the rest."""

import pytest

from mnemolog.adapters.support.items import Items
from mnemolog.domain.items import ItemDeleted, ItemPut

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


def rows_of(tables):
    with tables.database.reading() as connection:
        return connection.exec_driver_sql("SELECT * FROM items ORDER BY namespace, key").all()


def test_in_any_history_forgetting_leaves_the_rows_of_a_rebuild(items, store, clock, rng):
    """Values that were replaced come back, with the time since when they are there; other namespaces are not read."""
    for number in range(120):
        namespace, key = ("users", rng.choice("ab")), rng.choice("xyz")
        match rng.choice(["put", "put", "put", "get", "delete", "forget", "wait"]):
            case "put":
                put(items, namespace, key, {"n": number}, ttl_s=rng.choice([None, 50]))
            case "get":
                get(items, namespace, key)
            case "delete":
                with items.batch() as batch:
                    batch.delete(namespace, key)
            case "wait":
                clock.advance(seconds=20)
            case "forget" if positions := items.positions(namespace):
                store.forget(positions=rng.sample(positions, min(len(positions), 2)))
                items.tables.catch_up()
                found = rows_of(items.tables)
                items.tables.rebuild()
                assert found == rows_of(items.tables)


def test_the_vectors_of_items_go_when_one_is_forgotten_and_stay_when_a_turn_is(items, store):
    """Whose a vector is cannot be told: all are computed again when they are needed."""
    turn = store.session("s").record("user", "a turn")
    put(items, ALICE, "tea", {"text": "I like tea"})
    search(items, query="tea")

    def vectors():
        with items.tables.database.reading() as connection:
            return connection.exec_driver_sql("SELECT count(*) FROM embeddings").scalar_one()

    store.forget(positions=[turn.position])
    assert vectors() == 1
    store.forget(positions=items.positions(ALICE))
    assert (vectors(), search(items, query="tea")) == (0, [])
