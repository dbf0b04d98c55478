"""Transcripts that another program is writing: complete lines, what a session misses, and what was taken back.

Reading a stream by positions of the log.
"""

import os
from types import SimpleNamespace

import pytest

from mnemolog.adapters.importers.transcripts import reading
from mnemolog.adapters.importers.transcripts.interpreter import scope_of
from mnemolog.adapters.importers.transcripts.reading import Line, lines_from, mark_at, reading_order
from mnemolog.adapters.support.framework_sessions import first_gone, missing
from mnemolog.domain.session import new_turn
from mnemolog.domain.values import SCOPE_BYTES_MAX
from mnemolog.infra.log.reader import LogReader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "talk.jsonl"


def read(path, **begin):
    return list(lines_from(path, **({"offset": 0, "number": 0} | begin)))


def test_reading_continues_where_the_last_one_ended(path):
    """Numbers and offsets continue; a byte order mark is not part of the first line."""
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"b": 2}\n')
    first, second = read(path)
    assert (first.number, first.text.strip(), second.number, second.end) == (1, b'{"a": 1}', 2, path.stat().st_size)
    assert read(path, offset=first.end, number=1) == [second]
    assert read(path, offset=second.end, number=2) == []


def test_a_line_that_is_too_long_has_no_text(path, monkeypatch):
    """It is incomplete before its end; lines after it are read."""
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 20)
    path.write_bytes(b"{}\n" + b"x" * 50)
    assert len(read(path)) == 1
    path.write_bytes(b"{}\n" + b"x" * 50 + b"\n{}\n")
    assert read(path)[1:] == [Line(2, 54, None), Line(3, 57, b"{}\n")]


def test_a_mark_reveals_a_file_that_was_replaced_or_truncated(path):
    """It cannot be computed without the secret; bytes after the offset do not count."""
    path.write_bytes(b"a" * 10_000)
    mark = mark_at(path, 10_000, b"secret")
    with path.open("ab") as file:
        file.write(b"more")
    assert mark_at(path, 10_000, b"secret") == mark
    assert mark_at(path, 10_000, b"another") != mark
    path.write_bytes(b"a" * 9_999 + b"b")
    assert mark_at(path, 10_000, b"secret") != mark
    os.truncate(path, 9_999)
    assert mark_at(path, 10_000, b"secret") == b""


def test_sessions_are_read_before_those_that_continue_them(tmp_path):
    """Subagents are in deeper folders, rollouts have their start in the name; others go by their last write."""
    files = [("b.jsonl", 1), ("a.jsonl", 2), ("rollout-1.jsonl", 9), ("rollout-2.jsonl", 3), ("a/subagents/x.jsonl", 0)]
    shuffled = files[::-1]
    ordered = sorted(shuffled, key=lambda file: reading_order(tmp_path / file[0], file[1]))
    assert ordered == files


@pytest.mark.parametrize(
    ("folder", "scope"),
    [
        ("/home/ada/kettle", "home/ada/kettle"),
        ("C:\\Users\\ada", "C:/Users/ada"),
        ("/a/../*/b\n", "a/b"),
        ("", ""),
        ("/" + "x" * SCOPE_BYTES_MAX + "/end", "end"),
    ],
)
def test_a_folder_is_cut_to_a_scope(folder, scope):
    """As much of its end as fits."""
    assert scope_of(folder) == scope


@pytest.mark.parametrize(
    ("seen", "kept", "left"),
    [
        ("ABC", "ABC", "ABC"),
        ("ABC", "AB", "AB"),
        ("ABC", "A", "A"),
        ("ABC", "", ""),
        ("ABCDEF", "CD", "ABCD"),  # A window of a longer session.
        ("ABC", "ABX", "AB"),  # X was never recorded: it was interrupted, or a skill's.
        ("ABC", "XAB", "AB"),
        ("YYY", "YY", "YY"),  # Both begin together.
        ("AYBY", "AY", "AY"),  # The longest common run decides which Y.
        ("AYBY", "BY", "AYBY"),
        ("AYBY", "Y", "AYBY"),  # Nothing tells: the later one hides less.
        ("ABC", "XZ", "ABC"),  # Nothing in common, such as a summary: nothing is hidden.
        ("", "A", ""),
        ("", "", ""),
    ],
)
def test_texts_that_the_transcript_no_longer_has_are_undone(seen, kept, left):
    """Each letter is what a user said."""
    gone = first_gone(seen, kept, said=bool(kept))
    assert seen[:gone] == left


