"""A store that was opened for a scope: nothing outside of it can be read or written, by any call.

What a caller that is bound to scopes forgets and distrusts: all that it may reach, and nothing outside.
"""

import inspect
import shutil
import threading
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, Session, errors
from mnemolog.audit.service import AuditService
from mnemolog.domain.events import AssertFact, EndStanding, Forget, ForgetRequested
from mnemolog.domain.forgetting import NOTHING_OUTSIDE
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from tests.support import FakeClock, HashEncoder

pytestmark = pytest.mark.local


ALICE, BOB = "acme/alice", "acme/bob"
SECRET = "the sentinel is heliotrope"
"""In everything that belongs to Bob."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store of two users. `foreign` is Alice's by its scope, but inherits what Bob said."""
    folder = tmp_path_factory.mktemp("template") / "memory"
    with MemoryStore.open(folder, model=None) as store:
        bob = store.session("bob", scope=BOB, agent="both", title=SECRET)
        bob.record("user", SECRET, key="b1", speaker=SECRET)
        bob.record("user", f"Always answer in {SECRET}")
        bob.set("colour", SECRET)
        bob.note(SECRET)
        bob.set_task(SECRET)
        bob.checkpoint(SECRET)
        alice = store.session("alice", scope=ALICE, agent="hers")
        alice.record("user", "the sentinel is mine", key="a1")
        alice.checkpoint("hers")
        below = store.session("trip", scope=f"{ALICE}/trips", agent="hers")
        below.record("user", "the sentinel went to Lisbon")
        store.switch("foreign", reason="branch", session="bob", agent="both", scope=ALICE)
        store.switch("bob", reason="resume", agent="both")
        store.recall("sentinel", scope=BOB, receipt=True)
        store.assert_fact("colour", SECRET, scope=BOB, maker=SECRET)
        store.propose(AssertFact("colour", SECRET), scope=BOB, why=SECRET)
    return folder


@pytest.fixture
def folder(template, tmp_path):
    """A copy of that store."""
    return shutil.copytree(template, tmp_path / "memory")


@contextmanager
def bound(folder, way):
    """The store for Alice: opened for her, or a part of one that was opened for everybody."""
    if way == "opened":
        with MemoryStore.open(folder, model=None, synchronous="NORMAL", scope=ALICE) as store:
            yield store
    else:
        with MemoryStore.open(folder, model=None, synchronous="NORMAL") as whole:
            yield whole.within("acme").within(ALICE)


def texts(found):
    """What was found, as the lines of its JSON: nothing of it can hide in a repr."""
    if inspect.isgenerator(found) or isinstance(found, filter):
        found = list(found)
    if isinstance(found, Session):
        found = [found.id, found.title, found.scope, found.turns(), found.all(), found.notes(), found.task()]
    return msgspec.json.encode(found).decode()


REFUSED = (errors.OutsideScope, errors.UnknownSession, errors.SessionExists, errors.InvalidInput)
"""What a call that concerns something outside may raise."""

