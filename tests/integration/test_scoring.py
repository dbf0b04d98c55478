"""What each part of a turn's score does, by itself, through the store."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from mnemolog import InvalidInput, MemoryStore, Weights

DAY = timedelta(days=1)
FIRST = datetime(2023, 5, 1, 9, tzinfo=UTC)


EACH = Weights(distinct=False)


def only(**weights):
    """Nothing but words and these. What is repeated is not left out."""
    off = dict.fromkeys(("vector", "neighbours", "speaker", "date", "role"), 0.0)
    return Weights(**off | {"distinct": False} | weights)


def texts(store, query, **options):
    return [hit.text for hit in store.recall(query, k=20, **options).hits]


@pytest.fixture
def session(store):
    return store.start_session("s")


def test_an_answer_is_found_by_the_words_of_its_question(store, session):
    """It holds none of them itself, and comes before the question that does."""
    for text in ("nice weather", "When does the ferry leave?", "At nine.", "fine then", "so be it"):
        session.record("user", text)
    plain = store.recall("when does the ferry leave", weights=only())
    around = store.recall("when does the ferry leave", weights=only(neighbours=1.0))
    assert plain[0].text == "When does the ferry leave?"
    assert around[0].text == "At nine."
    assert around[0].score_parts["neighbours"] > around[2].score_parts["neighbours"]
    assert around[0].score_parts["words"] == 0


def test_no_neighbour_is_of_another_session(store, session):
    """Turns recorded one behind the other lend one another nothing across sessions."""
    session.record("user", "When does the ferry leave?")
    store.start_session("t").record("user", "At nine.")
    session.record("user", "At ten.")
    hits = {
        hit.text: hit.score_parts
        for hit in store.recall("ferry leave", weights=only(neighbours=1.0), min_relevance=0).hits
    }
    assert hits["At ten."]["neighbours"] > 0
    assert hits["At nine."]["neighbours"] == pytest.approx(0, abs=0.01)  # How near its own meaning is.


def test_words_count_as_the_share_of_what_was_asked_that_is_here(store, session):
    """The same turn holds half of a question with one more word, also where nobody said that word."""
    session.record("user", "the tea is green")
    whole, half = (store.recall(query, weights=only())[0] for query in ("green tea", "green tea submarine periscope"))
    assert whole.score_parts["words"] > 1.9 * half.score_parts["words"] > 0
    assert whole.relevance > half.relevance


def test_a_long_turn_needs_more_of_the_words_than_a_short_one(store, session):
    """An assistant's answer of three thousand characters holds every word once."""
    session.record("assistant", "the ferry " + "and many more words about boats " * 100)
    session.record("user", "the ferry")
    assert texts(store, "ferry", weights=only()) == ["the ferry", session.turns()[0].text]


def test_the_question_says_whose_words_are_asked_for(store):
    """What did I: not the assistant's. What did you, how should: not the user's."""
    for name, roles in (("a", ("user", "assistant")), ("b", ("assistant", "user"))):
        session = store.start_session(name)
        for role in roles:
            session.record(role, "the ferry at nine")
    for query, first in (
        ("Which ferry did I take?", "user"),
        ("my ferry", "user"),
        ("ferry at nine", "user"),
        ("Which ferry did you suggest?", "assistant"),
        ("What ferry should one take?", "assistant"),
    ):
        hits = store.recall(query, weights=only(role=1.0), min_relevance=0).hits
        assert [hit.role for hit in hits] == [first] * 2 + [
            other for other in ("user", "assistant") if other != first
        ] * 2
        assert hits[0].score_parts["role"] == 0 > hits[-1].score_parts["role"]
    session.record("user", "we pay nine euros for the boat. is that much?")
    session.record("user", "we pay nine euros for the boat. that is much.")
    first, second = store.recall("what do we pay for the boat", k=2, weights=only(role=1.0)).hits
    assert first.score_parts == second.score_parts, "a user who asks loses nothing"


def test_who_is_named_has_said_it(store, session):
    """By any word of the name, whatever the case, and the name is no word to look for."""
    for speaker in ("Ann Lee", "Bob"):
        session.record("user", "I like tea", speaker=speaker)
    session.record("user", "ann ann ann", speaker="Bob")
    for query in ("does ann like tea", "Lee's tea", "LEE: tea"):
        (first, *_) = store.recall(query, weights=only(speaker=1.0)).hits
        assert (first.text, first.speaker) == ("I like tea", "Ann Lee")
        assert first.score_parts["speaker"] > 0
    assert store.recall("tea", weights=only(speaker=1.0)).hits[0].speaker == "Ann Lee"
    assert "speaker" not in store.recall("tea", weights=only(speaker=1.0)).hits[0].score_parts
    assert texts(store, "ann")[0] == "ann ann ann"  # Nothing else was asked: then the name is the word.


def test_a_speaker_of_another_scope_is_only_a_word(store):
    """And so is one who speaks later than the offset that is asked about."""
    store.start_session("a", scope="acme/a").record("user", "tea", speaker="Rose")
    other = store.start_session("b", scope="acme/b")
    other.record("user", "a rose and tea")
    words, without = (store.recall(query, scope="acme/b")[0].score_parts["words"] for query in ("rose tea", "lily tea"))
    assert words > without
    assert "speaker" not in store.recall("rose tea", scope="acme/b").hits[0].score_parts
    head = store.head().position
    other.record("user", "hello", speaker="Rose")
    assert "speaker" in store.recall("rose tea", scope="acme/b").hits[0].score_parts
    assert "speaker" not in store.recall("rose tea", scope="acme/b", as_of=head).hits[0].score_parts


