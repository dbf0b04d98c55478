"""Files of each format as turns: which format it is, what was said in it, and what does not hide the rest."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnemolog.adapters.importers import FORMATS, detect_format, parse_field_map, preview_files, read_turns
from mnemolog.domain.errors import ExtraMissing, ImportRefused, InvalidInput
from mnemolog.domain.message import ROLES, role_of
from mnemolog.domain.values import to_datetime

DATA = Path(__file__).parent / "data" / "importing"
EXPECTED = json.loads((DATA.parent / "imported.json").read_text())
"""By sample, its format and its turns, without empty fields. The rest of each file is not said, or says nothing."""
MISSING = object()
NINE = 1_773_651_600_000_000  # 2026-03-16T09:00:00Z


def shown(turn):
    """A turn as `imported.json` has it."""
    fields = {
        "where": turn.where,
        "session": turn.session,
        "title": turn.session_title,
        "scope": turn.scope,
        "agent": turn.agent,
        "role": turn.role,
        "speaker": turn.speaker,
        "text": turn.text,
        "key": turn.key,
        "time": None if turn.said_at is None else to_datetime(turn.said_at).isoformat(),
        "tool_calls": turn.tool_calls,
        "metadata": turn.metadata,
    }
    return {name: value for name, value in fields.items() if value}


def texts(turns):
    return [turn.text for turn in turns]


def written(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8", newline="")
    return path


def lines(*values):
    return "\n".join(map(json.dumps, values))


READ = {
    *("role", "role_type", "sender", "from", "type", "content_type", "created_at", "time", "timestamp", "title"),
    *("record", "place", "recorded_at", "said_at"),
    *("children", "parent", "current_node", "id", "ids", "uuid", "parentUuid", "leafUuid"),
}
"""Names of what a turn has in another form, and of what leads from one message to another."""
LEFT_OUT = {
    "chatgpt.json": {"An answer that was regenerated.", "The older branch."},
    "claude_code.jsonl": {"Caveat: written by the program", "Let me see.", "Fixing the kettle", "turn_duration"},
    "codex.jsonl": {
        *("c0ffee", "cli", "codex_cli_rs", "What was said so far."),
        "<permissions instructions>Ask first.</permissions instructions>",
        "<environment_context>\n<cwd>/home/ada/kettle</cwd>\n</environment_context>",
    },
}
"""Texts of messages and lines that are left out whole, each for a reason."""


def named_texts(value, name=""):
    """Every text in a JSON value, with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for field, item in value.items():
            yield from named_texts(item, field)
    elif isinstance(value, list):
        for item in value:
            yield from named_texts(item, name)


def unaccounted(path):
    """The texts of a file that are in no turn, and whose field is not counted as left out."""
    turns = json.dumps([shown(turn) for turn in read_turns(path)], ensure_ascii=False)
    counted = {reason.rpartition(" ")[2].rpartition(".")[2] for reason in preview_files(path)[0].left_out} | READ
    found = [text for name, text in named_texts(values_in(path)) if name not in counted]
    return {text for text in found if json.dumps(text.strip(), ensure_ascii=False)[1:-1] not in turns}


def test_every_format_has_a_sample(tmp_path):
    """And every sample is in the table. For an unknown format no file is opened."""
    assert {sample["format"] for sample in EXPECTED.values()} == set(FORMATS)
    assert EXPECTED.keys() == {path.name for path in DATA.iterdir()}
    with pytest.raises(InvalidInput, match="format: 'docx' is none of jsonl"):
        read_turns(tmp_path / "missing", format="docx")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_each_format_is_imported_as_what_was_said(tmp_path, name):
    """Every part of every turn, whatever the file is called, with or without the format named, twice the same."""
    form, path = EXPECTED[name]["format"], tmp_path / Path(name).stem
    path.write_bytes((DATA / name).read_bytes())
    assert detect_format(path) == form
    turns = list(read_turns(path))
    assert list(map(shown, turns)) == EXPECTED[name]["turns"]
    assert list(read_turns(path, format=form)) == turns
    assert len({(turn.session, turn.key) for turn in turns}) == len(turns)


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
def test_unusual_files_are_detected(tmp_path, content, expected):
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
        ("SQLite format 3\x00", "it looks like a database of SQLite; import the messages in it, as JSON or CSV"),
        ("PK\x03\x04", "it looks like a zip archive or a spreadsheet; import the messages in it, as JSON or CSV"),
    ],
)
def test_a_file_of_no_format_is_refused_with_a_remedy(tmp_path, content, why):
    """The error names the formats and the option that helps."""
    with pytest.raises(ImportRefused) as caught:
        detect_format(written(tmp_path / "file", content))
    assert caught.value.line == 1
    assert why in str(caught.value)
    assert all(name in str(caught.value) for name in (*FORMATS, "--field"))


