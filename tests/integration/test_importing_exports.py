"""Exports of other memory stores and chat programs, tables, and plain JSON, as turns."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from mnemolog.adapters.importers import detect_format, parse_field_map, preview_files, read_turns
from mnemolog.domain.errors import ImportRefused
from tests.chroma import chroma_database

DATA = Path(__file__).parent / "data" / "importing"
NINE = 1_773_651_600_000_000  # 2026-03-16T09:00:00Z


def said(turns):
    return [(turn.session, turn.role, turn.speaker, turn.text) for turn in turns]


def written(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude_ai.json", "claude-ai"),
        ("mem0.json", "mem0"),
        ("zep.json", "zep"),
        ("zep_v3.json", "zep"),
        ("letta.af", "letta"),
        ("chroma.json", "chroma"),
        ("table.csv", "csv"),
        ("sharegpt.json", "json"),
    ],
)
def test_an_export_is_recognized_by_its_content_whatever_its_name(tmp_path, name, expected):
    """A copy without an ending is read the same."""
    path = tmp_path / "file"
    path.write_bytes((DATA / name).read_bytes())
    assert detect_format(path) == expected
    assert [turn.text for turn in read_turns(path)] == [turn.text for turn in read_turns(DATA / name)]


def test_a_claude_ai_export_is_imported_with_its_titles():
    """Thoughts and results of tools are left out; a message that shows only a file names it."""
    turns = list(read_turns(DATA / "claude_ai.json"))
    ferry, older = "8f2e0a5c-1111-4222-8333-444455556666", "8f2e0a5c-2222-4222-8333-444455556666"
    assert said(turns) == [
        (ferry, "user", None, "When does the ferry leave?"),
        (ferry, "assistant", None, "I will look.\nAt 10:15 from Mallaig."),
        (ferry, "user", None, "[attachment: ticket.png]"),
        (older, "user", None, "An older export has no blocks."),
    ]
    assert [turn.session_title for turn in turns] == ["Ferry to Skye"] * 3 + [""]
    assert [turn.key for turn in turns] == ["m-1", "m-2", "m-3", "n-1"]
    assert turns[0].said_at == NINE + 1_000_000
    assert turns[0].metadata == {"attachments": ["plan.txt"]}
    assert turns[1].tool_calls == [{"name": "web_search", "input": {"query": "ferry Skye"}}]


def test_mem0_memories_are_imported_from_an_answer_an_array_or_lines(tmp_path):
    """The session is the run, else the user; their id is the key."""
    turns = list(read_turns(DATA / "mem0.json"))
    assert said(turns) == [
        ("ada", "user", None, "Name is Ada. Enjoys rowing."),
        ("trip", "user", "Ada", "I move to Lisbon in May."),
    ]
    assert (turns[0].metadata, turns[1].agent) == ({"category": "hobbies"}, "planner")
    assert turns[0].key == "892db2ae-06d9-49e5-8b3e-585ef9b85b8e"
    memories = json.loads((DATA / "mem0.json").read_text())["results"]
    for content in (memories, "\n".join(map(json.dumps, memories))):
        assert said(read_turns(written(tmp_path / "m.json", content))) == said(turns)


def test_mem0_lines_with_named_fields_still_work(tmp_path):
    """The fields of a recognized format can be named too."""
    path = written(tmp_path / "m.jsonl", '{"memory": "hi", "user_id": "ada", "created_at": "2026-03-16T09:00:00Z"}\n')
    (turn,) = read_turns(path, fields=parse_field_map(["text=memory,session=user_id,scope=user_id,time=created_at"]))
    assert (turn.text, turn.session, turn.scope, turn.said_at) == ("hi", "ada", "ada", NINE)


def test_zep_messages_are_imported_with_who_spoke():
    """In versions 1 and 2 the name is in `role`, later in `name`."""
    turns = list(read_turns(DATA / "zep.json"))
    assert said(turns) == [
        ("trip", "user", "Alice", "I moved to Lisbon."),
        ("trip", "assistant", "guide", "Congratulations!"),
        ("trip", "user", None, "A note."),
    ]
    assert (turns[0].key, turns[0].metadata, turns[0].said_at) == ("z-1", {"mood": "glad"}, NINE)
    assert said(read_turns(DATA / "zep_v3.json")) == [
        ("zep_v3", "user", "Alice", "I moved to Lisbon."),
        ("zep_v3", "assistant", None, "Congratulations!"),
    ]


def test_zep_sessions_are_imported_together_or_message_by_message(tmp_path):
    """An array of sessions, and lines of messages that name theirs."""
    message = {"role_type": "user", "role": "Alice", "content": "hi", "uuid": "u"}
    sessions = [{"session_id": name, "messages": [message]} for name in ("a", "b")]
    assert [turn.session for turn in read_turns(written(tmp_path / "z.json", sessions))] == ["a", "b"]
    lines = "\n".join(json.dumps(message | {"session_id": name}) for name in ("a", "b"))
    assert [turn.session for turn in read_turns(written(tmp_path / "z.jsonl", lines))] == ["a", "b"]


def test_a_letta_agent_file_is_imported_with_what_was_said():
    """What an agent sends is what it says; prompts, thoughts, heartbeats and confirmations are left out."""
    turns = list(read_turns(DATA / "letta.af"))
    assert said(turns) == [
        ("harbour-guide", "user", None, "Any boats today?"),
        ("harbour-guide", "assistant", None, "[tool call: timetable]"),
        ("harbour-guide", "tool", None, "10:15"),
        ("harbour-guide", "assistant", None, "One at 10:15."),
        ("plain", "user", None, "Hello."),
        ("plain", "assistant", None, "Good morning, one moment."),
    ]
    assert {turn.agent for turn in turns} == {"harbour-guide", "plain"}
    assert turns[1].tool_calls[0]["function"]["name"] == "timetable"
    assert turns[2].metadata == {"tool_call_id": "call-1"}


def test_a_later_letta_export_of_the_same_agent_adds_only_what_is_new(tmp_path):
    """It holds the last messages and numbers them again, so keys cannot be those numbers."""
    whole = json.loads((DATA / "letta.af").read_text())
    whole["agents"] = whole["agents"][:1]
    keys = [turn.key for turn in read_turns(written(tmp_path / "a.af", whole))]
    messages = whole["agents"][0]["messages"] = whole["agents"][0]["messages"][2:]
    for number, message in enumerate(messages):
        message["id"] = f"message-{number}"
    assert [turn.key for turn in read_turns(written(tmp_path / "b.af", whole))] == keys[1:]


def test_an_agent_file_of_the_first_version_is_one_agent(tmp_path):
    """It has no list of agents."""
    (agent, _) = json.loads((DATA / "letta.af").read_text())["agents"]
    assert len(list(read_turns(written(tmp_path / "a.af", agent)))) == 4


def test_the_json_of_a_chroma_collection_is_imported():
    """The session comes from the metadata, else from the file; records without a document are left out."""
    turns = list(read_turns(DATA / "chroma.json"))
    assert said(turns) == [
        ("trip", "user", None, "I moved to Lisbon."),
        ("chroma", "user", None, "Rex is a dog."),
    ]
    assert [(turn.key, turn.said_at) for turn in turns] == [("d1", NINE), ("d3", None)]
    assert turns[1].metadata == {"page": 3}


@pytest.fixture
def chroma(tmp_path):
    """A folder as Chroma's persistent client leaves it, with two collections and a vector without a document."""
    folder = tmp_path / "chroma"
    folder.mkdir()
    chroma_database(folder / "chroma.sqlite3")
    return folder


