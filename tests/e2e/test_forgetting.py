"""Forgetting as a user of the library or the command line meets it."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import msgspec
import pytest

from mnemolog import InvalidInput, MemoryStore, NewTurn, UnknownSession
from mnemolog.adapters.importers import import_files
from mnemolog.adapters.support.framework_sessions import reconcile
from mnemolog.adapters.support.items import Items
from mnemolog.audit.receipt_audit import Verdict
from mnemolog.domain.errors import ContentForgotten, NoTask, UnknownCheckpoint
from mnemolog.domain.events import ForgetTarget, Forgotten, TurnRecorded
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.forgetting.history import Erasure
from mnemolog.projections.history import states
from mnemolog.projections.quarantine import LogRange
from tests.postgres import put_log_in_postgres
from tests.support import HashEncoder, Picky, decided_on, forbid_writing, nothing_written

TURN = TurnRecorded.topic


@pytest.fixture(params=["sqlite", "postgres"])
def folder(folder, request):
    """The folder of a store whose log and keys are in either database."""
    if request.param == "postgres":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    return folder


@pytest.fixture
def told(store):
    """Two sessions below acme, one beside; turns of each."""
    for session, scope in (("a", "acme/a"), ("b", "acme/b"), ("c", "other")):
        handle = store.start_session(session, title=f"name of {session}", scope=scope)
        for n in range(6):
            handle.record("user", f"{session} says quokka {n}", key=f"{session}{n}", speaker=f"Speaker {session}")
    return store


@pytest.fixture
def a(told):
    """The first of those sessions."""
    return told.session("a")


def texts(store, session):
    return [turn.text for turn in store.session(session).turns()]


def positions(store, session):
    return [turn.position for turn in store.turns(session)]


def test_a_forgotten_session_keeps_its_structure_and_nothing_else(told, a):
    """Ids, scope and times stay; name, turns, memory and receipts are gone, in every reading."""
    a.set("city", "Lisbon")
    a.note("a note")
    a.set_task("a task")
    a.checkpoint("a checkpoint")
    told.recall("quokka", session="a", receipt=True)
    told.recall("quokka", scope="acme", receipt=True)
    before = told.head()
    report = told.forget(session="a", reason="asked for")
    assert report.complete
    assert report.sessions == ("a",)
    assert report.events == 6 + 1 + 4 + 2
    assert (a.turns(), a.all(), a.notes(), a.task(), a.checkpoints()) == ([], {}, [], None, [])
    summary = told.sessions()[0]
    assert (summary.title, summary.scope, summary.turns, summary.forgotten_turns) == ("", "acme/a", 0, 6)
    assert {hit.session for hit in told.recall("quokka", k=50).hits} == {"b", "c"}
    replayed = {item.session: item for item in told.replay().sessions}
    assert (replayed["a"].title, replayed["a"].turns, len(replayed["a"].forgotten)) == ("", (), 6)
    assert told.verify(expect_head=str(before), contents=True).sound
    assert told.verify().forgotten == report.events
    audit = told.audit.receipts()
    assert (audit.forgotten, len(audit.receipts)) == (2, 0)
    assert told.admin.doctor(deep=True).healthy


def test_what_was_forgotten_stays_countable(told):
    """Positions, kinds, when, why, by which request; each event once, without content that could be kept elsewhere."""
    first = told.forget(positions=[positions(told, "a")[2]], reason="one")
    told.session("plain").record("user", "tea")  # The start of a session without a title held nothing.
    second = told.forget(session=["a", "plain"], reason="all")
    found = told.audit.forgotten()
    assert [item.reason for item in found] == ["one"] + ["all"] * 7
    assert {item.request for item in found} == {first.request, second.request}
    assert sorted(item.position for item in found if item.topic == TURN) == [
        item.position for item in told.events() if isinstance(item.event, Forgotten)
    ]
    assert told.status().forgetting.events == len(found) == first.events + second.events
    kept = msgspec.json.encode(told.audit.erasures())
    assert b"quokka" not in kept
    assert b"name of" not in kept
    assert msgspec.json.decode(kept, type=list[Erasure]) == told.audit.erasures()
    assert told.admin.reapply_erasures(told.audit.erasures()).requested == 0


def test_a_dry_run_says_what_would_go_and_writes_nothing(told):
    """The same numbers as the real thing. To forget again adds nothing."""
    with nothing_written(told):
        would = told.forget(scope="acme", dry_run=True)
    did = told.forget(scope="acme")
    assert (would.sessions, would.counts, would.events) == (did.sessions, did.counts, did.events)
    assert would.sessions == ("a", "b")
    assert texts(told, "c") == [f"c says quokka {n}" for n in range(6)]
    head, again = told.head(), told.forget(scope="acme")
    assert (again.request, again.events, told.head()) == (None, 0, head)


def test_single_turns_go_and_their_neighbours_stay(told):
    """By position, of several sessions at once."""
    a, b = positions(told, "a"), positions(told, "b")
    told.forget(positions=[a[1], a[2], b[5]])
    assert texts(told, "a") == [f"a says quokka {n}" for n in (0, 3, 4, 5)]
    assert texts(told, "b") == [f"b says quokka {n}" for n in range(5)]
    hit = told.recall("a says quokka 3", session="a", k=1, context_turns=2).hits[0]
    assert [turn.text for turn in hit.before] == ["a says quokka 0"]


def test_a_session_continues_after_it_was_forgotten(told, a):
    """What is recorded afterwards is found, in this process and in one that opens the store anew."""
    told.forget(session="a")
    a.record("user", "a wombat instead")
    a.set("k", 1)
    assert texts(told, "a") == ["a wombat instead"]
    assert told.recall("wombat", k=1).hits[0].text == "a wombat instead"
    with MemoryStore.open(told.path, model=None) as other:
        assert texts(other, "a") == ["a wombat instead"]
        assert other.session("a").all() == {"k": 1}
        assert other.session("a").title == ""


def test_a_branch_no_longer_sees_what_its_parent_forgot(told, a):
    """And its memory, inherited at the branch point, is as if that had never been set."""
    a.set("k", "old")
    checkpoint = a.checkpoint("before")
    a.set("k", "new")
    branch = a.branch("branch", title="branch")
    branch.record("user", "of its own")
    branch.restore("before")
    told.forget(session="a")
    assert branch.all() == {}
    assert [turn.text for turn in branch.turns()] == []
    assert [turn.text for turn in branch.turns(hidden=True)] == ["of its own"]
    assert checkpoint.name not in [item.name for item in branch.checkpoints()]
    with MemoryStore.open(told.path, model=None) as other:
        assert other.session("branch").all() == {}
        assert [turn.text for turn in other.session("branch").turns(hidden=True)] == ["of its own"]


def test_a_restore_still_counts_where_its_checkpoint_is_forgotten(told, a):
    """The values then come back, as far as they are not forgotten themselves."""
    a.set("kept", 1)
    at = a.checkpoint("secret name").position
    a.set("kept", 2)
    a.restore("secret name")
    told.forget(positions=at)
    for store in (told, MemoryStore.open(told.path, model=None)):
        session = store.session("a")
        assert (session.all(), session.checkpoints()) == ({"kept": 1}, [])
        if store is not told:
            store.close()


def test_what_is_decided_after_forgetting_is_decided_on_what_is_left(told):
    """By a writer that knew the state before, in this process and in another that had the store open."""
    with MemoryStore.open(told.path, model=None) as other:
        handles = [(store, store.session("a")) for store in (other, told)]
        for _, session in handles:
            session.set("k", "to be forgotten")
            session.set_task("to be forgotten")
        assert [session.all() for _, session in handles] == [{"k": "to be forgotten"}] * 2
        told.forget(session="a")
        for store, session in handles:  # By handles that read nothing before they decide.
            assert session.delete("k") is False
            with pytest.raises(NoTask):
                session.update_task(step=1)
            session.set("left", 1)
            one, *anew = decided_on(store, "a")
            contended = store.parts.log.appends.connection.is_contended  # Then it is decided once, under the lock.
            assert anew == ([] if contended else [one])


@pytest.mark.parametrize("name", ["views.db", "snapshots.db", "embeddings.db"])
def test_a_projection_whose_header_forbids_writing_holds_up_no_forgetting(folder, name, monkeypatch):
    """One flipped bit there, and SQLite takes a file that anybody may write for read-only."""
    monkeypatch.setattr(states, "SNAPSHOT_EVERY", 5)
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        session = store.start_session("a")
        for n in range(10):
            session.record("user", f"quokka {n}")
            session.set("k", f"quokka {n}")
            assert session.all() == {"k": f"quokka {n}"}
        session.checkpoint("quokka")
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()
    forbid_writing(folder / "projections" / name)
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        assert store.forget(session="a").pending is None
        session = store.session("a")
        assert (list(session.turns()), session.all(), session.checkpoints()) == ([], {}, [])
        assert store.recall("quokka").hits == ()
        session.record("user", "a wombat")
        assert [hit.text for hit in store.recall("wombat", mode="text").hits] == ["a wombat"]
        assert store.verify().sound
    assert not any(b"quokka" in file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("decision", ["look", "restore", "delete", "set"])
def test_a_writer_that_has_not_noticed_a_forgetting_decides_again(told, decision):
    """What it knew, with what is left behind that, is a state that never was: nothing comes of it."""
    with MemoryStore.open(told.path, model=None) as other:
        other.session("a").set("k", "to be forgotten")
        told.session("a").checkpoint("before")
        told.forget(session="a")
        head, a = told.head(), other.session("a")
        if decision == "look":
            half, anew = decided_on(other, "a")
            assert half != anew, "nothing is tested here where it has noticed"
        elif decision == "restore":
            with pytest.raises(UnknownCheckpoint):
                a.restore("before")
        elif decision == "delete":
            assert a.delete("k") is False
        else:
            a.set("left", 1)
        assert other.head() == head or decision == "set"
        assert a.all() == told.session("a").all() == ({"left": 1} if decision == "set" else {})
        assert other.verify().sound


def test_a_retry_with_the_key_of_a_forgotten_turn_is_refused(told):
    """It would bring back what was to go; other keys go on as before."""
    told.forget(session="a")
    with nothing_written(told):
        with pytest.raises(ContentForgotten) as caught:
            told.record("a", "user", "a says quokka 1", key="a1", speaker="Speaker a")
        assert (caught.value.key, caught.value.stream) == ("a1", "session/a")
        with pytest.raises(ContentForgotten):
            told.record_many(
                [NewTurn(session="a", role="user", text="x"), NewTurn(session="a", role="user", text="y", key="a2")]
            )


@pytest.mark.local
def test_a_transcript_with_keys_does_not_bring_back_what_was_forgotten(told):
    """Reconciling adds what is new, and only that."""
    told.forget(positions=positions(told, "a")[:3])
    messages = [{"role": "user", "text": f"a says quokka {n}", "key": f"a{n}"} for n in range(6)]
    added = reconcile(told.session("a"), [*messages, {"role": "user", "text": "new", "key": "new"}])
    assert [turn.text for turn in added] == ["new"]


def test_an_import_does_not_bring_back_what_was_forgotten(store, tmp_path):
    """It counts it, and records the rest."""
    file = tmp_path / "turns.jsonl"
    rows = [{"session": "s", "role": "user", "text": f"line {n}"} for n in range(4)]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    assert import_files(store, [file]).recorded == 4
    store.forget(positions=positions(store, "s")[:2])
    file.write_text("\n".join(json.dumps(row) for row in [*rows, {**rows[0], "text": "line 4"}]))
    report = import_files(store, [file])
    assert (report.recorded, report.already_there, report.forgotten) == (1, 2, 2)
    assert texts(store, "s") == ["line 2", "line 3", "line 4"]


def test_bad_wishes_are_refused_and_nothing_is_written(told):
    """Each says what to do instead."""
    head = told.head()
    told.session("a").set("k", 1)
    told.session("a").delete("k")
    deleted = told.head().position
    head = told.head()
    for wish, error in (
        ({}, InvalidInput),
        ({"scope": "", "session": ()}, InvalidInput),
        ({"session": "nobody"}, UnknownSession),
        ({"positions": [10**9]}, InvalidInput),
        ({"positions": [-1]}, InvalidInput),
        ({"positions": [deleted]}, InvalidInput),
        ({"session": "a", "reason": "x" * 10_000}, InvalidInput),
    ):
        with pytest.raises(error):
            told.forget(**wish)
    assert told.end_session("a") is None
    with pytest.raises(InvalidInput, match="holds no content"):
        told.forget(positions=[told.head().position])
    assert told.head().position == head.position + 1


@pytest.mark.local
def test_a_prefetched_answer_is_not_handed_out_after_forgetting(told, a):
    """It might hold what was forgotten."""
    a.prefetch("quokka", mode="text").wait(10)
    told.forget(session="a")
    assert a.prefetch_result().reason == "forgotten"


def test_a_receipt_of_an_answer_ranked_among_forgotten_turns_says_so(told):
    """It does not reproduce, and that is no fault of the log."""
    found = told.recall("quokka", scope="other", k=3, mode="text", receipt=True)
    gone = next(position for position in positions(told, "c") if position not in {hit.position for hit in found})
    told.forget(positions=[gone], questions=False)
    audit = told.audit.receipts()
    assert (audit.differing, audit.forgotten) == (0, 0)
    assert audit.receipts[0].verdict in (Verdict.UNKNOWN, Verdict.REPRODUCES)


SAID = "555-0175"


SCRIPT = Path(__file__).parents[2] / "docs" / "verify_export.py"


def checked(folder, certificate):
    """Exit status and output of the script that checks a certificate with an export, without store and keys."""
    (folder / "certificate.json").write_text(json.dumps(certificate))
    command = [sys.executable, "-I", SCRIPT, "log.jsonl", "--certificate", "certificate.json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout


@pytest.fixture
def questioned(store):
    """A person's session with one turn, and questions that quote it: by name, whether they go anyhow."""
    alice = store.start_session("alice", scope="acme/support/alice")
    turn = alice.record("user", f"my number is {SAID}", metadata={"caller": "alice"}).position
    for session, scope in (("desk", "acme/support"), ("next", "acme/sales")):
        store.start_session(session, scope=scope).record("user", "the ferry leaves at noon")
    asks = {
        "within, by hits": lambda: store.recall(f"number {SAID}", session="alice", receipt=True),
        "above, by hits": lambda: store.recall(f"number {SAID}", scope="acme/support", receipt=True),
        "a context above, by hits": lambda: store.context(f"number {SAID}", scope="acme", receipt=True),
        "by metadata": lambda: store.recall(SAID, metadata={"caller": "alice"}, receipt=True),
        "above": lambda: store.recall(f"{SAID}", scope="acme/support", roles=["tool"], receipt=True),
        "at the root": lambda: store.recall(SAID, roles=["tool"], receipt=True),
        "beside": lambda: store.session("desk").recall(SAID, lineage=True, receipt=True),
        "a context beside": lambda: store.context(SAID, session="desk", scope="acme/support", receipt=True),
        "elsewhere": lambda: store.recall("ferry", scope="acme/sales", receipt=True),
        "elsewhere, by a session": lambda: store.session("next").recall("ferry", receipt=True),
    }
    return store, turn, {name: ask().receipt for name, ask in asks.items()}