MEMORIES = json.loads((DATA / "mem0.json").read_text())["results"]
ZEP = {"role_type": "user", "role": "Alice", "content": "hi", "uuid": "u"}
HI = {"text": "hi", "role": "user"}


@pytest.mark.parametrize(
    ("content", "sessions"),
    [
        (MEMORIES, ["ada", "trip"]),
        (lines(*MEMORIES), ["ada", "trip"]),
        ([{"session_id": name, "messages": [ZEP]} for name in ("a", "b")], ["a", "b"]),
        (lines(*(ZEP | {"session_id": name} for name in ("a", "b"))), ["a", "b"]),
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
def test_messages_are_found_alone_in_arrays_on_lines_and_in_conversations(tmp_path, content, sessions):
    """Sessions are named by a field, by their conversation, or by the file."""
    assert [turn.session for turn in read_turns(written(tmp_path / "talk.json", content))] == sessions


USER = {"author": {"role": "user"}, "content": {"parts": ["hi"]}}
BOSS = {"author": {"role": "boss"}, "content": {"parts": ["no"]}}


@pytest.mark.parametrize(
    ("content", "expected", "refused"),
    [
        (
            [
                {"id": "ok", "mapping": {"a": {"message": USER}}},
                {"id": "bad", "mapping": 5},
                {"id": "odd", "mapping": {"a": {"message": BOSS}}},
                {"id": "last", "mapping": {"a": {"message": USER}}},
            ],
            ["hi", "hi"],
            {2: "element 2: mapping: expected an object of nodes", 3: "message 2, in element 3: role: 'boss'"},
        ),
        (
            lines(
                {"messages": [{"role": "user", "content": "hi"}, {"role": "boss", "content": "no"}]},
                {"messages": [{"role": "user", "content": "fine"}]},
            ),
            ["hi", "fine"],
            {1: "role: 'boss'"},
        ),
        (
            [HI, 5, {"role": "user"}, HI],
            ["hi", "hi"],
            {
                2: "message 2: message: expected an object, got int",
                3: "message 3: text: no field with a usual name for a text; the fields are 'role'",
            },
        ),
        (
            "who,text\nAda,hello\nBo,one,two\nCy,\nDi,bye\n",
            ["hello", "bye"],
            {3: "3 cells, but the header has 2 columns"},
        ),
        ("[" * 400 + '{"text": "hi"}' + "]" * 400, [], {1: "expected an object, got list"}),
        (
            [
                {"role": "user", "content": "hi"},
                "hi",
                {"content": "hi"},
                {"role": "user", "content": 5},
                {"role": "user", "content": [5]},
                {"role": "user", "content": [{"type": "text", "text": 5}]},
                {"role": "user", "content": None, "tool_calls": {}},
                {"role": "user"},
            ],
            ["hi"],
            {
                2: "message 2: message: expected an object, got str",
                3: "message 3: role: missing; a message looks like",
                4: "message 4: content: expected text or a list of parts, got int",
                5: "message 5: content: expected every part to be text",
                6: "message 6: content: expected a part of type text to hold text",
                7: "message 7: tool_calls: expected a list",
                8: "message 8: content: missing",
            },
        ),
    ],
)
def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path, content, expected, refused):
    """It is refused with its place and the reason, and reading continues. In a document messages have numbers."""
    found, errors = tmp_path / "file", []
    assert texts(read_turns(written(found, content), on_refused=errors.append)) == expected
    assert len(errors) == len(refused)
    for error, (place, why) in zip(errors, refused.items(), strict=True):
        assert (why in str(error), error.path) == (True, found)
        assert error.line == place or f"element {place}" in str(error)


@pytest.mark.parametrize("form", ["claude-code", "jsonl", "openai"])
def test_a_tool_call_too_large_for_the_log_is_shortened(tmp_path, form):
    """A call that writes a big file does not cost what was said around it; the turn says that it was shortened."""
    block = {"type": "tool_use", "id": "t", "name": "Write", "input": {"path": "a", "content": "x" * 100_000}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "Writing."}, block]}
    row = {"type": "assistant", "sessionId": "s", "uuid": "u", "message": message}
    path = written(
        tmp_path / "t.jsonl", {"claude-code": row, "jsonl": message, "openai": {"messages": [message]}}[form]
    )
    (turn,) = read_turns(path, format=form)
    assert (turn.text, turn.metadata) == ("Writing.", {"tool_calls_shortened": True})
    assert turn.tool_calls[0]["input"]["path"] == "a"
    assert turn.tool_calls[0]["input"]["content"].endswith("x [97,952 characters left out]")