# Each public method with calls that try to read or to write what is outside.
STORE = {
    "open": [],
    "within": [
        lambda s: s.within("").recall("sentinel", k=50),
        lambda s: s.within(ALICE).events(),
        lambda s: s.within(BOB),
        lambda s: s.within("acme"),
    ],
    "close": [],
    "session": [
        lambda s: s.session("bob"),
        lambda s: s.session("foreign"),
        lambda s: s.session("new", scope=BOB),
        lambda s: s.session("new", parent="bob"),
        lambda s: s.session("new", scope="acme"),
    ],
    "start_session": [lambda s: s.start_session("bob"), lambda s: s.start_session("new", scope=BOB)],
    "find_session": [lambda s: s.find_session("bob"), lambda s: s.find_session("foreign")],
    "end_session": [lambda s: s.end_session("bob")],
    "record": [lambda s: s.record("bob", "user", "x"), lambda s: s.record("bob", "user", SECRET, key="b1")],
    "record_many": [
        lambda s: s.record_many(
            [NewTurn(session="alice", role="user", text="x"), NewTurn(session="bob", role="user", text="y")]
        ),
        lambda s: s.record_many([NewTurn(session="foreign", role="user", text="y")]),
    ],
    "assert_fact": [
        lambda s: s.assert_fact("colour", "red", scope=BOB),
        lambda s: s.assert_fact("colour", "red", corrects=s.head().position),
    ],
    "propose": [
        lambda s: s.propose(AssertFact("colour", "red"), scope=BOB),
        lambda s: s.propose(Forget(session=["bob"])),
        lambda s: s.propose(EndStanding(2, reason="x")),
    ],
    "proposals": [lambda s: s.proposals(state=None), lambda s: s.proposals(scope="acme")],
    "approve": [lambda s: [s.approve(place) for place in (s.head().position, 1)]],
    "decline": [lambda s: s.decline(s.head().position, reason="x")],
    "retract_fact": [lambda s: s.retract_fact(s.head().position)],
    "retract_facts": [lambda s: s.retract_facts(maker=SECRET), lambda s: s.retract_facts(maker=SECRET, scope="acme")],
    "fact": [lambda s: s.fact("colour"), lambda s: s.fact("colour", scope=BOB)],
    "facts": [lambda s: s.facts(), lambda s: s.facts(scope="acme")],
    "fact_history": [lambda s: s.fact_history("colour"), lambda s: s.fact_history("colour", scope=BOB)],
    "scopes": [lambda s: s.scopes()],
    "agents": [lambda s: s.agents()],
    "sessions": [lambda s: s.sessions(), lambda s: s.sessions(scope="acme"), lambda s: s.sessions(scope=BOB)],
    "turns": [lambda s: s.turns("bob"), lambda s: s.turns("foreign")],
    "switch": [
        lambda s: s.switch("bob", reason="resume", agent="hers"),
        lambda s: s.switch("mine", reason="branch", session="bob"),
        lambda s: s.switch("mine", reason="new", agent="both"),
        lambda s: s.switch("alice", reason="resume", agent="both"),
        lambda s: s.switch("mine", reason="new", agent="hers", scope=BOB),
        lambda s: s.switch("bob", reason="new", agent="hers"),
    ],
    "preview_switch": [
        lambda s: s.preview_switch("mine", reason="branch", session="bob"),
        lambda s: s.preview_switch("bob", reason="resume", agent="hers"),
    ],
    "current": [lambda s: s.current("both")],
    "head": [lambda s: s.head()],
    "events": [lambda s: s.events()],
    "replay": [lambda s: s.replay(), lambda s: s.replay(session="bob")],
    "recall": [
        lambda s: s.recall("sentinel", k=50, context_turns=5, exchange=True),
        lambda s: s.recall("sentinel", scope="acme"),
        lambda s: s.recall("sentinel", scope=BOB),
        lambda s: s.recall("sentinel", session="bob"),
        lambda s: s.recall("sentinel", session="bob", lineage=True, exchange=True),
        lambda s: s.recall("sentinel", session="foreign", lineage=True),
    ],
    "context": [
        lambda s: s.context("sentinel", 20_000),
        lambda s: s.context("sentinel", scope=BOB),
        lambda s: s.context("sentinel", session="bob", lineage=True),
    ],
    "standing": [
        lambda s: s.standing(),
        lambda s: s.standing("sentinel", scope=BOB),
        lambda s: s.standing(session="bob"),
        lambda s: s.standing(session="foreign"),
    ],
    "find": [
        lambda s: s.find("sentinel"),
        lambda s: s.find("sentinel", hidden=True),
        lambda s: s.find("sentinel", scope=BOB),
        lambda s: s.find("sentinel", session="bob"),
    ],
    "position_at": [lambda s: s.position_at("2026-03-16")],
    "forget": [
        lambda s: s.forget(session="bob"),
        lambda s: s.forget(scope="acme"),
        lambda s: s.forget(scope=BOB),
        lambda s: s.forget(positions=[2]),
        lambda s: s.forget(session="bob", dry_run=True),
    ],
    "end_standing": [lambda s: s.end_standing(2, reason="x")],
    "distrust": [
        lambda s: s.distrust(positions=[2], reason="x"),
        lambda s: s.distrust(session="bob", reason="x"),
        lambda s: s.distrust(actor="x", reason="x"),
        lambda s: s.distrust(maker=SECRET, reason="x", dry_run=True).covers,
        lambda s: s.distrust(maker=SECRET[::-1], reason="x"),
    ],
    "trust_again": [lambda s: s.trust_again(s.head().position)],
    "distrusts": [lambda s: s.distrusts()],
    "verify": [lambda s: s.verify()],
    "status": [lambda s: s.status()],
    "backup": [lambda s: s.backup(s.path.parent / "copy")],
    "rebuild": [lambda s: s.rebuild("views"), lambda s: s.rebuild(dry_run=True)],
}
AUDIT = {
    "append_head": [lambda s: s.audit.append_head(s.path.parent / "heads")],
    "timeline": [lambda s: s.audit.timeline(), lambda s: s.audit.timeline(session="bob")],
    "event": [lambda s, at=at: s.audit.event(at) for at in range(1, 8)],
    "diff": [lambda s: s.audit.diff(0)],
    "export": [lambda s: s.audit.export(s.path.parent / "log.jsonl")],
    "subject": [lambda s: s.audit.subject(s.path.parent / "bob.zip", scope=BOB)],
    "receipts": [lambda s: s.audit.receipts()],
    "effects": [lambda s: s.audit.effects(2)],
    "judge": [lambda s: s.audit.judge(1, nothing=True)],
    "scan_secrets": [lambda s: s.audit.scan_secrets()],
    "judgements": [lambda s: s.audit.judgements()],
    "forgotten": [lambda s: s.audit.forgotten()],
    "erasures": [lambda s: s.audit.erasures()],
    "pending_erasures": [lambda s: s.audit.pending_erasures()],
}
MODELS = {
    "list": [lambda s: s.models.list()],
    "add": [lambda s: s.models.add("some/model")],
    "activate": [lambda s: s.models.activate("some/model")],
    "drop": [lambda s: s.models.drop("some/model")],
    "load": [],
}
ADMIN = {
    "doctor": [lambda s: s.admin.doctor()],
    "quarantine": [lambda s: s.admin.quarantine()],
    "catch_up_views": [lambda s: s.admin.catch_up_views()],
    "catch_up_vectors": [lambda s: s.admin.catch_up_vectors()],
    "language": [lambda s: s.admin.language()],
    "set_language": [lambda s: s.admin.set_language("de")],
    "redaction": [lambda s: s.admin.redaction()],
    "set_redaction": [lambda s: s.admin.set_redaction(True)],
    "retention": [lambda s: s.admin.retention()],
    "set_retention": [lambda s: s.admin.set_retention(BOB, max_age="1d")],
    "apply_retention": [lambda s: s.admin.apply_retention()],
    "hold": [lambda s: s.admin.hold(ALICE, reason="x")],
    "lift_hold": [lambda s: s.admin.lift_hold(2, reason="x")],
    "nodes": [lambda s: s.admin.nodes()],
    "remove_node": [lambda s: s.admin.remove_node("0123")],
    "create_token": [lambda s: s.admin.create_token("bob"), lambda s: s.admin.create_token("bob", scopes=[ALICE])],
    "tokens": [lambda s: s.admin.tokens()],
    "rotate_token": [lambda s: s.admin.rotate_token("0123")],
    "revoke_token": [lambda s: s.admin.revoke_token("0123")],
    "reapply_erasures": [lambda s: s.admin.reapply_erasures([])],
}
SURFACE = {MemoryStore: STORE, AuditService: AUDIT, ModelService: MODELS, AdminService: ADMIN}


