"""Items by namespace and key, as LangGraph's `BaseStore` documents them."""

import asyncio

import pytest
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from mnemolog import MemoryStore
from mnemolog.adapters.langgraph import MnemologStore
from mnemolog.domain import errors
from mnemolog.domain.items import ItemTouched
from mnemolog.projections.sql.item_tables import FILE
from tests.support import nothing_written

USER = ("users", "alice")
TEA, CAKE, RAIN = {"text": "I like tea"}, {"text": "cake is fine"}, {"text": "rain again"}


@pytest.fixture
def items(store):
    """A store of items over one with a fake model and a clock that the test moves."""
    with MnemologStore(store) as items:
        yield items


def keys(found):
    return [item.key for item in found]


def test_an_item_is_put_read_replaced_and_deleted(items, clock):
    """It keeps the time at which it was made, and not beyond its deletion. Its positions are those of its values."""
    items.put(USER, "likes", TEA)
    first = items.get(USER, "likes")
    assert (first.value, first.key, first.namespace) == (TEA, "likes", USER)
    clock.advance(seconds=60)
    items.put(USER, "likes", CAKE)
    items.put((*USER, "deep"), "likes", TEA)
    second = items.get(USER, "likes")
    assert (second.value, second.created_at) == (CAKE, first.created_at)
    assert (second.updated_at - first.updated_at).total_seconds() >= 60
    items.delete(USER, "likes")
    assert items.get(USER, "likes") is None
    assert items.positions(USER) == [1, 2]
    items.put(USER, "likes", TEA)
    assert items.get(USER, "likes").created_at > second.updated_at


def test_items_are_there_when_the_store_is_opened_again_and_when_the_tables_are_gone(folder, encoder):
    """They are in the log; the tables are derived from it."""
    with MemoryStore.open(folder, model=encoder, background=False) as store, MnemologStore(store) as items:
        items.put(USER, "likes", TEA)
        items.put(USER, "eats", CAKE, ttl=5)
        before = [item.dict() for item in items.search(("users",))]
    for path in (folder / "projections").glob(f"{FILE}*"):
        path.unlink()
    with MemoryStore.open(folder, model=encoder, background=False) as store, MnemologStore(store) as items:
        assert [item.dict() for item in items.search(("users",), refresh_ttl=False)] == before


def test_a_batch_reads_what_was_before_it_and_writes_all_or_nothing(items, store):
    """Results are in the order of what was asked; of two puts of a key the last one counts."""
    items.put(USER, "a", {"n": 1})
    results = items.batch(
        [
            PutOp(USER, "a", {"n": 2}),
            GetOp(USER, "a"),
            PutOp(USER, "b", {"n": 3}),
            PutOp(USER, "b", {"n": 4}),
            SearchOp(USER),
        ]
    )
    assert (results[0], results[1].value, results[2], keys(results[4])) == (None, {"n": 1}, None, ["a"])
    assert {item.key: item.value for item in items.search(USER)} == {"a": {"n": 2}, "b": {"n": 4}}
    with nothing_written(store), pytest.raises(errors.InvalidInput):
        items.batch([PutOp(USER, "c", {"n": 5}), PutOp(USER, "d", {"n": object()})])


FILTERS = [
    ({"kind": "tea"}, {"black", "green"}),
    ({"cups": {"$gt": 2}}, {"green", "mocha"}),
    ({"cups": {"$gte": 2, "$lt": 4}}, {"black", "green"}),
    ({"cups": {"$lte": 2}}, {"black"}),
    ({"kind": {"$ne": "tea"}}, {"mocha", "odd"}),
    ({"kind": {"$eq": "tea"}, "cups": 3}, {"green"}),
    ({"where": {"city": "Porto"}}, {"black"}),
    ({"tags": ["a", "b"]}, {"black"}),
    ({"kind": {"$gt": "mo"}}, {"black", "green"}),
    ({"nothing": None}, {"black", "green", "mocha", "odd"}),
]


