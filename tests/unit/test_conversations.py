"""The conversations that we ship, and their questions: every rule that a measurement of recall relies on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "benchmarks" / "conversations"
NAMES = [file.name.removesuffix("-questions.jsonl") for file in sorted(WRITTEN.glob("*-questions.jsonl"))]
PROJECT, BATS, FARMHOUSE, TRIP = (
    ROOT / "examples" / "project",
    *(WRITTEN / name for name in ("bats", "farmhouse", "trip")),
)
CONVERSATIONS = [PROJECT, *(WRITTEN / name for name in NAMES)]
DIALOGUES = [PROJECT, BATS, FARMHOUSE]  # One user and one assistant take turns.
FIELDS = ["session", "session_name", "scope", "agent", "role", "speaker", "key", "time", "text"]
CATEGORIES = {"assistant-said", "multi", "temporal", "unanswerable", "update", "user-asked", "user-fact"}


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def turns_of(conversation):
    return lines_of(conversation.with_name(f"{conversation.name}.jsonl"))


def questions_of(conversation):
    return lines_of(conversation.with_name(f"{conversation.name}-questions.jsonl"))


every_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda path: path.name)
every_dialogue = pytest.mark.parametrize("conversation", DIALOGUES, ids=lambda path: path.name)


@every_conversation
def test_every_turn_has_its_own_key_and_a_time_after_the_turn_before(conversation):
    turns = turns_of(conversation)
    assert len(turns) >= 160
    assert all(list(turn) == FIELDS for turn in turns)
    assert len({turn["session"] for turn in turns}) >= 8
    assert len({turn["key"] for turn in turns}) == len(turns)
    assert [turn["time"] for turn in turns] == sorted(turn["time"] for turn in turns)


@every_conversation
def test_evidence_names_turns_that_exist_and_the_unanswerable_have_none(conversation):
    scope_of = {turn["key"]: turn["scope"] for turn in turns_of(conversation)}
    questions = questions_of(conversation)
    assert len({question["question"] for question in questions}) == len(questions)
    assert {question["category"] for question in questions} <= CATEGORIES
    for question in questions:
        assert bool(question["evidence"]) == (question["category"] != "unanswerable"), question
        assert {scope_of[key] for key in question["evidence"]} <= {question["scope"]}, question


@every_dialogue
def test_user_and_assistant_take_turns_and_the_answers_are_long(conversation):
    turns = turns_of(conversation)
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
    lengths = [len(turn["text"]) for turn in turns if turn["role"] == "assistant"]
    assert min(lengths) >= 500
    assert max(lengths) <= 4_000
    assert sum(length >= 2_000 for length in lengths) >= 25


@every_dialogue
def test_the_questions_ask_for_turns_of_both_and_come_in_all_categories(conversation):
    role = {turn["key"]: turn["role"] for turn in turns_of(conversation)}
    questions = questions_of(conversation)
    assert {question["category"] for question in questions} == CATEGORIES
    answered = [question for question in questions if question["category"] != "unanswerable"]
    assert len(answered) >= 100
    said_by = Counter(role[question["evidence"][0]] for question in answered)
    assert min(said_by.values()) >= 45


@pytest.mark.parametrize("conversation", [PROJECT, FARMHOUSE], ids=lambda path: path.name)
def test_some_answers_are_short(conversation):
    lengths = [len(turn["text"]) for turn in turns_of(conversation) if turn["role"] == "assistant"]
    assert sum(length <= 800 for length in lengths) >= 15


@pytest.mark.parametrize("conversation", [BATS, FARMHOUSE], ids=lambda path: path.name)
def test_a_long_dialogue_is_varied_and_its_user_often_asks(conversation):
    turns = turns_of(conversation)
    assert len(turns) >= 220
    said = {role: [turn["text"] for turn in turns if turn["role"] == role] for role in ("user", "assistant")}
    assert all(30 <= len(text) <= 900 for text in said["user"])
    assert 0.4 <= sum(text.endswith("?") for text in said["user"]) / len(said["user"]) <= 0.6
    assert sum(len(text) > 2_000 for text in said["assistant"]) >= len(said["assistant"]) / 3
    counts = Counter(question["category"] for question in questions_of(conversation))
    least = {"user-fact": 55, "assistant-said": 35, "update": 10, "temporal": 10, "multi": 8, "user-asked": 6}
    assert all(counts[category] >= number for category, number in {**least, "unanswerable": 12}.items())


def test_the_trip_is_a_group_chat_in_which_the_assistant_speaks_when_asked():
    turns = turns_of(TRIP)
    assert {turn["speaker"] for turn in turns if turn["role"] == "user"} == {"Ilse", "Joost", "Matteo", "Priya"}
    assert all(10 <= len(turn["text"]) <= 400 for turn in turns if turn["role"] == "user")
    assert 0.1 <= sum(turn["role"] == "assistant" for turn in turns) / len(turns) <= 0.2
    counts = Counter(question["category"] for question in questions_of(TRIP))
    least = {"user-fact": 40, "assistant-said": 15, "update": 8, "temporal": 8, "multi": 5, "unanswerable": 8}
    assert all(counts[category] >= number for category, number in least.items())
