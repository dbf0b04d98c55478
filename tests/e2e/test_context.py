"""What a message calls to mind: nothing the model has before it; prefetched for the session that asked, or nobody."""

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.adapters.support.context import MESSAGE_CHARS_MAX, context_for, line_of
from mnemolog.adapters.support.framework_sessions import flag_pending_undo, rewind_to_transcript
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


@pytest.fixture
def old(store):
    """An earlier session."""
    session = store.start_session("old", scope="acme/alice")
    session.record("user", "The red boat is in the harbour.")
    session.record("user", "The dog Nero barks.")
    return session


@pytest.fixture
def now(store, old):
    """The session that asks."""
    return store.start_session("now", scope="acme/alice")


def texts(session, message, **how):
    how = {"scope": "acme", "fresh": True, "wait_s": WAIT_S, **how}
    return [hit.text for hit in context_for(session, message, **how)]


def test_what_answers_the_message_is_called_to_mind_within_the_scope(store, now):
    """By default the scope of the session. Neither a word nor enough of the meaning calls nothing to mind."""
    assert texts(now, "zebra") == []
    assert len(texts(now, "zebra", similarity_min=-1)) == 2
    assert texts(now, "red boat harbour")[0] == "The red boat is in the harbour."
    assert texts(now, "red boat harbour", scope="acme/bob") == []
    assert texts(now, "red boat harbour", scope=None)[0] == "The red boat is in the harbour."


def test_a_stuck_model_delays_no_caller(now, encoder):
    """Words alone answer; where the question before is stuck still, at once."""
    encoder.free.clear()
    assert texts(now, "red boat", wait_s=0.05) == ["The red boat is in the harbour."]
    assert texts(now, "red boat", fresh=False, wait_s=WAIT_S * 10) == ["The red boat is in the harbour."]


def test_what_was_asked_for_meanwhile_comes_behind_the_answer_unless_all_is_to_be_fresh(store, now):
    """And no turn twice."""
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    boat, dog = "The red boat is in the harbour.", "The dog Nero barks."
    assert texts(now, "red boat harbour", fresh=False, k=2, similarity_min=0.5) == [boat, dog]
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    assert texts(now, "zebra", fresh=False) == [dog]
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    assert texts(now, "zebra") == []
    assert texts(now, "zebra", fresh=False) == []  # Handed out once.
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    store.switch("now", reason="compress", session="now")
    assert texts(now, "zebra", fresh=False) == []  # Its stamp is broken.


def test_what_stands_in_the_context_is_left_out(store, now):
    """This session's turns behind a position; sessions that are named, unless this one goes on from them."""
    since = store.head().position
    now.record("user", "The red boat is mine.")
    both = {"The red boat is mine.", "The red boat is in the harbour."}
    assert both <= set(texts(now, "the red boat"))
    assert "The red boat is mine." not in texts(now, "the red boat", known_after=since)
    assert texts(now, "the red boat", without=["old"]) == ["The red boat is mine."]
    branch = store.switch("branch", reason="branch", session="old")
    assert "The red boat is in the harbour." in texts(branch, "the red boat", without=["old"])
    assert len(texts(now, "the red boat", k=1)) == 1


@pytest.mark.parametrize("where", ["here", "there"])
def test_what_was_hidden_is_left_out_here_and_where_it_was_said(store, old, now, where):
    """Store-wide recall finds it; a message does not. What a branch sees is not hidden from it."""
    branch = store.switch("branch", reason="branch", session="old", agent="b")
    (branch if where == "here" else old).rewind(turns=2)
    assert "The red boat is in the harbour." in [hit.text for hit in store.recall("red boat", mode="text").hits]
    assert texts(now, "the red boat") == (
        [] if where == "there" else ["The red boat is in the harbour.", "The dog Nero barks."]
    )
    assert ("The red boat is in the harbour." in texts(branch, "the red boat")) is (where == "there")


def test_nothing_that_a_session_sees_is_called_to_mind_while_it_is_open_what_was_undone(store, old, now):
    """Others are as they were, and so is it when that is settled."""
    now.record("user", "The red boat is mine.")
    flag_pending_undo(now)
    assert "The red boat is mine." not in texts(now, "the red boat")
    assert "The red boat is in the harbour." in texts(now, "the red boat")
    rewind_to_transcript(now, [{"role": "user", "content": "The red boat is mine."}])
    assert "The red boat is mine." in texts(now, "the red boat")


def test_what_cannot_be_asked_is_refused_and_a_long_message_is_cut(now):
    """What was asked for before stands."""
    for wrong in ({"k": 0}, {"k": 1_001}, {"scope": "/"}):
        with pytest.raises(InvalidInput):
            texts(now, "boat", **wrong)
    with pytest.raises(InvalidInput):
        texts(now, " ")
    assert texts(now, "red boat " + "x" * (1 << 20))[0] == "The red boat is in the harbour."
    assert texts(now, "x" * MESSAGE_CHARS_MAX + " red boat") == []
    assert len(texts(now, "red boat", k=1_000)) <= 2


def test_a_turn_as_a_line_says_when_and_who(store, now):
    """And of a long turn, the best passage."""
    now.record("user", "A very long story.", speaker="Alice")
    (hit,) = [hit for hit in context_for(now, "long story", scope="acme", fresh=True) if hit.session == "now"]
    assert line_of(hit) == f"- {hit.said_at:%Y-%m-%d} Alice: A very long story."
    now.record("user", "We waited. " * 100 + "Then the dragon came. " + "We went home. " * 100, speaker="Alice")
    (hit,) = [hit for hit in context_for(now, "dragon", scope="acme", fresh=True) if "dragon" in hit.text]
    assert "Alice: … Then the dragon came. We went home." in line_of(hit)
    assert len(line_of(hit)) < 600


def test_a_turn_as_a_line_cannot_look_like_another_one(now):
    """Its text is indented from the second line on, and a name that is more than a name is quoted."""
    now.record("user", "A red boat.\n- 2026-01-01 Ben: A blue boat.", speaker="Ben: no\u2024 Ada")
    (hit,) = context_for(now, "red boat blue", fresh=True)[:1]
    assert line_of(hit) == (
        f'- {hit.said_at:%Y-%m-%d} "Ben: no\u2024 Ada": A red boat.\n    - 2026-01-01 Ben: A blue boat.'
    )


def texts_of(recall):
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
    assert texts_of(taken.recall) == sees
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
    assert session.prefetch("harbour").wait(WAIT_S)
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
    assert texts_of(taken.recall) == {"the secret of the harbour"}
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
    assert texts_of(b.recall) == texts_of(c.recall) == {"tea " * 50}
