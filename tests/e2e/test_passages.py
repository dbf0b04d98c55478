"""Passages of hits: long turns do not fill a prompt."""

import re

import pytest

from mnemolog import MemoryStore, Passage

FILLER = "The meeting went on for a while and nothing was decided. "
LONG = f"{FILLER * 30}The ferries leave at nine and at noon. {FILLER * 30}"


@pytest.fixture
def store(folder):
    with MemoryStore.open(folder, model=None) as opened:
        session = opened.session("trip")
        session.record("user", "When does the ferry leave?")
        session.record("assistant", LONG)
        yield opened


def hit_of(answer, text):
    return next(hit for hit in answer if hit.text == text)


def test_a_hit_on_a_long_turn_has_its_best_passage_with_its_place(store):
    """The place is in characters of the text."""
    hit = hit_of(store.recall("When does the ferry leave?"), LONG)
    assert isinstance(hit.passage, Passage)
    assert hit.text[hit.passage.start : hit.passage.end] == hit.passage.text
    assert hit.passage.text.startswith("The ferries leave at nine and at noon.")
    assert 400 < len(hit.passage.text) <= 500


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_every_mode_has_passages_and_the_same_each_time(folder, encoder, mode):
    """Later pages and recalls as of a position too."""
    with MemoryStore.open(folder, model=encoder) as opened:
        opened.session("trip").record("user", "The ferry is red.")
        opened.session("trip").record("assistant", LONG)
        first = opened.recall("the ferry", k=1, mode=mode)
        rest = opened.recall("the ferry", k=1, mode=mode, after=first.next)
        both = (*first, *rest)
        opened.session("trip").record("user", "ferry " * 3)
        again = opened.recall("the ferry", k=2, mode=mode, as_of=first.head)
        assert [hit.passage for hit in both] == [hit.passage for hit in again]
        assert hit_of(both, LONG).passage.text.startswith("The ferries leave")


def test_the_passage_follows_the_language_of_the_store(folder):
    """Its endings are removed from the words of the query and of the turn."""
    with MemoryStore.open(folder, model=None, language="de") as opened:
        opened.session("umzug").record(
            "user", "Wir haben geredet. " * 60 + "Drei Wohnungen sind frei. " + "Na gut. " * 90
        )
        assert opened.recall("Wohnung")[0].passage.text.startswith("Drei Wohnungen sind frei.")


def test_the_command_line_prints_the_passage_with_marks_and_json_has_both(store, folder, run):
    """And `--full` prints all of the turn."""
    shown = run("recall", folder, "ferry leave", "--model", "none").stdout
    assert "│ … The ferries leave at nine and at noon." in shown
    assert re.search(r"… \+2,9\d\d characters, --full shows them", " ".join(shown.replace("│", " ").split()))
    assert len(shown) < 2_000
    assert "… The ferries leave" in run("recall", folder, "ferry leave", "--model", "none", "--explain").stdout
    whole = run("recall", folder, "ferry leave", "--model", "none", "--full").stdout
    assert " ".join(LONG.split()) in " ".join(whole.replace("│", " ").split())
    hits = run("recall", folder, "ferry leave", "--model", "none", "--json").json["hits"]
    (hit,) = [hit for hit in hits if hit["text"] == LONG]
    assert LONG[hit["passage"]["start"] : hit["passage"]["end"]] == hit["passage"]["text"]
