"""Long texts: a long question is read in part, and a long hit is shown by its best passage."""

import random
import re

import pytest

from mnemolog import MemoryStore, Passage

ASKED = {
    f"Where did we leave the {thing}?": f"The {thing} is {place} now."
    for thing, place in zip(
        "kayak accordion tripod ladder sextant telescope samovar typewriter barometer toboggan".split(),  # noqa: SIM905
        "garage attic cellar shed harbour cabin kitchen office hallway barn".split(),  # noqa: SIM905
        strict=True,
    )
}
FILLER = "market bread window green table paper small evening children walked garden morning music often blue".split()  # noqa: SIM905


def long_question(point, characters, share, seed):
    chosen = random.Random(seed)
    text = "".join(" ".join(chosen.choices(FILLER, k=9)).capitalize() + ".\n" for _ in range(characters // 64))
    at = text.rfind("\n", 0, int(len(text) * share) + 1) + 1
    return f"{text[:at]}{point}\n{text[at:]}"


@pytest.fixture
def asked_of(tmp_path):
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        session = opened.session("s")
        session.record_many([{"role": "user", "text": text} for text in ASKED.values()])
        session.record_many(
            [{"role": "user", "text": f"The {word} was fine on day {n}."} for n in range(9) for word in FILLER]
        )
        yield opened


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("characters", [2_000, 60_000])
def test_what_a_long_question_asks_is_found_wherever_it_stands(asked_of, characters, share):
    """At its beginning, in its middle and at its end, among text about what many turns hold."""
    for seed, (point, answer) in enumerate(ASKED.items()):
        found = asked_of.recall(long_question(point, characters, share, seed), k=10)
        assert answer in [hit.text for hit in found]
        assert found.topic == point


def test_an_answer_says_what_was_read_and_repeats_after_more_was_said(asked_of):
    """The rarest words are those as of its head."""
    asked = long_question("The kayak and the sextant, please.", 20_000, 0.5, 1)
    found = asked_of.recall(asked, receipt=True)
    assert "kayak" in found.topic
    assert len(found.topic) < 700
    assert f"read        {len(found.topic)} of its {len(asked):,} characters" in found.explain()
    asked_of.session("s").record_many([{"role": "user", "text": "The kayak, the sextant."}] * 50)
    assert asked_of.audit.receipts().reproduced == 1


def test_a_long_message_is_no_answer_to_itself(asked_of):
    """A chat records it, and then recalls it."""
    asked = long_question("Where did we leave the kayak?", 5_000, 1, 1)
    assert asked_of.session("s").record("user", asked).position in asked_of.recall(asked).skipped


NOTHING = "The meeting went on for a while and nothing was decided. "
LONG = f"{NOTHING * 30}The ferries leave at nine and at noon. {NOTHING * 30}"


@pytest.fixture
def meeting(folder):
    with MemoryStore.open(folder, model=None) as opened:
        session = opened.session("trip")
        session.record("user", "When does the ferry leave?")
        session.record("assistant", LONG)
        yield opened


def hit_of(answer, text):
    return next(hit for hit in answer if hit.text == text)


def test_a_hit_on_a_long_turn_has_its_best_passage_with_its_place(meeting):
    """The place is in characters of the text."""
    hit = hit_of(meeting.recall("When does the ferry leave?"), LONG)
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
        both = (*first, *opened.recall("the ferry", k=1, mode=mode, after=first.next))
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


def test_the_command_line_prints_the_passage_with_marks_and_json_has_both(meeting, folder, run):
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
