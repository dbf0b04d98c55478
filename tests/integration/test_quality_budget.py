"""What a context holds of the evidence and of the answer's words: the measures against their definitions."""

from __future__ import annotations

from benchmarks.quality.budget import answer_words, gold_share, packer, shown_in, tokens_of_model, words_share
from benchmarks.quality.shapes import Question
from mnemolog import MemoryStore

LONG = "We talked about the weather. " * 60 + "The ferry to Lisbon leaves at nine. " + "Then it rained. " * 90


def asked(*keys):
    return Question(
        id="1",
        conversation="acme",
        text="When does the ferry leave?",
        category="all",
        turns=frozenset(keys),
        sessions=frozenset(),
        answer="The user says that it leaves at nine.",
    )


def test_gold_is_the_share_of_the_evidence_turns_that_are_shown():
    """A part of a turn is enough."""
    assert gold_share({1: "all", 3: "a part"}, [1, 2, 3, 4]) == 0.5
    assert gold_share({}, [1]) == 0.0


def test_the_words_of_an_answer_are_those_that_the_evidence_has():
    """Words about the answer are none of it; without an answer, those of the best passage are."""
    words = answer_words(LONG, "When does the ferry leave?", "The user says nine.")
    assert {"ferri", "lisbon", "nine"} <= words
    assert not {"user", "say", "the"} & words
    assert {"ferri", "lisbon", "nine"} <= answer_words(LONG, "When does the ferry leave?", "")


def test_words_count_where_the_evidence_turn_is_shown_and_nowhere_else():
    """Cutting the answer away costs words, and another turn with the same words does not make up for it."""
    words = {1: frozenset(("ferri", "nine")), 2: frozenset(("lisbon", "rain"))}
    assert words_share({1: "Nine ferries", 2: "Lisbon"}, words) == 0.75
    assert words_share({3: "Nine ferries in Lisbon in the rain"}, words) == 0.0
    assert words_share({}, {}) == 0.0


def test_a_context_of_a_store_is_measured(folder):
    """Of a long turn, the passage with the answer fits into few tokens; one without it holds no word of the answer."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("trip", scope="acme")
        session.record("assistant", LONG, key="a")
        session.record("user", "Nothing of it.", key="b")
        store.session("other", scope="other").record("user", LONG, key="a")
        pack = packer()
        packed = pack(store, asked("a"), 300)
        assert packed.gold == 1.0
        assert packed.words > 0.5
        assert 0.3 < packed.used <= 1.0
        assert pack(store, asked("a", "b"), 300).gold == 0.5
        assert pack(store, asked("a"), 20)[:2] == (0.0, 0.0)
        (shown,) = shown_in(store.context("ferry", 300, scope="acme")).values()
        assert "The ferry to Lisbon leaves at nine." in shown


def test_tokens_are_counted_as_the_model_counts_them():
    """Also beyond its window."""
    count = tokens_of_model("all-MiniLM-L6-v2")
    assert count("") == 0
    assert count("the ferry") == 2
    assert count("the ferry " * 1_000) == 2_000