@pytest.mark.parametrize("named", [{"session": "alice"}, {"scope": "acme/support/alice"}, {"positions": ...}])
def test_questions_that_may_quote_what_is_forgotten_go_along_unless_they_are_kept(questioned, named):
    """Receipts with hits in it go in any case. Those asked in scopes that cover it are listed first; the report names
    those that stay. What was asked elsewhere stays."""
    store, turn, asked = questioned
    named = {"positions": turn} if "positions" in named else named
    quoting = [asked[name] for name in ("above", "at the root", "beside", "a context beside")]
    hits = [asked[name] for name in ("within, by hits", "above, by hits", "a context above, by hits", "by metadata")]
    would = store.forget(**named, dry_run=True)
    assert (would.questions, would.questions_left) == (4, 0)
    assert [(item.position, item.query, item.stays) for item in would.asked] == [(at, SAID, False) for at in quoting]
    assert [(item.scope, item.session) for item in would.asked] == [
        *(("acme/support", None), ("", None)),
        *[("acme/support", "desk")] * 2,
    ]
    kept = store.forget(**named, questions=False)
    assert (kept.questions, kept.questions_left) == (0, 4)
    assert [(item.position, item.query, item.stays) for item in kept.asked] == [(at, "", True) for at in quoting]
    assert {item.position for item in store.audit.forgotten()} >= {turn, *hits}
    assert not {item.position for item in store.audit.forgotten()} & {*quoting}
    done = store.forget(**named if "positions" not in named else {"session": "alice"})
    assert (done.questions, done.questions_left, done.complete) == (4, 0, True)
    left = {item.position for item in store.events()} - {item.position for item in store.audit.forgotten()}
    assert {asked["elsewhere"], asked["elsewhere, by a session"]} <= left
    assert SAID not in "".join(repr(item.event) for item in store.events())
    assert store.verify(contents=True).sound


