"""Facts with two times: what is believed, since when it is true, and how it came to be believed."""

import random
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import msgspec
import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.domain import errors
from mnemolog.domain.events import RecallServed
from mnemolog.domain.facts import assertion_of, believed, latest_first
from mnemolog.domain.scope import Scope
from mnemolog.domain.values import to_datetime
from mnemolog.projections.sql import fact_queries
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.queries import below_any
from tests.counted_work import counted_calls
from tests.support import nothing_written

MARCH, APRIL, MAY = (datetime(2023, month, 1, tzinfo=UTC) for month in (3, 4, 5))


@pytest.fixture
def chat(store):
    """A session of a scope."""
    return store.session("chat", scope="acme/alice")


def value(store, key="user/city", **when):
    found = store.fact(key, scope="acme/alice", **when)
    return None if found is None else found.value


@pytest.mark.local
def test_a_fact_says_what_since_when_and_why(store, chat):
    """And by whom; its position is its recorded time, never the caller's."""
    said = chat.record("user", "I moved to Porto.", said_at="2023-03-04T12:00Z")
    with acting_as("alice"):
        chat.assert_fact("user/city", "Porto", valid_from="2023-03", because=[said], maker="extractor/1")
    fact = store.fact("user/city", scope="acme/alice")
    assert (fact.value, fact.valid_from, fact.assumed, fact.state) == ("Porto", MARCH, False, "holds")
    assert (fact.because, fact.position, fact.checked_at) == ((said.position,), said.position + 1, said.said_at)
    assert (fact.maker, fact.actor, fact.session, fact.scope) == ("extractor/1", "alice", "chat", "acme/alice")
    assert store.facts() == [fact]
    assert store.facts("user/*", scope="acme") == store.facts("*/city") == [fact]
    assert store.facts("user", scope="acme/alice") == store.facts(scope="acme/bob") == []
    assert store.fact("user/city") is None, "the root is another scope"


def test_the_same_value_again_confirms(store, chat):
    """Since when stays, when it was checked moves on."""
    chat.assert_fact("user/city", "Porto", valid_from="2023-03")
    again = chat.record("user", "Still in Porto.", said_at="2023-05-01T00:00Z")
    chat.assert_fact("user/city", "Porto", because=[again.position])
    fact = store.fact("user/city", scope="acme/alice", valid_at="2023-06")
    assert (fact.valid_from, fact.checked_at > MAY, fact.assertions) == (MARCH, True, (2, 4))
    assert [item.until for item in store.fact_history("user/city", scope="acme/alice")] == [MAY, None]


def test_the_time_of_the_update_is_not_the_valid_time(store, chat):
    """Without `valid_from` it is when the evidence was said, and the fact says that this was assumed."""
    said = chat.record("user", "I live in Porto.", said_at="2023-04-01T00:00Z")
    assert chat.assert_fact("user/city", "Porto", because=[said]).valid_from == APRIL
    assert store.fact("user/city", scope="acme/alice").assumed
    now = chat.assert_fact("user/team", "blue")
    assert (now.assumed, now.valid_from) == (True, now.recorded_at)
    assert value(store, "user/team") == "blue", "what was just asserted holds"


def test_old_evidence_that_is_read_again_does_not_bring_the_old_value_back(store, chat):
    """Whether it arrives late or twice."""
    old = chat.record("user", "I live in Lisbon.", said_at="2023-03-01T00:00Z")
    new = chat.record("user", "I moved to Porto.", said_at="2023-04-01T00:00Z")
    chat.assert_fact("user/city", "Porto", because=[new])
    for _ in range(2):
        assert chat.assert_fact("user/city", "Lisbon", because=[old]).state == "asserted"
        assert value(store) == "Porto"
    assert value(store, valid_at="2023-03-15") == "Lisbon"


def test_the_old_set_is_not_closed_at_the_time_of_recording(store, chat):
    """A set is a folder of keys: each ends for itself, when it ended."""
    for name in ("nuts", "milk"):
        chat.assert_fact(f"user/allergies/{name}", True, valid_from="2023-03")
    chat.assert_fact("user/allergies/milk", None, valid_from="2023-04")

    def held(at):
        return [item.key for item in store.facts("user/allergies/*", scope="acme/alice", valid_at=at)]

    assert held("2023-03-31") == ["user/allergies/milk", "user/allergies/nuts"]
    assert held("2023-04") == ["user/allergies/nuts"]
    assert value(store, "user/allergies/milk") is None


