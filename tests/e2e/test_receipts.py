"""Receipts of recalls and contexts: what was asked and shown stays in the log, and is asked again by an audit.

The explanation of an answer: what was searched, what each hit scored for, why a leg is missing.
"""

import shutil
import unicodedata
from datetime import timedelta
from functools import partial
from hashlib import sha256

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, Weights
from mnemolog.domain.errors import ModelWarning
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.domain.values import to_datetime
from mnemolog.projections.context.packing import ESTIMATE
from mnemolog.projections.recall.question import RANKING, decode_cursor, encode_cursor
from tests.support import EPOCH_2024, HalfEncoder, HashEncoder, Picky, nothing_written


def fill(store, count=12, *, session="s"):
    handle = store.start_session(session, scope="acme")
    for n in range(count):
        handle.record("user", f"tea number{n} word{n % 3}", speaker="Ada" if n % 2 else None, metadata={"n": n})
    return handle


@pytest.fixture
def session(store):
    """A session of twelve turns."""
    return fill(store)


def verdicts(audit):
    return [item.verdict.value for item in audit.receipts]


def test_a_receipt_holds_question_and_answer(store, session):
    """All that is needed to ask it again."""
    answer = session.recall(
        "tea word1", k=3, roles=["user"], speakers=["Ada"], metadata={"n": 1}, context_turns=2, receipt=True
    )
    (recorded,) = (event for event in store.events() if isinstance(event.event, RecallServed))
    served = recorded.event
    assert answer.receipt == recorded.position == store.head().position
    assert (recorded.stream, served.query, served.k, served.mode) == ("recalls", "tea word1", 3, "hybrid")
    assert (served.head, served.vectors_to, served.model) == (answer.head, answer.vectors_cover, answer.model)
    assert (served.session, served.lineage, served.scope) == ("s", True, "")
    assert (served.roles, served.speakers, served.metadata) == (["user"], ["Ada"], {"n": 1})
    assert served.hits == [hit.position for hit in answer.hits]
    assert served.scores == pytest.approx([sum(hit.score_parts.values()) for hit in answer.hits], abs=1e-5)
    assert served.scores == sorted(served.scores, reverse=True)
    assert served.ranks == {leg: [hit.ranks.get(leg, 0) for hit in answer.hits] for leg in answer.legs}
    assert (served.ranking, served.model_name) == (RANKING, "hash-words")


def test_a_store_opened_with_receipts_keeps_one_of_every_recall_and_context(folder, clock):
    """Of the store's and of its sessions'; a context has one alone, for its recall too. A call may say otherwise."""
    with MemoryStore.open(folder, model=None, clock=clock, receipts=True) as store:
        session = fill(store)
        first, second = store.recall("tea"), session.recall("tea")
        assert (first.receipt, second.receipt) == (store.head().position - 1, store.head().position)
        third, fourth = store.context("tea"), session.context("tea")
        assert (third.receipt, fourth.receipt) == (second.receipt + 1, second.receipt + 2)
        assert store.recall("tea", receipt=False).receipt is store.context("tea", receipt=False).receipt is None
        assert [item.kind for item in store.audit.receipts().receipts] == ["recall"] * 2 + ["context"] * 2
        assert store.audit.receipts().sound
    with MemoryStore.open(folder, model=None, clock=clock) as store, nothing_written(store):
        assert store.recall("tea").receipt is store.context("tea").receipt is None


def test_a_prefetched_answer_is_valid_where_receipts_are_kept(folder):
    """A receipt would be an event since the request."""
    with MemoryStore.open(folder, model=None, receipts=True) as store:
        session = fill(store)
        session.prefetch("tea")
        found = session.prefetch_result(max_behind=0, wait_s=30)
        assert found.recall
        assert found.recall.receipt is None


def test_the_environment_makes_the_command_line_keep_receipts(folder, run, monkeypatch):
    """And an option says otherwise."""
    with MemoryStore.open(folder, model=None) as store:
        fill(store)
    monkeypatch.setenv("MNEMOLOG_RECEIPTS", "1")
    assert "receipt @14" in run("recall", folder, "tea", "--model", "none").stdout
    assert "receipt" not in run("recall", folder, "tea", "--model", "none", "--no-receipt").stdout