def test_a_search_takes_what_fits_the_filter(items):
    """Equal, by operators, nested, several at once; what cannot be compared does not fit."""
    values = {
        "black": {"kind": "tea", "cups": 2, "where": {"city": "Porto", "zip": 1}, "tags": ["a", "b"]},
        "green": {"kind": "tea", "cups": 3, "tags": ["a"]},
        "mocha": {"kind": "coffee", "cups": 4.5},
        "odd": {"cups": None},
    }
    for key, value in values.items():
        items.put(USER, key, value)
    for wanted, found in FILTERS:
        assert set(keys(items.search(("users",), filter=wanted))) == found, wanted
    with pytest.raises(errors.InvalidInput, match=r"\$near"):
        items.search(USER, filter={"text": {"$near": "tea"}})


def test_a_search_without_a_query_gives_pages_newest_first(items):
    """Of the namespace and all below it, and of no other that begins with the same letters."""
    for number in range(7):
        items.put(USER if number % 2 else (*USER, "deep"), f"k{number}", {"n": number})
    items.put(("users", "alicette"), "other", {})
    assert keys(items.search(USER, limit=3)) == ["k6", "k5", "k4"]
    assert keys(items.search(USER, limit=3, offset=3)) == ["k3", "k2", "k1"]
    assert keys(items.search(USER, limit=50, offset=6)) == ["k0"]
    assert len(items.search((), limit=50)) == 8


def test_a_search_with_a_query_ranks_by_the_model_of_the_store(items, encoder):
    """Each text is embedded once, no matter how many queries follow; an item that is not indexed comes last."""
    items.put(USER, "tea", TEA)
    items.put(USER, "cake", CAKE)
    items.put(USER, "hidden", RAIN, index=False)
    items.put(USER, "path", {"text": "nothing", "deep": [{"t": "I like tea"}]}, index=["deep[*].t"])
    found = items.search(("users",), query="I like tea")
    assert keys(found)[0] == "path"
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert keys(found)[-1] == "hidden"
    assert found[-1].score is None
    assert [item.score for item in found[:-1]] == sorted((item.score for item in found[:-1]), reverse=True)
    encoded = encoder.texts_encoded
    items.search(("users",), query="I like tea", filter={"text": "I like tea"})
    assert encoder.texts_encoded == encoded + 1


def test_fields_say_what_items_are_found_by(store):
    """Of the store; an item of its own says otherwise."""
    with MnemologStore(store, fields=["title", "parts[*].text"]) as items:
        items.put(USER, "one", {"title": "tea", "parts": [{"text": "cake"}, {"text": "rain"}], "noise": "x y z"})
        items.put(USER, "two", {"noise": "cake"})
        found = items.search(USER, query="rain")
    assert [(item.key, item.score is None) for item in found] == [("one", False), ("two", True)]


def test_without_a_model_a_query_ranks_nothing(folder):
    """As with LangGraph's stores that have no index."""
    with MemoryStore.open(folder, model=None) as store, MnemologStore(store) as items:
        items.put(USER, "tea", TEA)
        assert [(item.key, item.score) for item in items.search(USER, query="tea")] == [("tea", None)]


def test_what_has_expired_is_never_given_out(items, clock, store):
    """By get, search and the list of namespaces; what comes in its place is new. Sweeping frees the tables of it."""
    clock.step = 0
    items.put(USER, "brief", TEA, ttl=1)
    items.put(("other",), "lasting", CAKE)
    made = items.get(USER, "brief", refresh_ttl=False).created_at
    clock.advance(seconds=59.9)
    assert items.get(USER, "brief", refresh_ttl=False) is not None
    clock.advance(seconds=0.1)
    assert items.get(USER, "brief") is None
    assert keys(items.search(())) == ["lasting"]
    assert items.list_namespaces() == [("other",)]
    head = store.head()
    assert (items.sweep_ttl(), items.sweep_ttl(), store.head()) == (1, 0, head)
    items.put(USER, "brief", CAKE)
    assert items.get(USER, "brief").created_at > made


def test_using_an_item_lengthens_its_life_and_seldom_costs_an_event(items, clock, store):
    """Unless the caller or the configuration says otherwise. A life of a hundred uses is written down twenty times."""
    clock.step = 0
    items.put(USER, "likes", TEA, ttl=100 / 60)
    for _ in range(200):
        clock.advance(seconds=1)
        assert items.get(USER, "likes") is not None
    touched = sum(isinstance(recorded.event, ItemTouched) for recorded in store.events())
    assert 30 <= touched <= 40
    for _ in range(95):
        clock.advance(seconds=1)
        assert items.get(USER, "likes", refresh_ttl=False) is not None
        assert items.search(USER, refresh_ttl=False)
    clock.advance(seconds=5)
    assert items.get(USER, "likes") is None


