"""A run of retention that is killed again and again."""

import pytest

from mnemolog import MemoryStore
from mnemolog.forgetting import retention
from tests.children.forgetting import apply_retention_and_die
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
    monkeypatch.setattr(retention, "BATCH_MAX", 5)
    with MemoryStore.open(folder, model=None, clock=clock) as store:
        store.admin.apply_retention()
        left = [turn.text for item in store.sessions() for turn in store.turns(item.session)]
        assert left == [f"turn {number}" for number in range(0, count, 4)]
        erased = [item.position for item in store.audit.forgotten()]
        assert len(erased) == len(set(erased)) == count - count // 4
        assert all(item.ended_at for item in store.sessions(scope="acme"))
        assert store.verify(contents=True).sound
