"""What each part of a turn's score does, through the store; BM25 as of an offset against FTS5; numbers and ids."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pysqlite3 import dbapi2

from mnemolog import InvalidInput, MemoryStore, Weights
from mnemolog.projections.recall import bm25, text_search
from mnemolog.projections.sql import position_blocks
from mnemolog.projections.sql.conversation_views import CHOICES, CREATE_TEXT_INDEX, TEXT_INDEX
from mnemolog.projections.sql.numbers import folded
from mnemolog.projections.sql.position_blocks import BLOCKS
from mnemolog.projections.sql.words import stems_of, terms_of

DAY = timedelta(days=1)
FIRST = datetime(2023, 5, 1, 9, tzinfo=UTC)
EACH = Weights(distinct=False)


def only(**weights):
    """Nothing but words and these. What is repeated is not left out."""
    off = dict.fromkeys(("vector", "neighbours", "speaker", "date", "role"), 0.0)
    return Weights(**off | {"distinct": False} | weights)


def texts(store, query, **options):
    return [hit.text for hit in store.recall(query, k=20, **options).hits]


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


WORDS = [
    "tea",
    "teas",
    "drinking",
    "drinks",
    "snake_case",
    "a_a",
    "_",
    "the",
    "日本語",
    "café",
    "CAFE",
    "😀",
    "don't",
    "x",
]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), max_size=30)
LONG = "tea " * 20_000 + "the " * 17_000


@contextmanager
def index_of(texts):
    """An index with these texts at positions 2, 4, 6 and so on."""
    engine = sa.create_engine("sqlite+pysqlite://", module=dbapi2)
    with engine.connect() as connection:
        for statement in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(statement)
        BLOCKS.create(connection)
        CHOICES.create(connection)
        for number, text in enumerate(texts, start=1):
            row = (2 * number, " ".join(stems_of(text)))
            connection.exec_driver_sql(f"INSERT INTO {TEXT_INDEX} (rowid, body) VALUES (?, ?)", row)
        yield connection
    engine.dispose()


def scored_by_fts5(texts, query):
    with index_of(texts) as connection:
        matches = sa.text(
            f"SELECT rowid, -bm25({TEXT_INDEX}) FROM {TEXT_INDEX} WHERE {TEXT_INDEX} MATCH :expression"
        ).bindparams(expression=" OR ".join(f'"{term}"' for term in terms_of(query)))
        return {position: score for position, score in connection.execute(matches)}  # noqa: C416


def scores(connection, words, *, upto):
    """What is found up to a position, best first, with its scores."""
    corpus = bm25.corpus(connection, upto=upto)
    held = bm25.turns_with(connection, words, upto=upto)
    postings = [bm25.postings(connection, word, upto=upto) for word in held]
    assert [len(some.turns) for some in postings] == list(held.values())
    if not postings:
        return {}
    turns, found = bm25.best(connection, corpus, postings, k=1_000)
    return dict(zip(turns.tolist(), found.tolist(), strict=True))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.integers(0, 62), st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join))
@example(["tea", LONG, "the"], 4, "tea the")
def test_scores_are_those_of_an_index_that_ends_there(texts, upto, query):
    """To the last bit: words that share a stem, words of several tokens, words that every turn has, no words at all."""
    words = terms_of(query)
    if not words:
        return
    with index_of(texts) as connection:
        found = scores(connection, words, upto=upto)
    assert found == pytest.approx(scored_by_fts5(texts[: upto // 2], query), rel=1e-12)
    scored = scored_by_fts5(texts[: upto // 2], query)
    assert list(found) == sorted(scored, key=lambda position: (-scored[position], position))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2**28, 2**56 - 1, 2**56, 2**63])
def test_numbers_are_read_as_fts5_writes_them(number):
    """SQLite's variable-length integers: seven bits a byte, the ninth byte whole."""
    if number < 1 << 56:
        groups = [number >> shift & 0x7F for shift in range(49, -1, -7)]
        while len(groups) > 1 and not groups[0]:
            del groups[0]
        stored = bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])
    else:
        high = number >> 8
        stored = bytes((high >> shift & 0x7F) | 0x80 for shift in range(49, -1, -7)) + bytes([number & 0xFF])
    assert position_blocks.number_in(stored) == number
    if number < 1 << 56:
        assert bm25.numbers_in(stored + b"\0" + stored).tolist() == [number, 0, number]


