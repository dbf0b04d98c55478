"""examples/project.jsonl: a long conversation about one project, and questions whose evidence is known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CATEGORIES = {"assistant-said", "multi", "temporal", "unanswerable", "update", "user-asked", "user-fact"}


def lines_of(name):
    return [json.loads(line) for line in (EXAMPLES / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def turns():
    return lines_of("project.jsonl")


def test_the_project_is_long_and_its_answers_are(turns):
    assert len(turns) >= 160
    assert len({turn["session"] for turn in turns}) == 8
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
    assert all(500 <= len(turn["text"]) <= 4_000 for turn in turns if turn["role"] == "assistant")
    assert len({turn["key"] for turn in turns}) == len(turns)
    assert [turn["time"] for turn in turns] == sorted(turn["time"] for turn in turns)


def test_some_answers_are_short_and_some_fill_pages(turns):
    lengths = [len(turn["text"]) for turn in turns if turn["role"] == "assistant"]
    assert sum(length <= 800 for length in lengths) >= 15
    assert sum(length >= 2_000 for length in lengths) >= 25


def test_the_questions_name_turns_of_both_and_come_in_all_categories(turns):
    role = {turn["key"]: turn["role"] for turn in turns}
    questions = lines_of("project-questions.jsonl")
    assert {question["category"] for question in questions} == CATEGORIES
    answered = [question for question in questions if question["category"] != "unanswerable"]
    assert len(answered) >= 100
    assert all(question["evidence"] for question in answered)
    assert not any(question["evidence"] for question in questions if question["category"] == "unanswerable")
    said_by = Counter(role[question["evidence"][0]] for question in answered)
    assert min(said_by.values()) >= 45