@pytest.mark.parametrize("kind", SURFACE)
def test_every_public_call_is_in_the_table(kind):
    """A new method cannot be added without saying what it does in a bound store."""
    public = {name for name, _ in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}
    assert public == set(SURFACE[kind])


@pytest.mark.parametrize("way", ["opened", "within"])
@pytest.mark.parametrize("kind", SURFACE)
def test_no_call_reads_or_writes_outside(template, tmp_path, kind, way):
    """It is refused, or gives nothing of Bob's; and Bob's part of the log has not changed."""
    for name, calls in SURFACE[kind].items():
        for number, call in enumerate(calls):
            folder = shutil.copytree(template, tmp_path / f"{name}-{number}" / "memory")
            with bound(folder, way) as store:
                try:
                    given = texts(call(store))
                except REFUSED as error:
                    given = str(error)
            assert "heliotrope" not in given, (name, number)
            # Nobody learns that an id is taken.
            assert "outside of the scope of this store" not in given, (name, number)
            require_unchanged(folder)


def require_unchanged(folder):
    """Fail if anything of Bob's has changed, or anything was made outside of Alice's scope."""
    assert [path.name for path in folder.parent.iterdir()] == ["memory"], folder
    with MemoryStore.open(folder, model=None, synchronous="NORMAL") as store:
        assert [event.version for event in store.events() if event.stream == "session/bob"] == list(range(1, 8))
        assert [event.version for event in store.events() if event.stream == "session/foreign"] == [1]
        made = [item for item in store.sessions() if item.session not in ("alice", "bob", "foreign", "trip")]
        assert all(item.scope.startswith(ALICE) for item in made)
        assert all(item.session.startswith(f"{ALICE}/") for item in made)
        assert len(store.sessions()) - len(made) == 4
        assert store.current("both").id == "bob"
        assert store.fact("colour", scope=BOB).value == SECRET


