"""Transcripts and exports of other programs, as turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnemolog.adapters.importers import FORMATS, detect_format, read_turns
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.role import ROLES

DATA = Path(__file__).parent / "data" / "importing"
KETTLE = "5e55104a-0000-4000-8000-000000000001"


def brief(turns):
    return [(turn.session, turn.role, turn.text) for turn in turns]


def written(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("turns.jsonl", "jsonl"),
        ("claude_code.jsonl", "claude-code"),
        ("codex.jsonl", "codex"),
        ("chatgpt.json", "chatgpt"),
        ("openai.json", "openai"),
        ("openai.jsonl", "openai"),
    ],
)
def test_the_content_tells_the_format_whatever_the_name(tmp_path, name, expected):
    """A file without an ending is recognised all the same."""
    path = tmp_path / "file"
    path.write_bytes((DATA / name).read_bytes())
    assert detect_format(path) == expected
    assert brief(read_turns(path, format=expected)) == brief(read_turns(path))


@pytest.mark.parametrize("name", [path.name for path in sorted(DATA.iterdir())])
def test_reading_twice_gives_the_same_turns_with_keys_of_their_own(name):
    """Keys are stable, and unique within their session."""
    turns = list(read_turns(DATA / name))
    assert turns == list(read_turns(DATA / name))
    assert len({(turn.session, turn.key) for turn in turns}) == len(turns) > 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "jsonl"),
        ("\n \n", "jsonl"),
        ("[]", "json"),
        ('[{"role": "user", "content": "hi"}]', "openai"),
        ('[{"messages": []}]', "openai"),
        ('{"mapping": {}}', "chatgpt"),
        ('{"role": "user", "content": "hi"}\n', "jsonl"),
        ('{"type": "message", "sessionId": "s", "content": "hi"}\n', "jsonl"),
        ('{"type": "queue-operation", "operation": "dequeue", "sessionId": "s"}\n', "claude-code"),
        ('{"text": "a"\n{"text": "b"}\n', "jsonl"),
        ('[{"text": "hi"}]', "json"),
        ('{\n "text": "hi"\n}', "json"),
        ("session,text\na,b\n", "csv"),
    ],
)
def test_detection_in_unusual_cases(tmp_path, content, expected):
    """Empty files, bare arrays, a bad first line, bookkeeping only."""
    assert detect_format(written(tmp_path / "file", content)) == expected


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"said": "hi", "at": 1}\n', "it looks like JSON Lines, and the first line has the fields 'said', 'at'"),
        ('{\n "said": "hi"}\n', "it looks like one JSON document, and it has the fields 'said'"),
        ("hello there\n", "it looks like plain text (the first line is not a JSON object"),
        ('{"said": \n', "it looks like broken JSON"),
        ("who,said\na,b\n", "it looks like CSV, and none of its columns has a usual name for a text: 'who', 'said'"),
        ("[1, 2]", "it looks like one JSON array, but its first element is not an object"),
        ('[{"said": "hi"}]', "it looks like one JSON array, and its first element has the fields 'said'"),
        ("<html></html>", "it looks like HTML"),
        ("PK\x03\x04", "it looks like a zip archive or a spreadsheet; import the messages in it, as JSON or CSV"),
    ],
)
def test_an_unknown_format_is_refused_with_a_way_out(tmp_path, content, why):
    """The error names the formats and the option that helps."""
    with pytest.raises(ImportRefused) as caught:
        detect_format(written(tmp_path / "file", content))
    assert caught.value.line == 1
    assert why in str(caught.value)
    assert all(name in str(caught.value) for name in (*FORMATS, "--field"))


def test_a_format_that_does_not_exist_is_refused_at_the_call(tmp_path):
    """No file is opened for it."""
    with pytest.raises(InvalidInput, match="format: 'docx' is none of jsonl"):
        read_turns(tmp_path / "missing", format="docx")


def test_json_lines_hold_turns_of_many_sessions():
    """Each line says its session, speaker, key and time."""
    turns = list(read_turns(DATA / "turns.jsonl"))
    assert [(turn.session, turn.role, turn.speaker, turn.key, turn.line) for turn in turns] == [
        ("tea", "user", "Ada", "t1", 1),
        ("tea", "assistant", None, "t2", 2),
        ("boat", "user", None, "7", 4),
    ]
    assert [turn.said_at for turn in turns] == [
        1_709_283_600_000_000,
        1_709_283_605_000_000,
        1_709_370_000_000_000,
    ]


def test_a_claude_code_transcript_holds_what_was_said():
    """Thinking, hints of the program and bookkeeping stay out; a subagent has a session of its own."""
    turns = list(read_turns(DATA / "claude_code.jsonl"))
    assert brief(turns) == [
        (KETTLE, "user", "Why does the kettle test fail?"),
        (KETTLE, "assistant", "I will run it.\nOne moment."),
        (KETTLE, "assistant", "[tool call: Bash]"),
        (KETTLE, "tool", "1 failed: lid open"),
        (KETTLE, "user", "Close the lid first."),
        (f"{KETTLE}/a1", "user", "Look up the lid sensor."),
        (KETTLE, "user", "[image]"),
    ]
    assert [turn.key for turn in turns] == ["u-1", "u-3", "u-4", "u-5", "u-5/2", "u-6", "u-8"]
    assert [turn.line for turn in turns] == [4, 6, 7, 8, 8, 9, 11]
    assert {turn.session_title for turn in turns} == {"kettle 5e55104a"}


def test_a_claude_code_turn_keeps_its_calls_and_circumstances():
    """Tool calls with their input, results with the call they answer, and where the work was done."""
    _, said, called, result, *_ = read_turns(DATA / "claude_code.jsonl")
    assert called.tool_calls == [{"id": "toolu_1", "name": "Bash", "input": {"command": "make test"}}]
    where = {"cwd": "/home/ada/kettle", "gitBranch": "main", "version": "2.1.0"}
    assert said.metadata == where | {"model": "a-model"}
    assert result.metadata == where | {"tool_use_id": "toolu_1", "is_error": True}
    assert said.said_at == 1_738_396_803_000_000


def test_a_tool_call_too_large_for_the_log_is_shortened_and_says_so(tmp_path):
    """A call that writes a big file does not cost what was said around it."""
    block = {"type": "tool_use", "id": "t", "name": "Write", "input": {"path": "a", "content": "x" * 100_000}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "Writing."}, block]}
    row = {"type": "assistant", "sessionId": "s", "uuid": "u", "message": message}
    (turn,) = read_turns(written(tmp_path / "t.jsonl", row))
    assert turn.text == "Writing."
    assert turn.metadata == {"tool_calls_shortened": True}
    assert turn.tool_calls[0]["input"]["path"] == "a"
    assert turn.tool_calls[0]["input"]["content"].endswith("x [97,952 characters left out]")


def test_a_chatgpt_export_gives_the_branch_that_is_shown():
    """From the current node up, or the newest branch; hidden and empty messages stay out."""
    turns = list(read_turns(DATA / "chatgpt.json"))
    assert brief(turns) == [
        ("conv-1", "user", "What do I pack?"),
        ("conv-1", "assistant", "A rain coat.\nAnd boots."),
        ("conv-1", "user", "[image]"),
        ("conv-1", "tool", "Rain at noon."),
        ("conv-2", "user", "The newer branch."),
    ]
    assert [turn.key for turn in turns] == ["m1", "m3", "m4", "m5", "c"]
    assert [turn.where for turn in turns] == [
        *(f"message {number}, in element 1" for number in (2, 3, 4, 5)),
        "message 6, in element 2",
    ]
    assert [turn.session_title for turn in turns] == ["Packing for the ferry"] * 4 + [""]
    assert turns[0].said_at == 1_709_370_001_250_000
    assert (turns[1].metadata, turns[3].speaker) == ({"model": "a-model"}, "browser")


def test_a_damaged_chatgpt_tree_ends(tmp_path):
    """Parents in a circle are walked once."""
    say = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["round"]}}
    mapping = {"a": {"parent": "b", "message": say}, "b": {"parent": "a", "message": say}}
    path = written(tmp_path / "c.json", [{"id": "c", "current_node": "a", "mapping": mapping}])
    assert [turn.key for turn in read_turns(path)] == ["b", "a"]


def test_a_bad_conversation_does_not_hide_the_others(tmp_path):
    """With somebody to tell, reading goes on behind what is refused."""
    good = {"id": "ok", "mapping": {"a": {"message": {"author": {"role": "user"}, "content": {"parts": ["hi"]}}}}}
    odd = {"id": "odd", "mapping": {"a": {"message": {"author": {"role": "boss"}, "content": {"parts": ["hi"]}}}}}
    path = written(tmp_path / "c.json", [good, {"id": "bad", "mapping": 5}, odd, good | {"id": "last"}])
    refused = []
    assert [turn.session for turn in read_turns(path, on_refused=refused.append)] == ["ok", "last"]
    assert "element 2: mapping: expected an object of nodes" in str(refused[0])
    assert "message 2, in element 3: role: 'boss'" in str(refused[1])


def test_an_openai_document_is_one_session():
    """Blocks, names, tool calls and their results are kept; an empty message is passed over."""
    turns = list(read_turns(DATA / "openai.json"))
    assert brief(turns) == [
        ("openai", "system", "Be brief."),
        ("openai", "user", "Will it rain?\n[image]"),
        ("openai", "assistant", "[tool call: forecast]"),
        ("openai", "tool", "rain"),
        ("openai", "assistant", "Yes."),
    ]
    assert (turns[1].speaker, turns[1].session_title) == ("Ada", "Weather")
    assert turns[2].tool_calls[0]["function"]["name"] == "forecast"
    assert turns[3].metadata == {"tool_call_id": "call_1"}


def test_openai_lines_are_a_session_each():
    """Named by their id, or by file and line."""
    assert brief(read_turns(DATA / "openai.jsonl")) == [
        ("openai-1", "user", "Two plus two?"),
        ("openai-1", "assistant", "Four."),
        ("request-9", "user", "Three plus three?"),
    ]


def test_a_bad_message_does_not_hide_the_others_on_its_line(tmp_path):
    """It is refused with the number of the line."""
    lines = [{"messages": [{"role": "user", "content": "hi"}, {"role": "boss", "content": "no"}]}]
    lines.append({"messages": [{"role": "user", "content": "fine"}]})
    path = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
    refused = []
    found = brief(read_turns(path, on_refused=refused.append))
    assert found == [("t-1", "user", "hi"), ("t-2", "user", "fine")]
    assert [error.line for error in refused] == [1]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("hi", "expected an object, got str"),
        ({"content": "hi"}, "role: missing; a message looks like"),
        ({"role": "user"}, "content: missing"),
        ({"role": "user", "content": 5}, "content: expected text or a list of parts, got int"),
        ({"role": "user", "content": [5]}, "content: expected every part to be text"),
        (
            {"role": "user", "content": [{"type": "text", "text": 5}]},
            "expected a part of type text to hold text",
        ),
        ({"role": "user", "content": None, "tool_calls": {}}, "tool_calls: expected a list"),
    ],
)
def test_a_message_without_sense_is_refused_with_its_number(tmp_path, message, why):
    """In a document the number of the message stands for the line."""
    path = written(tmp_path / "t.json", [{"role": "user", "content": "hi"}, message])
    with pytest.raises(ImportRefused) as caught:
        list(read_turns(path))
    assert caught.value.line == 2
    assert "t.json:2: message 2: " in str(caught.value)
    assert why in str(caught.value)


NAMES = st.sampled_from(["type", "message", "role", "content", "text", "messages", "mapping", "current_node", "author"])
NAMES |= st.sampled_from(
    ["parts", "uuid", "sessionId", "timestamp", "id", "create_time", "tool_calls", "name", "input"]
)
NAMES |= st.sampled_from(["parent", "children", "metadata", "content_type", "tool_use_id", "body", "title", "agentId"])
WORDS = st.sampled_from(["user", "assistant", "text", "tool_use", "tool_result", "image", "a", "2024-03-01", "\0"])
WORDS |= st.text(max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)
MESSAGES = st.fixed_dictionaries({}, optional={"role": WORDS, "content": VALUES, "id": VALUES, "tool_calls": VALUES})
BLOCKS = st.lists(st.fixed_dictionaries({}, optional={"type": WORDS | VALUES, "text": VALUES}), max_size=3)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "web_search_call", "function_call_output"])
        | st.just("thread_rolled_back")
        | VALUES,
        "role": WORDS | VALUES,
        "content": BLOCKS | VALUES,
        "call_id": VALUES,
        "name": VALUES,
        "arguments": VALUES,
        "output": VALUES,
        "num_turns": VALUES,
        "id": VALUES,
        "cwd": VALUES,
        "git": VALUES,
        "source": VALUES,
    },
)
ROLLOUT_TYPES = st.sampled_from(["session_meta", "response_item", "event_msg", "turn_context", "compacted"])
CALLS = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": st.just("send_message"), "arguments": VALUES})}
)
SAYING = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool"]) | VALUES,
        "role_type": WORDS | VALUES,
        "sender": st.just("human") | VALUES,
        "content": BLOCKS | VALUES,
        "text": VALUES,
        "memory": VALUES,
        "value": VALUES,
        "from": VALUES,
        "uuid": VALUES,
        "created_at": VALUES,
        "attachments": st.lists(st.dictionaries(st.just("file_name"), VALUES)) | VALUES,
        "tool_calls": st.lists(CALLS | VALUES, max_size=2) | VALUES,
        "metadata": VALUES,
    },
)
SAID = st.lists(SAYING | VALUES, max_size=3)
EXPORTS = (
    st.fixed_dictionaries({"chat_messages": SAID, "uuid": VALUES, "name": VALUES})
    | st.fixed_dictionaries({"agents": st.lists(st.fixed_dictionaries({"agent_type": VALUES, "messages": SAID}))})
    | st.fixed_dictionaries({"results": SAID})
    | st.fixed_dictionaries({"messages": SAID}, optional={"session_id": VALUES, "thread_created_at": VALUES})
    | st.fixed_dictionaries({"conversations": SAID | VALUES}, optional={"id": VALUES, "title": VALUES})
    | st.fixed_dictionaries({"ids": st.lists(VALUES, max_size=2)}, optional={"documents": VALUES, "metadatas": VALUES})
    | SAYING
)
NODES = st.fixed_dictionaries({}, optional={"message": MESSAGES | VALUES, "parent": WORDS, "children": VALUES})
ROWS = (
    VALUES
    | EXPORTS
    | st.fixed_dictionaries({"type": st.just("user"), "message": MESSAGES, "uuid": VALUES})
    | st.fixed_dictionaries({"messages": st.lists(MESSAGES, max_size=3)})
    | st.fixed_dictionaries({"type": ROLLOUT_TYPES | VALUES, "payload": PAYLOADS | VALUES, "timestamp": VALUES})
    | st.fixed_dictionaries({"mapping": st.dictionaries(WORDS, NODES, max_size=3), "current_node": WORDS})
)


@settings(max_examples=300, deadline=None)
@example([{"type": []}], False, None)
@given(st.lists(ROWS, min_size=1, max_size=3), st.booleans(), st.sampled_from([None, *FORMATS]))
def test_whatever_a_file_holds_it_is_turns_or_refusals(tmp_path_factory, rows, as_array, form):
    """No file makes a reader stumble: nothing but `ImportRefused` comes out."""
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_text(json.dumps(rows) if as_array else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    refused = []
    try:
        turns = list(read_turns(path, format=form, on_refused=refused.append))
    except ImportRefused:
        return
    assert all(turn.text and turn.session and turn.key and turn.role in ROLES for turn in turns)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('a,;\t|"\r\n text\0'), max_size=40), st.sampled_from([None, "csv"]))
def test_whatever_a_table_holds_it_is_turns_or_refusals(tmp_path_factory, body, form):
    """Quotes that do not end, rows that are too long, empty lines, NUL."""
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_text("text,who\n" + body, encoding="utf-8", newline="")
    refused = []
    try:
        turns = list(read_turns(path, format=form, on_refused=refused.append))
    except ImportRefused:
        return
    assert all(turn.text and turn.session and turn.key and turn.role in ROLES for turn in turns)
