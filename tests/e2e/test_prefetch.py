"""A prefetched recall reaches the session that asked, or nobody: whatever is switched while the model is stuck."""

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.projections.recall.prefetch import PrefetchReason
from tests.support import WAIT_S, StuckEncoder

pytestmark = pytest.mark.local


@pytest.fixture
def encoder():
    encoder = StuckEncoder()
    encoder.free.set()
    return encoder


@pytest.fixture
def store(store, encoder):
    """An empty store, which can be closed whatever the test has done to its model."""
    yield store
    encoder.free.set()


def texts(recall):
    return {hit.text for hit in recall.hits}


def stuck_prefetch(session, encoder):
    encoder.free.clear()
    encoder.entered.clear()
    ticket = session.prefetch("the secret of the harbour")
    assert encoder.entered.wait(WAIT_S)
    return ticket


SWITCHES = [
    ({"reason": "new"}, set()),
    ({"reason": "reset"}, set()),
    ({"reason": "resume", "to": "other"}, {"the weather at the harbour"}),
    ({"reason": "branch"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "compress"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "compress", "to": "fresh"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "rewind", "turns": 1}, {"a boat in the harbour"}),
    ({"reason": "rewind", "to": "fresh", "turns": 1}, {"a boat in the harbour"}),
]


@pytest.mark.parametrize(
    ("asked", "sees"), SWITCHES, ids=lambda value: str(sorted(value) if isinstance(value, set) else value)
)
def test_the_first_prefetch_after_a_switch_holds_only_what_its_session_sees(store, encoder, asked, sees):
    """The answer of before comes late, when the model lets go: it is handed to nobody."""
    store.start_session("other").record("user", "the weather at the harbour")
    old = store.start_session("old")
    store.switch("old", reason="resume")
    old.record("user", "a boat in the harbour")
    old.record("user", "the secret of the harbour")
    late = stuck_prefetch(old, encoder)
    new = store.switch(**asked)
    asked_anew = new.prefetch("a secret of the harbour")
    assert new.prefetch_result().reason is PrefetchReason.NOT_READY
    encoder.free.set()
    assert asked_anew.wait(WAIT_S)
    taken = new.prefetch_result()
    assert taken.recall is not None
    assert texts(taken.recall) == sees
    assert taken.ticket.stamp.session == new.id
    assert late.wait(WAIT_S)
    assert late.reason in {PrefetchReason.CANCELLED, PrefetchReason.REPLACED}
    assert old.prefetch_result().recall is None


@pytest.mark.parametrize("change", ["rewind", "restore", "switched by another handle", "recorded"])
def test_what_changed_since_is_not_handed_out(store, tmp_path, encoder, change):
    """A rewind, a restore and a switch in another process break the stamp; a new turn does if so asked."""
    session = store.start_session("s", agent="bot")
    session.checkpoint("begin")
    session.record("user", "the secret of the harbour")
    ticket = session.prefetch("harbour")
    assert ticket.wait(WAIT_S)
    expected = PrefetchReason.SWITCHED
    if change == "rewind":
        assert session.rewind(turns=1) == 1
    elif change == "restore":
        session.restore("begin")
    elif change == "recorded":
        session.record("user", "one more")
        expected = PrefetchReason.BEHIND
    else:
        with MemoryStore.open(tmp_path / "memory", model=None) as other:
            other.switch(reason="new", session="s")
    taken = session.prefetch_result(max_behind=0)
    assert (taken.recall, taken.reason) == (None, expected)


def test_an_answer_is_handed_out_once_and_newer_turns_are_allowed(store):
    """By default what was recorded meanwhile does not matter."""
    session = store.start_session("s")
    session.record("user", "the secret of the harbour")
    assert session.prefetch("harbour").wait(WAIT_S)
    session.record("user", "one more")
    taken = session.prefetch_result()
    assert taken.recall is not None
    assert texts(taken.recall) == {"the secret of the harbour"}
    assert session.prefetch_result().reason is PrefetchReason.NONE_ASKED


def test_with_a_scope_every_session_in_it_is_searched_for_the_answer_to_one(store):
    """The root scope is all there is; a switch breaks the stamp as of any other prefetch."""
    for number, scope in enumerate(("acme/alice", "acme/bob")):
        store.start_session(str(number), title=scope, scope=scope).record("user", f"{scope} saw the harbour")
    session = store.start_session("s")
    for scope, expected in (("acme/alice", {"0"}), ("acme", {"0", "1"}), ("", {"0", "1"}), (None, set())):
        assert session.prefetch("harbour", scope=scope).wait(WAIT_S)
        taken = session.prefetch_result()
        assert {hit.session for hit in taken.recall.hits} == expected
        assert store.session("0").prefetch_result().reason is PrefetchReason.NONE_ASKED
    assert session.prefetch("harbour", scope="acme").wait(WAIT_S)
    store.switch(reason="new", session=session)
    assert session.prefetch_result().recall is None
    with pytest.raises(InvalidInput):
        session.prefetch("harbour", scope="/acme")


def test_agents_that_do_not_know_one_another_do_not_disturb(store):
    """Another session's switches leave a prefetch alone, even those of the same agent."""
    session = store.start_session("s", agent="bot")
    session.record("user", "the secret of the harbour")
    assert session.prefetch("harbour").wait(WAIT_S)
    store.switch(reason="new", agent="bot")
    store.switch(reason="new", agent="other")
    assert session.prefetch_result().recall is not None


def test_closing_abandons_a_prefetch_that_is_stuck(tmp_path, encoder):
    """The store closes; the late answer finds nobody."""
    store = MemoryStore.open(tmp_path / "memory", model=encoder, background=False)
    session = store.start_session("s")
    session.record("user", "the secret of the harbour")
    ticket = stuck_prefetch(session, encoder)
    store.close()
    assert ticket.reason is PrefetchReason.CLOSED
    encoder.free.set()


def test_unfetched_answers_take_no_more_than_their_room(store, monkeypatch):
    """The oldest go first; the newest is kept, however large it is."""
    monkeypatch.setattr("mnemolog.projections.recall.prefetch.REMEMBERED_CHARACTERS_MAX", 250)
    sessions = [store.session(name) for name in "abc"]
    for session in sessions:
        session.record("user", "tea " * 50)
        assert session.prefetch("tea").wait(WAIT_S)
    a, b, c = (session.prefetch_result() for session in sessions)
    assert (a.reason, b.reason) == (PrefetchReason.NONE_ASKED, None)
    assert texts(b.recall) == texts(c.recall) == {"tea " * 50}