@pytest.mark.parametrize("way", ["opened", "within"])
def test_all_calls_work_inside_the_scope_and_below_it(folder, way):
    """Sessions, recall, working memory, switches, history, forgetting."""
    with bound(folder, way) as store:
        alice = store.session("alice")
        turn = alice.record("user", "the sentinel has a twin")
        assert store.session("fresh").scope == ALICE, "the scope of the store is the default"
        assert {item.session for item in store.sessions()} == {"alice", "trip", f"{ALICE}/fresh"}
        assert {hit.session for hit in store.recall("sentinel").hits} == {"alice", "trip"}
        assert {hit.session for hit in store.recall("sentinel", scope=f"{ALICE}/trips").hits} == {"trip"}
        alice.set("colour", "blue")
        assert alice.branch("branched").get("colour") == "blue"
        assert store.switch("next", reason="new", agent="hers", session="alice").scope == ALICE
        assert store.switch("first", reason="new", agent="unheard").scope == ALICE
        assert store.current("hers").id == f"{ALICE}/next"
        assert {item.session for item in store.replay().sessions} >= {"alice", "trip", f"{ALICE}/next"}
        assert {event.stream for event in store.events()} >= {"session/alice", f"agent/{ALICE}/hers"}
        assert store.audit.event(turn.position).event.text == "the sentinel has a twin"
        assert [item.session for item in store.audit.diff(turn.position - 1, turn.position).sessions] == ["alice"]
        assert {moment.session for moment in store.audit.timeline()} >= {"alice", "trip"}
        assert alice.prefetch("sentinel", scope="").wait(10)
        assert {hit.session for hit in alice.prefetch_result().recall.hits} == {"alice", "trip"}
        assert store.forget(positions=[turn.position]).events == 1
        assert store.forget(scope=f"{ALICE}/trips").sessions == ("trip",)


