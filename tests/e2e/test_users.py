"""Many users in one memory: side by side, together, and over every kind of store. See docs/adr/0051.

A session has one id, given or generated, and an optional title. The scopes and agents of a store can be listed, and
one that does not exist is noticed.
"""

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, connect, errors
from mnemolog.server.http.problems import problem_of
from tests.postgres import put_log_in_postgres
from tests.support import HashEncoder, nothing_written
from tests.through_http import Served

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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


def test_a_session_of_the_same_id_is_found_again_after_a_restart(folder):
    """One session, not two of one name."""
    for text in ("I moved to Lisbon.", "And then to Porto."):
        with MemoryStore.open(folder, model=None) as store:
            store.session("trip").record("user", text)
    with MemoryStore.open(folder, model=None) as store:
        assert [turn.text for turn in store.session("trip").turns()] == ["I moved to Lisbon.", "And then to Porto."]
        assert [item.session for item in store.sessions()] == ["trip"]


def test_session_without_an_id_makes_one(store):
    """Another one each time."""
    ids = {store.session().id, store.session().id, store.start_session().id}
    assert len(ids) == 3
    assert {item.session for item in store.sessions()} == ids


def test_find_session_returns_none_for_an_unknown_id_and_starts_nothing(store):
    """A look is not a start."""
    assert store.find_session("trip") is None
    assert store.head().position == 0
    with pytest.raises(errors.InvalidInput):
        store.find_session("")


def test_start_session_refuses_an_id_that_is_taken(store):
    """Even with the same arguments, and the hint says what to call."""
    store.start_session("trip", scope="acme")
    with pytest.raises(errors.SessionExists, match="'trip'") as refused:
        store.start_session("trip", scope="acme")
    assert "`switch(to='trip', reason='resume')`" in refused.value.hint


@pytest.mark.parametrize("given", [{"agent": "bob"}, {"scope": "acme/bob"}, {"title": "Another"}, {"parent": "home"}])
def test_arguments_that_contradict_the_recorded_ones_are_refused(store, given):
    """The error names the argument with both values; arguments that agree, or are left out, return the session."""
    store.session("home")
    recorded = {"agent": "ada", "scope": "acme/alice", "title": "A trip", "parent": None}
    store.session("trip", **recorded)
    with nothing_written(store):
        assert store.session("trip").title == "A trip"
        assert store.session("trip", **recorded).scope == "acme/alice"
        with pytest.raises(errors.SessionDiffers) as refused:
            store.session("trip", **given)
        ((attribute, value),) = given.items()
        assert isinstance(refused.value, errors.SessionExists)
        assert (refused.value.attribute, refused.value.given, refused.value.recorded) == (
            attribute,
            value,
            recorded[attribute],
        )
        assert repr(value) in str(refused.value)
        assert repr(recorded[attribute]) in str(refused.value)
        assert f"`{attribute}`" in refused.value.hint


def test_many_who_ask_for_a_session_at_once_all_get_the_same(store, folder):
    """It is started once."""
    with MemoryStore.open(folder, model=None) as other, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: (store, other)[n % 2].session("trip", scope="acme").id, range(40)))
    assert set(found) == {"trip"}
    assert store.head().position == 1


def test_a_forgotten_title_contradicts_no_title(store):
    """A script can be run again after its session was forgotten."""
    store.session("trip", title="secret")
    store.forget(session="trip")
    assert store.session("trip", title="secret").title == ""


def test_a_title_is_optional_and_not_unique(store):
    """It is for people; ids tell sessions apart."""
    assert store.session("a").title == ""
    assert store.session("b", title="Trip").title == store.session("c", title="Trip").title == "Trip"
    assert [item.title for item in store.sessions()] == ["", "Trip", "Trip"]


def test_a_branch_and_a_switch_take_a_title_or_keep_that_of_the_session_left(store):
    """As before with names."""
    trip = store.session("trip", title="A trip")
    assert (trip.branch("b").title, trip.branch("c", title="By train").title) == ("A trip", "By train")
    assert store.switch("d", reason="branch", session="trip", title="By plane").title == "By plane"
    assert store.switch("e", reason="new").title == "By plane"


