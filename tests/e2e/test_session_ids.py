"""A session has one id, given or generated, and an optional title."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, errors
from tests.support import nothing_written


def test_a_session_of_the_same_id_is_found_again_after_a_restart(folder):
    """One session, not two of one name."""
    for text in ("I moved to Lisbon.", "And then to Porto."):
        with MemoryStore.open(folder, model=None) as store:
            store.session("trip").record("user", text)
    with MemoryStore.open(folder, model=None) as store:
        assert [turn.text for turn in store.session("trip").turns()] == ["I moved to Lisbon.", "And then to Porto."]
        assert [item.session for item in store.sessions()] == ["trip"]


def test_session_without_an_id_makes_one(store):
    """Another one each time."""
    ids = {store.session().id, store.session().id, store.start_session().id}
    assert len(ids) == 3
    assert {item.session for item in store.sessions()} == ids


def test_find_session_returns_none_for_an_unknown_id_and_starts_nothing(store):
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
    assert "`switch(to='trip', reason='resume')`" in refused.value.hint


@pytest.mark.parametrize("given", [{"agent": "bob"}, {"scope": "acme/bob"}, {"title": "Another"}, {"parent": "home"}])
def test_arguments_that_contradict_the_recorded_ones_are_refused(store, given):
    """The error names the argument with both values; arguments that agree, or are left out, return the session."""
    store.session("home")
    recorded = {"agent": "ada", "scope": "acme/alice", "title": "A trip", "parent": None}
    store.session("trip", **recorded)
    with nothing_written(store):
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


def test_a_handle_is_taken_wherever_an_id_is(store):
    """Also one for asyncio, and for a session that is passed to `session` itself."""
    trip = store.session("trip", scope="acme")
    turn = store.record(trip, "user", "the ferry leaves at noon")
    store.record_many([{"role": "user", "content": "it is late"}], session=trip)
    store.record_many(
        [NewTurn(session=trip, role="user", text="later"), {"role": "user", "text": "x", "session": trip}]
    )
    assert store.recall("ferry", session=trip).hits[0].position == turn.position
    assert store.find("ferry", session=trip)[0].position == turn.position
    assert [item.text for item in store.turns(trip)] == ["the ferry leaves at noon", "it is late", "later", "x"]
    assert len(store.replay(session=trip).sessions) == 1
    assert {moment.session for moment in store.audit.timeline(session=trip)} == {"trip"}
    assert store.session(trip).id == store.find_session(trip).id == "trip"
    store.session("helper", parent=trip)
    assert store.switch("b", reason="branch", session=trip).id == "b"
    assert store.preview_switch(trip, reason="resume", session=trip).to == "trip"
    assert store.switch(trip, reason="resume").id == "trip"
    store.end_session(trip)
    assert store.forget(session=[trip], dry_run=True).sessions == ("trip",)


async def test_a_handle_for_asyncio_is_taken_wherever_an_id_is(folder):
    """By the calls of that side."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        trip = await store.session("trip")
        await store.record(trip, "user", "the ferry leaves at noon")
        assert len((await store.recall("ferry", session=trip)).hits) == 1
        assert (await store.switch("b", reason="branch", session=trip)).id == "b"
        assert (await store.switch(trip, reason="resume")).id == "trip"
        assert [moment.session async for moment in store.audit.timeline(session=trip)] == ["trip"] * 2
        await store.end_session(trip)
        assert (await store.forget(session=trip, dry_run=True)).sessions == ("trip",)


@pytest.mark.parametrize("given", [7, None, b"trip", object()])
def test_what_is_neither_a_handle_nor_an_id_is_refused_by_name(store, given):
    """Instead of an error from deep within; a session as it was is no handle on it."""
    for call in (
        lambda: store.end_session(given),
        lambda: store.turns(given),
        lambda: store.record(given, "user", "x"),
        lambda: store.find_session(given),
    ):
        with pytest.raises(errors.InvalidInput, match="expected a session or its id"):
            call()
    store.session("trip")
    with pytest.raises(errors.InvalidInput, match=r"got (Remote)?SessionAt"):
        store.recall("x", session=store.session("trip").at(1))


def test_an_unknown_session_names_the_three_closest_ids(store):
    """In every call, for readers as for writers, and nothing is started."""
    for name in ("trip", "trip-2", "tour", "invoices"):
        store.session(name)
    with nothing_written(store):
        for call in (
            lambda: store.record("tripp", "user", "x"),
            lambda: store.record_many([NewTurn(session="tripp", role="user", text="x")]),
            lambda: store.end_session("tripp"),
            lambda: store.turns("tripp"),
            lambda: store.recall("x", session="tripp"),
            lambda: store.find("x", session="tripp"),
            lambda: store.replay(session="tripp"),
            lambda: store.forget(session="tripp"),
            lambda: store.switch("tripp", reason="resume"),
            lambda: store.switch("new", reason="new", session="tripp"),
            lambda: store.preview_switch("tripp", reason="resume"),
            lambda: store.session("new", parent="tripp"),
            lambda: store.start_session(parent="tripp"),
            lambda: store.audit.timeline(session="tripp"),
        ):
            with pytest.raises(errors.UnknownSession) as refused:
                call()
            assert str(refused.value) == "there is no session 'tripp'; the closest ids are 'trip', 'trip-2', 'tour'"
            assert "nothing was written" not in refused.value.hint


def test_a_title_given_as_an_id_is_answered_with_the_id(store):
    """With the id to use instead."""
    made = store.session(title="A trip to Lisbon")
    store.sessions()
    with pytest.raises(errors.UnknownSession) as refused:
        store.turns("A trip to Lisbon")
    assert str(refused.value) == f"there is no session 'A trip to Lisbon'; one has that title: '{made.id}'"


def test_an_unknown_session_is_still_unknown_where_the_views_cannot_be_read(store):
    """The suggestions are left out."""
    store.session("trip")
    store.sessions()
    (store.path / "projections" / "views.db").write_bytes(b"this is no database" * 400)
    for part in ("-wal", "-shm"):
        (store.path / "projections" / f"views.db{part}").unlink(missing_ok=True)
    with MemoryStore.open(store.path, model=None) as other, pytest.raises(errors.UnknownSession):
        other.end_session("tripp")


def test_an_ended_session_says_how_to_reopen_it(store):
    """In the hint."""
    trip = store.session("trip")
    trip.end()
    with pytest.raises(errors.SessionAlreadyEnded) as refused:
        trip.record("user", "One more thing.")
    assert "`switch(to='trip', reason='resume')`" in refused.value.hint
    store.switch("trip", reason="resume")
    trip.record("user", "One more thing.")


@pytest.mark.parametrize("of", ["trip", "home"])
def test_a_branch_into_a_session_that_is_there_is_refused(store, of):
    """Be it another session, a branch of another one, or a branch at another point; the same branch is a retry."""
    for name in ("trip", "home"):
        store.session(name).record("user", f"said in {name}")
    store.session("other").record("user", "said elsewhere")
    made = store.session("trip").branch("side")
    head = store.head()
    for to, how in (("other", {}), ("side", {"title": "Another"}), ("side", {"at": head.position})):
        with pytest.raises(errors.SessionExists, match=to):
            store.session(of).branch(to, **how)
    if of == "home":
        with pytest.raises(errors.SessionExists):
            store.session(of).branch("side")
    else:
        assert store.session(of).branch("side").lineage() == made.lineage() == ["trip", "side"]
    assert store.head() == head
    assert [turn.text for turn in store.session("other").turns()] == ["said elsewhere"]