@pytest.mark.parametrize("kind", ["session", "scope", "value", "title"])
def test_contexts_that_showed_what_is_forgotten_go_whoever_asked(store, kind):
    """Also where they showed memory that a branch in another scope inherited, or a title: the digest of their text
    would confirm a guess. Those of sessions that inherit none of it stay."""
    alice = store.session("alice", scope="acme/alice", title="of alice")
    title = store.head().position
    alice.record("user", "a ferry")
    alice.set("phone", SAID)
    value = store.head().position
    store.switch("desk", reason="branch", session="alice", agent="one", scope="desk/one")
    store.switch("further", reason="branch", session="desk", agent="two", scope="desk/two")
    store.start_session("beside", scope="desk/one", title="beside", parent="alice").record("user", "a tram")
    inherited = [store.session(name).context("ferry", 300, receipt=True).receipt for name in ("desk", "further")]
    titled = store.context("ferry", 300, receipt=True).receipt
    beside = store.session("beside").context("tram", 300, receipt=True).receipt
    named = {"session": {"session": "alice"}, "scope": {"scope": "acme"}, "value": {"positions": value}}
    store.forget(**named.get(kind, {"positions": title}), questions=False)
    gone = {item.position for item in store.audit.forgotten()}
    assert gone & {*inherited, titled, beside} == {*inherited, titled} - ({titled} if kind == "value" else set())