NODES = [f"n{number}" for number in range(8)]
LINKS = st.fixed_dictionaries({name: st.sampled_from([None, "gone", 5, *NODES]) for name in NODES})


def chatgpt_tree(links, current, lists, silent):
    """A conversation with a message in each node but the silent ones, which are null or have none."""
    mapping = {
        name: {"parent": parent, "message": {"author": {"role": "user"}, "content": {"parts": [name]}}}
        | ({"children": [child for child in NODES if links[child] == name]} if lists else {})
        for name, parent in links.items()
    }
    mapping |= {
        name: None if number % 2 else {"parent": links[name], "children": 5} for number, name in enumerate(silent)
    }
    return [{"id": "c", "current_node": current, "mapping": mapping}]


def claude_tree(links, current, _lists, silent):
    """The same conversation as claude.ai has it: links to the parent only, and no messages that are null."""
    rows = [
        {"uuid": name, "parent_message_uuid": parent, "sender": "human", "text": "" if name in silent else name}
        for name, parent in links.items()
    ]
    return [{"uuid": "c", "current_leaf_message_uuid": current, "chat_messages": rows}]


def assert_read_or_refused(path, form):
    with suppress(ImportRefused):
        turns = list(read_turns(path, format=form, on_refused=lambda _: None))
        assert all(turn.text and turn.session and turn.key and turn.role in ROLES for turn in turns)


@settings(max_examples=300, deadline=None)
@given(LINKS, st.sampled_from([None, "gone", 5, *NODES]), st.booleans(), st.sets(st.sampled_from(NODES), max_size=3))
@pytest.mark.parametrize("tree", [chatgpt_tree, claude_tree])
def test_of_any_tree_no_text_is_lost_in_silence_and_none_is_doubled(
    tmp_path_factory, tree, links, current, lists, silent
):
    """Cut, in circles, with null and missing nodes: what is not read is counted, and parents come before children."""
    path = written(tmp_path_factory.mktemp("any") / "c.json", tree(links, current, lists, silent))
    (preview,) = preview_files(path)
    read = texts(read_turns(path))
    assert len(read) == len(set(read)) == preview.turns
    said = len(NODES) - (len(silent) if tree is chatgpt_tree else 0)
    assert len(read) + preview.left_out.get("empty", 0) + preview.left_out.get("on another branch", 0) == said
    above = {name: parent for name, parent in links.items() if parent in NODES}
    parents = [parent for parent in links.values() if isinstance(parent, str)]
    if len(parents) == len(set(parents)) and current not in NODES:
        assert set(read) == set(NODES) - silent, "without branches nothing is left out"
    shown, at = [], current
    while at in links and at not in shown:
        shown.append(at)
        at = above.get(at)
    if at is None and not silent:
        assert [name for name in read if name in shown] == shown[::-1]
        assert not set(read) & {name for name, parent in above.items() if parent == current}


