"""A long question is read in part: its cost does not grow with it, and what it asks is found wherever it stands."""

import random

import pytest

from mnemolog import MemoryStore

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
def store(tmp_path):
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        session = opened.session("s")
        session.record_many([{"role": "user", "text": text} for text in ASKED.values()])
        session.record_many(
            [{"role": "user", "text": f"The {word} was fine on day {n}."} for n in range(9) for word in FILLER]
        )
        yield opened


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("characters", [2_000, 60_000])
def test_what_a_long_question_asks_is_found_wherever_it_stands(store, characters, share):
    """At its beginning, in its middle and at its end, among text about what many turns hold."""
    for seed, (point, answer) in enumerate(ASKED.items()):
        found = store.recall(long_question(point, characters, share, seed), k=10)
        assert answer in [hit.text for hit in found]
        assert found.topic == point


def test_an_answer_says_what_was_read_and_repeats_after_more_was_said(store):
    """The rarest words are those as of its head."""
    asked = long_question("The kayak and the sextant, please.", 20_000, 0.5, 1)
    found = store.recall(asked, receipt=True)
    assert "kayak" in found.topic
    assert len(found.topic) < 700
    assert f"read        {len(found.topic)} of its {len(asked):,} characters" in found.explain()
    store.session("s").record_many([{"role": "user", "text": "The kayak, the sextant."}] * 50)
    assert store.audit.receipts().reproduced == 1


def test_a_long_message_is_no_answer_to_itself(store):
    """A chat records it, and then recalls it."""
    asked = long_question("Where did we leave the kayak?", 5_000, 1, 1)
    turn = store.session("s").record("user", asked)
    assert turn.position in store.recall(asked).skipped
