"""What a context holds of the evidence and of the answer's words: the measures against their definitions."""

from benchmarks.quality.budget import answer_words, gold_share, packer, shown_in, words_share
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


def test_the_shares_are_those_of_the_evidence_that_is_shown():
    """A part of a turn is gold enough. Words count where the evidence shows them only."""
    assert (gold_share({1: "all", 3: "a part"}, [1, 2, 3, 4]), gold_share({}, [1])) == (0.5, 0.0)
    words = answer_words(LONG, "When does the ferry leave?", "The user says nine.")
    assert {"ferri", "lisbon", "nine"} <= words & answer_words(LONG, "When does the ferry leave?", "")
    assert not {"user", "say", "the"} & words
    words = {1: frozenset(("ferri", "nine")), 2: frozenset(("lisbon", "rain"))}
    assert words_share({1: "Nine ferries", 2: "Lisbon"}, words) == 0.75
    assert words_share({3: "Nine ferries in Lisbon in the rain"}, words) == words_share({}, {}) == 0.0


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