@pytest.mark.parametrize(
    ("current", "changes", "expected", "left_out"),
    [
        ("d", {}, ["a", "b", "d"], {"on another branch": 1}),
        ("c", {}, ["a", "c"], {"on another branch": 2}),
        (None, {}, ["a", "c"], {"on another branch": 2}),
        ("gone", {}, ["a", "c"], {"on another branch": 2}),
        ("d", {"b": None}, ["a", "d"], {"on another branch": 1, "damaged": 1}),
        ("d", {"b": MISSING}, ["a", "d"], {"on another branch": 1, "damaged": 1}),
        ("d", {"a": MISSING}, ["b", "d"], {"on another branch": 1, "damaged": 1}),
        ("d", {"root": MISSING}, ["a", "b", "d"], {"on another branch": 1}),
        ("d", {"b": {"parent": "lost", "children": ["d"]}}, ["a", "c", "d"], {"damaged": 1}),
        ("d", {"b": {"parent": "a", "message": 5}}, ["a", "d"], {"on another branch": 1, "damaged": 1}),
        ("d", {"root": {"children": ["a"], "parent": "d"}}, ["a", "b", "d"], {"on another branch": 1}),
    ],
)
def test_the_branch_that_a_chatgpt_tree_shows_is_read_and_the_others_are_counted(
    tmp_path, current, changes, expected, left_out
):
    """Without a valid current node the last child, in each part that hangs together; a circle ends."""
    below = {"root": ["a"], "a": ["b", "c"], "b": ["d"], "c": [], "d": []}
    mapping = {
        name: {
            "parent": next((parent for parent in below if name in below[parent]), None),
            "children": children,
            "message": None if name == "root" else {"author": {"role": "user"}, "content": {"parts": [name]}},
        }
        for name, children in below.items()
    }
    mapping = {name: node for name, node in (mapping | changes).items() if node is not MISSING}
    path = written(tmp_path / "c.json", [{"id": "c", "current_node": current, "mapping": mapping}])
    assert texts(read_turns(path)) == expected
    assert preview_files(path)[0].left_out == left_out


CONTENTS = {
    "text": lambda text: text,
    "parts": lambda text: [None, {"type": "text", "text": text}, {"type": "text", "text": None}, {"type": "text"}, ""],
    "thoughts": lambda text: [{"type": "thinking", "thinking": "hm"}, {"text": text}, {"type": "image"}],
    "unknown": lambda text: [{"type": "canvas", "n": 0}, {"type": "note", "text": text}],
    "half an emoji": lambda text: [f"{text} \ud83d"],
    "null": lambda _: None,
    "empty": lambda _: [" ", {"type": "text", "text": 0}],
    "only thoughts": lambda _: [{"type": "reasoning", "summary": []}],
}
SILENT = {"null", "empty", "only thoughts"}
DOCUMENTS = {
    "openai": lambda said: json.dumps({"messages": [{"role": "user", "content": content} for content in said]}),
    "jsonl": lambda said: lines(*({"type": "human", "content": content, "n": float("nan")} for content in said)),
    "claude-ai": lambda said: json.dumps(
        [{"uuid": "c", "chat_messages": [{"sender": "human", "created_at": 0, "content": content} for content in said]}]
    ),
    "zep": lambda said: lines(*({"role_type": "norole", "content": content} for content in said)),
}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*DOCUMENTS]), st.lists(st.sampled_from([*CONTENTS]), min_size=1, max_size=6))
def test_of_any_document_no_text_is_lost_and_none_is_doubled(tmp_path_factory, form, kinds):
    """Whatever stands between: in order, and what says nothing is counted, with what is not said beside the texts."""
    said = [CONTENTS[kind](f"said {number}") for number, kind in enumerate(kinds)]
    path = written(tmp_path_factory.mktemp("any") / "file", DOCUMENTS[form](said))
    (preview,) = preview_files(path, format=form)
    read = list(read_turns(path, format=form))
    expected = [f"said {number}" for number, kind in enumerate(kinds) if kind not in SILENT]
    assert [turn.text.split("\n")[0].removesuffix(" \ufffd") for turn in read] == expected
    assert {turn.role for turn in read} <= {"user"}
    counts = {kind: kinds.count(kind) for kind in kinds}
    reasons = {
        "empty": counts.get("null", 0) + counts.get("empty", 0),
        "not said": counts.get("thoughts", 0) + counts.get("only thoughts", 0),
        "unknown kind 'canvas'": counts.get("unknown", 0),
    }
    left_out = {reason: count for reason, count in preview.left_out.items() if not reason.startswith("field ")}
    assert left_out == {reason: count for reason, count in reasons.items() if count}
    assert not preview.refused


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "table.csv"])
def test_every_text_of_a_sample_is_in_a_turn_or_its_field_is_counted(name):
    """Or the message or the line that has it is left out whole, for a reason."""
    assert unaccounted(DATA / name) == LEFT_OUT.get(name, set())