def test_what_was_said_then_comes_before_what_was_said_at_another_time(store, session):
    """And what was said near to it before what was not."""
    for n in (0, 40, 80):
        session.record("user", "I had tea", said_at=FIRST + n * DAY)
    hits = store.recall("tea in July 2023", weights=only(date=1.0), min_relevance=0).hits
    assert [hit.said_at for hit in hits] == [FIRST + n * DAY for n in (80, 40, 0)]
    assert hits[0].score_parts["date"] > 1.0 > hits[1].score_parts["date"] > hits[2].score_parts["date"] > 0


def test_distinct_leaves_out_turns_with_the_words_of_one_before_on_every_page(store, session):
    """The best of them stays."""
    for n in range(120):
        session.record("user", f"tea number{n % 7}")
    found, after = [], None
    while True:
        page = store.recall("tea", k=3, after=after)
        found += [hit.text for hit in page.hits]
        if (after := page.next) is None:
            break
    assert sorted(found) == [f"tea number{n}" for n in range(7)]


def test_turns_without_any_word_are_not_returned_for_words_alone(store, session):
    """They stand beside one that has it, which is reason enough only where vectors answer as well."""
    for text in ("hello", "tea", "goodbye"):
        session.record("user", text)
    assert texts(store, "tea", mode="text") == ["tea"]
    assert len(texts(store, "tea")) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"vector": -1.0},
        {"date": float("nan")},
        {"speaker": 1e9},
        {"role": True},
        {"date": "x"},
    ],
)
def test_weights_that_cannot_be_counted_with_are_refused(store, wrong):
    """By name; nothing is read."""
    with pytest.raises(InvalidInput, match=r"weights\."):
        store.recall("tea", weights=Weights(**wrong))
    with pytest.raises(InvalidInput, match="weights"):
        store.recall("tea", weights={"vector": 1.0})


class ByLength:
    """Thinks that the longest text answers best."""

    name = "by length"

    def __init__(self):
        self.asked = []

    def score(self, query, texts):
        self.asked.append((query, len(texts)))
        return [len(text) for text in texts]


def every_page(store):
    """The hits of all pages of five."""
    page = store.recall("tea", k=5, weights=EACH, min_relevance=0)
    hits = list(page.hits)
    while page.next is not None:
        page = store.recall("tea", k=5, after=page.next, weights=EACH, min_relevance=0)
        hits += page.hits
    return [msgspec.structs.replace(hit, newer=None) for hit in hits]  # That depends on which hit is the first.


class Broken(ByLength):
    """Gives what are no scores, or fails."""

    def __init__(self, scores):
        self.scores = scores

    def score(self, query, texts):
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores


def test_a_reranker_orders_the_best_turns_by_its_scores_alone(folder, encoder):
    """The best 50 and no more; the same on every page; relevance and parts stay those of the ranking.

    Those that it finds equal keep their order. One that fails leaves the order, with its reason.
    """
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        session = store.start_session("s")
        for n in range(80):
            session.record("user", "tea " + "x" * (n % 60))
        store.admin.catch_up_vectors()
        ranked = every_page(store)
    reranker = ByLength()
    with MemoryStore.open(folder, model=encoder, reranker=reranker, background=False) as store:
        assert store.recall("tea").reranker == "by length"
        assert reranker.asked == [("tea", 50)]
        pages = every_page(store)
        assert pages[:50] == sorted(ranked[:50], key=lambda hit: -len(hit.text))
        assert pages[50:] == ranked[50:]
    for scores in ([1.0] * 50, [], [float("nan")] * 50, ["x"] * 50, MemoryError()):
        with MemoryStore.open(folder, model=encoder, reranker=Broken(scores), background=False) as store:
            answer = store.recall("tea", k=50, weights=EACH)
            assert [msgspec.structs.replace(hit, newer=None) for hit in answer] == ranked[:50]
            assert answer.reranker == ("by length" if scores == [1.0] * 50 else None)
            assert bool(answer.unavailable_legs.get("reranker")) is (answer.reranker is None)
    with pytest.raises(InvalidInput, match="reranker"):
        MemoryStore.open(folder, model=None, reranker=7)


def test_a_receipt_says_whether_a_reranker_ordered_its_hits(folder):
    """An audit uses the reranker for the receipts that name it, and for no others."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        for text in ("tea", "green tea", "black tea with milk"):
            session.record("user", text)
        plain = store.recall("tea", receipt=True)
    with MemoryStore.open(folder, model=None, reranker=ByLength()) as store:
        assert [hit.text for hit in store.recall("tea", receipt=True)] != [hit.text for hit in plain]
        assert [item.verdict for item in store.audit.receipts().receipts] == ["reproduces", "reproduces"]
    with MemoryStore.open(folder, model=None) as store:
        first, second = store.audit.receipts().receipts
        assert (first.verdict, second.verdict) == ("reproduces", "cannot-be-told")
        assert "the reranker was by length" in second.why