def test_a_handle_is_taken_wherever_an_id_is(store):
    """Also one for asyncio, and for a session that is passed to `session` itself."""
    trip = store.session("trip", scope="acme")
    turn = store.record(trip, "user", "the ferry leaves at noon")
    store.record_many([{"role": "user", "content": "it is late"}], session=trip)
    store.record_many(
        [NewTurn(session=trip, role="user", text="later"), {"role": "user", "text": "x", "session": trip}]
    )
    assert store.recall("ferry", session=trip).hits[0].position == turn.position
    assert store.find("ferry", session=trip)[0].position == turn.position
    assert [item.text for item in store.turns(trip)] == ["the ferry leaves at noon", "it is late", "later", "x"]
    assert len(store.replay(session=trip).sessions) == 1
    assert {moment.session for moment in store.audit.timeline(session=trip)} == {"trip"}
    assert store.session(trip).id == store.find_session(trip).id == "trip"
    store.session("helper", parent=trip)
    assert store.switch("b", reason="branch", session=trip).id == "b"
    assert store.preview_switch(trip, reason="resume", session=trip).to == "trip"
    assert store.switch(trip, reason="resume").id == "trip"
    store.end_session(trip)
    assert store.forget(session=[trip], dry_run=True).sessions == ("trip",)


async def test_a_handle_for_asyncio_is_taken_wherever_an_id_is(folder):
    """By the calls of that side."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        trip = await store.session("trip")
        await store.record(trip, "user", "the ferry leaves at noon")
        assert len((await store.recall("ferry", session=trip)).hits) == 1
        assert (await store.switch("b", reason="branch", session=trip)).id == "b"
        assert (await store.switch(trip, reason="resume")).id == "trip"
        assert [moment.session async for moment in store.audit.timeline(session=trip)] == ["trip"] * 2
        await store.end_session(trip)
        assert (await store.forget(session=trip, dry_run=True)).sessions == ("trip",)


@pytest.mark.parametrize("given", [7, None, b"trip", object()])
def test_what_is_neither_a_handle_nor_an_id_is_refused_by_name(store, given):
    """Instead of an error from deep within; a session as it was is no handle on it."""
    for call in (
        lambda: store.end_session(given),
        lambda: store.turns(given),
        lambda: store.record(given, "user", "x"),
        lambda: store.find_session(given),
    ):
        with pytest.raises(errors.InvalidInput, match="expected a session or its id"):
            call()
    store.session("trip")
    with pytest.raises(errors.InvalidInput, match=r"got (Remote)?SessionAt"):
        store.recall("x", session=store.session("trip").at(1))


def test_an_unknown_session_names_the_three_closest_ids(store):
    """In every call, for readers as for writers, and nothing is started."""
    for name in ("trip", "trip-2", "tour", "invoices"):
        store.session(name)
    with nothing_written(store):
        for call in (
            lambda: store.record("tripp", "user", "x"),
            lambda: store.record_many([NewTurn(session="tripp", role="user", text="x")]),
            lambda: store.end_session("tripp"),
            lambda: store.turns("tripp"),
            lambda: store.recall("x", session="tripp"),
            lambda: store.find("x", session="tripp"),
            lambda: store.replay(session="tripp"),
            lambda: store.forget(session="tripp"),
            lambda: store.switch("tripp", reason="resume"),
            lambda: store.switch("new", reason="new", session="tripp"),
            lambda: store.preview_switch("tripp", reason="resume"),
            lambda: store.session("new", parent="tripp"),
            lambda: store.start_session(parent="tripp"),
            lambda: store.audit.timeline(session="tripp"),
        ):
            with pytest.raises(errors.UnknownSession) as refused:
                call()
            assert str(refused.value) == "there is no session 'tripp'; the closest ids are 'trip', 'trip-2', 'tour'"
            assert "nothing was written" not in refused.value.hint


def test_a_title_given_as_an_id_is_answered_with_the_id(store):
    """With the id to use instead."""
    made = store.session(title="A trip to Lisbon")
    store.sessions()
    with pytest.raises(errors.UnknownSession) as refused:
        store.turns("A trip to Lisbon")
    assert str(refused.value) == f"there is no session 'A trip to Lisbon'; one has that title: '{made.id}'"


def test_an_unknown_session_is_still_unknown_where_the_views_cannot_be_read(store):
    """The suggestions are left out."""
    store.session("trip")
    store.sessions()
    (store.path / "projections" / "views.db").write_bytes(b"this is no database" * 400)
    for part in ("-wal", "-shm"):
        (store.path / "projections" / f"views.db{part}").unlink(missing_ok=True)
    with MemoryStore.open(store.path, model=None) as other, pytest.raises(errors.UnknownSession):
        other.end_session("tripp")


def test_an_ended_session_says_how_to_reopen_it(store):
    """In the hint."""
    trip = store.session("trip")
    trip.end()
    with pytest.raises(errors.SessionAlreadyEnded) as refused:
        trip.record("user", "One more thing.")
    assert "`switch(to='trip', reason='resume')`" in refused.value.hint
    store.switch("trip", reason="resume")
    trip.record("user", "One more thing.")


@pytest.mark.parametrize("of", ["trip", "home"])
def test_a_branch_into_a_session_that_is_there_is_refused(store, of):
    """Be it another session, a branch of another one, or a branch at another point; the same branch is a retry."""
    for name in ("trip", "home"):
        store.session(name).record("user", f"said in {name}")
    store.session("other").record("user", "said elsewhere")
    made = store.session("trip").branch("side")
    head = store.head()
    for to, how in (("other", {}), ("side", {"title": "Another"}), ("side", {"at": head.position})):
        with pytest.raises(errors.SessionExists, match=to):
            store.session(of).branch(to, **how)
    if of == "home":
        with pytest.raises(errors.SessionExists):
            store.session(of).branch("side")
    else:
        assert store.session(of).branch("side").lineage() == made.lineage() == ["trip", "side"]
    assert store.head() == head
    assert [turn.text for turn in store.session("other").turns()] == ["said elsewhere"]


@pytest.fixture
def several(folder):
    """Three sessions of two agents in two scopes, and one without a scope."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("a", agent="ada", scope="acme/support/alice", title="A trip to Lisbon").record(
            "user", "the ferry"
        )
        store.session("b", agent="ada", scope="acme/support/alice").record("user", "the ferry again")
        store.session("c", agent="bob", scope="acme/sales", title="INVOICES")
        store.session("d", agent="bob")
        store.switch("c", reason="resume", agent="bob")
        yield store