def test_a_chroma_folder_is_imported_without_chroma(chroma):
    """Every collection; the session is its name unless the metadata says another."""
    for path in (chroma, chroma / "chroma.sqlite3"):
        assert detect_format(path) == "chroma"
        turns = list(read_turns(path))
        assert said(turns) == [
            ("trip", "user", None, "I moved to Lisbon."),
            ("trip", "assistant", None, "Congratulations!"),
            ("notes", "user", None, "Rex is a dog."),
        ]
        assert [turn.key for turn in turns] == ["m1", "m2", "n1"]
        assert turns[2].metadata == {"page": 3, "checked": True}


def test_reading_a_chroma_folder_changes_nothing_in_it(chroma):
    """The database is opened read-only."""
    before = {path.name: path.read_bytes() for path in chroma.iterdir()}
    assert len(list(read_turns(chroma, fields=parse_field_map(["session=collection"])))) == 3
    assert {path.name: path.read_bytes() for path in chroma.iterdir()} == before


def test_all_metadata_of_chroma_is_kept_and_a_preview_says_so(chroma):
    """A preview names no field that is not read."""
    (preview,) = preview_files(chroma)
    assert (preview.turns, preview.unread, preview.mapping["metadata"]) == (3, (), "metadata")


@pytest.mark.parametrize("damage", ["other", "broken", "folder"])
def test_a_database_that_is_not_chromas_is_refused(tmp_path, damage):
    """And so is a damaged one, and a folder without one."""
    path = tmp_path / "some.db"
    if damage == "folder":
        path.mkdir()
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE notes (text TEXT)")
        database.close()
        if damage == "broken":
            path.write_bytes(path.read_bytes()[:20] + bytes(1000))
    why = {"other": "not one of Chroma", "broken": "cannot be read", "folder": "a folder without chroma.sqlite3"}
    with pytest.raises(ImportRefused, match=why[damage]):
        list(read_turns(path))


