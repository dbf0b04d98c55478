"""A run of retention and an approval that are killed again and again."""

import subprocess
import sys

import pytest

from mnemolog import MemoryStore
from mnemolog.forgetting import service
from mnemolog.types import AssertFact, Forget
from tests.children.forgetting import apply_retention_and_die, approve_and_die, write_subject_and_die
from tests.faults.test_export import SCRIPT
from tests.support import WAIT_S, FakeClock

DAYS = 9 * 86_400_000_000


@pytest.mark.promise("P41", "kills")
def test_each_turn_is_forgotten_once_and_none_that_is_held(folder, processes, monkeypatch, tries):
    """A run of retention that is killed at any step is gone on with: each turn goes once, none that is held."""
    clock, count = FakeClock(), 120
    with MemoryStore.open(folder, model=None, clock=clock) as store:
        for number in range(count):
            store.session(f"s{number}", scope="held" if number % 4 == 0 else "acme").record("user", f"turn {number}")
        store.admin.set_retention("", max_age="1d")
        store.admin.hold("held", reason="case")
    for kill in range(tries):
        child, _ = processes.start(apply_retention_and_die, str(folder), clock.now() + DAYS, kill)
        child.join(WAIT_S)
        assert child.exitcode == -9
    clock.set(clock.now() + DAYS)
    monkeypatch.setattr(service, "BATCH_MAX", 5)
    with MemoryStore.open(folder, model=None, clock=clock) as store:
        store.admin.apply_retention()
        left = [turn.text for item in store.sessions() for turn in store.turns(item.session)]
        assert left == [f"turn {number}" for number in range(0, count, 4)]
        erased = [item.position for item in store.audit.forgotten()]
        assert len(erased) == len(set(erased)) == count - count // 4
        assert all(item.ended_at for item in store.sessions(scope="acme"))
        assert store.verify(contents=True).sound


@pytest.mark.promise("P43", "kills")
def test_a_file_of_a_person_that_is_killed_is_absent_or_old_or_whole(folder, processes, tmp_path, tries):
    """Never half of one under its name: the script that knows nothing of us finds what is there sound."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("s", scope="acme").record_many([{"role": "user", "text": f"number {n}"} for n in range(20)])
        old = tmp_path / "old.zip"
        store.audit.subject(old, scope="acme")
        store.assert_fact("k", 1, scope="acme")
    found = set()
    for kill in range(tries):
        target = tmp_path / f"{kill}.zip"
        if kill % 2:
            target.write_bytes(old.read_bytes())
        child, _ = processes.start(write_subject_and_die, str(folder), str(target), kill // 2 % 4 * 40)
        child.join(WAIT_S)
        assert child.exitcode == -9
        is_new = target.exists() and target.read_bytes() != old.read_bytes()
        assert is_new or target.exists() == bool(kill % 2)
        assert not is_new or subprocess.run([sys.executable, SCRIPT, target], check=False).returncode == 0
        found.add((is_new, kill % 2))
    assert len(found) == 4 or tries < 8


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
