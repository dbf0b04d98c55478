"""The loop of a chat: a message is recorded, and then recalled. What asks the same does not answer it."""

from __future__ import annotations

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.domain.events import RecallServed
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
        ("What did I ask about where I live?", "So where do I live?", "assistant"),
        (
            "Which appointment do I have on Tuesday?",
            "My appointment with Dr. Lang on Tuesday, is it at nine?",
            "assistant",
        ),
        ("What does Ben play?", "Ben, what do you play?", "user"),
    ],
    ids=["askings are wanted", "a question that tells something", "a question between friends"],
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
    (audited,) = chat.audit.recalls().recalls
    assert audited.verdict.value == "reproduces"
    assert (
        RecallServed(query="", k=1, mode="text", head=1, candidates=1, ranking="", hits=[], scores=[], ranks={}).asked
        == "keep"
    )