def test_a_contradiction_is_searched_under_the_key_alone(store, chat):
    """Not under keys that resemble it, nor in other scopes; nor are intervals apart from each other merged."""
    chat.assert_fact("user/city", "Porto", valid_from="2023-03")
    chat.assert_fact("user/city/home", "Faro", valid_from="2023-04")
    store.assert_fact("user/city", "Berlin", scope="acme/bob", valid_from="2023-04")
    chat.assert_fact("user/city", None, valid_from="2023-04")
    chat.assert_fact("user/city", "Porto", valid_from="2023-05")
    assert [value(store, valid_at=at) for at in ("2023-03", "2023-04", "2023-05")] == ["Porto", None, "Porto"]
    assert store.fact("user/city", scope="acme/alice").valid_from == MAY


def test_an_empty_interval_is_shown_by_the_history_alone(store, chat):
    """It has the moment of a later assertion, and so overlaps nothing."""
    chat.assert_fact("user/city", "Lisbon", valid_from="2023-04")
    chat.assert_fact("user/city", "Porto", valid_from="2023-04")
    lisbon, porto = store.fact_history("user/city", scope="acme/alice")
    assert (lisbon.until, lisbon.state, porto.until, porto.state) == (APRIL, "superseded", None, "holds")
    assert [value(store, valid_at=at) for at in ("2023-03", "2023-04")] == [None, "Porto"]


@pytest.mark.parametrize("read", ["fact", "fact_history"])
@pytest.mark.parametrize("when", [{"as_of": ""}, {"valid_at": ""}, {"valid_at": " "}, {"as_of": 99}])
def test_an_empty_time_is_refused_and_not_now(store, chat, read, when):
    """So is a position that is not in the log."""
    chat.assert_fact("user/city", "Porto")
    for call in (lambda: getattr(store, read)("user/city", **when), lambda: store.facts(**when)):
        with pytest.raises(errors.InvalidInput):
            call()


def test_retracted_is_not_superseded(store, chat):
    """As of a position before the retraction it is believed as it was."""
    wrong = chat.assert_fact("user/city", "Lisbon", valid_from="2023-03")
    right = chat.assert_fact("user/city", "Porto", valid_from="2023-02", corrects=wrong, reason="misheard")
    assert right.position == wrong.position + 2, "the retraction and the new fact are one append"
    assert (value(store), value(store, as_of=wrong.position, valid_at="2023-06")) == ("Porto", "Lisbon")
    first, second = store.fact_history("user/city", scope="acme/alice")
    assert (first.state, first.retracted, first.reason) == ("retracted", wrong.position + 1, "misheard")
    assert store.retract_fact(second) == store.retract_fact(second) == 1
    assert value(store) is None
    for bad in (99, 1, first.position):
        with pytest.raises(errors.InvalidInput):
            store.assert_fact("user/other", 1, scope="acme/alice", corrects=bad)


def test_what_a_maker_asserted_is_undone_in_one_call(store, chat):
    """In the scope that is given."""
    for n in range(3):
        chat.assert_fact(f"k/{n}", n, maker="extractor/1")
        store.assert_fact(f"k/{n}", n, scope="acme/bob", maker="extractor/1")
        chat.assert_fact(f"k/{n}", "by hand", valid_from="2023-03")
    assert store.retract_facts(maker="extractor/1", scope="acme/alice", reason="bad prompt") == 3
    assert {item.value for item in store.facts(scope="acme/alice")} == {"by hand"}
    assert len(store.facts(scope="acme/bob")) == 3


@pytest.mark.parametrize("seed", range(3))
def test_a_corrected_value_is_never_returned(store, chat, seed):
    """Of random corrections of facts as they are read, whenever they begin and however often they were confirmed."""
    rng = random.Random(seed)
    for n in range(100):
        key, months = f"k/{n}", [f"2023-{month:02}" for month in range(1, 9)]
        for _ in range(rng.randint(1, 3)):
            chat.assert_fact(key, "old", valid_from=rng.choice(months))
        read = store.fact(key, scope="acme/alice")
        chat.assert_fact(key, "new", valid_from=rng.choice(months), corrects=read)
        assert {value(store, key, valid_at=at) for at in (None, *months)} <= {None, "new"}


