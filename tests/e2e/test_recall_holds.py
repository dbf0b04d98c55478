"""What a recall promises: an answer in one order, with its reasons and their relevance, whatever is asked and fails."""

import itertools
import json
import math
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, ModelUnavailable, Weights
from mnemolog.domain.errors import ModelError, ProjectionError
from mnemolog.domain.events import RecallServed
from mnemolog.projections.context.answer import NOTHING_FITS
from mnemolog.projections.recall import service
from mnemolog.projections.recall.hits import EXCHANGE_TURNS_MAX, REACH
from mnemolog.projections.recall.question import FLOOR, FLOOR_WITHOUT, MODES
from mnemolog.projections.recall.scoring import fitted
from mnemolog.projections.vectors import projection as vectors
from tests.support import FakeClock, HashEncoder, as_stored, projections_of

WORDS = ("tea", "dog", "boat", "sun", "map")
EVERYTHING = 1_000

many = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


# Against a program that knows the formulas of projections/recall/scoring.py, and nothing of indexes.


def naive(turns, visible, query, k):
    """The answer to a query from the `visible` positions, where words are counted in all `turns`."""
    terms = list(dict.fromkeys(query.split()))
    known = [term for term in terms if any(term in text.split() for _, text, _ in turns)]
    place, counted = {}, Counter()
    for position, _, session in turns:
        place[position] = session, counted[session]
        counted[session] += 1
    seen = {place[p]: (p, text) for p, text, _ in turns if p in visible}

    def rarity(term):
        having = sum(term in text.split() for _, text, _ in turns)
        return math.log(1 + (len(turns) - having + 0.5) / (having + 0.5))

    def own(at, term):
        if at not in seen:
            return 0.0
        text = seen[at][1]
        frequency = text.split().count(term)
        return frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * (len(text) + 2) / 400))

    def best(at, term):
        session, n = at
        lent = {0: 1.0, -2: 0.5, -1: 0.7, 1: 0.5, 2: 0.4}
        return max(share * own((session, n + away), term) for away, share in lent.items())

    asked = sum(rarity(term) for term in terms)
    encoder = HashEncoder(dimension=32)
    wanted = encoder.encode([query])[0].astype(np.float64)
    near = {
        at: round(float(as_stored(encoder.encode([said]))[0].astype(np.float64) @ wanted), 6)
        for at, (_, said) in seen.items()
    }
    model = fitted().with_vectors
    worth = {}
    for (session, n), (position, text) in seen.items():
        at = session, n
        here = sum(rarity(term) * own(at, term) for term in known) / asked
        features = {
            "words_present": sum(rarity(term) for term in known if term in text.split()) / asked,
            "words": here,
            "words_near": sum(rarity(term) * best(at, term) for term in known) / asked - here,
            "meaning": near[at],
            "meaning_near": max(near[session, n + away] for away in range(-2, 3) if (session, n + away) in near),
        }
        scored = model.offset + sum(model.features[name] * value for name, value in features.items())
        worth[position] = round(scored, 9)
    return sorted(worth, key=lambda p: (-worth[p], p))[:k]


EACH = {"min_relevance": 0, "weights": Weights(distinct=False), "asked": "keep"}
"""Every turn is a hit of its own."""
TURNS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(lambda words: " ".join(sorted(words)))
STEPS = st.lists(st.one_of(TURNS, st.sampled_from(["<rewind", "<branch", "<other"])), min_size=1, max_size=25)


@many
@given(STEPS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(" ".join), st.data())
def test_an_answer_is_the_one_a_naive_program_gives(tmp_path_factory, steps, query, data):
    """After rewinds, on a branch, store-wide, and as of any offset: the same turns, ties by position."""
    folder = tmp_path_factory.mktemp("naive") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(dimension=32), background=False, synchronous="NORMAL") as store:
        at = store.start_session("s0")
        store.start_session("other")
        turns, visible = [], []
        past = {store.head().position: ([], {"s0": []}, at)}
        for step in steps:
            if step == "<rewind":
                at.rewind(turns=1)
                visible = visible[:-1]
            elif step == "<branch":
                at = at.branch()
            elif step == "<other":
                turns.append((store.record("other", "user", "dog dog sun").position, "dog dog sun", "other"))
            else:
                turn = (at.record("user", step).position, step, at.id)
                turns, visible = [*turns, turn], [*visible, turn]
            past[store.head().position] = (list(turns), {at.id: list(visible)}, at)
        if not turns:
            return
        for position in {store.head().position, data.draw(st.sampled_from(sorted(past)))}:
            turns, sessions, at = past[position]
            if not turns:
                continue
            found = [hit.position for hit in store.recall(query, k=EVERYTHING, as_of=position, **EACH).hits]
            assert found == naive(turns, {turn[0] for turn in turns}, query, EVERYTHING)
            found = [hit.position for hit in at.recall(query, k=4, as_of=position, **EACH).hits]
            assert found == naive(turns, {turn[0] for turn in sessions[at.id]}, query, 4)