RUNS = ["Take the ", {"type": "bold", "text": "red"}, " pill, not the ", {"type": "italic", "text": "bl"}, "ue one."]
ANSWER = {"id": "m2", "role": "assistant", "text": "Lisbon.", "children": []}
FRAGMENTS = {"fragments": [{"type": "REQUEST", "content": "Where to?"}]}


@pytest.mark.parametrize(
    ("message", "text", "left_out"),
    [
        (
            {"text": "Where to?", "children": [ANSWER]},
            "Where to?",
            {"field children.id", "field children.role", "field children.text"},
        ),
        ({"text": "Where to?", "isDeletedByUser": True}, "Where to?", {"field isDeletedByUser"}),
        ({"text": "Where to?", "place": {"lat": 38.7, "label": None}}, "Where to?", {"field place.lat"}),
        ({"text": "Where to?", "reply": {"text": "Where"}, "note": " "}, "Where to?", {"field reply.text"}),
        ({"text": RUNS}, "Take the red pill, not the blue one.", set()),
        ({"text": ["Hi.", {"type": "text", "text": "There."}]}, "Hi.\nThere.", set()),
        (
            {"parts": [{"functionResponse": {"name": "lamp", "response": {"output": "It is dark."}}}]},
            "It is dark.",
            None,
        ),
        ({"parts": [{"functionResponse": {"response": {"lux": [3], "note": "dim"}}}]}, "[3]\ndim", None),
        (FRAGMENTS | {"text": ""}, None, {"field fragments.content"}),
    ],
)
def test_a_value_of_a_message_is_read_or_counted_by_its_name(tmp_path, message, text, left_out):
    """Also beside the messages of a conversation. A message with words under another name is not called empty."""
    talk = {"id": "c", "exported": {"by": "a program"}, "messages": [{"role": "user"} | message]}
    path = written(tmp_path / "talk.json", talk if text else {"version": 3, "items": [talk, talk]})
    around = {"field exported.by"} if text else {"field version"}
    found = set(preview_files(path, format="json")[0].left_out)
    assert texts(read_turns(path, format="json")) == ([text] if text else [])
    assert left_out is None or found == left_out | around


@pytest.mark.parametrize(
    ("table", "fields", "expected"),
    [
        ({"ids": [1, 2], "notes": ["a", None], "version": 3}, "text=notes,key=ids,role=user", [("1", "a")]),
        ({"key": ["k", "l"], "text": ["a", "b"], "role": ["user", "ai"]}, "", [("k", "a"), ("l", "b")]),
        ({"id": "m", "role": "user", "content": ["a", "b"], "tags": ["x", "y"]}, "", [("m", "a\nb")]),
    ],
)
def test_lists_of_one_length_are_columns_and_never_one_text(tmp_path, table, fields, expected):
    """But for the parts of one message, which says who speaks."""
    turns = read_turns(written(tmp_path / "t.json", table), fields=parse_field_map([fields] if fields else []))
    assert [(turn.key, turn.text) for turn in turns] == expected


