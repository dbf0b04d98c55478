"""The data of the benchmark of large stores. Like the other benchmarks, `make bench-scale` itself is run by hand."""

import gzip
import json
from collections import Counter

import pytest

from benchmarks.bulk import SHARES, Bulk

WORDS = ["tea", "train", "ticket", "museum", "lisbon", "porto", "table", "dinner", "friday", "monday", "invoice", "dog"]


def message(conversation, number):
    words = [WORDS[(conversation * 25 + number) * step % len(WORDS)] for step in (1, 3, 7)]
    return {
        "conversation": f"room{conversation}",
        "turn_id": f"m{number}",
        "time": f"2015-03-{1 + number:02}T10:00:{conversation % 60:02}Z",
        "speaker": f"user{number % 5}",
        "text": f"{' '.join(words)} number{conversation * 25 + number}",
    }


def test_the_data_has_its_shares_at_every_size_and_nothing_twice(tmp_path):
    """Messages that come again are other turns of other sessions; no question is in the store."""
    with gzip.open(tmp_path / "rooms.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(message(room, number)) + "\n" for room in range(90) for number in range(25))
    bulk = Bulk([tmp_path / "rooms.jsonl.gz"], questions=10)
    for count in (700, len(bulk.messages)):
        held = Counter(scope.partition("/")[0] for _, scope, _ in bulk.turns(count))
        for name, (percent, _) in SHARES.items():
            assert held[name] / count == pytest.approx(percent / 100, abs=0.03)
    count = 2 * len(bulk.messages)
    turns = [turn for _, _, turn in bulk.turns(count)]
    assert len({(turn.session, turn.key) for turn in turns}) == len({turn.text for turn in turns}) == count
    assert turns[:1_000] == [turn for part in (bulk.turns(400), bulk.turns(1_000, after=400)) for _, _, turn in part]
    assert not set(bulk.questions) & {turn.text for turn in turns[: len(bulk.messages)]}