def test_scopes_lists_each_scope_with_its_sessions_and_turns(several):
    """Sorted; sessions without a scope count too."""
    assert [(item.scope, item.sessions, item.turns) for item in several.scopes()] == [
        ("", 1, 0),
        ("acme/sales", 1, 0),
        ("acme/support/alice", 2, 2),
    ]


def test_agents_lists_each_agent_with_the_session_it_is_in(several):
    """None for an agent that was never switched."""
    assert [(item.agent, item.sessions, item.turns, item.current) for item in several.agents()] == [
        ("ada", 2, 2, None),
        ("bob", 2, 0, "c"),
    ]


def test_sessions_are_filtered_by_agent_title_and_start(several):
    """A title by a part of it, in any case; a start by a time or its text."""
    assert [item.session for item in several.sessions(agent="bob")] == ["c", "d"]
    assert [item.session for item in several.sessions(title="lisbon")] == ["a"]
    assert [item.session for item in several.sessions(title="invoice", scope="acme", agent="bob")] == ["c"]
    assert several.sessions(title="nothing like it") == []
    third = several.sessions()[2].started_at
    assert [item.session for item in several.sessions(since=third)] == ["c", "d"]
    assert [item.session for item in several.sessions(since=third.isoformat())] == ["c", "d"]
    assert several.sessions(since=several.sessions()[-1].started_at + timedelta(days=1)) == []
    with pytest.raises(errors.InvalidInput, match="since"):
        several.sessions(since="some day")