def test_a_folder_of_chroma_asks_for_its_library(tmp_path):
    """Or, if that is installed, it is read (`tests/adapters/chroma`)."""
    written(tmp_path / "chroma.sqlite3", "")
    with pytest.raises(ExtraMissing, match="chromadb"):
        preview_files(tmp_path)


SPEAKERS = json.loads((DATA.parent / "speakers.json").read_text())


def test_a_model_with_its_version_is_no_person_and_every_handle_is(tmp_path):
    """What a model said is never recorded as a user's: where nothing else says who speaks, the line is refused."""
    rows = [{"text": "hi", "sender": name} for name in SPEAKERS["models"] + SPEAKERS["people"]]
    refused = []
    turns = list(read_turns(written(tmp_path / "talk.json", rows), on_refused=refused.append))
    assert [f"{error}".split("'")[1] for error in refused] == SPEAKERS["models"]
    assert all("name the right one with --field role=NAME" in str(error) for error in refused)
    assert [turn.speaker or turn.role for turn in turns] == [
        name if role_of(name) is None else "assistant" for name in SPEAKERS["people"]
    ]
    (turn,) = read_turns(written(tmp_path / "one.json", [rows[0] | {"isSentByUser": False}]))
    assert (turn.role, turn.speaker) == ("assistant", "gpt-4o")


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        ({"memory": "hi", "user_id": "ada"}, "text=memory,session=user_id,scope=user_id", ("hi", "ada", "ada", None)),
        ([{"said": "hi", "by": {"name": "Ada"}}], "text=said,speaker=by.name", ("hi", "talk", "", "Ada")),
        ([{"id": "c", "owner": "ada", "turns": [HI]}], "scope=conversation owner", ("hi", "c", "ada", None)),
    ],
)
def test_fields_of_any_format_but_transcripts_can_be_named(tmp_path, content, fields, expected):
    """Of a program's export, of plain JSON, and of the conversation around a message."""
    (turn,) = read_turns(written(tmp_path / "talk.json", content), fields=parse_field_map([fields]))
    assert (turn.text, turn.session, turn.scope, turn.speaker) == expected


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_columns_of_a_table_can_be_named(tmp_path, delimiter):
    """With `--field`, whatever they are called."""
    rows = [["day", "clock", "who", "said"], ["2026-03-16", "09:00", "Ada", '"hello, world"']]
    path = written(tmp_path / "t.csv", "\n".join(delimiter.join(row) for row in rows))
    (turn,) = read_turns(path, fields=parse_field_map(["text=said,speaker=who,time=day+clock,metadata=day"]))
    assert (turn.text, turn.speaker, turn.said_at) == ("hello, world", "Ada", NINE)
    assert turn.metadata == {"day": "2026-03-16"}


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        ("\ufefftext\r\nhello\r\nbye\r\n", "role=user", [("hello", {}), ("bye", {})]),
        ("said\nhello\n", "text=said,role=user", [("hello", {})]),
        (
            'text,metadata\nhello,"{""n"": 1}"\nbye,word\n',
            "role=user",
            [("hello", {"n": 1}), ("bye", {"metadata": "word"})],
        ),
        (f"text\n{'word ' * 60_000}end\n", "role=user", [(f"{'word ' * 60_000}end", {})]),
        ('sep=;\r\n\r\nrole;text\r\nuser;"a, b"\r\nuser;\r\n;\r\nuser\r\nbot;ok', "", [("a, b", {}), ("ok", {})]),
        ('role,text\nuser,"He said ""hi"", and \'so\'"\n', "", [("He said \"hi\", and 'so'", {})]),
        (
            'role,text\nuser,"He said \\"hi, you\\" to me"\nbot,"C:\\\\"\n',
            "",
            [('He said "hi, you" to me', {}), ("C:\\", {})],
        ),
        ('role,text\nuser,"C:\\dir\\"\nbot,5" wide\n', "", [("C:\\dir\\", {}), ('5" wide', {})]),
    ],
)
def test_tables_are_read_as_spreadsheets_save_them(tmp_path, content, fields, expected):
    """A mark in front, one column, JSON in a cell, a cell beyond the limit of Python's reader, quotes of both kinds."""
    turns = read_turns(written(tmp_path / "t.csv", content), fields=parse_field_map([fields] if fields else []))
    assert [(turn.text, turn.metadata) for turn in turns] == expected


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('user,"open\nbot,Close it.\n', 2),
        ('user,fine\nuser,"open\nbot,"Close it."\nuser,done\n', 3),
        ('user,fine\n\nuser,"open', 4),
    ],
)
def test_a_table_with_a_quote_that_does_not_end_is_refused_before_anything_is_read(tmp_path, body, line):
    """Nothing tells where the cell ends. The line is that on which the row begins."""
    path = written(tmp_path / "t.csv", "role,text\n" + body)
    with pytest.raises(ImportRefused, match=r"not CSV: .*nothing tells where a quoted cell") as caught:
        next(read_turns(path, on_refused=lambda _: None))
    assert caught.value.line == line


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
CHANGES = st.lists(st.tuples(st.integers(0, 1_000), ANY_JSON | st.just(MISSING)), max_size=4)


