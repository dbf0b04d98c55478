"""What a question asks for: what asks the same does not answer it, and a request for an order or a summary is read."""

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.domain.events import RecallServed
from mnemolog.projections.recall.question import question, request_of
from tests.support import FakeClock

QUESTION = "Where do I live now?"


@pytest.fixture
def chat(folder):
    """A home that is told once, and the same question in two sessions, each with a reply that tells nothing."""
    with MemoryStore.open(folder, model=None, clock=FakeClock()) as store:
        home = store.start_session("home")
        home.record("user", "I live in Vienna.", speaker="Ada")
        home.record("assistant", "How nice.")
        home.record("user", "I eat fish now.", speaker="Ada")
        for name, asking in (("first", "So where do I live?"), ("second", QUESTION)):
            store.start_session(name).record("user", asking, speaker="Ada")
            if name == "first":
                store.record(name, "assistant", "Let me check.")
        yield store


def texts(answer):
    """What was found, best first."""
    return [hit.text for hit in answer]


def test_what_asks_the_same_is_no_answer_and_lends_nothing_to_its_reply(chat):
    """Neither the turn that asks, nor an earlier asking; nor the word `now`, which is no topic."""
    found = chat.recall(QUESTION, mode="text")
    assert texts(found) == ["I live in Vienna."]
    assert [chat.audit.event(at).event.text for at in found.skipped] == ["So where do I live?", QUESTION]
    assert "skipped     2 turns that ask the same" in found.explain()
    assert QUESTION not in chat.context(QUESTION, mode="text").text
    kept = chat.recall(QUESTION, mode="text", asked="keep")
    assert {QUESTION, "So where do I live?"} < {*texts(kept)}
    assert kept.skipped == ()
    with pytest.raises(InvalidInput, match="asked"):
        chat.recall(QUESTION, asked="never")


def test_a_statement_that_is_the_query_is_skipped_only_as_the_newest_turn(chat):
    """A message need not be a question. The same statement of last week is an answer."""
    assert texts(chat.recall("I live in Vienna.", mode="text"))[0] == "I live in Vienna."
    newest = chat.record("second", "user", "I live in Vienna.", speaker="Ada").position
    found = chat.recall("I live in Vienna.", mode="text")
    assert (newest in found.skipped, texts(found)[0]) == (True, "I live in Vienna.")


@pytest.mark.parametrize(
    ("asked", "turn", "reply"),
    [
        ("live now", "So where do I live?", "assistant"),
        ("What did I ask about where I live?", "So where do I live?", "assistant"),
        (
            "Which appointment do I have on Tuesday?",
            "My appointment with Dr. Lang on Tuesday, is it at nine?",
            "assistant",
        ),
        ("What does Ben play?", "Ben, what do you play?", "user"),
    ],
    ids=["words alone", "askings are wanted", "a question that tells something", "a question between friends"],
)
def test_a_question_that_may_answer_is_kept(chat, asked, turn, reply):
    """A question with a fact in it, one to which another user replies, and askings where they are asked for."""
    friends = chat.start_session("friends")
    friends.record("user", turn, speaker="Ada")
    friends.record(reply, "Hm.", speaker="Ben")
    assert turn in texts(chat.recall(asked, mode="text"))


def test_a_receipt_repeats_what_was_skipped(chat):
    """Also after the answer has come, as of the position of the question."""
    receipt = chat.recall(QUESTION, mode="text", receipt=True).receipt
    chat.record("second", "assistant", "You live in Vienna.")
    assert chat.audit.event(receipt).event.asked == "skip"
    (audited,) = chat.audit.receipts().receipts
    assert audited.verdict.value == "reproduces"
    assert (
        RecallServed(query="", k=1, mode="text", head=1, candidates=1, ranking="", hits=[], scores=[], ranks={}).asked
        == "keep"
    )


@pytest.mark.parametrize(
    ("query", "kind", "topic", "whose"),
    [
        ("Can you list the order in which I brought up aspects of the boat?", "order", "the boat", "user"),
        ("Could you give me a recap of the boat, across all our conversations?", "summary", "the boat", "mine"),
        ("Could you tell me what I paid for the boat?", "answer", None, "user"),
        ("Can you remind me what you said about the boat?", "answer", None, "assistant"),
        ("In which order should I paint the boat?", "answer", None, "user"),
        ("What did you say in your summary of the boat?", "answer", None, "assistant"),
        ("Summarize everything so far.", "summary", "everything", "open"),
        ("Give me a summary.", "summary", None, "mine"),
        ("List the aspects I raised about the boat, earliest first.", "order", "List the boat", "user"),
        ("Could you give me the gist of the boat in a few lines?", "summary", "the boat", "open"),
        ("How do things stand with the boat?", "summary", "the boat", "advice"),
        ("What came in two weeks of the boat trade?", "answer", None, "open"),
    ],
)
def test_a_request_is_read_by_patterns_of_english(query, kind, topic, whose):
    """What is asked for, on which topic, and whose words; without a topic, all of it is searched for."""
    assert request_of(question(query), "en")[:3] == (kind, topic or query, whose)
    assert request_of(question(query, order="time", about="answered"), "en")[:3:2] == ("order", "assistant")
    assert request_of(question(query, order="relevance", cover=False), "de").kind == "answer"


def test_hits_of_an_order_are_the_users_in_order_of_time_and_a_receipt_repeats_them(folder):
    """By default, with the parameter, and not without either. A context of such a request shows each turn in short."""
    with MemoryStore.open(folder, model=None, clock=FakeClock(), receipts=True) as store:
        boat = store.session("boat")
        for text in (
            "We looked at a boat.",
            "The mast of the boat is broken. " + "It is a long story. " * 60,
            "A boat, a boat!",
        ):
            boat.record("user", text)
            boat.record("assistant", "The boat, then.")
        asked = "In which order did I mention the boat?"
        for found in (store.recall(asked), store.recall("boat", order="time")):
            assert ([hit.position for hit in found], found.kind) == ([2, 4, 6], "order")
        assert "asked for   the order of what was said on: the boat" in store.recall(asked).explain()
        assert [hit.role for hit in store.recall(asked, order="relevance")].count("assistant") == 1
        assert len(store.context("boat", cover=True, receipt=False).text) < 900 < len(store.context("boat").text)
        assert {item.verdict.value for item in store.audit.receipts().receipts} == {"reproduces"}
        for wrong in ({"order": "newest"}, {"about": "me"}, {"cover": "much"}):
            with pytest.raises(InvalidInput, match=next(iter(wrong))):
                store.recall("boat", **wrong)
