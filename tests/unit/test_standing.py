"""What is read as a standing statement from what a user says."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.standing import SENTENCE_CHARACTERS_MAX, TURN_CHARACTERS_MAX, standing_in

SETS = Path(__file__).parents[2] / "benchmarks" / "conversations"


def read(text):
    return [(text[item.start : item.end], item.kind) for item in standing_in(text)]


@pytest.mark.parametrize(
    ("text", "said", "kind"),
    [
        ("Thanks! Always answer in metric.", "Always answer in metric", "instruction"),
        ("ok, please never book anything before 9.", "never book anything before 9", "instruction"),
        ("could you always add a summary?", "always add a summary", "instruction"),
        ("From now on, no tables please.", "From now on, no tables please", "instruction"),
        ("Answer in German from now on.", "Answer in German from now on", "instruction"),
        ("No emojis. Thanks", "No emojis", "instruction"),
        ("Use British spelling", "Use British spelling", "instruction"),
        ("you can call me Tom", "call me Tom", "instruction"),
        ("Remember that I work nights", "Remember that I work nights", "instruction"),
        ("When I ask for code, use Python", "When I ask for code, use Python", "conditional"),
        ("So for every function you write, add a test", "for every function you write, add a test", "conditional"),
        ("Use grams whenever I ask for a recipe", "Use grams whenever I ask for a recipe", "conditional"),
        ("I'm vegetarian, what could I cook?", "I'm vegetarian", "preference"),
        ("Well, I prefer trains to planes but can you find a flight?", "I prefer trains to planes", "preference"),
        ("I\u2019d rather walk.", "I\u2019d rather walk", "preference"),
        ("my favourite colour is green", "my favourite colour is green", "preference"),
        ("I can't stand coriander!", "I can't stand coriander", "preference"),
        ("I don't eat pork; and you?", "I don't eat pork", "preference"),
    ],
)
def test_a_statement_is_read_from_where_it_begins_to_the_request_behind_it(text, said, kind):
    """What comes before it, and what is asked, is no part of it."""
    assert read(text) == [(said, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "Never give up!",
        "Do I prefer tea?",
        "What would I prefer?",
        "He says I prefer tea.",
        "From now on I'm on the early shift.",
        "Could you call me a taxi?",
        "When I asked for code, you gave me Java.",
        "I don't like any of these.",
        "I avoid salt, I love jazz, I like rain, I enjoy walks.",
        'The sign says "Always answer in French".',
        "> Always answer in French",
        "```\nAlways answer in French\n```",
        "`always answer in French` does not parse",
        "Antworte immer auf Deutsch.",
    ],
)
def test_what_sounds_like_one_is_none(text):
    """Nor is what somebody else says, or what is quoted."""
    assert read(text) == []


def test_a_pasted_text_is_not_read():
    """Nor is a very long sentence."""
    said = "Always answer in metric."
    assert read(said + " " * (TURN_CHARACTERS_MAX - len(said) - 1))
    assert not read(said + " " * (TURN_CHARACTERS_MAX - len(said)))
    assert not read("Always answer in metric, " + "and " * (SENTENCE_CHARACTERS_MAX // 4) + "so on.")


def test_the_sentences_of_a_turn_are_read_in_order():
    """Each by itself, at its place in the text."""
    text = "Hi!\nI prefer aisle seats. Version 2.5 is out; never use emojis."
    assert [said for said, _ in read(text)] == ["I prefer aisle seats", "never use emojis"]


@given(st.text(max_size=200), st.sampled_from(["Always answer in metric", "I'm vegan", "no emojis"]))
def test_any_text_is_read(before, said):
    """Every statement lies in the text, and none is empty."""
    text = f"{before}\n{said}"
    found = list(standing_in(text))
    assert all(0 <= item.start < item.end <= len(text) for item in found)
    assert [item.start for item in found] == sorted(item.start for item in found)


def test_most_statements_of_the_set_are_read_and_little_else():
    """All that the rules were chosen on; of what was written afterwards 15 of 24, and 3 of 24 others."""
    lines = {
        name: [json.loads(line) for line in (SETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("standing", "standing-questions")
    }
    standing = {key for question in lines["standing-questions"] for key in question["evidence"]}
    said = {turn["key"]: read(turn["text"]) for turn in lines["standing"] if turn["role"] == "user"}
    early, late = ({key for key in said if key.startswith(part)} for part in ("early", "late"))
    assert (len(early & standing), len(late & standing)) == (40, 24)
    assert all(bool(said[key]) == (key in standing) for key in early)
    assert sum(bool(said[key]) for key in late & standing) >= 15
    assert sum(bool(said[key]) for key in late - standing) <= 3