SHOWN = {
    "before a hit": (5, lambda ask: ask.recall("bicycle", context_turns=1)),
    "after a hit": (6, lambda ask: ask.recall("tram", context_turns=1)),
    "as the reply": (6, lambda ask: ask.recall("tram", exchange=True)),
    "as what a hit answers": (4, lambda ask: ask.recall("bicycle", exchange=True)),
    "as the name of a hit's session": (1, lambda ask: ask.recall("tram")),
    "as the reply in a context": (6, lambda ask: ask.context("tram", tokens=2_000)),
    "as a statement": (7, lambda ask: ask.context("tram", tokens=2_000, scope="acme/alice")),
    "as a fact": (8, lambda ask: ask.context("tram", tokens=2_000, scope="acme/alice")),
    "as a name in a context": (1, lambda ask: ask.context("tram", tokens=2_000)),
}


@pytest.mark.parametrize("way", SHOWN)
def test_a_receipt_that_showed_it_beside_what_it_found_goes_although_questions_are_kept(store, way):
    """A turn around a hit, its exchange, a passage of a context, a fact, or a name. Another receipt stays."""
    alice = store.session("alice", scope="acme/alice", title="of alice")
    said = ("the ferry is late", "is there a walkway", "then a bus", "is a tram there", "the bicycle is quicker")
    for role, text in zip(("user", "assistant", "user", "user", "assistant"), said, strict=True):
        alice.record(role, text)
    alice.record("user", "Always answer in metric units.")
    store.assert_fact("city", "Lisbon", scope="acme/alice")
    store.start_session("beside").record("user", "the airport is open")
    asks = SimpleNamespace(
        recall=partial(store.recall, mode="text", receipt=True),
        context=partial(store.context, mode="text", receipt=True),
    )
    position, ask = SHOWN[way]
    showed, other = ask(asks).receipt, asks.recall("airport").receipt
    found = store.audit.event(showed).event
    assert position not in getattr(found, "recall", found).hits
    store.forget(positions=position, questions=False)
    gone = {item.position for item in store.audit.forgotten()}
    assert gone & {showed, other} == {showed}


