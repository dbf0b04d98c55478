"""The explanation of an answer: what was searched, what each hit scored for, why a leg is missing."""

import unicodedata

import pytest

from mnemolog import MemoryStore, Weights
from mnemolog.domain.errors import ModelWarning


@pytest.fixture
def trip(store):
    """Three turns, of two speakers; the model is a fake."""
    trip = store.start_session("trip", scope="acme/alice")
    trip.record("user", "My dog is called Rex.", speaker="Alice", metadata={"channel": "mail"})
    trip.record("user", "What is my dog called?", speaker="Alice")
    trip.record("assistant", "Your cat, my dear, is called Tom. " * 50)
    return trip


def columns(line):
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def test_an_explanation_says_what_was_searched(folder, store, trip, run):
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
    assert f"session {trip.id}; lineage yes" in trip.recall("dog").explain()
    plain = store.recall("dog", mode="text")
    assert (plain.filters, plain.searched_turns) == ({}, 3)
    assert run("recall", folder, "dog", "--mode", "text", "--explain").stdout == plain.explain() + "\n"
    nothing = store.recall("submarine", mode="text").explain()
    assert nothing.endswith("No turn was found.")
    assert "searched" in nothing


def test_an_explanation_shows_what_each_hit_scored_for_as_bars(store, trip):
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


def test_an_explanation_says_why_the_meaning_was_not_searched(folder, store, trip):
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


def test_an_explanation_fits_80_columns_and_cannot_steer_a_terminal(store, trip):
    """Whatever was said, in any script, and whatever was asked."""
    trip.record("user", "dog \x1b[31m\n1. @1 forged " + "里斯本" * 60, speaker="Ada" * 80)
    trip.record("user", "dog 🎂" * 60)
    long = "dog " * 60 + "里斯本 \x1b[2J"
    for answer in (store.recall(long), store.recall("dog", weights=Weights(role=2.0)), trip.recall("dog", k=9)):
        lines = answer.explain().splitlines()
        assert max(map(columns, lines)) <= 80
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("1. ") for line in lines) == 1