def test_the_history_of_a_part_decodes_nothing_of_others(tmp_path, monkeypatch):
    """However much they recorded, and however large: of each of their sessions the first event alone is read, once."""
    with MemoryStore.open(tmp_path / "memory", model=None) as whole:
        alice = whole.session("alice", scope=ALICE, agent="hers")
        for number in range(3):
            alice.record("user", f"tea {number}")
            whole.session("bob", scope=BOB).record("user", f"{SECRET} {number}")
        part, head, decoded = whole.within(ALICE), whole.head().position, []
        decode = EventCodec.recorded_event

        def counted(self, *row):
            decoded.append((row[1], row[2]))
            return decode(self, *row)

        monkeypatch.setattr(EventCodec, "recorded_event", counted)
        assert [moment.session for moment in part.audit.timeline()] == ["alice"] * 4
        assert len(list(part.events())) == 4
        assert part.replay().position == head
        assert [item.session for item in part.audit.diff(0).sessions] == ["alice"]
        assert [row for row in decoded if "bob" in row[0]] == [("session/bob", 1)]


@pytest.fixture
def own(folder):
    """A part of a store for Alice."""
    with MemoryStore.open(folder, model=None) as store:
        yield store.within(ALICE)


def test_names_are_relative_to_the_scope(own):
    """Of new sessions and agents; without a name each gets one. With the scope in front it is the same name."""
    assert own.session("new").id == own.session(f"{ALICE}/new").id == f"{ALICE}/new"
    assert own.session("new", agent="agent").agent == f"{ALICE}/agent"
    assert own.start_session().id.startswith(f"{ALICE}/")
    assert own.switch(reason="new").id.startswith(f"{ALICE}/")
    assert own.current().agent == own.current(f"{ALICE}/agent").agent == f"{ALICE}/agent"
    assert own.session("new").branch().id.startswith(f"{ALICE}/")
    assert own.start_session(agent="planner").agent == f"{ALICE}/planner"
    assert own.session("alice").turns()[0].text == "the sentinel is mine", "what is inside keeps its name"
    assert own.session("alice", agent="hers").agent == "hers"
    with pytest.raises(errors.SessionDiffers):
        own.session("alice", agent="agent")


@pytest.mark.parametrize("name", ["bob", "both", "none", "foreign", "acme/bob/x"])
def test_a_name_is_free_whether_others_use_it_or_not(own, name):
    """`bob`, `both` and `foreign` are taken outside: here they are new sessions and agents."""
    full = f"{ALICE}/{name}"
    assert own.find_session(name) is None
    assert own.current(name) is None
    assert own.preview_switch(name, reason="new").to == full
    assert own.session(name).id == own.session(name).id == own.find_session(name).id == full
    assert own.switch(f"{name}2", reason="new", agent=name).agent == own.current(name).agent == full
    assert own.record(name, "user", "x").session == own.turns(name)[0].session == full
    assert own.record_many([NewTurn(session=name, role="user", text="y")])[0].session == full
    assert own.switch(f"{name}3", reason="branch", session=name, agent=name).lineage()[0] == full
    assert own.session("new", parent=name).id == own.session("new", parent=name).id
    assert own.recall("x", session=name)[0].session == own.find("x", session=name)[0].session == full
    assert {moment.session for moment in own.audit.timeline(session=name)} == {full}
    assert own.forget(session=name).sessions == (full,)
    own.end_session(name)


