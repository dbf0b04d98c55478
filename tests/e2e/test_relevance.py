"""The relevance of hits, and hits that are left out because they have too little of it."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, Weights
from mnemolog.domain.events import RecallServed
from mnemolog.projections.context.answer import NOTHING_FITS
from mnemolog.projections.recall.question import FLOOR, FLOOR_WITHOUT, Mode
from tests.support import FakeClock, HashEncoder

MODES = get_args(Mode)
WORDS = ["ferry", "tea", "dog", "flat", "Lisbon", "when", "does", "it", "leave?", "nine", "I", "like", "you", "ERR_42"]
EVERYTHING = 1_000


def filled(folder, turns, *, seed=7, **options):
    """Open a store with random turns in three sessions, all embedded."""
    rng = random.Random(seed)
    store = MemoryStore.open(folder, model=HashEncoder(dimension=32), clock=FakeClock(), background=False, **options)
    for name in "abc":
        store.start_session(name, scope=f"acme/{name}")
    for n in range(turns):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))
        store.record("abc"[n % 3], ("user", "assistant")[n % 2], text, speaker=("Ada", None)[n % 2])
    store.admin.catch_up_vectors()
    return store


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
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
    query=st.lists(st.sampled_from([*WORDS, "Ada", "yesterday", "zebra"]), min_size=1, max_size=6).map(" ".join)
    | st.text(min_size=1).filter(str.strip),
    mode=st.sampled_from(MODES),
    k=st.integers(1, 120),
)
def test_relevance_lies_between_zero_and_one(spoken, query, mode, k):
    """Whatever is asked, in every mode."""
    answer = spoken.recall(query, k, mode=mode)
    assert all(0.0 <= hit.relevance <= 1.0 for hit in answer)


@pytest.mark.parametrize("mode", MODES)
def test_relevance_falls_along_every_stage(few, spoken, mode):
    """`Ranking.add` stops at the first turn below `min_relevance`: so none above it may come behind.

    What is said again in nearly the same words, as in these stores, comes after other turns unless `distinct` is off.
    """
    for store, k in ((few, EVERYTHING), (spoken, 50)):
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
def test_pages_with_min_relevance_read_further_candidates(spoken, mode):
    """No turn twice, none of less relevance, and more than the first stage has where there are more."""
    least = 0.05
    found = [hit for page in pages(spoken, "ferry", k=40, mode=mode, min_relevance=least) for hit in page]
    assert len({hit.position for hit in found}) == len(found)
    assert all(hit.relevance >= least for hit in found)
    assert {hit.position for hit in found} >= {
        hit.position for hit in spoken.recall("ferry", EVERYTHING, mode="text") if "ferry" in hit.text
    } or mode == "vector"
    assert len(found) > 60


def test_a_question_without_relevant_turns_ends_at_once(spoken):
    """One answer without hits, and no further page: the rest of the store is not searched for them."""
    for mode in MODES:
        answer = spoken.recall("zebra", 5, mode=mode, min_relevance=1.0)
        assert (answer.hits, answer.next) == ((), None)
        assert answer.left_out == (0 if mode == "text" else 5)


def test_a_min_relevance_that_no_hit_can_have_is_refused(store):
    """By name; nothing is read."""
    session = store.start_session("s")
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
def test_names_and_emoji_in_a_question_count_as_words_that_are_there(folder, query, written):
    """Users write names in their own way, and emoji for decoration."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("a")
        for text in ("I watch youtube", "My YouTube channel", "The user has no id", "The cake is ready", "Soup", "Tea"):
            session.record("user", text)
        assert store.recall(query)[0].relevance == pytest.approx(store.recall(written)[0].relevance, abs=0.02)
        if written == "youtube":
            assert {hit.text[-15:] for hit in store.recall(query)} == {"I watch youtube", "YouTube channel"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", ["when does the ferry leave", "Ada dog tea", "ERR_42"])
def test_the_same_question_gives_a_turn_the_same_relevance_whatever_k_is(spoken, mode, query):
    """And on whatever page it comes: relevance does not depend on what else was found."""
    found = {}
    for k in (1, 5, 50, 60, 130):
        for page in (spoken.recall(query, k, mode=mode), *pages(spoken, query, k=max(k, 50), mode=mode)[:4]):
            for hit in page:
                found.setdefault(hit.position, set()).add(hit.relevance)
    assert {position: seen for position, seen in found.items() if len(seen) > 1} == {}