def test_a_query_without_words_asks_nothing():
    """As at the head."""
    with index_of(["tea"]) as connection:
        assert text_search.search(connection, terms_of("?!"), k=5, upto=1).positions == []


QUESTIONS = """
The car costs $12,990. | The van costs $12,909. | What costs 12990?
The roof came to 1.299,00 euros. | The fence came to 1.399,00 euros. | What came to 1299 euros?
The stove was 1 499,00 kr. | The kettle was 499,00 kr. | what was 1499
The piano is 2'450 francs. | The organ is 2'540 francs. | Which one is 2450 francs?
The rent rose to 1850.00. | The heating rose to 1580.00. | What rose to 1,850?
The loan is 1.250.000 in all. | The grant is 1.520.000 in all. | the one of 1250000
Dinner came to 84,50 for two. | Lunch came to 48,50 for two. | What came to 84.50?
The fine was 1,299.50 in the end. | The toll was 1,299.00 in the end. | What was 1299,50?
We donated 10 000 last winter. | We lent 12 000 last winter. | Who got the 10,000?
Her salary is 64 500. | His salary is 65 400. | Whose salary is 64,500?
Invoice INV-2047 is paid. | Invoice INV-2048 is paid. | Is invoice inv 2047 paid?
The invoice is INV2147. | The invoice is INV2148. | Which invoice is INV-2147?
Order no. ord_7781 was returned. | Order no. ord_7718 was returned. | What about ORD-7781?
Ticket RMA/2023/118 is open. | Ticket RMA/2023/181 is open. | rma2023118
The part is AB-12-CD. | The part is AB-21-CD. | AB12CD
The plane is BA 117. | The plane is BA 171. | When does BA117 leave?
The train is ICE-594. | The train is ICE-549. | ice 594
The case number is 2024-0098. | The case number is 2024-0089. | What is case 20240098?
The plate reads B-AB 1234. | The plate reads B-AB 1243. | whose plate is B AB 1234
The badge is KX4417. | The badge is KX4471. | Whose badge is KX-4417?
The sensor is TMP-36. | The sensor is TMP-63. | the tmp36 sensor
Ana has the phone +351 912 345 678. | Bo has the phone +351 912 345 687. | Whose phone is 912345678?
Cleo at +49 170 1234567. | Call Dirk at +49 170 1234576. | Whose number is +491701234567?
Eve's number is 0171 7654321. | Finn's number is 0171 7654312. | Who has +49 171 7654321?
Gina is at (415) 555-0132. | Hal is at (415) 555-0123. | Who is at 415.555.0132?
Ida is at +1 212 555 0188. | Jon is at +1 212 555 0181. | Who is at (212) 555-0188?
The plumber: 06 12 34 56 78. | The painter: 06 12 34 56 87. | Who is +33 6 12 34 56 78?
The clinic is 020 7946 0958. | The library is 020 7946 0985. | Who is on 02079460958?
Karl moved to +49 (0)30 901820. | Lena moved to +49 (0)30 901802. | Who has 030 901820?
PT50 0002 0123 1234 5678 9015 4 is hers. | PT50 0002 0123 1234 5678 9051 4 is his. | PT50000201231234567890154
He pays from DE89370400440532013000. | He pays from DE89370400440532013003. | DE89 3704 0044 0532 0130 00?
The card ends 4111 1111 1111 1111. | The card ends 4111 1111 1111 1112. | 4111-1111-1111-1111
ISBN 978-3-16-148410-0. | ISBN 978-3-16-148410-9. | Which book is 9783161484100?
The meter shows 0045 2291. | The meter shows 0045 2219. | meter 00452291
The bug: 3fa2bed9c0ffee12ab34cd56ef7890123456789a. | The fix: 3fa2bee9c0ffee12ab34cd56. | What is 3fa2bed?
Commit 9c1d2e4f broke the login. | Commit 9c1d2f4f broke the logout. | What broke with 9c1d2e4f77aa?
550e8400-e29b-41d4-a716-446655440000 ran. | 550e8401-e29b-41d4-a716-446655440000 ran. | 550e8400e29b41d4a716446655440000
The printer is 00:1A:2B:3C:4D:5E. | The scanner is 00:1A:2B:3C:4D:5F. | Which one is 00-1a-2b-3c-4d-5e?
We upgraded to v2.10. | We upgraded to v2.1. | When did we go to 2.10?
The crash is in v2.1 only. | The crash is in v2.11 only. | Is there a crash in 2.1?
Release 3.12.4 is out. | Release 3.12.1 is out. | v3.12.4
The server is 10.0.12.5. | The server is 10.0.12.15. | Which server is 10.0.12.5?
The choir meets at 6:30 pm. | The band meets at 6:45 pm. | Who meets at 18:30?
The ferry leaves at 7 am. | The ferry returns at 8 am. | What happens at 07:00?
Doors open at 19:00 sharp. | Doors close at 21:00 sharp. | What is at 7pm?
The pill is due at 9.15 p.m. | The drops are due at 9.45 p.m. | What is due at 21:15?
The tariff is 5 % of it. | The tariff was 15 % of it. | What is 5%?
They ask 2,5 % interest. | They ask 2,9 % interest. | Who asks 2.5 percent?
A raise of 12 percent is planned. | A cut of 21 percent is planned. | What about 12%?
The laptop has 512GB. | The laptop has 256GB. | Which laptop has 512 GB?
Add 250 g of flour. | Add 350 g of sugar. | Of what 250g?
The trail is 42 km long. | The road is 24 km long. | What is 42km long?
We got married on 2015-06-20. | We got engaged on 2015-06-02. | What was on June 20, 2015?
The lease ends 05.03.2026. | The visa ends 03.05.2026. | What ends on 5 March 2026?
The warranty runs to 25/12/2027. | The policy runs to 15/12/2027. | until 2027-12-25
Mia was born on the 3rd of May 2019. | Noa was born on the 5th of March 2019. | Who was born on 2019-05-03?
The fair is on Oct 9, 2026. | The race is on Sep 10, 2026. | What is on 9.10.2026?
The flat is number 1204 in tower 3. | The flat is number 1402 in tower 3. | Who has flat 1,204?
The parcel is RR 123 456 785 DE. | The parcel is RR 123 456 758 DE. | Where is parcel 123456785?
The licence key begins WX-9931-Q. | The licence key begins WX-9913-Q. | Which key begins wx9931q?
"""


def test_a_number_is_found_however_it_is_written(tmp_path):
    """By its words alone, and before another number of the same kind, among 120 turns with numbers."""
    rows = [line.split(" | ") for line in QUESTIONS.strip().splitlines()]
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        session = store.session("numbers")
        said = [text for right, wrong, _ in rows for text in (wrong, right)]
        session.record_many([{"role": "user", "text": text} for text in said])
        first = [(query, store.recall(query, k=1)[0].text, right) for right, _, query in rows]
    assert len(rows) == 60
    assert [item for item in first if item[1] != item[2]] == []


@pytest.mark.parametrize(
    "text", ["1.299", "3/5/2024", "6:30", "5th 90s 24/7", "31.02.2024", "10-15 minutes", "no digit"]
)
def test_what_has_several_readings_or_none_stays_as_it_is(text):
    """`1.299` may be a decimal number, and `6:30` a time of the evening."""
    assert {form for _, form in folded(text)} <= {"1q299"}


def test_the_numbers_of_a_pasted_page_leave_room_for_its_words():
    """Both are searched."""
    page = " ".join(f"1,{n}.00 ferry{chr(97 + n % 26)}" for n in range(100, 300))
    assert {"1100", "ferryz"} <= set(terms_of(page))