def test_questions_at_the_root_may_quote_items_and_threads(store):
    """They belong to no session: forgetting them by position counts and takes along such questions.

    One that is named itself is not counted among those.
    """
    with closing(Items(store)) as items:
        with items.batch() as batch:
            batch.put(("users", "alice"), "phone", {"text": SAID})
        places = items.positions(("users", "alice"))
    asked = store.recall(f"is it {SAID}?", receipt=True).receipt
    would = store.forget(positions=places, dry_run=True)
    assert ([item.position for item in would.asked], would.questions) == ([asked], 1)
    named = store.forget(positions=[*places, asked], questions=False, dry_run=True)
    assert (named.asked, named.questions_left, named.events) == ((), 0, 2)
    kept = store.forget(positions=places, questions=False)
    assert kept.questions_left == 1
    assert (f"position {asked}",) in [item.items for item in kept.certificate.remains]


@pytest.mark.local
def test_what_is_in_quarantine_goes_unless_it_is_known_to_be_of_another_log(told, tmp_path):
    """Nobody knows what it holds. What a purge that was killed had begun to delete goes, too."""
    quarantine = told.admin.quarantine()
    for name, log_id in (("unknown", ""), ("own", told.parts.log.log_id), ("other", "f" * 32)):
        (tmp_path / name).write_text("quokka")
        built_from = LogRange(log_id, ORIGIN, Position(1), "ab" * 32) if log_id else None
        assert quarantine.add(tmp_path / name, reason="damaged", built_from=built_from)
    left = quarantine.folder / ".removed.1234"
    left.write_text("quokka")
    assert told.forget(session="a").complete
    assert ([item.was for item in quarantine.items()], left.exists()) == (["other"], False)