def test_a_recall_without_one_writes_nothing(store, session):
    """And a receipt is no turn: nothing is recalled otherwise for it."""
    before, head = store.recall("receipt tea word1", k=100), store.head()
    assert store.recall("receipt tea word1", k=100) == before
    assert store.head() == head
    for _ in range(3):
        store.recall("receipt tea word1", receipt=True)
    assert store.recall("receipt tea word1", k=100).hits == before.hits
    assert len(session.turns()) == 12
    assert store.verify().sound
    assert store.replay().sessions[0].turns == tuple(session.turns())


def test_a_receipt_reproduces_and_says_what_would_differ_today(store, session):
    """A better turn came, so another went; the receipt before stays what it was."""
    answer = store.recall("tea word1", k=3, weights=Weights(neighbours=0.0), receipt=True)
    assert store.audit.receipts().receipts[0].would_differ_today is False
    new = session.record("user", "word1 tea")
    (item,) = store.audit.receipts().receipts
    assert (item.verdict.value, item.would_differ_today) == ("reproduces", True)
    assert item.came == (new.position,)
    assert item.went == (answer.hits[-1].position,)
    session.rewind(turns=1)
    (seen,) = [session.recall("tea word1", k=3, receipt=True)]
    assert new.position not in {hit.position for hit in seen.hits}
    assert verdicts(store.audit.receipts()) == ["reproduces"] * 2


def words(text):
    """A caller's tokenizer."""
    return len(text.split())


QUERIES = st.sampled_from(["tea", "word1 number4", "ferry", "the", "?!", "number2 word0 tea"])


