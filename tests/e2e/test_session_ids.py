"""A session has one id, given or generated, and an optional title."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, errors

SCRIPT = """
import sys
from mnemolog import MemoryStore

with MemoryStore.open(sys.argv[1], model=None) as store:
    chat = store.session("trip", agent="assistant", scope="acme/alice", title="A trip to Lisbon")
    chat.record("user", "We moved to Lisbon in March.", key="t1")
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def store(folder):
    with MemoryStore.open(folder, model=None) as store:
        yield store


def test_a_session_of_the_same_id_is_found_again_after_a_restart(folder):
    """One session, not two of one name."""
    for text in ("I moved to Lisbon.", "And then to Porto."):
        with MemoryStore.open(folder, model=None) as store:
            store.session("trip").record("user", text)
    with MemoryStore.open(folder, model=None) as store:
        assert [turn.text for turn in store.session("trip").turns()] == ["I moved to Lisbon.", "And then to Porto."]
        assert [item.session for item in store.sessions()] == ["trip"]


def test_a_script_can_be_run_twice(folder):
    """With a key, the second run adds nothing."""
    heads = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], check=True)
        with MemoryStore.open(folder, model=None) as store:
            heads.append(store.head())
    assert heads[0] == heads[1]


def test_what_was_started_with_an_id_is_found_by_that_id(store):
    """By every call that takes a session."""
    store.start_session("trip").record("user", "the ferry leaves at noon")
    assert store.session("trip").id == store.find_session("trip").id == "trip"
    store.record("trip", "user", "it is late")
    assert [hit.session for hit in store.recall("ferry", session="trip").hits] == ["trip"]


def test_session_without_an_id_makes_one(store):
    """Another one each time."""
    ids = {store.session().id, store.session().id, store.start_session().id}
    assert len(ids) == 3
    assert {item.session for item in store.sessions()} == ids


def test_find_session_is_none_where_there_is_none_and_starts_nothing(store):
    """A look is not a start."""
    assert store.find_session("trip") is None
    assert store.head().position == 0
    with pytest.raises(errors.InvalidInput):
        store.find_session("")


def test_start_session_refuses_an_id_that_is_taken(store):
    """Even with the same arguments, and the hint says what to call."""
    store.start_session("trip", scope="acme")
    with pytest.raises(errors.SessionExists, match="'trip'") as refused:
        store.start_session("trip", scope="acme")
    assert "session(id)" in refused.value.hint


@pytest.mark.parametrize("given", [{"agent": "bob"}, {"scope": "acme/bob"}, {"title": "Another"}, {"parent": "home"}])
def test_arguments_that_contradict_the_recorded_ones_are_refused(store, given):
    """The error names the argument with both values; arguments that agree, or are left out, return the session."""
    store.session("home")
    recorded = {"agent": "ada", "scope": "acme/alice", "title": "A trip", "parent": None}
    store.session("trip", **recorded)
    head = store.head()
    assert store.session("trip").title == "A trip"
    assert store.session("trip", **recorded).scope == "acme/alice"
    with pytest.raises(errors.SessionDiffers) as refused:
        store.session("trip", **given)
    ((attribute, value),) = given.items()
    assert isinstance(refused.value, errors.SessionExists)
    assert (refused.value.attribute, refused.value.given, refused.value.recorded) == (
        attribute,
        value,
        recorded[attribute],
    )
    assert repr(value) in str(refused.value)
    assert repr(recorded[attribute]) in str(refused.value)
    assert f"`{attribute}`" in refused.value.hint
    assert store.head() == head


def test_many_who_ask_for_a_session_at_once_all_get_the_same(store, folder):
    """It is started once."""
    with MemoryStore.open(folder, model=None) as other, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: (store, other)[n % 2].session("trip", scope="acme").id, range(40)))
    assert set(found) == {"trip"}
    assert store.head().position == 1


def test_a_forgotten_title_contradicts_no_title(store):
    """A script can be run again after its session was forgotten."""
    store.session("trip", title="secret")
    store.forget(session="trip")
    assert store.session("trip", title="secret").title == ""


def test_a_title_is_optional_and_not_unique(store):
    """It is for people; ids tell sessions apart."""
    assert store.session("a").title == ""
    assert store.session("b", title="Trip").title == store.session("c", title="Trip").title == "Trip"
    assert [item.title for item in store.sessions()] == ["", "Trip", "Trip"]


def test_a_branch_and_a_switch_take_a_title_or_keep_that_of_the_session_left(store):
    """As before with names."""
    trip = store.session("trip", title="A trip")
    assert (trip.branch("b").title, trip.branch("c", title="By train").title) == ("A trip", "By train")
    assert store.switch("d", reason="branch", session="trip", title="By plane").title == "By plane"
    assert store.switch("e", reason="new").title == "By plane"


def test_asyncio_has_the_same_three_calls(folder):
    """Returned as handles for asyncio."""

    async def main():
        async with AsyncMemoryStore.open(folder, model=None) as store:
            assert await store.find_session("trip") is None
            trip = await store.session("trip", title="A trip")
            assert ((await store.find_session("trip")).title, trip.title) == ("A trip", "A trip")
            with pytest.raises(errors.SessionExists):
                await store.start_session("trip")

    asyncio.run(main())
