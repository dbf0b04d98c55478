"""Files that another program is writing: complete lines, their folders, and detecting a replaced file."""

import os

import pytest

from mnemolog.adapters.importers.transcripts import reading
from mnemolog.adapters.importers.transcripts.catch_up import reading_order
from mnemolog.adapters.importers.transcripts.interpreter import scope_of
from mnemolog.adapters.importers.transcripts.reading import Line, lines_from, mark_at
from mnemolog.domain.limits import SCOPE_BYTES_MAX


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