def test_tables_answer_as_the_rule_does(store, chat):
    """At every position and time, with retractions and ties."""
    rng = random.Random(56)
    for _ in range(60):
        fact = chat.assert_fact("k", rng.randint(0, 2), valid_from=f"2023-0{rng.randint(1, 6)}")
        if rng.random() < 0.3:
            store.retract_fact(rng.choice(store.fact_history("k", scope="acme/alice")).position)
    rows = {recorded.position: row for recorded in store.events() if (row := assertion_of(recorded)) is not None}
    for recorded in store.events():
        wrong = getattr(recorded.event, "fact", None)
        if wrong is not None and rows[wrong].retracted is None:
            rows[wrong] = rows[wrong]._replace(retracted=recorded.position)
    times = sorted({row.valid_from for row in rows.values()})
    with store.parts.projections.current_views().database.reading() as connection:
        for upto in range(1, fact.position + 1):
            for at in times:
                expected = believed(latest_first(rows.values(), valid_at=at, upto=upto))
                found = fact_queries.belief(connection, "acme/alice", "k", fact_queries.Known(upto, at))
                assert found == expected
    assert store.admin.doctor(deep=True).healthy


@pytest.mark.local
def test_what_rests_on_nothing_that_is_seen_is_refused(store, chat):
    """Evidence is a turn inside; nothing is written."""
    chat.set("k", 1)
    outside = store.session("other", scope="acme/bob").record("user", "Hello.").position
    with nothing_written(store):
        for position in (2, 99):
            with pytest.raises(errors.InvalidInput, match=f"position {position} is no turn"):
                chat.assert_fact("user/city", "Porto", because=[position])
        inside = store.within("acme/alice")
        with pytest.raises(errors.InvalidInput, match="is no turn"):
            inside.assert_fact("user/city", "Porto", because=[outside])


@pytest.mark.local
def test_a_store_for_a_scope_has_facts_of_its_own(store, chat):
    """What is outside is neither read, listed, corrected nor retracted; nor do its keys resemble any."""
    theirs = store.assert_fact("user/city", "Berlin", scope="acme/bob", maker="m")
    inside = store.within("acme/alice")
    assert inside.assert_fact("user/home_city", "Porto", maker="m").nearest == ()
    assert [fact.scope for fact in inside.facts()] == ["acme/alice"]
    assert {recorded.stream for recorded in inside.events()} == {"session/chat", "facts/acme/alice"}
    for call in (
        lambda: inside.retract_fact(theirs),
        lambda: inside.assert_fact("user/city", 1, corrects=theirs),
        lambda: inside.fact("user/city", scope="acme/bob"),
    ):
        with pytest.raises(errors.MnemologError):
            call()
    assert inside.retract_facts(maker="m") == 1
    assert store.fact("user/city", scope="acme/bob") is not None
    both = store.within(["acme/alice", "acme/bob"])
    with pytest.raises(errors.InvalidInput, match="choose among"):
        both.assert_fact("k", 1)


def test_a_new_key_hears_of_the_nearest_ones(store, chat):
    """So an agent writes to the address that there is; also after another process has written."""
    with MemoryStore.open(store.path, model=None) as other:
        chat.assert_fact("user/city", "Porto")
        other.assert_fact("user/employer", "Acme", scope="acme/alice")
        assert chat.assert_fact("user/home_city", "Porto").nearest == ("user/city", "user/employer")
        assert chat.assert_fact("user/city", "Porto").nearest == ()
        assert other.assert_fact("team/city", "Faro", scope="acme/alice").nearest[:2] == ("user/city", "user/home_city")