@pytest.mark.local
def test_what_a_model_said_of_a_text_that_it_refused_goes_with_the_text(folder):
    """It may quote it: it was listed beside the vectors of the other turns."""
    with MemoryStore.open(folder, model=Picky("quokka", quotes=True), background=False) as store:
        turns = [store.session("a").record("user", text) for text in ("a ferry", "a quokka", "a tram")]
        store.rebuild("vectors", skip_bad=True)
        assert [item.position for item in store.status().vectors[0].skipped] == [turns[1].position]
        files = folder / "projections" / "vectors"
        assert any(b"quokka" in path.read_bytes() for path in files.rglob("*.*") if path.is_file())
        assert store.forget(positions=turns[1].position).complete
        assert store.status().vectors[0].skipped == ()
        assert not any(b"quokka" in path.read_bytes() for path in files.rglob("*.*") if path.is_file())


@pytest.mark.local
def test_who_is_bound_to_a_scope_takes_along_what_was_asked_within_it(questioned):
    """The others are neither counted, nor listed, nor changed, also where they found or showed it."""
    store, _, asked = questioned
    with store.within("acme/support") as bound:
        would = bound.forget(session="alice", dry_run=True)
        assert (would.questions, would.questions_left) == (3, 0)
        assert [item.position for item in would.asked] == [asked[n] for n in ("above", "beside", "a context beside")]
        bound.forget(session="alice")
    gone = {item.position for item in store.audit.forgotten()} & {*asked.values()}
    inside = ("within, by hits", "above, by hits", "above", "beside", "a context beside")
    assert gone == {asked[name] for name in inside}


