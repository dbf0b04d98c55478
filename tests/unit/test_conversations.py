"""The conversations that we ship, and their questions: every rule that a measurement of recall relies on."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "benchmarks" / "conversations"
CONVERSATIONS = [
    ROOT / "examples" / "project",
    *(file.with_name(file.name.removesuffix("-questions.jsonl")) for file in sorted(WRITTEN.glob("*-questions.jsonl"))),
]
FIELDS = ["session", "session_name", "scope", "agent", "role", "speaker", "key", "time", "text"]
CATEGORIES = {
    "assistant-said",
    "multi",
    "order",
    "standing",
    "summary",
    "temporal",
    "unanswerable",
    "update",
    "user-asked",
    "user-fact",
}


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def turns_of(conversation):
    return lines_of(conversation.with_name(f"{conversation.name}.jsonl"))


every_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda path: path.name)


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
    questions = lines_of(conversation.with_name(f"{conversation.name}-questions.jsonl"))
    assert len({question["question"] for question in questions}) == len(questions)
    assert {question["category"] for question in questions} <= CATEGORIES
    for question in questions:
        assert bool(question["evidence"]) == (question["category"] != "unanswerable"), question
        assert {scope_of[key] for key in question["evidence"]} <= {question["scope"]}, question


def test_a_request_for_a_summary_rests_on_three_to_twelve_turns_in_the_order_of_the_conversation():
    requests = lines_of(WRITTEN / "summaries.jsonl")
    turns = {path.name: turns_of(path) for path in CONVERSATIONS}
    assert len(requests) == 30
    assert len({request["conversation"] for request in requests}) >= 4
    assert len({request["style"] for request in requests}) >= 5
    for request in requests:
        said = [turn["key"] for turn in turns[request["conversation"]] if turn["scope"] == request["scope"]]
        evidence = request["evidence"]
        assert evidence == sorted(set(evidence), key=said.index), request
        assert 3 <= len(evidence) <= 12, request