def test_a_session_outside_is_read_no_further_than_its_first_event(folder, monkeypatch):
    """However long it is, the answer takes as long as for an id that nobody has."""
    with MemoryStore.open(folder, model=None) as store:
        bob = store.session("bob")
        for number in range(50):
            bob.set(f"k{number}", number)
        hers, asked = store.within(ALICE), []
        for name in ("first_event", "fold"):
            method = getattr(store.parts.log, name)
            counted = partial(
                lambda name, method, *args, **how: asked.append((name, args[0])) or method(*args, **how), name, method
            )
            monkeypatch.setattr(store.parts.log, name, counted)
        for call in (lambda s: s.turns("bob"), lambda s: s.record("bob", "user", "x"), lambda s: s.find_session("bob")):
            with suppress(errors.UnknownSession):
                call(hers)
        assert ("first_event", "session/bob") in asked
        assert ("fold", "session/bob") not in asked


def test_a_scope_covers_what_is_below_it_and_no_similar_name(folder, tmp_path):
    """Opened for `acme`, the store has both users, and the branch of one from the other. `acme/al` has none of them."""
    with MemoryStore.open(folder, model=None, scope="acme") as store:
        assert {item.session for item in store.sessions()} == {"alice", "bob", "foreign", "trip"}
        assert store.session("foreign").turns()[0].text == SECRET
    with MemoryStore.open(folder, model=None, scope="acme/al") as store:
        assert store.sessions() == []
        assert store.find_session("alice") is None
        assert store.session("bob").id == "acme/al/bob"
    for invalid in ("/acme", "acme//alice", "acme/*"):
        with pytest.raises(errors.InvalidInput, match="scope"):
            MemoryStore.open(tmp_path / "new", model=None, scope=invalid)
    assert not (tmp_path / "new").exists()


def test_a_part_of_a_store_shares_its_log_and_leaves_it_open(folder):
    """What the one records, the other sees at once; closing the part closes nothing of the whole."""
    with MemoryStore.open(folder, model=None) as store:
        with store.within(ALICE) as hers:
            turn = hers.session("alice").record("user", "a quokka")
            assert store.recall("quokka").hits[0].position == turn.position
            store.record("bob", "user", "another quokka")
            assert [hit.position for hit in hers.recall("quokka").hits] == [turn.position]
            assert hers.parts.log is store.parts.log
            assert hers.parts.projections is store.parts.projections
        store.record("bob", "user", "still open")
    with pytest.raises(errors.StoreClosed):
        hers.record("alice", "user", "closed with the store")


def test_many_parts_of_a_store_cost_nothing_that_lasts(folder):
    """One for each request: no file is opened and no thread is started."""

    def costs():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    with MemoryStore.open(folder, model=None) as store:
        assert len(store.within(ALICE).sessions()) == 2  # Files are opened by the first read.
        before = costs()
        parts = [store.within(ALICE) for _ in range(1_000)]
        assert {len(part.sessions()) for part in parts[:10]} == {2}
        files, threads = costs()
        assert files <= before[0]  # Some of another test may be closed meanwhile.
        assert threads <= before[1]


