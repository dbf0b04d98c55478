"""Many users in one memory: side by side, together, and over every kind of store. See docs/adr/0051."""

from contextlib import ExitStack

import pytest

from mnemolog import MemoryStore, connect, errors
from mnemolog.server.http.problems import problem_of
from tests.postgres import put_log_in_postgres
from tests.support import HashEncoder
from tests.through_http import Served

pytestmark = pytest.mark.local

ALICE, BOB, SHARED = "acme/alice", "acme/bob", "acme/shared"


@pytest.fixture(params=["folder", "part", "token", "header", "postgres"])
def open_for(request, tmp_path):
    """Open one memory for scopes: in a folder, as a part, over HTTP by token or header, with the log in a database."""
    folder, way = tmp_path / "memory", request.param
    if way == "postgres":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    with ExitStack() as opened:
        first = MemoryStore.open(folder, model=HashEncoder(), background=False)
        served = Served(first) if way in ("token", "header") else None
        opened.callback((served or first).close)

        def open_for(*scopes):
            if served is None:
                options = {"model": HashEncoder(), "background": False, "scope": scopes or ""}
                store = first.within(scopes or "") if way == "part" else MemoryStore.open(folder, **options)
            elif way == "token":
                created = first.admin.create_token("someone", verbs=["read", "record", "forget"], scopes=scopes)
                store = connect(served.url, token=created.secret)
            else:
                store = connect(served.url, scope=scopes or "")
            opened.callback(store.close)
            return store

        yield open_for


def readme(store, scope, place):
    """The first example of the README, in the scope of a user."""
    chat = store.session("trip", scope=scope)
    chat.record("user", f"We moved to {place} in March.", key="m1")
    assert [hit.text for hit in store.recall("Where did we move?", k=2, scope=scope, mode="text")] == [
        f"We moved to {place} in March."
    ]
    return chat


def said(turns):
    """The last words of what was found, in the order of the log."""
    return [turn.text.split()[-1] for turn in sorted(turns, key=lambda turn: turn.position)]


def test_users_side_by_side_together_and_before_an_auditor(open_for):
    """Each has sessions and agents of its own; a store for two scopes has both; the auditor sees all by full names."""
    alice, bob, both, whole = open_for(ALICE), open_for(BOB), open_for(ALICE, SHARED), open_for()
    for store, scope, place in ((alice, ALICE, "Lisbon"), (bob, BOB, "Oslo")):
        assert readme(store, scope, place).id == store.session("trip").id == f"{scope}/trip"
        assert store.find_session(f"{scope}/trip").agent == f"{scope}/agent"
        friday = store.switch("friday", reason="new", title="the talk")
        assert (friday.id, friday.scope, store.current().id) == (f"{scope}/friday", scope, f"{scope}/friday")
        friday.record("user", f"It rains in {place}")
        saturday = store.switch("saturday", reason="reset")
        assert saturday.scope == scope
        assert {turn.session for turn in saturday.recall("moved rains", mode="text")} == {
            f"{scope}/trip",
            f"{scope}/friday",
        }
        assert saturday.recall("moved rains", mode="text", lineage=True).hits == ()
        assert said(store.find("in ")) == ["March.", place]
        assert [item.session for item in store.sessions()] == [f"{scope}/{n}" for n in ("trip", "friday", "saturday")]
    with pytest.raises(errors.UnknownSession) as unknown:
        alice.record("plan", "user", "x")
    assert "bob" not in str(problem_of(unknown.value))
    assert alice.find_session(f"{BOB}/trip") is None
    with pytest.raises(errors.OutsideScope):
        alice.recall("Oslo", scope=[ALICE, BOB])

    plan = both.session("plan", scope=SHARED, agent="planner")
    assert (plan.id, plan.agent) == (f"{SHARED}/plan", f"{SHARED}/planner")
    rome = {"session": "plan", "role": "user", "text": "We all move to Rome"}
    both.record_many([rome, {"session": "trip", "role": "user", "text": "I move to Paris", "key": "p"}])
    first = both.recall("move moved", k=2, mode="text")
    rest = both.recall("move moved", k=2, mode="text", after=first.next)
    assert said([*first, *rest]) == ["March.", "Rome", "Paris"]
    assert both.recall("move moved", k=3, mode="text").hits == (*first, *rest), "one ranking"
    assert said(whole.recall("move moved", k=9, mode="text", scope=[SHARED, ALICE])) == ["March.", "Rome", "Paris"]
    assert said(whole.find("ove", scope=[SHARED, BOB])) == ["March.", "Rome"]
    assert {item.scope for item in both.sessions()} == {ALICE, SHARED}
    assert [item.session for item in both.sessions(scope=[SHARED])] == [f"{SHARED}/plan"]
    assert {moment.session for moment in both.audit.timeline()} >= {f"{SHARED}/plan", f"{ALICE}/trip"}
    assert "Rome" in both.context("Where do we move?", min_relevance=0).text
    before = both.session("plan").turns()[0].position - 1
    assert said(both.recall("move moved", as_of=before, mode="text")) == ["March."]
    for write in (
        lambda: both.session("new"),
        lambda: both.start_session(),
        lambda: both.switch("new", reason="new", agent="nobody"),
    ):
        with pytest.raises(errors.InvalidInput, match=f"'{ALICE}', '{SHARED}'"):
            write()
    both.session("friday", scope=SHARED)
    with pytest.raises(errors.InvalidInput, match=f"'{ALICE}/friday' or '{SHARED}/friday'"):
        both.record("friday", "user", "which?")
    assert both.switch("plan", reason="resume", agent="planner").id == both.current("planner").id == f"{SHARED}/plan"
    assert both.switch("sunday", reason="branch", agent="planner").id == f"{SHARED}/sunday"
    assert both.switch("trip", reason="resume", agent="walker").id == both.current(f"{ALICE}/walker").id
    for store in (both, open_for(SHARED)):
        assert [item.session for item in store.sessions(agent="planner")] == [f"{SHARED}/plan", f"{SHARED}/sunday"]
    whole.switch("strange", reason="new", agent="stranger", scope=BOB)
    for agent in ("stranger", "nobody"):
        assert both.current(agent) is None
        with pytest.raises(errors.SwitchRefused, match="no session"):
            both.switch("x", reason="branch", agent=agent)

    names = {item.session for item in whole.sessions()}
    assert names >= {f"{ALICE}/trip", f"{BOB}/trip", f"{SHARED}/plan"}
    assert len({hit.session for hit in whole.recall("moved", k=9, mode="text")}) == 3
    with pytest.raises(errors.InvalidInput, match=f"such as '{ALICE}'"):
        whole.switch("monday", reason="new", agent="auditor")
    assert whole.switch("monday", reason="new", agent="auditor", scope="").scope == ""