def test_a_table_is_imported_by_the_names_of_its_columns():
    """The delimiter is detected; a cell may hold it, and line breaks; blank lines do not count."""
    turns = list(read_turns(DATA / "table.csv"))
    assert said(turns) == [
        ("trip", "user", "Alice", "I moved; to Lisbon,\r\nat last."),
        ("trip", "assistant", None, "Congratulations!"),
        ("rex", "user", "Bob", "My dog is called Rex"),
    ]
    assert [turn.line for turn in turns] == [2, 4, 6]
    assert turns[0].said_at == NINE


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_columns_of_a_table_can_be_named(tmp_path, delimiter):
    """With `--field`, whatever they are called."""
    rows = [["day", "clock", "who", "said"], ["2026-03-16", "09:00", "Ada", "hello, world"]]
    rows[1][3] = '"hello, world"'
    path = written(tmp_path / "t.csv", "\n".join(delimiter.join(row) for row in rows))
    (turn,) = read_turns(path, fields=parse_field_map(["text=said,speaker=who,time=day+clock,metadata=day"]))
    assert (turn.text, turn.speaker, turn.said_at) == ("hello, world", "Ada", NINE)
    assert turn.metadata == {"day": "2026-03-16"}


def test_a_table_may_have_one_column_and_a_mark_in_front(tmp_path):
    """As spreadsheets save them."""
    assert [turn.text for turn in read_turns(written(tmp_path / "t.csv", "\ufefftext\r\nhello\r\nbye\r\n"))] == [
        "hello",
        "bye",
    ]


def test_one_named_column_makes_a_table(tmp_path):
    """Whatever it is called."""
    path = written(tmp_path / "t.csv", "said\nhello\n")
    assert [turn.text for turn in read_turns(path, fields=parse_field_map(["text=said"]))] == ["hello"]


def test_a_table_keeps_objects_in_its_cells(tmp_path):
    """Metadata as JSON, or as a word."""
    path = written(tmp_path / "t.csv", 'text,metadata\nhello,"{""n"": 1}"\nbye,word\n')
    assert [turn.metadata for turn in read_turns(path)] == [{"n": 1}, {"metadata": "word"}]