ASK = """
import json, sys
from mnemolog import MemoryStore
from tests.support import HashEncoder
with MemoryStore.open(sys.argv[1], model=HashEncoder(), background=False) as store:
    answers = [store.recall("tea number3", k=50), store.session("s").recall("tea number3", k=3, as_of=int(sys.argv[2]))]
print(json.dumps([[hit.position for hit in answer.hits] for answer in answers]))
"""


def test_another_process_answers_alike_right_after_a_turn_was_recorded(store, folder, session):
    """And as of an offset before that."""
    for n in range(9):
        session.record("user", f"tea number{n}")
    head = store.head().position
    session.rewind(turns=2)
    session.record("user", "tea number3 again")
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(folder), str(head)], check=True, capture_output=True, text=True, cwd="."
    )
    answers = [store.recall("tea number3", k=50), session.recall("tea number3", k=3, as_of=head)]
    assert json.loads(asked.stdout) == [[hit.position for hit in answer.hits] for answer in answers]
    assert len(answers[0].hits) == 10


# Whatever is typed.


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A store with turns in several languages, later ones among them."""
    with MemoryStore.open(tmp_path_factory.mktemp("odd") / "memory", model=HashEncoder(dimension=16)) as store:
        session = store.start_session("s")
        for text in ("tea", "お茶を飲みます", "чай и мёд", "شاي", "🍵", "C++ a_b NEAR", "İstanbul ﬁsh", '"quoted"'):
            session.record("user", text)
        yield store


def ask_in_every_way(store, query):
    answers = [store.recall(query, mode=mode, as_of=as_of, min_relevance=0) for mode in MODES for as_of in (None, 6)]
    for answer in answers:
        assert answer.unavailable_legs == {}
        assert answer.hits or "vector" not in answer.legs
    return answers


QUERIES = [
    *('"', "*", "NEAR(a b)", "NEAR(", "-a", "a AND", "OR", "NOT", "^a", "col:x", "{a b}: c", "a + b", "'; DROP--"),
    *(
        "()",
        "\\",
        "%_",
        "?!...",
        "___",
        "😀",
        "👩\u200d👩\u200d👧",
        "お茶",
        "شاي",
        "чай",
        "İ",
        "ß",
        "ﬁ",
        "e\u0301",
        "\u200b",
    ),
    *("a\x00b", "\x00", "\ud800", "tea \udfff tea", "\x1b[0m", "x" * 10_000, "word " * 2_000),
    "".join(map(chr, range(0x400, 0x4FF))),
    " ".join(f"w{n}" for n in range(1_500)),
]


def test_any_query_is_answered(spoken):
    """No syntax, no encoding and no length of it is an error, now and as of before."""
    for query in QUERIES:
        ask_in_every_way(spoken, query)
        spoken.recall(query, receipt=True)
    assert spoken.audit.receipts(limit=EVERYTHING).sound


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_answered_or_refused_as_empty(spoken, query):
    """Lone surrogates and NUL included."""
    if not query.strip():
        with pytest.raises(InvalidInput, match="empty"):
            spoken.recall(query)
    else:
        ask_in_every_way(spoken, query)


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_an_empty_query_is_refused(spoken, query):
    """In every mode, by the store and by a session."""
    for face, mode in itertools.product((spoken, spoken.session("s")), MODES):
        with pytest.raises(InvalidInput, match="query: empty"):
            face.recall(query, mode=mode)


# Whatever fails.


class Missing:
    """A model whose library is not there."""

    name, fingerprint, dimension = "missing", "missing/1", 8

    def encode(self, texts):
        raise ImportError("no such library")


class OutOfMemory(Missing):
    def encode(self, texts):
        raise MemoryError


class Broken(Missing):
    def encode(self, texts):
        raise RuntimeError("the device does not answer")


@pytest.mark.filterwarnings("ignore::mnemolog.errors.ModelWarning")
@pytest.mark.parametrize("model", [None, Missing(), OutOfMemory(), Broken(), "no-such-model-anywhere"])
def test_text_answers_where_the_model_does_not(folder, model):
    """With the reason in the answer; who asks for vectors alone is told by an error of ours."""
    with MemoryStore.open(folder, model=model, background=False) as store:
        session = store.start_session("s")
        session.record("user", "tea")
        for face in (store, session):
            answer = face.recall("tea")
            assert [hit.text for hit in answer.hits] == ["tea"]
            assert (answer.legs, answer.vectors_cover, answer.model) == (("text",), None, None)
            assert ("vector" in answer.unavailable_legs) == (model is not None)
            with pytest.raises(ModelUnavailable if model is None else ModelError):
                face.recall("tea", mode="vector")


@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("index: allocation failed"), OSError(5, "I/O error")])
@pytest.mark.parametrize("as_of", [None, 2])
def test_text_answers_where_the_search_of_vectors_fails(store, monkeypatch, failure, as_of, request):
    """Nothing of another library comes through; in this process the error has its cause, for who reads a traceback."""
    store.start_session("s").record("user", "tea")
    store.recall("tea")

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(vectors, "nearest", fail)
    answer = store.recall("tea", as_of=as_of)
    assert (answer.legs, len(answer.hits)) == (("text",), 1)
    assert type(failure).__name__ in answer.unavailable_legs["vector"]
    with pytest.raises(ProjectionError, match=type(failure).__name__) as caught:
        store.recall("tea", mode="vector", as_of=as_of)
    assert caught.value.__cause__ is failure or request.config.option.through == "http"
    monkeypatch.undo()
    assert store.recall("tea").legs == ("text", "vector")


def test_equal_turns_are_in_the_order_of_the_log(store):
    """In every leg, in every mode, over a page's end, and as of an earlier offset."""
    sessions = [store.start_session(f"s{n}") for n in range(3)]
    turns = [sessions[n % 3].record("user", "tea") for n in range(30)]
    positions = [turn.position for turn in turns]
    for mode in MODES:
        assert [hit.position for hit in store.recall("tea", k=100, mode=mode, **EACH).hits] == positions
        first = store.recall("tea", k=11, mode=mode, **EACH)
        rest = store.recall("tea", k=100, mode=mode, **EACH, after=first.next)
        assert [hit.position for hit in (*first.hits, *rest.hits)] == positions
        as_of = store.recall("tea", k=100, mode=mode, **EACH, as_of=positions[19])
        assert [hit.position for hit in as_of.hits] == positions[:20]


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_of_one_offset_while_others_record(store, monkeypatch, mode):
    """Turns that are recorded and read by the views before, between and after a recall's reads play all or no part."""
    session, others = store.start_session("s"), store.start_session("others")
    for n in range(5):
        session.record("user", f"tea number{n}", speaker="Ada")
    honest = {name: getattr(service, name) for name in ("from_views", "with_neighbours", "hits_of")}

    def while_others_record(name):
        def read(*asked, **how):
            others.record("user", "tea tea", speaker="Tea")
            projections_of(store).current_views()
            found = honest[name](*asked, **how)
            others.record("user", "tea tea tea")
            projections_of(store).current_views()
            return found

        return read

    for name in honest:
        monkeypatch.setattr(service, name, while_others_record(name))
    answer = store.recall("tea Ada", k=100, mode=mode, context_turns=2)
    monkeypatch.undo()
    assert all(turn.position <= answer.head for hit in answer.hits for turn in (hit, *hit.before, *hit.after))
    assert answer.hits == store.recall("tea Ada", k=100, mode=mode, context_turns=2, as_of=answer.head).hits
    assert answer.as_of is None
    assert answer.head < store.head().position


