"""The explanation of an answer: what was searched, what each hit scored for, why a leg is missing."""

from __future__ import annotations

import unicodedata

import pytest

from mnemolog import MemoryStore, Weights
from mnemolog.domain.errors import ModelWarning
from tests.support import HashEncoder


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


def test_an_explanation_says_what_was_searched(store, trip):
    """The question, how many turns, up to where, and with which filters."""
    text = store.recall("dog", scope="acme", roles=["user"], since="2024-01-01T00:00Z").explain()
    assert "question    dog\n" in text
    assert "searched    2 turns up to position 4 (the newest)\n" in text
    assert "filters     scope acme; roles user; since 2024-01-01T00:00:00+00:00\n" in text
    assert "by words    yes\nby meaning  yes, every turn\n" in text
    assert "searched    1 turn up to position 2 (as of then)" in store.recall("dog", as_of=2).explain()
    assert "channel='mail'" in store.recall("dog", metadata={"channel": "mail"}).explain()
    assert f"session {trip.id}; lineage yes" in trip.recall("dog").explain()


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


def test_an_explanation_says_how_far_the_vectors_reach(folder, clock):
    """Where not every turn is embedded yet."""
    with MemoryStore.open(folder, model=HashEncoder(), clock=clock, background=False) as store:
        session = store.start_session("long")
        for number in range(100):
            session.record("user", f"tea number {number}")
        answer = store.recall("tea")
        assert answer.vectors_cover == 65
        assert "by meaning  only turns up to position 65; the vectors reach no further yet" in answer.explain()


def test_an_explanation_without_hits_says_so(store, trip):
    """And still what was searched."""
    text = store.recall("submarine", mode="text").explain()
    assert text.endswith("No turn was found.")
    assert "searched" in text


def test_an_explanation_fits_80_columns_and_cannot_steer_a_terminal(store, trip):
    """Whatever was said, in any script, and whatever was asked."""
    trip.record("user", "dog \x1b[31m\n1. @1 forged " + "里斯本" * 60, speaker="Ada" * 80)
    trip.record("user", "dog 🎂" * 60)
    long = "dog " * 60 + "里斯本 \x1b[2J"
    for answer in (store.recall(long), store.recall("dog", weights=Weights(recency=1.0)), trip.recall("dog", k=9)):
        lines = answer.explain().splitlines()
        assert max(map(columns, lines)) <= 80
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("1. ") for line in lines) == 1


def test_a_recall_returns_its_filters_and_how_many_turns_they_left(store, trip):
    """In the words of the call."""
    answer = store.recall("dog", scope="acme", speakers=["Alice"])
    assert (answer.filters, answer.searched_turns) == ({"scope": "acme", "speakers": ["Alice"]}, 2)
    assert list(store.recall("dog", since="2024-01-01", by="recorded").filters) == ["since", "by"]
    assert (store.recall("dog").filters, store.recall("dog").searched_turns) == ({}, 3)


def test_the_command_line_explains_a_recall(folder, store, trip, run):
    """In place of the plain answer."""
    explained = run("recall", folder, "dog", "--mode", "text", "--explain")
    assert explained.stdout == store.recall("dog", mode="text").explain() + "\n"
