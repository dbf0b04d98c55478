"""What sessions cost, counted in events that are folded: figures in seconds are in docs/reports/bench-sessions.md."""

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain import session as sessions


@pytest.fixture
def folds(monkeypatch):
    """Every event that is folded into the state of a session from now on."""
    folded = []
    evolve = sessions.evolve

    def counted(state, recorded, past):
        folded.append(recorded.position)
        return evolve(state, recorded, past)

    monkeypatch.setattr(sessions, "evolve", counted)
    return folded


def test_a_restore_folds_what_is_new_and_not_the_history(store, folds):
    """Also where nobody has read the session: the second one finds what the first one kept."""
    session = store.start_session("trip")
    for n in range(200):
        session.set(f"key{n}", n)
    session.checkpoint("filled")
    session.set("key0", "changed")
    session.restore("filled")
    folds.clear()
    for n in range(5):
        session.set("key0", n)
        session.restore("filled")
    assert session.get("key0") == 0
    assert len(folds) <= 40


@pytest.mark.parametrize("reason", ["branch", "compress"])
def test_a_switch_folds_the_session_it_leaves_once(folder, folds, reason):
    """In a new process, where it was the agent's current one."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.switch("a", reason="new")
        for n in range(200):
            session.set(f"key{n}", n)
    folds.clear()
    with MemoryStore.open(folder, model=None) as store:
        store.switch("b", reason=reason)
        assert store.current().get("key199") == 199
    assert len(folds) <= 300


def test_which_session_an_agent_is_in_costs_the_switches_since_it_was_last_asked(store, monkeypatch):
    """Whoever made them: another store object sees them as well."""
    for n in range(100):
        store.switch(f"s{n}", reason="new")
    assert store.current().id == "s99"
    seen = []
    read = visible_of(store).log.fold

    def noted(stream, evolve, **options):
        return read(stream, lambda *arguments: seen.append(stream) or evolve(*arguments), **options)

    monkeypatch.setattr(visible_of(store).log, "fold", noted)
    with MemoryStore.open(store.path, model=None) as other:
        other.switch("s3", reason="resume")
    assert store.current().id == "s3"
    assert seen.count("agent/agent") == 1