async def test_a_part_for_asyncio_is_made_at_once_and_leaves_the_store_open(folder):
    """`within` is no coroutine: a server calls it for each request."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        async with store.within(ALICE) as hers:
            assert await hers.find_session("bob") is None
            assert {item.session for item in await hers.sessions()} == {"alice", "trip"}
        assert len(await store.sessions()) == 4


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_a_recall_says_nothing_of_the_words_of_others(tmp_path, mode):
    """Two stores with other words in other scopes: hits, relevance and all parts of the score are the same."""

    def answers(folder, theirs):
        with MemoryStore.open(folder, model=HashEncoder(), clock=FakeClock(), background=False) as store:
            for number in range(30):
                store.session("bob", scope=BOB).record("user", f"{theirs} {number}")
                if number % 10 == 0:
                    store.session("alice", scope=ALICE).record("user", f"the quokka {number} met a wombat at noon")
                    store.session("alice").record("user", f"a wombat {number} sleeps")
            hers, whole = store.within(ALICE), partial(store.recall, scope=ALICE)
            asked = [(query, k) for query in ("quokka wombat", "quokka", "wombat noon 10") for k in (2, 10)]
            found = [[ask(query, k, mode=mode) for query, k in asked] for ask in (hers.recall, whole)]
            again = [hers.recall("quokka wombat", 1, mode=mode, after=hers.recall("quokka wombat", 1, mode=mode).next)]
            hers.recall("quokka wombat", mode=mode, receipt=True)
            hers.context("quokka wombat", receipt=True)
            assert store.audit.receipts().reproduced == 2
            return [[msgspec.to_builtins(hit) for hit in answer.hits] for answer in (*found[0], *again)], [
                [msgspec.to_builtins(hit) for hit in answer.hits] for answer in found[1]
            ]

    (one, first), (two, second) = (
        answers(tmp_path / "one", "a quokka met a quokka at noon"),
        answers(tmp_path / "two", "some zebra met a zebra at ten"),
    )
    assert one == two
    assert first != second, "asked of the whole store, the words of others count"


def test_a_context_has_the_own_turns_of_a_session_that_inherits_from_outside(tmp_path):
    """As `recall` and `find` do: they were said inside. What it inherits is not shown beside them."""
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.session("theirs", scope=BOB).record("user", f"{SECRET}: a quokka")
        store.switch("foreign", reason="branch", session="theirs", scope=ALICE)
        store.record("foreign", "user", "the quokka went to Porto")
        hers = store.within(ALICE)
        text = hers.context("quokka").text
        assert "the quokka went to Porto" in text
        assert SECRET not in text
        assert hers.recall("quokka", context_turns=3)[0].before == ()


OUTSIDE = "heliotrope"
"""In everything that is outside: names, keys, questions."""
SAID = "555-0175"
PAGES = ("forgetting.md", "adr/0051-what-a-scope-owns.md", "adr/0056-facts-with-two-times.md")


def filled(folder, *, crowded):
    """A store with Alice's session; `crowded` also with what others have that refers to it, or that it refers to."""
    store = MemoryStore.open(folder, model=None, synchronous="NORMAL")
    turn = store.session("alice", scope=ALICE, agent="hers").record("user", f"my number is {SAID}").position
    store.assert_fact("phone", SAID, because=[turn], scope=ALICE)
    store.recall("number", scope=ALICE, receipt=True)
    store.recall("ferry", session="alice", receipt=True)
    made = {}
    if crowded:
        store.session(OUTSIDE, scope=BOB, agent=OUTSIDE).record("user", f"the {OUTSIDE} number")
        store.switch(f"{OUTSIDE}-branch", reason="branch", session="alice", agent=OUTSIDE, scope=BOB)
        made["fact"] = store.assert_fact(f"{OUTSIDE}/phone", SAID, because=[turn], scope=BOB, maker=OUTSIDE).position
        made["root fact"] = store.assert_fact(f"{OUTSIDE}/root", SAID, because=[turn]).position
        made["found"] = store.recall(f"number {OUTSIDE}", receipt=True).receipt
        made["showed"] = store.context(f"number {OUTSIDE}", 500, receipt=True).receipt
        made["above"] = store.recall(f"{OUTSIDE} {SAID}", scope="acme", roles=["tool"], receipt=True).receipt
        made["several"] = store.recall(f"number {OUTSIDE}", scope=[ALICE, BOB], receipt=True).receipt
        made["beside"] = store.recall(f"number {OUTSIDE}", scope=BOB, receipt=True).receipt
    return store, turn, made


def without_places(report):
    """What a report says, without positions, digests, times, ids and the versions of streams that all share."""

    def plain(value, name=""):
        if isinstance(value, dict):
            return {key: plain(item, key) for key, item in value.items()}
        if name in ("position", "digest", "log_id", "request", "requested_at", "asked_at", "positions", "versions"):
            return None
        return [plain(item) for item in value] if isinstance(value, list) else value

    return plain(msgspec.json.decode(report.to_json()))


