"""The benchmark of large stores: its data, and a small run from end to end."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from benchmarks import scale
from benchmarks.bulk import SHARES, Bulk

WORDS = ["tea", "train", "ticket", "museum", "lisbon", "porto", "table", "dinner", "friday", "monday", "invoice", "dog"]
ROOMS, IN_A_ROOM, DIALOGS, IN_A_DIALOG = 40, 25, 100, 12
TURNS = 1_500
NOT_IN_THE_TABLE = {
    "the largest session, p50 against no filter",
    "said in the middle half of the time, p50 against no filter",
    "one role, p50 against no filter",
    "one speaker, p50 against no filter",
    "as of half the log, scope of 10 %, p50 against no filter",
}


def text_of(number):
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7)) + f" number{number}"


def write(path, messages):
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(message) + "\n" for message in messages)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "bulk").mkdir()
    write(
        folder / "bulk" / "rooms.jsonl.gz",
        [
            {
                "conversation": f"room{room}",
                "turn_id": f"m{number}",
                "time": f"2015-03-{1 + number:02}T10:00:{room:02}Z",
                "speaker": f"user{number % 5}",
                "text": text_of(room * IN_A_ROOM + number),
            }
            for room in range(ROOMS)
            for number in range(IN_A_ROOM)
        ],
    )
    write(
        folder / "bulk" / "dialogs.jsonl.gz",
        [
            {
                "conversation": f"dialog{dialog}",
                "turn_id": number,
                "speaker": ("user", "assistant")[number % 2],
                "text": text_of(7_000 + dialog * IN_A_DIALOG + number),
            }
            for dialog in range(DIALOGS)
            for number in range(IN_A_DIALOG)
        ],
    )
    talk = folder / scale.CONVERSATIONS
    talk.mkdir()
    turn = {"conversation": "talk", "session": "1", "session_time": "2024-05-01T10:00:00Z", "speaker": "Ada"}
    turns = [turn | {"turn_id": f"D1:{number}", "text": text_of(number)} for number in range(8)]
    (talk / "turns.jsonl").write_text("".join(json.dumps(item) + "\n" for item in turns))
    asked = [{"conversation": "talk", "question": f"Which {word} was it?"} for word in WORDS[:4]]
    (talk / "questions.jsonl").write_text("".join(json.dumps(item) + "\n" for item in asked))
    return folder


@pytest.fixture(scope="module")
def bulk(data):
    return Bulk(sorted((data / "bulk").glob("*.gz")), questions=10)


def test_each_scope_holds_its_share_of_the_turns_at_every_size(bulk):
    for count in (700, len(bulk.messages)):
        held = Counter(scope.partition("/")[0] for _, scope, _ in bulk.turns(count))
        for name, (percent, _) in SHARES.items():
            assert held[name] / count == pytest.approx(percent / 100, abs=0.03)


def test_messages_that_come_again_are_other_turns_of_other_sessions(bulk):
    count = 2 * len(bulk.messages)
    turns = [turn for _, _, turn in bulk.turns(count)]
    assert len({(turn.session, turn.key) for turn in turns}) == count
    assert len({turn.text for turn in turns}) == count


def test_a_store_that_grows_gets_the_messages_that_it_does_not_have(bulk):
    whole = [turn for _, _, turn in bulk.turns(1_000)]
    assert whole == [turn for part in (bulk.turns(400), bulk.turns(1_000, after=400)) for _, _, turn in part]


def test_no_question_is_in_the_store(bulk):
    assert not set(bulk.questions) & {turn.text for _, _, turn in bulk.turns(len(bulk.messages))}


@pytest.mark.timeout(900)
def test_a_small_run_reports_every_figure_and_is_not_repeated(data, tmp_path):
    def run():
        return scale.run(tmp_path, data, [600, TURNS], questions=8, openings=1)

    results = run()
    figures = {figure.what: figure for figure in scale.figures_of(results)}
    assert figures.keys() - NOT_IN_THE_TABLE == {
        "recall without a filter, p50",
        "recall without a filter, p95",
        "scope of 1 %, p50 against no filter",
        "scope of 10 %, p50 against no filter",
        "scope of 40 %, p50 against no filter",
        "as of half the log, p50 against no filter",
        "growth of recall from 600 turns, p50",
        "conversations: recall minus the model, p50",
        "conversations: question embedded, p50",
        "the same beside a busy process, p95",
        "conversations: bytes per turn",
        "bytes per turn",
        "peak memory of a rebuild",
        "resident memory after 200 recalls",
        "open to first recall",
        "views rebuilt",
        "vectors rebuilt from stored ones",
        "`status` process",
        "conversations: texts embedded",
    }
    assert all(figure.measured > 0 for figure in figures.values())
    assert results.checkpoints[-1].ways[scale.WHOLE].hits == 10
    assert run().checkpoints == results.checkpoints