def values_in(name):
    """The JSON values of a sample: one document, or those on its lines."""
    text = (DATA / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line] if str(name).endswith("l") else [json.loads(text)]


def spots(value):
    """Every place in a JSON value, as the object or list that holds it and its key there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from spots(value[key])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([name for name in EXPECTED if name != "table.csv"]), CHANGES, st.sampled_from([None, *FORMATS]))
@example("claude_code.jsonl", [(0, [{"type": []}])], None)
@example("openai.json", [(0, "\ud800")], None)
def test_a_damaged_file_is_read_as_turns_or_refused(tmp_path_factory, name, changes, form):
    """Anything in place of any value, or a value missing: nothing but `ImportRefused` is raised."""
    values = values_in(name)
    for number, value in changes:
        there = list(spots(values)) or [({}, "")]
        holder, key = there[number % len(there)]
        holder[key] = value
        if value is MISSING:
            del holder[key]
    assert_read_or_refused(written(tmp_path_factory.mktemp("any") / "file", lines(*values)), form)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('a,;\t|"\r\n text\0'), max_size=40), st.sampled_from([None, "csv"]))
def test_any_table_is_read_as_turns_or_refused(tmp_path_factory, body, form):
    """Quotes that do not end, rows that are too long, empty lines, NUL."""
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_text("text,who\n" + body, encoding="utf-8", newline="")
    assert_read_or_refused(path, form)


@pytest.mark.parametrize(
    ("links", "said", "left_out"),
    [
        ({}, ["q", "a2", "q2"], 1),
        ({"q2": "a1"}, ["q", "a1", "q2"], 1),
        ({"a2": "a1"}, ["q", "a1", "a2", "q2"], 0),
    ],
)
def test_of_an_answer_that_was_made_again_the_last_one_is_the_conversation(tmp_path, links, said, left_out):
    """Where messages of a chat with a model name the one before. Among people a reply to a reply is no branch."""
    before = {"q": None, "a1": "q", "a2": "q", "q2": "a2"} | links
    rows = [{"messageId": name, "parentMessageId": parent, "text": name} for name, parent in before.items()]
    with_model = [row | {"isCreatedByUser": row["text"].startswith("q")} for row in rows]
    talk = written(tmp_path / "talk.json", {"messages": with_model})
    people = written(tmp_path / "people.json", {"messages": [row | {"sender": "Anna"} for row in rows]})
    (preview,) = preview_files(talk)
    assert ([turn.text for turn in read_turns(talk)], preview.left_out.get("on another branch", 0)) == (said, left_out)
    assert [turn.text for turn in read_turns(people)] == [*before]