def test_forgetting_a_turn_forgets_what_rests_on_it_alone(store, chat):
    """With its retraction, which may quote it. What also rests on another turn stays until that is forgotten."""
    one, two = (chat.record("user", f"My secret is zanzibar{n}.") for n in (1, 2))
    chat.assert_fact("secret/one", "zanzibar1", because=[one])
    wrong = chat.assert_fact("secret/wrong", "zanzibar3", because=[one])
    store.retract_fact(wrong, reason="it was zanzibar4")
    both = chat.assert_fact("secret/both", "zanzibar5", because=[one, two])
    assert both.nearest == ("secret/one", "secret/wrong")
    retraction = wrong.position + 1
    with pytest.raises(errors.InvalidInput, match="bring it back"):
        store.forget(positions=retraction)
    report = store.forget(positions=one.position)
    assert (report.dependents, report.counts["fact.asserted.v1"], report.counts["fact.retracted.v1"]) == (3, 2, 1)
    assert [fact.key for fact in store.facts()] == ["secret/both"]
    assert store.fact_history("secret/wrong", scope="acme/alice") == []
    assert chat.assert_fact("secret/new", 1).nearest == ("secret/both",)
    assert store.forget(positions=two.position).dependents == 1
    assert [fact.key for fact in store.facts()] == ["secret/new"]
    assert store.admin.doctor(deep=True).healthy
    assert store.verify().sound


@pytest.mark.parametrize("what", [{"session": "chat"}, {"scope": "acme"}])
def test_a_session_and_a_scope_take_their_facts_along(store, chat, what):
    """A session those that were asserted in it or rest on it alone; no file has them any more."""
    said = chat.record("user", "zanzibar")
    chat.assert_fact("zanzibar/key", "zanzibar value")
    store.assert_fact("zanzibar/rests", "zanzibar", scope="acme/alice", because=[said], maker="zanzibar maker")
    store.assert_fact("kept", "quince", scope="acme/alice" if "session" in what else "other")
    store.retract_fact(store.assert_fact("zanzibar/gone", 1, scope="acme/alice", because=[said]), reason="zanzibar")
    store.forget(**what)
    assert [fact.value for fact in store.facts()] == ["quince"]
    store.close()
    held = b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())
    assert b"zanzibar" not in held


def test_a_context_begins_with_the_facts_that_hold(store, chat):
    """By key, whatever is asked; byte-identical until one changes; a fifth of the budget at most."""
    chat.record("user", "The ferry leaves at nine.")
    chat.assert_fact("user/team", ["blue"], valid_from="2023-04-05T12:00")
    chat.assert_fact("user/city", "Porto", valid_from="2023-03")
    chat.assert_fact("user/gone", None)
    store.assert_fact("user/city", "Berlin", scope="acme/bob")
    block = 'Facts:\n  user/city: "Porto" (since 2023-03-01)\n  user/team: ["blue"] (since 2023-04-05)\n'
    chat.assert_fact("user/city", "Porto", valid_from="2023-08")
    for made in (chat.context("ferry"), chat.context("train?", 400), store.context("ferry", scope="acme/alice")):
        assert made.text.partition("\n")[2].startswith(block.rstrip())
    before = store.head().position
    chat.assert_fact("user/city", "Faro", valid_from="2023-09")
    assert '"Faro" (since 2023-09-01)' in chat.context("ferry").text
    assert block in chat.context("ferry", as_of=before).text
    assert "Facts:" not in store.context("ferry").text, "those of no scope"
    for n in range(50):
        chat.assert_fact(f"many/{n:02}", "word " * 9)
    made = chat.context("ferry", 500)
    shown = [item.name for item in made if item.kind == "fact"]
    missing = [item.name for item in made.left_out if item.kind == "fact"]
    assert shown == sorted(shown)
    assert sorted(shown + missing) == [fact.key for fact in store.facts(scope="acme/alice")]
    assert sum(item.tokens for item in made if item.kind == "fact") <= 100


def test_a_session_without_a_scope_sees_no_facts_of_another_one(store):
    """Nothing says that both have one owner."""
    one, other = store.session("one"), store.session("other")
    one.assert_fact("user/city", "Porto")
    store.assert_fact("team/color", "blue")
    assert "Porto" in one.context("city").text
    assert "blue" in other.context("city").text
    assert "Porto" not in other.context("city").text


def test_the_receipt_of_a_context_repeats_its_facts_and_goes_with_them(store, chat):
    """Its digest could be compared with guesses."""
    fact = chat.assert_fact("user/city", "zanzibar", because=[chat.record("user", "The ferry leaves at nine.")])
    chat.assert_fact("user/kept", 1)
    receipt = chat.context("quince", receipt=True).receipt
    chat.assert_fact("user/city", "Faro")
    (audited,) = store.audit.receipts().receipts
    assert (audited.verdict, audited.position) == ("reproduces", receipt)
    assert store.forget(positions=fact.position, questions=False).counts["context.served.v1"] == 1