def test_the_configuration_gives_lives_to_items_that_name_none(store, clock):
    """And says whether reading lengthens them."""
    clock.step = 0
    with MnemologStore(store, ttl={"default_ttl": 1, "refresh_on_read": False}) as items:
        items.put(USER, "brief", TEA)
        items.put(USER, "lasting", TEA, ttl=None)
        clock.advance(seconds=30)
        items.get(USER, "brief")
        clock.advance(seconds=30)
        assert keys(items.search(USER)) == ["lasting"]


def test_namespaces_are_listed_as_with_the_store_in_memory(items, rng):
    """By prefix, suffix, wildcards, depth, page by page."""
    memory = InMemoryStore()
    for _ in range(60):
        namespace = tuple(rng.choice("abc") for _ in range(rng.randint(1, 4)))
        for store in (items, memory):
            store.put(namespace, "k", {"n": 1})
    for _ in range(80):
        asked = {
            "prefix": rng.choice([None, ("a",), ("a", "*"), ("*", "b")]),
            "suffix": rng.choice([None, ("c",), ("b", "*", "c")]),
            "max_depth": rng.choice([None, 1, 2, 3]),
            "limit": rng.choice([3, 100]),
            "offset": rng.choice([0, 2]),
        }
        assert items.list_namespaces(**asked) == memory.list_namespaces(**asked), asked


def test_it_does_what_the_store_in_memory_does(items, rng):
    """A random script of puts, deletes, gets and filtered searches."""
    memory = InMemoryStore()
    for _ in range(200):
        namespace, key = rng.choice([USER, ("users", "bob"), ("other",)]), f"k{rng.randrange(6)}"
        value = {"n": rng.randrange(5), "s": rng.choice("xy")}
        if rng.random() < 0.5:
            for store in (items, memory):
                store.delete(namespace, key) if value["n"] == 0 else store.put(namespace, key, value)
            continue
        found = [store.get(namespace, key) for store in (items, memory)]
        assert len({None if item is None else str(item.value) for item in found}) == 1
        asked = rng.choice([None, {"n": value["n"]}, {"s": "x", "n": {"$gte": 2}}])
        prefix = rng.choice([(), ("users",), namespace])
        found = [store.search(prefix, filter=asked, limit=100) for store in (items, memory)]
        assert len({str(sorted((i.namespace, i.key, str(i.value)) for i in items_)) for items_ in found}) == 1


async def test_asyncio_callers_get_the_same(store):
    """Many at once; a batch that ranks and writes does both."""
    with MnemologStore(store) as items:
        await asyncio.gather(*(items.aput(USER, f"k{n}", {"text": f"thing {n}"}) for n in range(20)))
        assert keys(await items.asearch(USER, query='{"text": "thing 3"}', limit=1)) == ["k3"]
        put, found, got = await items.abatch([PutOp(USER, "new", TEA), SearchOp(USER, query="tea"), GetOp(USER, "k1")])
        assert (put, len(found), got.key) == (None, 10, "k1")
        assert (await items.aget(USER, "new")).value == TEA


REFUSED = [
    ((), "k", {}, None),
    (("a", ""), "k", {}, None),
    (("a.b",), "k", {}, None),
    (USER, "", {}, None),
    (USER, "k" * 600, {}, None),
    (USER, "k", {"n": float("nan")}, None),
    (USER, "k", {1: 2}, None),
    (USER, "k", ["no mapping"], None),
    (USER, "k", {}, -1),
    (USER, "k", {"text": "x" * (1 << 20)}, None),
]


def test_what_cannot_be_stored_is_refused_with_nothing_written(items, store):
    """Also when it comes in a batch, which LangGraph itself does not check."""
    for namespace, key, value, ttl in REFUSED:
        with pytest.raises((errors.InvalidInput, errors.LimitExceeded)):
            items.batch([PutOp(namespace, key, value, ttl=ttl)])
    assert store.head().position == 0