NAMED = {
    "a turn": lambda turn: {"positions": turn},
    "a session": lambda _: {"session": "alice"},
    "a scope": lambda _: {"scope": ALICE},
    "a turn, and questions stay": lambda turn: {"positions": turn, "questions": False},
}


@pytest.mark.parametrize("named", NAMED)
def test_a_bound_forget_reaches_and_names_nothing_outside(tmp_path, named):
    """Facts of other scopes that rest on it and receipts that found or showed it stay; report, dry run and certificate
    are those of a store that has nothing outside. An unbound request reaches the same things."""
    said = []
    for name in ("alone", "crowded"):
        store, turn, made = filled(tmp_path / name, crowded=name == "crowded")
        with store, store.within(ALICE) as part:
            would = part.forget(**NAMED[named](turn), dry_run=True)
            done = part.forget(**NAMED[named](turn), reason="asked for")
            assert {would.outside, done.outside} == {NOTHING_OUTSIDE}
            assert [item.says for item in done.certificate.remains if item.kind == "scopes"] == [NOTHING_OUTSIDE]
            assert OUTSIDE not in would.to_json() + done.to_json()
            gone = {item.position for item in store.audit.forgotten()}
            assert turn in gone
            assert not gone & {*made.values()}
            said.append((without_places(would), without_places(done)))
            (asked,) = (item.event for item in store.events() if isinstance(item.event, ForgetRequested))
            assert {target.stream for target in asked.targets} <= {"session/alice", f"facts/{ALICE}", "recalls"}
            assert SAID not in part.session("alice").get("phone", "") + part.context("number", 500).text
            assert part.fact("phone") is None
            if made:
                assert store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID
                store.forget(**{"positions": turn} | NAMED[named](turn), reason="asked again")
                gone = {item.position for item in store.audit.forgotten()}
                kept = {"above", "beside"} if "questions" in NAMED[named](turn) else set()
                assert {name for name, at in made.items() if at not in gone} == kept
    assert said[0] == said[1]


@pytest.mark.parametrize("forgotten", [False, True])
def test_evidence_outside_does_not_keep_a_fact_inside(tmp_path, forgotten):
    """Whether a turn outside was forgotten changes nothing that a bound caller sees."""
    with MemoryStore.open(tmp_path / "m", model=None) as store:
        turns = [store.session(name, scope=f"acme/{name}").record("user", SAID).position for name in ("alice", "bob")]
        store.assert_fact("phone", SAID, because=turns, scope=ALICE)
        if forgotten:
            store.forget(positions=turns[1])
        with store.within(ALICE) as part:
            assert part.forget(positions=turns[0], dry_run=True).dependents == 1


def test_a_bound_distrust_does_not_reach_facts_outside(tmp_path):
    """Facts outside that rest on the turn hold; those inside do not, and an unbound distrust reaches both."""
    store, turn, _ = filled(tmp_path / "m", crowded=True)
    with store, store.within(ALICE) as part:
        made = part.distrust(positions=turn, reason="a forged page")
        assert (made.covers, [item.position for item in part.distrusts()]) == (1, [made.position])
        assert part.fact("phone") is None
        assert store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID
        assert store.fact(f"{OUTSIDE}/root").value == SAID
        assert [item.state for item in store.fact_history(f"{OUTSIDE}/phone", scope=BOB)] == ["holds"]
        wider = store.distrust(positions=turn, reason="a forged page")
        assert store.fact(f"{OUTSIDE}/phone", scope=BOB) is None
        assert [item.position for item in part.distrusts()] == [made.position]
        with pytest.raises(Exception, match=f"position {wider.position} distrusts nothing"):
            part.trust_again(wider.position)
        store.trust_again(wider.position)
        part.trust_again(made.position)
        assert part.fact("phone").value == store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_it_in_the_same_sentence(page):
    """Once, as reports and certificates do."""
    assert " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split()).count(NOTHING_OUTSIDE) == 1