def test_a_row_of_a_table_that_does_not_fit_is_refused_with_its_line(tmp_path):
    """Reading goes on behind it."""
    path = written(tmp_path / "t.csv", "who,text\nAda,hello\nBo,one,two\nCy,\nDi,bye\n")
    refused = []
    assert [turn.text for turn in read_turns(path, on_refused=refused.append)] == ["hello", "bye"]
    assert [error.line for error in refused] == [3, 4]
    assert "3 cells, but the header has 2 columns" in str(refused[0])
    assert "text: empty in 'text'" in str(refused[1])


def test_a_long_cell_of_a_table_is_read(tmp_path):
    """Python's reader of CSV stops at 128 KiB by default."""
    text = "word " * 60_000
    (turn,) = read_turns(written(tmp_path / "t.csv", f"text\n{text.strip()}\n"))
    assert turn.text == text.strip()


def test_a_table_in_another_encoding_is_refused(tmp_path):
    """It says what to do."""
    path = tmp_path / "t.csv"
    path.write_bytes("text\ngrün\n".encode("cp1252"))
    with pytest.raises(ImportRefused, match="not UTF-8: byte 0xfc; save the file as UTF-8"):
        list(read_turns(path))


def test_conversations_in_plain_json_are_imported():
    """Each has its id and its title."""
    turns = list(read_turns(DATA / "sharegpt.json"))
    assert said(turns) == [
        ("identity_0", "user", None, "Who are you?"),
        ("identity_0", "assistant", None, "A guide."),
        ("identity_1", "user", None, "Any boats?"),
    ]
    assert [turn.session_title for turn in turns] == ["", "", "Boats"]


HI = {"text": "hi"}


@pytest.mark.parametrize(
    ("content", "sessions"),
    [
        ([HI, HI], ["talk", "talk"]),
        ([HI | {"session": "a"}, HI | {"session": 2}], ["a", "2"]),
        ([[HI], [HI]], ["talk-1", "talk-2"]),
        ([{"turns": [HI]}, {"turns": [HI]}], ["talk-1", "talk-2"]),
        ({"conversations": [{"id": "a", "turns": [HI]}, {"id": "b", "turns": [HI]}]}, ["a", "b"]),
        ({"id": "a", "turns": [HI | {"session": "own"}, HI]}, ["own", "a"]),
        ({"data": [HI, HI]}, ["talk", "talk"]),
        ([{"role": "user", "content": "hi", "session_id": "a"}], ["a"]),
        ([{"id": "a", "messages": [{"from": "Ada", "body": "hi"}]}], ["a"]),
        ([HI | {"data": [{"n": 1}]}], ["talk"]),
    ],
)
def test_arrays_of_turns_and_of_conversations_are_imported(tmp_path, content, sessions):
    """Sessions are named by a field, by their id, or by the file."""
    turns = list(read_turns(written(tmp_path / "talk.json", content)))
    assert [turn.session for turn in turns] == sessions
    assert {turn.text for turn in turns} == {"hi"}


def test_arrays_within_arrays_without_end_are_refused(tmp_path):
    """Not followed to the bottom."""
    path = written(tmp_path / "t.json", "[" * 400 + '{"text": "hi"}' + "]" * 400)
    with pytest.raises(ImportRefused, match="expected an object, got list"):
        list(read_turns(path))


def test_a_bad_element_does_not_hide_the_others(tmp_path):
    """It is refused with its number."""
    path = written(tmp_path / "t.json", [HI, 5, {"role": "user"}, HI])
    refused = []
    assert len(list(read_turns(path, on_refused=refused.append))) == 2
    assert "message 2: message: expected an object, got int" in str(refused[0])
    assert "message 3: text: no field with a usual name for a text; the fields are 'role'" in str(refused[1])


def test_a_json_document_with_fields_of_its_own_is_read_under_their_names(tmp_path):
    """Any array of objects can be imported with `--field`."""
    path = written(tmp_path / "t.json", [{"said": "hi", "by": {"name": "Ada"}}])
    (turn,) = read_turns(path, fields=parse_field_map(["text=said,speaker=by.name"]))
    assert (turn.text, turn.speaker) == ("hi", "Ada")
