"""What calls, sessions and long histories cost: counted in calls and events, and in bytes on disk."""

import inspect
import json
import sys
from collections import Counter

import pytest

from mnemolog import LogDamaged, MemoryStore
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain import session as sessions
from mnemolog.domain.events import SessionStarted
from mnemolog.infra import sqlite
from mnemolog.projections.sql.opening import open_engine
from tests.budget import FIGURES, PYTHON, Spent, warm_calls
from tests.session_states import fold_all, state_digest
from tests.support import HashEncoder, read_all

BUDGET = json.loads(FIGURES.read_text())


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    with warm_calls(tmp_path_factory.mktemp("budget") / "memory") as calls:
        yield calls


@pytest.mark.local
@pytest.mark.log_file
@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="the figures are of another version of Python")
@pytest.mark.parametrize("name", BUDGET)
def test_a_call_costs_no_more_than_its_budget(calls, name):
    """A failure says which files added what. Who needs more writes the figures again, and says why in the commit."""
    calls[name]()
    spent, allowed = Spent(), BUDGET[name]
    cost = spent.of(calls[name])
    more = Counter(spent.files)
    more.subtract(allowed["files"])
    added = ", ".join(f"{path} +{number}" for path, number in more.most_common(12) if number > 0)
    over = {of: f"{number:,} instead of {allowed[of]:,}" for of, number in cost.items() if number > allowed[of] * 1.1}
    assert not over, f"{name}: {over}; added by {added}"


@pytest.mark.local
@pytest.mark.log_file
def test_forgetting_a_turn_costs_as_many_calls_in_a_store_ten_times_as_large(tmp_path):
    """It opens no event that is left, and what it does for each block of vectors is no call."""
    calls = []
    for size in (100, 1_000):
        with MemoryStore.open(tmp_path / str(size), model=HashEncoder(), background=False) as store:
            session = store.session("s")
            turns = session.record_many([{"role": "user", "text": f"word{n} about ferries"} for n in range(size)])
            store.rebuild("vectors")
            store.recall("ferries")
            calls.append(
                Spent().of(lambda turns=turns, store=store: store.forget(positions=turns[5].position))["calls"]
            )
    assert calls[1] < 1.2 * calls[0], calls


@pytest.mark.local
@pytest.mark.log_file
def test_each_kind_of_call_has_a_budget(calls):
    assert calls.keys() == BUDGET.keys()


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


PHRASE = "The Marmalade, Kettles & Xylophones of Zürich"
"""In no form that is stored of its words: they are in lower case and have no endings."""


def occurrences(folder):
    """How often the phrase lies in each file of a store that has it anywhere."""
    files = {path.name: path.read_bytes().count(PHRASE.encode()) for path in folder.rglob("*") if path.is_file()}
    return {name: count for name, count in files.items() if count}


@pytest.mark.local
@pytest.mark.log_file
@pytest.mark.parametrize("encrypt", [True, False])
def test_a_text_lies_on_disk_once_in_the_log_and_once_in_the_views(folder, encoder, encrypt):
    """Encrypted, the log has no readable copy. Caches, segments and the text index hold none."""
    with MemoryStore.open(folder, model=encoder, encrypt=encrypt, background=False) as store:
        session = store.session("trip")
        for n in range(20):
            session.record("user", f"{PHRASE}, number {n}")
        store.admin.catch_up_vectors()
        assert store.recall("marmalade").hits
        store.status()
    assert occurrences(folder) == {"views.db": 20} | ({} if encrypt else {"log.db": 20})


@pytest.mark.local
def test_the_write_ahead_log_of_a_large_transaction_does_not_stay(tmp_path):
    """A rebuild of the views is one transaction: its write-ahead log is as large as they are, until the next write."""
    engine = open_engine(tmp_path / "projections" / "views.db")
    wal = tmp_path / "projections" / "views.db-wal"
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE filled (content BLOB)")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for _ in range(20):
            connection.exec_driver_sql("INSERT INTO filled VALUES (randomblob(1000000))")
        connection.exec_driver_sql("COMMIT")
        assert wal.stat().st_size > 3 * sqlite.WAL_SIZE_LIMIT_BYTES
        connection.exec_driver_sql("INSERT INTO filled VALUES (x'00')")
        assert wal.stat().st_size <= sqlite.WAL_SIZE_LIMIT_BYTES
    engine.dispose()


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