@pytest.mark.local
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(
        st.fixed_dictionaries(
            {"query": QUERIES, "k": st.sampled_from([1, 4, 50])},
            optional={
                "mode": st.sampled_from(["text", "vector"]),
                "speakers": st.just(["Ada"]),
                "session": st.just("s"),
                "metadata": st.just({"n": 3}),
                "as_of": st.integers(0, 13),
            },
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_receipt_of_any_question_reproduces(asked, tmp_path_factory):
    """Of a recall, page by page, and of a context; between more turns, values, rewinds and receipts.

    Also from nothing but the log.
    """
    folder = tmp_path_factory.mktemp("receipts") / "memory"
    options = {"model": HashEncoder(dimension=32), "background": False}
    with MemoryStore.open(folder, **options) as store:
        session, made = fill(store), 0
        for options_of in asked:
            if options_of.get("as_of") in (0,) and "session" in options_of:
                continue
            answer = store.recall(**options_of, receipt=True)
            page = session.recall(options_of["query"], k=2, receipt=True)
            session.set("number", made, ttl=3600)
            session.context(options_of["query"], 50, min_relevance=0.4, tokenizer=words, receipt=True)
            store.context(options_of["query"], 700, mode=options_of.get("mode", "hybrid"), scope="acme", receipt=True)
            made += 4
            if page.next is not None:
                session.record("user", "tea number4 and more tea")
                session.recall(options_of["query"], k=9, after=page.next, receipt=True)
                made += 1
            if answer.head % 3 == 0:
                session.rewind(turns=1)
        assert verdicts(store.audit.receipts(tokenizer=words)) == ["reproduces"] * made
    shutil.rmtree(folder / "projections", ignore_errors=True)
    with MemoryStore.open(folder, **options) as again:
        assert verdicts(again.audit.receipts(tokenizer=words)) == ["reproduces"] * made


def changed(served, **change):
    """A receipt with other fields."""
    return RecallServed(**{name: getattr(served, name) for name in served.__struct_fields__} | change)


def served_by(store):
    return [event.event for event in store.events() if isinstance(event.event, RecallServed)]


def append_receipt(store, receipt):
    store.parts.log.appends.transact(lambda tx: tx.append("recalls", receipt))


@pytest.mark.usefixtures("session")
def test_a_receipt_of_another_answer_does_not_reproduce(store):
    """Said with the turns, the order, or the ranks and scores that are others."""
    store.recall("tea word1", k=3, receipt=True)
    (served,) = served_by(store)
    for change, why in (
        ({"hits": [2, *served.hits[:-1]]}, "came: "),
        ({"hits": served.hits[::-1]}, "another order"),
        ({"scores": [9.0, *served.scores[1:]]}, "other scores"),
        ({"ranks": served.ranks | {"text": [9, 9, 9]}}, "other ranks in the text leg"),
    ):
        append_receipt(store, changed(served, **change))
        item = store.audit.receipts().receipts[-1]
        assert item.verdict.value == "does-not-reproduce"
        assert why in item.why
    audit = store.audit.receipts()
    assert (audit.sound, audit.reproduced, audit.differing, audit.unknown) == (False, 1, 4, 0)


@pytest.mark.usefixtures("session")
def test_a_receipt_reproduces_with_a_vector_that_differs_in_rounding(store):
    """Other processors and libraries round a vector otherwise. Words are counted, so their scores must be equal."""
    store.recall("tea word1", k=3, receipt=True)
    store.recall("tea word1", k=3, mode="text", receipt=True)
    for served in served_by(store):
        append_receipt(store, changed(served, scores=[score + 1e-4 for score in served.scores]))
    assert verdicts(store.audit.receipts())[2:] == ["reproduces", "does-not-reproduce"]


def test_a_receipt_that_cannot_be_repeated_is_no_difference(folder, clock):
    """The model is not here, the store was opened for text only, or a newer mnemolog has asked."""
    with MemoryStore.open(folder, model=HashEncoder(), clock=clock, background=False) as store:
        fill(store)
        store.recall("tea word1", receipt=True)
        store.recall("tea word1", mode="text", receipt=True)
        newer = RecallServed(
            query="q", k=1, mode="dream", head=3, candidates=9, ranking="x/2", hits=[2], scores=[1.0], ranks={}
        )
        other = RecallServed(
            query="tea", k=1, mode="text", head=3, candidates=100, ranking="x/2", hits=[], scores=[], ranks={}
        )
        store.parts.log.appends.transact(lambda tx: [tx.append("recalls", newer), tx.append("recalls", other)])
        assert verdicts(store.audit.receipts()) == ["reproduces", "reproduces", "cannot-be-told", "cannot-be-told"]
        assert "x/2" in store.audit.receipts().receipts[-1].why
    for model in (None, HalfEncoder(0)):
        with MemoryStore.open(folder, model=model, clock=clock, background=False) as store:
            audit = store.audit.receipts(limit=2)
            assert verdicts(audit) == ["cannot-be-told", "reproduces"]
            assert audit.sound
            assert audit.more
            first = audit.receipts[0]
            assert first.why
            assert model is not None or (first.would_differ_today, first.came, first.today != "") == (None, (), True)


def test_a_receipt_of_an_unknown_ranking_cannot_be_checked(store, session):
    """Even if today's ranking happens to give the same answer. Today's answer is known all the same."""
    store.recall("tea word1", k=3, receipt=True)
    append_receipt(store, changed(*served_by(store), ranking="x/9"))
    session.record("user", "word1 tea")
    first, second = store.audit.receipts().receipts
    assert (first.verdict, second.verdict) == ("reproduces", "cannot-be-told")
    assert "'x/9'" in second.why
    assert RANKING in second.why
    assert second.would_differ_today is first.would_differ_today is True
    assert (second.came, second.went) == (first.came, first.went)


@pytest.mark.usefixtures("session")
def test_an_earlier_receipt_is_compared_with_todays_ranking_today(store):
    """With today's weights, if it had those of its time; with weights of its own, today's answer cannot be told.

    Nor with a weight that there is no more.
    """
    store.recall("tea word1", k=3, receipt=True)
    (served,) = served_by(store)
    rankings = [
        ("parts/1", {}),
        ("parts/1", {"distinct": True}),
        ("parts/1", {"vector": 2.0}),
        (RANKING, {"vector": "x"}),
        (RANKING, {"recency": 1.0}),
    ]
    for ranking, weights in rankings:
        append_receipt(store, changed(served, ranking=ranking, weights=weights))
    today, plain, distinct, own, *wrong = store.audit.receipts().receipts
    assert plain.would_differ_today is distinct.would_differ_today is today.would_differ_today is False
    assert (own.would_differ_today, "weights of parts/1" in own.today) == (None, True)
    assert [(item.verdict, "weights" in item.why) for item in wrong] == [("cannot-be-told", True)] * 2


@pytest.mark.usefixtures("session")
def test_a_page_that_another_ranking_began_is_not_continued(store):
    """An order made by one rule cannot go on with another."""
    after = store.recall("tea", k=2).next
    store.recall("tea", k=2, after=after)
    begun = msgspec.structs.replace(decode_cursor(after), ranking="parts/1")
    with pytest.raises(InvalidInput, match=r"ranked by parts/1, now by relevance/\d: begin again"):
        store.recall("tea", k=2, after=encode_cursor(begun))


@pytest.mark.local
def test_a_receipt_is_repeated_with_its_own_model_when_another_is_active(folder, clock):
    """It is found by its fingerprint, whichever is active now."""
    both = HalfEncoder(0), HalfEncoder(1)
    with MemoryStore.open(folder, model=both[0], models=[both[1]], clock=clock, background=False) as store:
        fill(store)
        before = store.recall("tea word1", k=4, receipt=True)
        store.models.add(both[1])
        store.models.activate(both[1])
        after = store.recall("tea word1", k=4, receipt=True)
        assert before.model != after.model
        assert store.recall("tea word1", k=4, as_of=before.head).hits == before.hits
        assert verdicts(store.audit.receipts()) == ["reproduces"] * 2
    with MemoryStore.open(folder, model=both[1], clock=clock, background=False) as store:
        assert verdicts(store.audit.receipts()) == ["cannot-be-told", "reproduces"]


def test_a_receipt_of_text_alone_where_the_vectors_failed_reproduces(folder, clock):
    """The answer was what it was, and today it would be another."""
    model = Picky("")
    with MemoryStore.open(folder, model=model, clock=clock, background=False) as store:
        fill(store)
        assert store.recall("tea", k=3, receipt=True).legs == ("text",)
        model.refuses = False
        (item,) = store.audit.receipts().receipts
        assert (item.verdict.value, item.would_differ_today) == ("reproduces", True)


@pytest.mark.local
@pytest.mark.usefixtures("session")
def test_an_audit_comes_in_pages_and_reports_progress(store, clock):
    """By position, by time, so many at once; receipts of recalls and of contexts as they come."""
    asked = [partial(store.recall, "tea", k=1), partial(store.context, "tea")]
    positions = [ask(receipt=True).receipt for ask in (asked * 3)[:5]]
    seen = []
    audit = store.audit.receipts(limit=2, progress=lambda done, total: seen.append((done, total)))
    assert [item.kind for item in audit.receipts] == ["recall", "context"]
    assert [item.position for item in audit.receipts] == positions[:2]
    assert (audit.more, seen) == (True, [(1, 2), (2, 2)])
    rest = store.audit.receipts(after=positions[1])
    assert [item.position for item in rest.receipts] == positions[2:]
    assert not rest.more
    third = rest.receipts[0].served_at
    assert [item.position for item in store.audit.receipts(since=third).receipts] == positions[2:]
    assert store.audit.receipts(since=to_datetime(EPOCH_2024) + timedelta(days=1)).receipts == ()
    with pytest.raises(InvalidInput):
        store.audit.receipts(limit=0)


def test_the_audit_command_reports_its_verdict_by_exit_status(run, folder):
    """0 where all reproduce or cannot be told, 1 where one does not."""
    with MemoryStore.open(folder, model=None) as store:
        fill(store)
    recall = ["recall", folder, "tea word1", "--model", "none"]
    answer = run(*recall, "--receipt", "--speaker", "Ada", "--meta", "n=1", "--json").json
    assert [hit["metadata"] for hit in answer["hits"]] == [{"n": 1}]
    shown = run(*recall, "--k", "2", "--context-turns", "1", "--as-of", answer["head"], "--receipt")
    assert f"up to position {answer['head']}, as of then" in shown.stdout
    assert "receipt @15" in shown.stdout
    cursor = shown.stderr.split("--after ")[1].split()[0]
    assert run(*recall, "--after", cursor, "--json").json["as_of"] == answer["head"]
    assert run(*recall, "--after", "nonsense").returncode == 2
    assert run(*recall, "--meta", "n").returncode == 2
    assert run(*recall, "--as-of", "99").returncode == 2
    audit = run("audit", folder, "--model", "none", "--json").json
    assert [item["verdict"] for item in audit["receipts"]] == ["reproduces"] * 2
    assert audit["receipts"][1]["position"] == 15
    shown = run("audit", folder, "--model", "none", "--since", "2020-01-01")
    assert "2 receipts: 2 reproduce, 0 do not, 0 cannot be told" in shown.stdout
    with MemoryStore.open(folder, model=None) as store:
        append_receipt(store, changed(served_by(store)[0], scores=[9.0]))
    assert "does not reproduce" in run("audit", folder, "--model", "none").exited(1).stdout


LONG = "Nothing was decided. " * 40 + "The tram to the ferry costs 4 euros. " + "Nothing was decided. " * 40


def letters(text):
    """Another one."""
    return len(text)


@pytest.fixture
def talked_of(folder, clock):
    with MemoryStore.open(folder, model=None, clock=clock) as opened:
        trip = opened.session("trip", scope="acme/ada")
        trip.set_task("Book the ferry")
        trip.set("city", "Porto")
        trip.set("code", "4711", ttl=60)
        trip.note("ask Ada")
        trip.record("user", "We could take the ferry.")
        trip.record("assistant", LONG)
        yield opened


@pytest.fixture
def trip(talked_of):
    return talked_of.session("trip")


def receipts_of(talked_of):
    return [event for event in talked_of.events() if isinstance(event.event, ContextServed)]


def test_a_receipt_records_what_was_shown(talked_of, trip):
    """Question, budget, counter, position, turns with offsets, names of values and a digest of the text."""
    context = trip.context("What does the ferry cost?", 600, receipt=True)
    (recorded,) = receipts_of(talked_of)
    served = recorded.event
    assert (context.receipt, recorded.stream) == (recorded.position, "recalls")
    assert (served.recall.query, served.recall.head) == ("What does the ferry cost?", context.head)
    assert (served.budget, served.tokens, served.counted_by, served.of) == (600, context.tokens, ESTIMATE, "trip")
    assert tuple(served.turns) == context.positions
    shown = [passage for block in context for passage in block.passages]
    assert list(zip(served.starts, served.ends, strict=True)) == [(item.start, item.end) for item in shown]
    assert (served.has_task, served.values, served.notes) == (True, ["city", "code"], 1)
    assert served.digest == sha256(context.text.encode()).hexdigest()
    assert served.sessions == ["trip"]
    (moment,) = [item for item in talked_of.audit.timeline() if item.position == recorded.position]
    assert "context for 'What does the ferry cost?'" in moment.what


def test_the_audit_says_whether_a_context_reproduces_and_would_differ_today(talked_of, trip, clock):
    """A turn came; a value expired. As of an earlier position it is the same, whatever was recorded since."""
    context = trip.context("ferry", receipt=True)
    audit = talked_of.audit.receipts()
    assert (verdicts(audit), audit.changed_today, audit.sound) == (["reproduces"], 0, True)
    new = trip.record("user", "The ferry, the ferry!")
    (item,) = talked_of.audit.receipts().receipts
    assert (item.verdict.value, item.would_differ_today, item.came, item.went) == (
        *("reproduces", True),
        *((new.position,), ()),
    )
    assert (item.turns, item.session) == (context.positions, "trip")
    trip.rewind(turns=1)
    assert not talked_of.audit.receipts().receipts[0].would_differ_today
    as_of = trip.context("ferry", as_of=context.head, receipt=True).receipt
    trip.record("user", "One more ferry.")
    assert not talked_of.audit.receipts(after=as_of - 1).receipts[0].would_differ_today
    trip.rewind(turns=1)
    clock.advance(seconds=61)
    (item, _) = talked_of.audit.receipts().receipts
    assert (item.verdict.value, item.would_differ_today, item.came, item.went) == ("reproduces", True, (), ())


@pytest.mark.local
def test_a_context_counted_by_the_caller_needs_its_tokenizer_again(talked_of):
    """Without it nothing can be told, and the reason says what to pass."""
    talked_of.context("ferry", 60, tokenizer=words, receipt=True)
    talked_of.context("ferry", 600, receipt=True)
    without = talked_of.audit.receipts()
    assert verdicts(without) == ["cannot-be-told", "reproduces"]
    assert "words counted its tokens: pass that function to" in without.receipts[0].why
    assert verdicts(talked_of.audit.receipts(tokenizer=letters)) == ["cannot-be-told", "reproduces"]
    assert verdicts(talked_of.audit.receipts(tokenizer=words)) == ["reproduces"] * 2


def test_a_receipt_of_another_text_does_not_reproduce(talked_of, trip):
    """Whoever wrote it."""
    trip.context("ferry", receipt=True)
    served = receipts_of(talked_of)[0].event
    fields = {name: getattr(served, name) for name in served.__struct_fields__}
    for change in ({"digest": "0" * 64}, {"turns": served.turns[:1], "starts": [0], "ends": [5], "digest": "0" * 64}):
        forged = ContextServed(**fields | change)
        talked_of.parts.log.appends.transact(lambda tx, forged=forged: tx.append("recalls", forged))
    audit = talked_of.audit.receipts()
    assert verdicts(audit) == ["reproduces", "does-not-reproduce", "does-not-reproduce"]
    assert not audit.sound
    assert audit.receipts[1].why == "the same turns, in another text"
    assert "other turns" in audit.receipts[2].why


@pytest.mark.parametrize("form", ["context/4", "context/99"])
def test_a_receipt_of_another_format_is_read_and_the_audit_says_so(talked_of, trip, form):
    """Its text cannot be built again, but what was shown is in it."""
    trip.context("ferry", receipt=True)
    served = receipts_of(talked_of)[0].event
    fields = {name: getattr(served, name) for name in served.__struct_fields__}
    other = ContextServed(**fields | {"form": form})
    talked_of.parts.log.appends.transact(lambda tx: tx.append("recalls", other))
    item = talked_of.audit.receipts().receipts[-1]
    assert (item.turns, item.query, item.verdict.value) == (tuple(served.turns), "ferry", "cannot-be-told")
    assert item.why == f"it was built as {form}, this mnemolog builds context/6"


@pytest.mark.log_file
def test_forgetting_what_a_context_showed_forgets_its_receipt(folder, tmp_path):
    """Its session or scope, a turn that it showed, a value that it may have shown.

    Also where the question named neither: its digest could be compared with guesses.
    """
    with MemoryStore.open(folder, model=None) as talked_of:
        trip = talked_of.session("trip", scope="acme/ada")
        trip.set("city", "Porto")
        value = talked_of.head().position
        turn = trip.record("user", "We could take the ferry.").position
        other = talked_of.session("other", scope="elsewhere")
        other.record("user", "A ferry elsewhere.")
    for number, wish in enumerate(({"session": "trip"}, {"scope": "acme"}, {"positions": turn}, {"positions": value})):
        with MemoryStore.open(shutil.copytree(folder, tmp_path / str(number)), model=None) as talked_of:
            (talked_of if wish != {"positions": value} else talked_of.session("trip")).context("ferry", receipt=True)
            talked_of.session("other").context("ferry", receipt=True)
            wish["questions"] = False
            assert talked_of.forget(**wish, dry_run=True).counts["context.served.v1"] == 1, wish
            talked_of.forget(**wish)
            audit = talked_of.audit.receipts()
            assert (audit.forgotten, [item.session for item in audit.receipts]) == (1, ["other"]), wish
            assert talked_of.verify(contents=True).sound


def test_an_unrelated_turn_that_is_forgotten_leaves_the_receipt(talked_of, trip):
    """What then differs cannot be told from what was forgotten."""
    extra = trip.record("user", "Nothing to do with it.").position
    trip.context("ferry", roles=["assistant"], receipt=True)
    talked_of.forget(positions=[extra], questions=False)
    audit = talked_of.audit.receipts()
    assert audit.forgotten == 0
    assert verdicts(audit)[0] in ("reproduces", "cannot-be-told")


@pytest.fixture
def talk(store):
    """Three turns, of two speakers; the model is a fake."""
    trip = store.start_session("trip", scope="acme/alice")
    trip.record("user", "My dog is called Rex.", speaker="Alice", metadata={"channel": "mail"})
    trip.record("user", "What is my dog called?", speaker="Alice")
    trip.record("assistant", "Your cat, my dear, is called Tom. " * 50)
    return trip


def columns(line):
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def test_an_explanation_says_what_was_searched(folder, store, talk, run):
    """The question, how many turns, up to where, and with which filters. So does the recall, and the command line."""
    answer = store.recall("dog", scope="acme", roles=["user"], since="2024-01-01T00:00Z")
    assert (list(answer.filters), answer.searched_turns) == (["scope", "roles", "since"], 2)
    text = answer.explain()
    for line in (
        "question    dog\n",
        "searched    2 turns up to position 4 (the newest)\n",
        "filters     scope acme; roles user; since 2024-01-01T00:00:00+00:00\n",
        "by words    yes\nby meaning  yes, every turn\n",
    ):
        assert line in text
    assert "searched    1 turn up to position 2 (as of then)" in store.recall("dog", as_of=2).explain()
    assert "channel='mail'" in store.recall("dog", metadata={"channel": "mail"}).explain()
    assert f"session {talk.id}; lineage yes" in talk.recall("dog").explain()
    plain = store.recall("dog", mode="text")
    assert (plain.filters, plain.searched_turns) == ({}, 3)
    assert run("recall", folder, "dog", "--mode", "text", "--explain").stdout == plain.explain() + "\n"
    nothing = store.recall("submarine", mode="text").explain()
    assert nothing.endswith("No turn was found.")
    assert "searched" in nothing


def test_an_explanation_shows_what_each_hit_scored_for_as_bars(store, talk):
    """Parts that were subtracted too. The longest bar is the largest part of all hits."""
    answer = store.recall("what is the dog of Alice called")
    text = answer.explain()
    for number, hit in enumerate(answer, 1):
        block = text.split(f"\n{number}. @{hit.position} ")[1].split("\n\n")[0]
        bars = [line for line in block.splitlines() if line[-6:].strip().replace("-", "").replace(".", "").isdigit()]
        assert [float(line[-6:]) for line in bars] == pytest.approx(
            [part for part in hit.score_parts.values() if part], abs=0.006
        )
        assert f"relevance {hit.relevance:.2f}; " in block
    assert "the speaker you named" in text
    assert "any turn                    ░" in text
    assert max(line.count("█") + line.count("░") for line in text.splitlines()) == 32


def test_an_explanation_says_why_the_meaning_was_not_searched(folder, store, talk):
    """There is no model, or it was not asked."""
    with MemoryStore.open(folder, model=None) as words:
        assert "by meaning  no: only words were searched" in words.recall("dog").explain()
    with MemoryStore.open(folder, model="no-such-model", background=False) as lost:
        with pytest.warns(ModelWarning):
            answer = lost.recall("dog")
        assert f"by meaning  no: {answer.unavailable_legs['vector']}"[:40] in answer.explain()
    assert "by meaning  no: only words were searched" in store.recall("dog", mode="text").explain()
    only = store.recall("dog", mode="vector").explain()
    assert "by words    no: only the meaning was asked for" in only
    assert "similarity" in only


def test_an_explanation_says_how_far_the_vectors_reach(store):
    """Where not every turn is embedded yet."""
    session = store.start_session("long")
    for number in range(100):
        session.record("user", f"tea number {number}")
    answer = store.recall("tea")
    assert answer.vectors_cover == 65
    assert "by meaning  only turns up to position 65; the vectors reach no further yet" in answer.explain()


def test_an_explanation_fits_80_columns_and_cannot_steer_a_terminal(store, talk):
    """Whatever was said, in any script, and whatever was asked."""
    talk.record("user", "dog \x1b[31m\n1. @1 forged " + "里斯本" * 60, speaker="Ada" * 80)
    talk.record("user", "dog 🎂" * 60)
    long = "dog " * 60 + "里斯本 \x1b[2J"
    for answer in (store.recall(long), store.recall("dog", weights=Weights(role=2.0)), talk.recall("dog", k=9)):
        lines = answer.explain().splitlines()
        assert max(map(columns, lines)) <= 80
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("1. ") for line in lines) == 1
