"""An approval that is killed at any step."""

import pytest

from mnemolog import MemoryStore
from mnemolog.types import AssertFact, Forget
from tests.children.forgetting import approve_and_die
from tests.support import WAIT_S

STEPS = 20
"""More than an approval of these two proposals has."""


@pytest.mark.promise("P42", "kills")
def test_an_approval_that_is_killed_is_done_or_not_done(folder, processes, tries):
    """All of what was approved and the decisions, or nothing of it: then it can be approved again."""
    answers = set()
    for kill in range(tries):
        with MemoryStore.open(folder, model=None) as store:
            turn = store.session(f"s{kill}", scope="acme").record("user", f"turn {kill}")
            store.propose(Forget(positions=[turn.position]), scope="")
            store.propose(AssertFact(f"k{kill}", kill), scope="")
        child, _ = processes.start(approve_and_die, str(folder), kill % STEPS)
        child.join(WAIT_S)
        assert child.exitcode == -9
        with MemoryStore.open(folder, model=None) as store:
            waits, fact = store.proposals(), store.fact(f"k{kill}")
            answers.add(len(waits))
            assert (len(waits), fact is None, len(store.turns(f"s{kill}"))) in ((0, False, 0), (2, True, 1))
            store.approve([item.position for item in waits])
            assert (store.proposals(), store.fact(f"k{kill}").value, store.turns(f"s{kill}")) == ([], kill, [])
            assert len(store.fact_history(f"k{kill}")) == 1
    assert answers == {0, 2}
    with MemoryStore.open(folder, model=None) as store:
        assert store.verify(contents=True).sound
        assert [item.state for item in store.proposals(state=None)] == ["approved"] * 2 * tries