SAID = ["ferry", "tea", "dog", "flat", "Lisbon", "when", "does", "it", "leave?", "nine", "I", "like", "you", "ERR_42"]


def filled(folder, turns, *, seed=7, **options):
    """Open a store with random turns in three sessions, all embedded."""
    rng = random.Random(seed)
    store = MemoryStore.open(folder, model=HashEncoder(dimension=32), clock=FakeClock(), background=False, **options)
    for name in "abc":
        store.start_session(name, scope=f"acme/{name}")
    for n in range(turns):
        text = " ".join(rng.choices(SAID, k=rng.randint(1, 9)))
        store.record("abc"[n % 3], ("user", "assistant")[n % 2], text, speaker=("Ada", None)[n % 2])
    store.admin.catch_up_vectors()
    return store


@pytest.fixture(scope="module")
def plenty(tmp_path_factory):
    """A store with more turns than the first stage of candidates has."""
    with filled(tmp_path_factory.mktemp("relevance") / "memory", 400) as store:
        yield store


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A store whose turns are all candidates at once."""
    with filled(tmp_path_factory.mktemp("few") / "memory", 40) as store:
        yield store


def between(answer):
    """A number that leaves some of an answer and leaves some out."""
    found = sorted({hit.relevance for hit in answer})
    return (found[len(found) // 2 - 1] + found[len(found) // 2]) / 2


def pages(store, query, *, k, **options):
    """All pages of an answer."""
    found = [store.recall(query, k, **options)]
    while found[-1].next is not None:
        found.append(store.recall(query, k, after=found[-1].next, **options))
    return found


@settings(max_examples=150)
@given(
    query=st.lists(st.sampled_from([*SAID, "Ada", "yesterday", "zebra"]), min_size=1, max_size=6).map(" ".join)
    | st.text(min_size=1).filter(str.strip),
    mode=st.sampled_from(MODES),
    k=st.integers(1, 120),
)
def test_relevance_lies_between_zero_and_one(plenty, query, mode, k):
    """Whatever is asked, in every mode."""
    answer = plenty.recall(query, k, mode=mode)
    assert all(0.0 <= hit.relevance <= 1.0 for hit in answer)


@pytest.mark.parametrize("mode", MODES)
def test_relevance_falls_along_every_stage(few, plenty, mode):
    """`Ranking.add` stops at the first turn below `min_relevance`: so none above it may come behind.

    What is said again in nearly the same words, as in these stores, comes after other turns unless `distinct` is off.
    """
    for store, k in ((few, EVERYTHING), (plenty, 50)):
        asked = {"mode": mode, "weights": Weights(distinct=False)}
        found = [hit.relevance for hit in store.recall("when does the ferry leave", k, **asked)]
        assert found == sorted(found, reverse=True)
        assert len(set(found)) > 1


@pytest.mark.parametrize("mode", MODES)
def test_a_hit_below_min_relevance_is_left_out(few, mode):
    """The others are the same, in the same order; how many are missing is said. One of exactly that bound stays."""
    whole = few.recall("when does the ferry leave", EVERYTHING, mode=mode, min_relevance=0)
    for least in (between(whole), whole[len(whole) // 2].relevance):
        left = few.recall("when does the ferry leave", EVERYTHING, mode=mode, min_relevance=least)
        assert left.hits == tuple(hit for hit in whole if hit.relevance >= least)
        assert left.left_out == len(whole) - len(left) > 0
        assert (left.filters, left.next) == ({"min_relevance": least}, None)
    assert (whole.left_out, whole.filters) == (0, {"min_relevance": 0})


@pytest.mark.parametrize(
    ("query", "least", "most"), [("when does the ferry leave", FLOOR, 99), ("zebra", FLOOR_WITHOUT, 5)]
)
def test_without_a_min_relevance_the_best_hit_sets_the_floor(few, query, least, most):
    """Where nothing fits well, only a few are returned; also over pages, and by a context, which says so."""
    whole = few.recall(query, EVERYTHING, min_relevance=0)
    found = few.recall(query, EVERYTHING)
    assert found.hits == tuple(hit for hit in whole if hit.relevance >= least)[:most]
    assert 0 < len(found) < len(whole)
    assert (found.min_relevance, found.fits, found.left_out) == (least, most > 5, len(whole) - len(found))
    assert [hit for page in pages(few, query, k=3) for hit in page] == list(found)
    context = few.context(query, 4_000)
    assert (context.min_relevance, context.fits) == (least, found.fits)
    assert (NOTHING_FITS in context.text) is not found.fits
    if not found.fits:
        assert {*context.positions} == {hit.position for hit in found}


def test_an_answer_that_is_full_leaves_nothing_out(few):
    """What is missing counts, not what lies behind the last hit."""
    whole = few.recall("ferry", EVERYTHING)
    least = between(whole)
    left = sum(hit.relevance >= least for hit in whole)
    for k in (1, left - 1, left, left + 1, left + 5):
        answer = few.recall("ferry", k, min_relevance=least)
        assert (len(answer), answer.left_out) == (min(k, left), min(max(k - left, 0), len(whole) - left))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 3, 7])
def test_pages_with_min_relevance_give_every_relevant_turn_once(few, mode, k):
    """All of them are full but the last, and that one ends them."""
    whole = few.recall("ferry dog", EVERYTHING, mode=mode)
    least = between(whole)
    found = pages(few, "ferry dog", k=k, mode=mode, min_relevance=least)
    assert [hit for page in found for hit in page] == [hit for hit in whole if hit.relevance >= least]
    assert all(len(page) == k and page.left_out == 0 for page in found[:-1])
    assert found[-1].left_out == min(k - len(found[-1]), len(whole) - sum(map(len, found)))


@pytest.mark.parametrize("mode", MODES)
def test_pages_with_min_relevance_read_further_candidates(plenty, mode):
    """No turn twice, none of less relevance, and more than the first stage has where there are more."""
    least = 0.05
    found = [hit for page in pages(plenty, "ferry", k=40, mode=mode, min_relevance=least) for hit in page]
    assert len({hit.position for hit in found}) == len(found)
    assert all(hit.relevance >= least for hit in found)
    assert {hit.position for hit in found} >= {
        hit.position for hit in plenty.recall("ferry", EVERYTHING, mode="text") if "ferry" in hit.text
    } or mode == "vector"
    assert len(found) > 60


def test_a_question_without_relevant_turns_ends_at_once(plenty):
    """One answer without hits, and no further page: the rest of the store is not searched for them."""
    for mode in MODES:
        answer = plenty.recall("zebra", 5, mode=mode, min_relevance=1.0)
        assert (answer.hits, answer.next) == ((), None)
        assert answer.left_out == (0 if mode == "text" else 5)


def test_a_min_relevance_that_no_hit_can_have_is_refused(store, session):
    """By name; nothing is read."""
    for wrong in (-0.1, 1.1, float("nan"), float("inf"), True, "0.5", (0.5,)):
        for ask in (store.recall, session.recall, session.prefetch):
            with pytest.raises(InvalidInput, match="min_relevance"):
                ask("tea", min_relevance=wrong)


def test_a_receipt_has_the_min_relevance_and_is_repeated_with_it(folder):
    """Today too; a receipt of a recall without one has none."""
    with filled(folder, 40) as few:
        least = between(few.recall("ferry", EVERYTHING))
        strict = few.recall("ferry", 30, min_relevance=least, receipt=True)
        few.recall("ferry", 30, receipt=True)
        served = [event.event for event in few.events() if isinstance(event.event, RecallServed)]
        assert [one.min_relevance for one in served] == [least, None]
        assert len(served[0].hits) == len(strict) < 30
        audit = few.audit.receipts()
        assert (audit.reproduced, audit.changed_today) == (2, 0)


def test_a_session_and_a_prefetch_leave_out_the_same(few):
    """With the same argument."""
    session = few.session("a")
    whole = session.recall("ferry", 10)
    least = between(whole)
    expected = tuple(hit for hit in whole if hit.relevance >= least)
    assert 0 < len(expected) < len(whole)
    assert session.recall("ferry", 10, min_relevance=least).hits == expected
    session.prefetch("ferry", k=10, min_relevance=least)
    assert session.prefetch_result(wait_s=60).recall.hits == expected


class ByLength:
    """A reranker."""

    name = "by length"

    def score(self, query, texts):
        return [len(text) for text in texts]


def test_a_reranker_orders_what_is_left(folder):
    """What is below is left out before: it costs the reranker nothing."""
    with filled(folder, 40, reranker=ByLength()) as store:
        whole = store.recall("ferry", EVERYTHING)
        least = between(whole)
        left = store.recall("ferry", EVERYTHING, min_relevance=least)
        assert left.reranker == "by length"
        assert {hit.position for hit in left} == {hit.position for hit in whole if hit.relevance >= least}
        assert [hit for page in pages(store, "ferry", k=3, min_relevance=least) for hit in page] == list(left)


def test_an_explanation_and_the_command_line_say_how_many_were_left_out(folder, run):
    """And below what: `--min-relevance`, a number from 0 to 1."""
    with filled(folder, 40) as few:
        expected = few.recall("ferry", 40, mode="text", min_relevance=0.6)
        assert expected.left_out > 1
        assert "filters     min_relevance 0.6\n" in expected.explain()
        assert f"left out    {expected.left_out} turns below 0.6\n" in expected.explain()
        assert "left out" not in few.recall("ferry", 40, min_relevance=0).explain()
    asked = ("recall", folder, "ferry", "-k", "40", "--mode", "text", "--min-relevance", "0.6")
    assert f"; left out: {expected.left_out} below 0.6" in run(*asked).stdout
    found = run(*asked, "--json").json
    assert (found["left_out"], len(found["hits"])) == (expected.left_out, len(expected))
    assert run(*asked[:-1], "7").returncode == 2


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("YouTube", "youtube"),
        ("userId", "user id"),
        ("is the cake ready? 🎉", "is the cake ready?"),
        ("the cake in ThePurpleBox", "the cake in the purple box"),
    ],
)
def test_names_and_emoji_in_a_question_count_as_words_that_are_there(bare, query, written):
    """Users write names in their own way, and emoji for decoration."""
    session = bare.start_session("a")
    for text in ("I watch youtube", "My YouTube channel", "The user has no id", "The cake is ready", "Soup", "Tea"):
        session.record("user", text)
    assert bare.recall(query)[0].relevance == pytest.approx(bare.recall(written)[0].relevance, abs=0.02)
    if written == "youtube":
        assert {hit.text[-15:] for hit in bare.recall(query)} == {"I watch youtube", "YouTube channel"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", ["when does the ferry leave", "Ada dog tea", "ERR_42"])
def test_the_same_question_gives_a_turn_the_same_relevance_whatever_k_is(plenty, mode, query):
    """And on whatever page it comes: relevance does not depend on what else was found."""
    found = {}
    for k in (1, 5, 50, 60, 130):
        for page in (plenty.recall(query, k, mode=mode), *pages(plenty, query, k=max(k, 50), mode=mode)[:4]):
            for hit in page:
                found.setdefault(hit.position, set()).add(hit.relevance)
    assert {position: seen for position, seen in found.items() if len(seen) > 1} == {}


def say(session, *said):
    """Record (role, text) in order."""
    return [session.record(role, text) for role, text in said]


def exchange_of(recaller, query, **how):
    """The texts of the exchange of the only hit."""
    (hit,) = recaller.recall(query, exchange=True, **how)
    return [turn.text for turn in hit.exchange]


def test_a_hit_offers_the_reply_after_a_users_turn_and_the_question_before_a_reply(bare):
    """Up to the next turn of the user, and all since the reply before. Tools and the system are passed over."""
    say(
        bare.session("trip"),
        ("user", "When does the bus leave?"),
        ("assistant", "At eight."),
        ("user", "I am in Porto."),
        ("user", "And the ferry?"),
        ("assistant", "I look it up."),
        ("tool", "timetable: 9:00"),
        ("system", "Be brief."),
        ("assistant", "At nine."),
    )
    assert exchange_of(bare, "bus") == ["At eight."]
    assert exchange_of(bare, "eight") == ["When does the bus leave?"]
    assert exchange_of(bare, "ferry") == ["I look it up.", "At nine."]
    assert exchange_of(bare, "nine") == ["I am in Porto.", "And the ferry?"]
    assert exchange_of(bare, "timetable") == []


def test_an_exchange_takes_a_user_and_an_assistant_and_roles_are_a_filter_of_hits(bare):
    """Among friends there is none. With hits of the user only, it still shows the reply."""
    say(bare.session("chat"), ("user", "The train is late."), ("user", "Oh no!"))
    assert exchange_of(bare, "train") == []
    assert bare.recall("train")[0].exchange == ()
    say(bare.session("trip"), ("user", "When does the ferry leave?"), ("assistant", "The ferry leaves at nine."))
    assert exchange_of(bare, "ferry", roles=("user",)) == ["The ferry leaves at nine."]
    assert exchange_of(bare, "ferry", roles=("assistant",)) == ["When does the ferry leave?"]


def test_an_exchange_holds_no_turn_that_the_session_has_hidden(bare):
    """Unless hidden turns are asked for."""
    trip = bare.session("trip")
    say(trip, ("user", "When does the ferry leave?"), ("assistant", "At ten."))
    trip.rewind(turns=1)
    trip.record("assistant", "At nine.")
    assert exchange_of(trip, "ferry") == exchange_of(bare, "ferry") == ["At nine."]
    assert exchange_of(trip, "ferry", hidden=True) == ["At ten.", "At nine."]
    assert exchange_of(bare, "ten") == []


def test_an_exchange_reaches_across_a_branch_point_and_not_into_another_branch(bare):
    """It is what the session sees."""
    parent = bare.session("parent")
    parent.record("user", "When does the ferry leave?")
    branch = parent.branch("branch")
    branch.record("assistant", "At nine.")
    parent.record("assistant", "At ten.")
    assert exchange_of(branch, "ferry") == ["At nine."]
    assert exchange_of(bare, "ferry") == ["At ten."]
    assert exchange_of(bare, "nine") == ["When does the ferry leave?"]


def test_an_exchange_as_of_a_position_holds_no_later_turn(bare):
    """The past does not know the reply."""
    asked, first, _ = say(
        bare.session("trip"),
        ("user", "When does the ferry leave?"),
        ("assistant", "At nine."),
        ("assistant", "Or ten."),
    )
    assert exchange_of(bare, "ferry", as_of=asked.position) == []
    assert exchange_of(bare, "ferry", as_of=first.position) == ["At nine."]


def test_an_exchange_holds_no_turn_outside_of_the_scope(folder):
    """A session may inherit from one that is outside."""
    with MemoryStore.open(folder, model=None) as opened:
        parent = opened.session("parent", scope="acme/ada")
        parent.record("user", "When does the ferry leave?")
        branch = opened.switch("branch", session=parent.id, reason="branch", agent="a", scope="acme/bob")
        branch.record("assistant", "The ship goes at nine.")
        assert exchange_of(opened, "ship") == ["When does the ferry leave?"]
        assert exchange_of(opened, "ship", scope="acme/bob") == []
    with MemoryStore.open(folder, model=None, scope="acme/bob") as bound:
        assert exchange_of(bound, "ship") == []


def test_an_exchange_is_short_and_near(bare):
    """Of a long reply the last turns, and nothing that is far away."""
    trip = bare.session("trip")
    trip.record("user", "When does the ferry leave?")
    for number in range(REACH // 2):
        say(trip, ("assistant", f"step {number}"), ("tool", "done"))
    texts = exchange_of(bare, "ferry")
    assert texts == [f"step {number}" for number in range(REACH // 2)][-EXCHANGE_TURNS_MAX:]
    trip.record("user", "And the train?")
    for _ in range(REACH):
        trip.record("tool", "done")
    trip.record("assistant", "At ten.")
    assert exchange_of(bare, "train") == []


def test_pages_and_sessions_have_exchanges_too(bare):
    """A later page may ask for them, whatever the first one did."""
    trip = bare.session("trip")
    say(trip, ("user", "The ferry?"), ("assistant", "At nine."), ("user", "That ferry?"), ("assistant", "At ten."))
    first = trip.recall("ferry", k=1)
    (hit,) = trip.recall("ferry", k=1, after=first.next, exchange=True)
    assert len(hit.exchange) == 1


def test_the_command_line_shows_the_exchange_around_the_hit(bare, folder, run):
    """Once, also with `--context-turns`; JSON has it."""
    say(bare.session("trip"), ("user", "When does the ferry leave?"), ("assistant", "At nine."))
    command = ("recall", folder, "ferry", "--model", "none", "--exchange")
    shown = run(*command).stdout
    assert shown.index("When does the ferry leave?") < shown.index("assistant: At nine.")
    assert run(*command, "--context-turns", "1").stdout.count("At nine.") == 1
    (hit,) = run(*command, "--json").json["hits"]
    assert [turn["text"] for turn in hit["exchange"]] == ["At nine."]
