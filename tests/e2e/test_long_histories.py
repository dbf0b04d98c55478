"""Sessions with a long past: what they hold is quick to say, and can be said at all, after a restart too."""

import inspect
import sys

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import SessionStarted
from tests.session_states import fold_all, state_digest
from tests.support import read_all


@pytest.fixture
def open_again(folder, clock):
    """Open the store of this test anew, each time with nothing known. Power cuts are not what this is about."""
    return lambda: MemoryStore.open(folder, model=None, clock=clock, synchronous="NORMAL")


def assert_like_a_fold_from_zero(store, *names):
    states = fold_all(read_all(store.parts.log))
    assert states
    for name in names or states:
        state = states[name]
        assert state_digest(visible_of(store).state(name)) == state_digest(state), name


@pytest.mark.timeout(60)
def test_restores_of_which_each_follows_the_one_before_are_folded_once_each(open_again):
    """Every checkpoint lies behind the restore before it. Folding each past anew would be 2^200 folds."""
    with open_again() as store:
        session = store.start_session("s")
        for n in range(200):
            session.set("n", n)
            session.checkpoint(f"c{n}")
            session.set("n", "overwritten")
            session.restore(f"c{n}")
    with open_again() as store:
        assert store.session("s").get("n") == 199
        assert_like_a_fold_from_zero(store)
    with open_again() as store:
        store.session("s").restore("c7")
        assert store.session("s").get("n") == 7


@pytest.mark.timeout(60)
def test_branches_that_restore_what_they_inherit_are_folded_once_each(open_again):
    """Each branch asks twice for its parent's past: 2^60 folds, if none was kept."""
    with open_again() as store:
        session = store.start_session("s0")
        for n in range(60):
            session.set("n", n)
            session.checkpoint(f"c{n}")
            session = session.branch(f"s{n + 1}")
            session.set("n", "overwritten")
            session.restore(f"c{n}")
    with open_again() as store:
        last = store.session("s60")
        assert last.get("n") == 59
        last.restore("c0")
        assert last.get("n") == 0
        assert last.lineage() == [f"s{n}" for n in range(61)]
        assert_like_a_fold_from_zero(store)


@pytest.fixture
def shallow():
    """A stack with room for 300 more calls."""
    was = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    yield
    sys.setrecursionlimit(was)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("shallow")
def test_a_lineage_may_be_deeper_than_the_interpreters_stack(open_again):
    """An agent whose context was compressed into a new session again and again."""
    generations = 400
    with open_again() as store:
        first = store.start_session("c0", title="long")
        first.set("since", "the beginning")
        first.record("user", "first words")
        first.checkpoint("early")
        store.switch("c0", reason="resume")
        for n in range(generations):
            store.switch(f"c{n + 1}", reason="compress").record("user", f"words number{n}")
    with open_again() as store:
        current = store.current()
        assert current.id == f"c{generations}"
        assert current.get("since") == "the beginning"
        assert len(current.turns(limit=10_000)) == generations + 1
        assert current.recall("number7", mode="text").hits[0].text == "words number7"
        current.restore("early")
        assert [turn.text for turn in current.turns()] == ["first words"]
        assert len(current.turns(hidden=True, limit=10_000)) == generations + 1
        assert_like_a_fold_from_zero(store, current.id)


@pytest.mark.timeout(60)
def test_a_session_may_undo_its_last_turn_a_thousand_times(open_again):
    """What it sees lies in more pieces than SQLite takes conditions in one question."""
    with open_again() as store:
        session = store.start_session("s")
        for n in range(1_100):
            session.record_many([{"role": "user", "text": text} for text in (f"kept number{n}", "undone")])
            assert session.rewind(turns=1) == 1
        kept = [f"kept number{n}" for n in range(1_100)]
        assert [turn.text for turn in session.turns(limit=10_000)] == kept
        assert [turn.text for turn in session.turns(limit=3, newest_first=True)] == kept[:-4:-1]
        assert session.recall("undone", mode="text").hits == ()
        assert session.recall("number900", mode="text").hits[0].text == "kept number900"
        assert len(session.turns(hidden=True, limit=10_000)) == 2_200
        assert session.rewind(turns=1_050) == 1_050
        assert [turn.text for turn in session.turns()] == kept[:50]


def test_a_session_branched_from_itself_is_refused(open_again):
    """The store cannot write it, and following it would never end: `LogDamaged` names its position."""
    with open_again() as store:
        store.parts.log.appends.transact(
            lambda tx: tx.append("session/s", SessionStarted(title="s", agent="a", parent="s", branched_at=1))
        )
        with pytest.raises(LogDamaged, match="position 1: "):
            store.session("s")
        assert [finding.position for finding in store.verify().findings] == [1]