def test_a_diff_lists_the_facts_that_have_another_value(store, chat, clock, run):
    """As `facts` answers at both ends, each at its time: whatever changed it, also that its time came."""
    for key in ("same", "changed", "ended", "wrong", "corrected", "back"):
        chat.assert_fact(key, 1, valid_from="2023-03")
    store.assert_fact("changed", 1, scope="acme/bob")
    gone = chat.assert_fact("back", None, valid_from="2023-04")
    chat.assert_fact("soon", 1, valid_from=to_datetime(clock.now()) + timedelta(days=1))
    wrong, corrected = (store.fact(key, scope="acme/alice") for key in ("wrong", "corrected"))
    before = store.head().position
    clock.advance(seconds=100_000)
    chat.assert_fact("same", 1), chat.assert_fact("changed", [2]), chat.assert_fact("ended", None)
    chat.assert_fact("passing", 1, maker="m"), store.retract_facts(maker="m"), store.retract_fact(gone)
    store.retract_fact(wrong), chat.assert_fact("corrected", 2, valid_from="2023-02", corrects=corrected)
    chat.assert_fact("added", "a")
    found = store.audit.diff(before).facts
    changes = {item.key: item.change for item in found}
    assert list(changes) == ["added", "back", "changed", "corrected", "ended", "soon", "wrong"]
    assert [*changes.values()] == ["added", "added", "changed", "changed", "ended", "added", "retracted"]
    assert [item.position - before for item in found] == [10, -3, 2, 9, 3, 0, 7]
    ends = [{item.key: item.value for item in store.facts(as_of=at, scope="acme/alice")} for at in (before, None)]
    assert [(item.before, item.after) for item in found] == [tuple(end.get(item.key) for end in ends) for item in found]
    assert store.within("acme/bob").audit.diff(before).facts == store.audit.diff(0, 0).facts == ()
    assert "\n- fact wrong retracted (was 1) in acme/alice, see" in run("diff", store.path, before).stdout
    assert [item["key"] for item in run("diff", store.path, before, "--json").json["facts"]] == [
        item.key for item in found
    ]