def test_a_session_knows_its_scope_and_of_its_own_branches_what_it_sees(open_for):
    """In recall, context and prefetch alike. `scope` widens or narrows that, `lineage` leaves what it sees alone."""
    store = open_for("acme")
    old = store.session("old", scope=ALICE)
    old.record("user", "the boat is red")
    trip = store.session("trip", scope=ALICE)
    trip.record("user", "the boat is blue")
    branch = trip.branch("branch")
    branch.record("user", "the boat is green")
    trip.record("user", "the boat is black")
    trip.rewind(turns=1)
    store.session("other", scope=SHARED).record("user", "the boat is white")

    def asked(session, **how):
        session.prefetch("boat", k=20, mode="text", **how)
        found = session.recall("boat", k=20, mode="text", **how)
        assert session.prefetch_result(wait_s=60).recall.hits == found.hits
        shown = session.context("boat", mode="text", min_relevance=0, **how).positions
        assert sorted(shown) == sorted(hit.position for hit in found)
        return said(found)

    assert asked(trip) == ["red", "blue"]
    assert asked(branch) == ["red", "blue", "green"]
    assert asked(old) == ["red", "blue", "green", "black"]
    assert asked(trip, lineage=True) == ["blue"]
    assert asked(trip, scope=SHARED) == ["white"]
    assert asked(trip, scope=[SHARED, ALICE]) == asked(trip, scope="acme") == ["red", "blue", "white"]
    assert asked(trip, scope=SHARED, lineage=True) == []
    assert said(trip.recall("boat", k=20, mode="text", hidden=True)) == ["red", "blue", "black"]
    assert said(store.recall("boat", k=20, mode="text", session="trip")) == ["blue", "black"]
    assert said(store.recall("boat", k=20, mode="text", session=trip, lineage=True)) == ["blue"]


def test_a_session_without_a_scope_knows_itself_alone(store):
    """Nothing says whose the others are. Receipts repeat what was asked, in either case."""
    store.session("one").record("user", "the boat is red")
    two, hers = store.session("two"), store.session("hers", scope=ALICE)
    two.record("user", "the boat is blue")
    hers.record("user", "the boat is green")
    assert said(two.recall("boat", receipt=True)) == ["blue"]
    assert said(two.recall("boat", scope="", receipt=True)) == ["red", "blue", "green"]
    assert said(hers.recall("boat", receipt=True)) == ["green"]
    assert said(store.recall("boat", scope=[ALICE, BOB], receipt=True)) == ["green"]
    audited = store.audit.receipts()
    assert audited.reproduced == len(audited.receipts) == 4
    assert store.forget(session="one", dry_run=True).questions == 1, "the one that was asked of the whole store"


def test_names_of_existing_logs_stay(store):
    """A session and an agent that have no scope in front are found by the name they have, before a new name is made."""
    store.session("chat", scope=ALICE, agent="assistant").record("user", "a cup of tea")
    store.switch("monday", reason="new", agent="assistant", scope=ALICE)
    for part in (store.within(ALICE), store.within([ALICE, SHARED])):
        assert part.session("chat").id == part.find_session("chat").id == "chat"
        assert part.session("chat", agent="assistant", scope=ALICE).turns()[0].text == "a cup of tea"
        assert part.current("assistant").id == "monday"
        assert part.switch("chat", reason="resume", agent="assistant").id == "chat"
        assert part.switch("monday", reason="resume", agent="assistant").agent == "assistant"
        assert part.recall("tea", session="chat")[0].session == "chat"
    bob = store.within(BOB)
    assert bob.current("assistant") is None
    assert bob.session("chat").id == f"{BOB}/chat"