def test_an_undo_of_any_length_is_found_where_all_texts_differ(rng):
    """Also in a window, and between messages that were never recorded."""
    for _ in range(1_000):
        seen = [str(n) for n in range(rng.randrange(1, 12))]
        left = seen[: rng.randrange(1, len(seen) + 1)]
        window = left[rng.randrange(len(left)) :]
        kept = [text for said in window for text in ([said, "never recorded"] if rng.random() < 0.3 else [said])]
        gone = first_gone(seen, kept, said=True)
        assert seen[:gone] == left, (seen, kept)


def in_session(*texts):
    return [SimpleNamespace(role=SimpleNamespace(value="user"), text=text, key=None) for text in texts]


def messages(texts):
    return [(new_turn(role="user", text=text), None) for text in texts]


def missing_of(seen, wanted):
    return "".join(turn.text for turn, _ in missing(in_session(*seen), messages(wanted)))


@pytest.mark.parametrize(
    ("seen", "wanted", "lacks"),
    [
        ("", "ABC", "ABC"),
        ("ABC", "ABC", ""),
        ("AB", "ABCD", "CD"),
        ("ABA", "ABA", ""),
        ("AB", "ABA", "A"),
        ("ABCDEF", "EF", ""),
        ("ABCDEF", "EFG", "G"),
        ("yABC", "ABCy", "y"),  # A window of a longer session, and a word that was said before it.
        ("AC", "ABC", "B"),
        ("ACB", "ABC", ""),  # B was missing in the middle and is at the end now.
        ("BDFACE", "ABCDEF", ""),
        ("ABCX", "ABC", ""),
    ],
)
def test_only_messages_that_the_session_lacks_are_missing(seen, wanted, lacks):
    """A transcript may be a window of the session, or have a new message in its middle."""
    assert missing_of(seen, wanted) == lacks


def test_passing_a_transcript_again_soon_adds_nothing(rng):
    """Whatever the session held before; mostly at the second time."""
    at_once = 0
    for _ in range(2_000):
        seen, wanted = ("".join(rng.choices("ABCDEFGH", k=rng.randrange(10))) for _ in range(2))
        times = 0
        while lacks := missing_of(seen, wanted):
            seen, times = seen + lacks, times + 1
            assert times <= 5, (seen, wanted)
        at_once += times <= 1
    assert at_once > 1_000


def test_a_transcript_that_only_grew_is_not_aligned(monkeypatch):
    """The alignment takes quadratic time: hours for 10,000 times the same word."""
    monkeypatch.setattr("mnemolog.adapters.support.framework_sessions.SequenceMatcher", None)
    assert missing_of("A" * 10_000, "A" * 10_000) == ""
    assert missing_of("A" * 9_999, "A" * 10_000) == "A"


class PositionsOnly(LogReader):
    """Stands for a reader of a log: the positions of one stream by version, and how often they were read."""

    def __init__(self, positions: list[int]) -> None:
        self.positions, self.queries = positions, 0

    def position_at(self, _stream: str, version: int) -> int:
        """Return the position of a version, from 1 on."""
        self.queries += 1
        return self.positions[version - 1]


@pytest.mark.parametrize("positions", [[], [1], [3], [2, 3, 7], [1, 2, 3, 4], [5, 6, 9, 20, 21, 22, 40]])
def test_the_version_at_a_position_is_that_of_the_last_event_up_to_it(positions):
    """At every position from before the stream to after it."""
    for position in range(50):
        found = PositionsOnly(positions).version_at("s", position, latest=len(positions))
        assert found == sum(one <= position for one in positions)


def test_both_ends_of_a_long_stream_take_at_most_one_query():
    """Most reads want all turns of a session."""
    reads = PositionsOnly(list(range(1, 10_001)))
    assert reads.version_at("s", 0, latest=10_000) == 0
    assert reads.version_at("s", 10_000, latest=10_000) == 10_000
    assert reads.queries == 1
