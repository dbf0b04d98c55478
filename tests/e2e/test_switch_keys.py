"""Switches that carry a key, sessions that work for another: what an adapter builds on that may be killed anywhere."""

import pytest

from mnemolog import MemoryStore
from mnemolog.domain import errors
from mnemolog.domain.session import session_stream
from tests.support import nothing_written, summary


@pytest.fixture
def trip(store):
    """The session that the agent is in, with three turns."""
    session = store.switch("trip", reason="new", agent="assistant")
    for text in ("one", "two", "three"):
        session.record("user", text, key=text)
    return session


@pytest.mark.local
@pytest.mark.parametrize(
    "how", [{"reason": "compress"}, {"reason": "rewind", "turns": 1}, {"reason": "resume", "to": "trip"}]
)
def test_a_switch_in_place_is_made_once_under_its_key(store, trip, how):
    """However often it is asked for, and whatever has come after."""
    for _ in range(2):
        assert store.switch(**how, session=trip, key="k1").id == "trip"
        trip.record("user", "four", key="four")
    seen = [turn.text for turn in trip.turns()]
    assert seen == (["one", "two", "four"] if how["reason"] == "rewind" else ["one", "two", "three", "four"])
    assert [event.key for event in store.events() if event.stream == "agent/assistant"] == [None, "k1"]


def test_a_session_that_a_keyed_switch_made_up_is_found_again(store, trip):
    """Without the key another one would be started."""
    other = store.switch(reason="branch", session=trip, key="k1")
    store.switch("trip", reason="resume", agent="assistant")
    assert store.switch(reason="branch", session=trip, key="k1").id == other.id
    assert store.switch(reason="branch", session=trip).id != other.id


def test_a_key_of_another_switch_is_refused(store, trip):
    """Another reason, another session to go to or to leave, or none to go to. Nothing is written."""
    store.start_session("sea", agent="assistant")
    store.switch("plane", reason="new", session=trip, key="k1")
    store.switch("trip-2", reason="compress", session=trip, key="k2")
    with nothing_written(store):
        for other in (
            {"reason": "reset", "to": "plane", "key": "k1"},
            {"reason": "new", "to": "ship", "key": "k1"},
            {"reason": "new", "to": "plane", "session": "sea", "key": "k1"},
            {"reason": "compress", "session": "trip", "key": "k2"},
        ):
            with pytest.raises(errors.DuplicateKey):
                store.switch(**other, agent="assistant")


def test_each_agent_has_keys_of_its_own(store, trip):
    """The key is one of the stream that the switch lies in."""
    store.switch("a", reason="new", agent="one", key="k")
    assert store.switch("b", reason="new", agent="two", key="k").id == "b"


def test_a_session_may_work_for_another(store, trip):
    """It names it as its parent, sees nothing of it and moves no agent; after a restart as well."""
    helper = store.start_session("helper", agent="assistant", parent="trip")
    helper.record("user", "Look it up.")
    assert [turn.text for turn in helper.turns()] == ["Look it up."]
    assert helper.lineage() == ["helper"]
    assert store.current("assistant").id == "trip"
    assert summary(store, "helper").parent == "trip"
    assert summary(store, "helper").branched_at is None
    assert store.session("helper", agent="assistant", parent="trip").id == "helper"
    with pytest.raises(errors.SessionExists):
        store.start_session("helper", agent="assistant")
    with pytest.raises(errors.UnknownSession):
        store.start_session("other", parent="nobody")
    with MemoryStore.open(store.path, model=None, background=False) as again:
        assert [turn.text for turn in again.session("helper").turns()] == ["Look it up."]
        held = next(item for item in again.replay().sessions if item.session == "helper")
        assert (held.parent, held.branched_at) == ("trip", None)


def test_a_key_says_where_its_event_lies(store, trip, log):
    """Forgotten or not."""
    at = log.position_of(session_stream("trip"), "two")
    assert [turn.position for turn in store.turns("trip") if turn.text == "two"] == [at]
    assert log.position_of(session_stream("trip"), "five") is None
    store.forget(positions=[at])
    assert log.position_of(session_stream("trip"), "two") == at
    assert log.appends.transact(lambda tx: tx.position_of(session_stream("trip"), "two")) == at