def test_a_certificate_says_what_went_and_what_remains_and_a_stranger_checks_it(questioned, run, tmp_path):
    """It names the request and the record of its end, heads before and after, copies of the keys from before, names in
    clear text and the questions that stay. A change to any of its positions, digests or names is seen in an export."""
    store, turn, asked = questioned
    store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    before, file = store.head(), tmp_path / "kept.json"
    command = ("forget", store.path, "--session", "alice", "--keep-questions", "--certificate", file)
    assert run(*command, "--dry-run").returncode == 0
    assert not file.exists()
    ran = run(*command, "--reason", "asked for", "--yes").exited()
    assert (
        f"remains: copies of the keys from before, with which any copy of the log can be read: {tmp_path}" in ran.stdout
    )
    assert "exists; nothing was forgotten" in run(*command, "--yes").stderr.replace("\n", " ")
    made = json.loads(file.read_text())
    assert SAID not in file.read_text()
    assert (made["before"], made["after"]["position"]) == (
        {"position": before.position, "digest": before.digest},
        store.head().position,
    )
    assert (made["requested"]["position"], made["reason"]) == (before.position + 1, "asked for")
    assert any(first <= turn <= last for first, last in made["positions"])
    assert made["statements"] == {"keys_destroyed": 5, "complete": True, "confirmed_by": ANY, "waiting_for": []}
    remains = {item["kind"]: item["items"] for item in made["remains"]}
    assert remains.keys() == {"names", "questions", "keys"}
    assert {"session alice", "scope acme/support/alice"} <= {*remains["names"]}
    assert remains["questions"] == [
        f"position {asked[name]}" for name in ("above", "at the root", "beside", "a context beside")
    ]
    assert remains["keys"] == [str(tmp_path / "keys")]
    store.record("desk", "user", "later")
    store.audit.export(tmp_path / "log.jsonl")
    code, said = checked(tmp_path, made)
    assert (code, f"request is at position {before.position + 1}" in said) == (0, True), said
    assert "proved by no export" in said
    wrong = [made | {"log_id": "0" * 32}, made | {"request": "0" * 16}]
    for end in ("before", "requested", "erased", "after"):
        wrong += [made | {end: made[end] | {"digest": "0" * 64}}, made | {end: made[end] | {"position": 2}}]
    wrong += [made | {"requested": made["erased"]}, made | {"asked": [{**made["asked"][0], "stream": "session/bob"}]}]
    assert [checked(tmp_path, certificate)[0] for certificate in wrong] == [3] * len(wrong)


def test_commands_list_questions_and_may_keep_them(questioned, run):
    """With their texts while they can be read; `--keep-questions` leaves them, and says so."""
    store, _, asked = questioned
    shown = run("forget", store.path, "--session", "alice", "--dry-run").stdout
    assert "4 questions asked above or beside may quote it: they go along (--keep-questions keeps them)" in shown
    assert f"@{asked['beside']} " in shown
    assert f"by session desk: {SAID}" in shown
    kept = run("forget", store.path, "--session", "alice", "--keep-questions", "--yes").stdout
    assert "4 questions asked above or beside may quote it: they stay" in kept
    assert SAID not in kept