@pytest.mark.local
@pytest.mark.parametrize("scope", ["acm", "Acme/support", "acme/support/alic"])
def test_a_scope_that_no_session_has_is_a_warning_that_names_the_closest_ones(several, scope):
    """In every call that takes one, where it was called."""
    for call in (
        lambda: several.recall("ferry", scope=scope),
        lambda: several.find("ferry", scope=scope),
        lambda: several.context("ferry", scope=scope),
        lambda: several.sessions(scope=scope),
        lambda: several.forget(scope=scope, dry_run=True),
    ):
        with pytest.warns(errors.ScopeWarning) as warned:
            assert not getattr(call(), "events", 0)
        (warning,) = warned
        assert str(warning.message) == (
            f"no session is at or below the scope {scope!r}; the closest scopes: "
            + ("acme/sales, acme/support/alice" if scope == "acm" else "acme/support/alice, acme/sales")
        )
        assert warning.filename == __file__


def test_a_scope_that_sessions_have_is_no_warning_even_if_nothing_is_found(several):
    """The scope itself, one above it, and none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scope in ("acme/sales", "acme", ""):
            assert several.recall("no such thing", scope=scope).hits == ()
            assert several.find("no such thing", scope=scope) == []
            assert several.sessions(scope=scope, agent="nobody") == []


def test_an_empty_store_warns_that_no_session_has_a_scope(folder):
    """Instead of naming scopes that are not there."""
    with (
        MemoryStore.open(folder, model=None) as store,
        pytest.warns(errors.ScopeWarning, match="no session has a scope"),
    ):
        store.recall("ferry", scope="acme")


def test_a_store_of_one_scope_lists_only_what_is_in_it(several, folder):
    """Also in a warning, and among the closest ids."""
    with MemoryStore.open(folder, model=None, scope="acme/sales") as bound:
        assert [item.scope for item in bound.scopes()] == ["acme/sales"]
        assert [(item.agent, item.sessions) for item in bound.agents()] == [("bob", 1)]
        with pytest.warns(errors.ScopeWarning, match=r"the closest scopes: acme/sales$"):
            bound.sessions(scope="acme/sales/x")
        with pytest.raises(errors.UnknownSession) as refused:
            bound.turns("a")
        assert refused.value.closest == ("c",)


def test_the_command_line_lists_scopes_agents_and_filtered_sessions(several, folder, run):
    """As tables and as JSON."""
    assert run("scopes", folder, "--json").json == json.loads(several.scopes().to_json())
    assert run("agents", folder, "--json").json == json.loads(several.agents().to_json())
    assert "acme/support/alice" in run("scopes", folder).stdout
    assert run("agents", folder).stdout.splitlines()[-1].split() == ["bob", "2", "0", "c"]

    def listed(*options):
        return [item["session"] for item in run("sessions", folder, *options, "--json").json]

    assert listed("--agent", "ada") == ["a", "b"]
    assert listed("--title", "LISBON") == ["a"]
    assert listed("--since", "1 hour ago") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("command", ["recall", "find", "sessions", "forget"])
def test_a_scope_that_no_session_has_is_an_error_on_the_command_line(several, folder, run, command):
    """With the closest scopes, the command that lists them, and exit status 1."""
    words = {"recall": ["ferry", "--model", "none"], "find": ["ferry"], "sessions": [], "forget": ["--yes"]}[command]
    ran = run(command, folder, *words, "--scope", "acme/suport").exited(1)
    assert "error: no session is at or below the scope 'acme/suport'; the closest scopes: " in ran.stderr
    assert f"hint: `mnemolog scopes {folder}` lists the scopes" in ran.stderr