def test_the_facts_of_a_pattern_are_those_of_its_keys(store, chat):
    """However many assertions a key has, in the scope and below it, as of any position and time."""
    keys = ("user/city", "user/ci", "user/city/district", "users/city", "user/zone", "vser/city", "us")
    for n in range(14):
        for key in keys[: 7 - n // 2]:
            for scope in ("acme/alice", "acme/alice/work", "acme/bob"):
                store.assert_fact(key, n % 3 or None, scope=scope, valid_from=f"2023-{n % 12 + 1:02}")
    store.retract_fact(store.fact("user/city", scope="acme/bob"))
    for head in (store.head().position, 100, 40):
        for valid_at in ("2022-12", "2023-03-05", "2023-12-31"):
            when = {"as_of": head, "valid_at": valid_at}
            for pattern in ("*", "user/*", "user/ci*", "us[e]r/*y", "user/city", "nothing/*"):
                for scope in ("acme/alice", "acme"):
                    scopes = [item for item in ("acme/alice", "acme/alice/work", "acme/bob") if item.startswith(scope)]
                    each = [store.fact(key, scope=of, **when) for key in sorted(keys) for of in scopes]
                    expected = [fact for fact in each if fact is not None and fnmatchcase(fact.key, pattern)]
                    assert store.facts(pattern, scope=scope, **when) == expected, (pattern, scope, when)


@pytest.mark.local
def test_the_facts_of_a_folder_are_one_query_by_range(store, chat):
    """The same for one key as for twenty; other keys are not read."""
    for n in range(20):
        chat.assert_fact(f"user/{n}", n)
        chat.assert_fact(f"other/{n}", n)
    store.facts("user/*", scope="acme/alice")
    one, all_of_them = (counted_calls(lambda p=p: store.facts(p, scope="acme/alice")) for p in ("user/1", "user/*"))
    assert one["sql/database.py:fetch"] == all_of_them["sql/database.py:fetch"]
    with store.parts.projections.views().database.reading() as connection:
        where, values = below_any((Scope("acme/alice"),), f" AND {fact_queries.BEGINS}")
        query = f"EXPLAIN QUERY PLAN {fact_queries.EACH_LATEST_FIRST.format(where)}"
        plan = {row[-1] for row in fetch(connection, query, 1, 1, "user/", *values)}
    assert "SEARCH fact_keys USING PRIMARY KEY (scope=? AND key>? AND key<?)" in plan
    assert "SEARCH held USING INTEGER PRIMARY KEY (rowid=?)" in plan


def test_recall_marks_or_drops_what_a_fact_says_no_longer_holds(store, chat, run):
    """As of a position what was known then; evidence of another fact that holds stays; so does what says the same."""
    old = chat.record("user", "I live in Lisbon.", said_at="2023-03-01T00:00Z")
    both = chat.record("user", "I live in Lisbon and like tea.", said_at="2023-03-02T00:00Z")
    heard = chat.record("user", "I live in Lima.", said_at="2023-03-03T00:00Z")
    new = chat.record("user", "I live in Porto.", said_at="2023-04-01T00:00Z")
    chat.assert_fact("user/city", "Lisbon", because=[old, both])
    chat.assert_fact("user/tea", True, because=[both])
    before = chat.assert_fact("user/town", "Lima", because=[heard])
    porto = chat.assert_fact("user/city", "Porto", because=[new])
    store.retract_fact(before)

    def marks(**how):
        return {hit.position: hit.superseded_by for hit in store.recall("I live in", 9, mode="text", **how)}

    expected = {old.position: porto.position, both.position: None, heard.position: porto.position + 1, 4 + 1: None}
    assert marks() == expected
    assert marks(as_of=before.position) == dict.fromkeys(expected)
    asked = "recall", store.path, "Lisbon", "--mode", "text", "--model", "none"
    assert f"│ I live in Lisbon.\n   no longer holds: see the fact at @{porto.position}\n" in run(*asked).stdout
    dropped = run(*asked, "--superseded", "drop", "--json").json["hits"]
    assert [(hit["position"], hit["superseded_by"]) for hit in dropped] == [(both.position, None)]
    assert marks(superseded="drop", receipt=True) == {both.position: None, new.position: None}
    assert [item.verdict for item in store.audit.receipts().receipts] == ["reproduces"]
    assert f"see the fact at @{porto.position}" in store.recall("Lisbon", mode="text").explain()


def test_an_answer_that_repeats_what_no_longer_holds_is_marked_like_it(store):
    """It said so after the turn. Another answer, one with a longer word, and what holds are not."""
    chat = store.session("echo", scope="echo")
    old = chat.record("user", "I live in Vienna.")
    echo = chat.record("assistant", "Noted: you live in VIENNA.")
    others = [chat.record("assistant", text) for text in ("Viennale is on.", "How nice to live there.")]
    chat.assert_fact("city", "Vienna", because=[old])
    new = chat.record("user", "I live in Porto now.")
    now = chat.assert_fact("city", "Porto", because=[new])
    others.append(chat.record("assistant", "So you live in Porto, no more in Graz."))

    def marks(**how):
        return {
            hit.position: hit.superseded_by for hit in store.recall("live Vienna", 30, scope="echo", mode="text", **how)
        }

    found = marks()
    assert found[old.position] == found[echo.position] == now.position
    assert {found.get(turn.position) for turn in others} == {None}
    assert set(marks(superseded="drop").values()) == {None}
    assert marks(as_of=new.position)[echo.position] is None
    chat.record_many([{"role": "user", "content": f"And {number}?"} for number in range(6)])
    late = chat.record("assistant", "You live in Vienna.")
    assert marks()[late.position] is None


def test_a_fact_that_begins_tomorrow_is_there_tomorrow_in_every_answer(store, chat, clock):
    """With nothing recorded in between. What was asked today is repeated as of today: a page, a receipt, `as_of`."""
    old = chat.record("user", "I live in Lisbon, always answer in metric.")
    chat.record("user", "I lived in Lisbon before.")
    tomorrow = to_datetime(clock.now()) + timedelta(days=1)
    chat.assert_fact("user/city", "Lisbon", because=[old])
    chat.assert_fact("standing/tone", "formal")
    porto = chat.assert_fact("user/city", "Porto", valid_from=tomorrow)
    chat.assert_fact("standing/tone", "warm", valid_from=tomorrow)
    chat.set("code", 4711, ttl=3_600)
    scope, head = {"scope": "acme/alice"}, store.head().position
    asked = scope | {"mode": "text", "min_relevance": 0}

    def answers(**when):
        facts = [(fact.key, fact.value) for fact in store.facts(**scope, **when)]
        marks = [hit.superseded_by for hit in store.recall("Lisbon", **asked, **when) if hit.position == old.position]
        text = chat.context("Lisbon", **asked, **when).text
        return (
            (value(store, **when), [found for _, found in facts], marks),
            [hit.position for hit in store.recall("Lisbon", superseded="drop", **asked, **when)].count(old.position),
            ("no longer holds" in text, '"Lisbon"' in text, "): warm" in text, "4711" in text),
            [said.text for said in store.standing("tea", **scope, **when) if said.key],
        )

    today = (("Lisbon", ["formal", "Lisbon"], [None]), 1, (False, True, False, True), ["formal"])
    then = (("Porto", ["warm", "Porto"], [porto.position]), 0, (True, False, True, False), ["warm"])
    assert answers() == today
    page = store.recall("Lisbon", 1, **asked)
    second = store.recall("Lisbon", 1, after=page.next, **asked)
    receipts = [
        store.recall("Lisbon", superseded="drop", receipt=True, **asked).receipt,
        chat.context("Lisbon", receipt=True, **asked).receipt,
    ]
    begins, *_ = (event.recorded_at for event in store.events() if event.position == head)
    clock.advance(seconds=2 * 86_400)
    audited = store.audit.receipts().receipts
    assert [(item.position, item.verdict, item.would_differ_today) for item in audited] == [
        (receipt, "reproduces", True) for receipt in receipts
    ]
    assert store.recall("Lisbon", 1, after=page.next, **asked).hits == second.hits
    assert answers() == then
    assert answers(as_of=head) == answers(as_of=to_datetime(begins)) == today
    assert answers(as_of=tomorrow + timedelta(hours=1)) == then


def test_a_receipt_from_before_it_kept_the_time_is_judged_at_that_of_its_position(store, chat):
    """As recalls were then."""
    chat.assert_fact("user/city", "Lisbon", because=[chat.record("user", "I live in Lisbon.")])
    chat.assert_fact("user/city", "Porto")
    store.recall("Lisbon", superseded="drop", mode="text", receipt=True)
    (kept,) = [item.event for item in store.events() if isinstance(item.event, RecallServed)]
    assert kept.moment is not None
    before = msgspec.structs.replace(kept, moment=None)
    store.parts.log.appends.transact(lambda tx: tx.append("recalls", before))
    assert [item.verdict for item in store.audit.receipts().receipts] == ["reproduces"] * 2


def test_a_context_marks_what_a_fact_says_no_longer_holds(store, chat):
    """Hits, replies to them, and what was said later alike; `drop` leaves them out."""
    chat.record("user", "Where does the ferry leave?")
    reply = chat.record("assistant", "From pier nine.")
    old = chat.record("user", "The ferry leaves from pier nine, I think.")
    chat.assert_fact("ferry/pier", 9, valid_from="2023-03", because=[reply, old])
    new = chat.assert_fact("ferry/pier", 7, valid_from="2023-04")

    def marks(**how):
        blocks = chat.context("ferry leaves", mode="text", asked="keep", **how)
        return {item.position: item.superseded_by for block in blocks for item in block.passages}

    assert marks() == {2: None, reply.position: new.position, old.position: new.position}
    assert f"@{old.position} user (no longer holds: see the fact at @{new.position}): " in chat.context("ferry").text
    assert marks(superseded="drop") == {2: None}


def test_dropping_leaves_as_many_hits_as_there_are(store, chat):
    """Those that hold move up, on every page."""
    turns = [chat.record("user", f"The ferry number {n} leaves from the pier.") for n in range(120)]
    chat.assert_fact("ferries/old", True, valid_from="2023-03", because=turns[:80])
    chat.assert_fact("ferries/old", False, valid_from="2023-04")
    how = {"mode": "text", "superseded": "drop", "min_relevance": 0}
    first = store.recall("ferry pier", 30, **how)
    rest = store.recall("ferry pier", 30, after=first.next, **how)
    found = [hit.position for hit in (*first, *rest)]
    assert sorted(found) == [turn.position for turn in turns[80:]]
    assert rest.next is None