def test_vectors_of_what_is_left_answer_as_before(folder, clock):
    """Against a store that never had the forgotten turns, and without the model being asked for any single turn."""
    encoder = HashEncoder()
    with MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        session = store.start_session("s")
        for n in range(20):
            session.record("user", f"number{n} topic{n % 3}")
        store.admin.catch_up_vectors()
        session.record("user", "in the tail quokka")
        store.recall("quokka", mode="vector")
        gone = [turn.position for turn in session.turns() if turn.text.split()[0] in ("number4", "number9", "in")]
        assert len(gone) == 3
        encoded = encoder.texts_encoded
        assert store.forget(positions=gone).complete
        found = store.recall("number4 topic1", mode="vector", k=50)
        assert found.vectors_cover == store.head().position
        assert not {hit.position for hit in found.hits} & set(gone)
        store.admin.catch_up_vectors()
        assert encoder.texts_encoded == encoded + 1, "only the query"
        assert len(store.recall("number4", mode="vector", k=50).hits) == 18
        scores = {hit.position: round(hit.similarity, 5) for hit in store.recall("topic2", mode="vector", k=50).hits}
    shutil.rmtree(folder / "projections")
    with MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        store.rebuild("vectors")
        again = {hit.position: round(hit.similarity, 5) for hit in store.recall("topic2", mode="vector", k=50).hits}
        assert scores == again, "as a rebuild from the log alone has it"
        assert store.admin.doctor(deep=True).healthy


def test_views_after_forgetting_are_those_of_a_rebuild(told):
    """Row by row, and in what recalls answer."""
    told.forget(session="a")
    told.forget(positions=positions(told, "b")[1:3])
    told.session("b").record("user", "b goes on, quokka")
    told.session("a").record("user", "a goes on, quokka")
    assert told.sessions()
    assert told.admin.doctor(deep=True).healthy, "it builds the views once more and compares them"
    as_of = told.recall("quokka", k=50, mode="text", as_of=told.head().position - 1)
    assert not {hit.session for hit in as_of.hits} & {"a"}


def test_what_is_recorded_while_erasures_are_repeated_for_an_older_log_stays(told, monkeypatch):
    """They name versions that the log gives out again: what comes after the request gets other keys in time."""
    with MemoryStore.open(told.path, model=None) as other:
        other.session("a").record("user", "before the request")
        version = told.parts.log.version("session/a")
        target = ForgetTarget(stream="session/a", versions=[(2, version + 20)], counts={})
        erasure = Erasure(request="r", requested_at=datetime.now(UTC), reason="", targets=(target,))
        keyring = told.parts.log.keyring
        destroy = keyring.destroy

        def between(*what):
            other.session("a").record("user", "after the request")
            destroy(*what)
            other.session("a").record("user", "after the keys")

        monkeypatch.setattr(keyring, "destroy", between)
        assert told.admin.reapply_erasures([erasure]).pending is None
        told.session("a").record("user", "later")
        for store in (told, other):
            assert texts(store, "a") == ["after the request", "after the keys", "later"]
            assert store.verify(contents=True).sound


def test_the_command_shows_and_does_only_with_yes(told, run):
    """Without --yes nothing is changed and the exit code says so."""
    with nothing_written(told):
        assert "7 events would be forgotten" in run("forget", told.path, "--session", "a").exited(1).stdout
        assert run("forget", told.path, "--session", "a", "--dry-run", "--json").returncode == 0
    done = run("forget", told.path, "--session", "a", "--position", positions(told, "c")[0], "--yes", "--json").json
    assert done["events"] == 8
    assert len(run("forgotten", told.path, "--json").json) == 8
    assert "session.started.v1" in run("forgotten", told.path).stdout
    assert "name of a" not in run("sessions", told.path).stdout


def test_the_command_line_makes_a_plain_store_and_opens_what_is_encrypted(tmp_path, run):
    """A plain one says so and forgets nothing; of another `verify --contents` opens everything."""
    assert run("init", str(tmp_path / "plain"), "--plain", "--json").returncode == 0
    with MemoryStore.open(tmp_path / "plain", model=None) as store:
        assert store.status().log_format == 1
    with MemoryStore.open(tmp_path / "sealed", model=None) as store:
        store.start_session("trip").record("user", "hello")
    found = run("verify", str(tmp_path / "sealed"), "--contents", "--json").json
    assert (found["sound"], found["opened"], found["sealed"]) == (True, True, 2)
