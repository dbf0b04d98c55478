"""Field maps, and JSON Lines read under them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog.adapters.importers import parse_field_map, read_turns
from mnemolog.adapters.importers.format import DEFAULT_FIELDS
from mnemolog.domain.errors import ImportRefused, InvalidInput

NAMES = st.text(st.characters(blacklist_characters=",=+", blacklist_categories=("Cs",)), min_size=1).filter(
    lambda name: name == name.strip()
)
MAPS = st.dictionaries(
    st.sampled_from(sorted(set(DEFAULT_FIELDS) - {"role"})), st.lists(NAMES, min_size=1, max_size=4).map(tuple)
)
# What the log takes as text; the session of a file with these lines is its stem.
TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1).filter(
    lambda text: not text.isspace()
)


@pytest.fixture
def rows(tmp_path):
    """Writes rows to a file, those of a user unless they say so, and reads them back as turns."""

    def read(*rows, fields=(), name="talk.jsonl", role="user", **options):
        path = tmp_path / name
        rows = [{"role": role} | row if isinstance(row, dict) else row for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return list(read_turns(path, fields=parse_field_map(fields), **options))

    return read


def one(rows, row, *fields, **options):
    (turn,) = rows(row, fields=fields, **options)
    return turn


@settings(deadline=None)
@given(MAPS)
def test_an_option_names_fields_in_order_whatever_they_are_called(sources):
    """Any name without a comma, an equals sign or a plus."""
    option = ",".join(f"{target}={'+'.join(names)}" for target, names in sources.items())
    assert parse_field_map([option] if sources else []) == sources


def test_an_unclear_field_option_is_refused():
    """Unknown, empty, doubled: each is an error, never a guess, and names every target. Options may repeat."""
    expected = {"text": ("a", "b"), "time": ("at",), "session": ("room",)}
    assert parse_field_map(["text=a+b, time = at", "session=room"]) == expected
    for option in ("", "text", "text=", "text=a+", "=a", "colour=a", "text=a,", "text=a,text=b", "role=a+b"):
        with pytest.raises(InvalidInput, match="field: "):
            parse_field_map([option])
    with pytest.raises(InvalidInput) as caught:
        parse_field_map(["txt=a"])
    assert all(target in str(caught.value) for target in DEFAULT_FIELDS)


def test_fields_of_a_transcript_are_refused(tmp_path):
    """The error names the formats that have fields."""
    with pytest.raises(InvalidInput, match="codex has no fields to name; these formats have: jsonl, json, csv"):
        read_turns(tmp_path / "any", format="codex", fields=parse_field_map(["text=a"]))


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_any_text_is_read_back_unchanged(tmp_path_factory, texts):
    """Line separators, controls, combining marks: a line of JSON carries them all."""
    for ascii_only in (True, False):
        path = tmp_path_factory.mktemp("texts") / "talk.jsonl"
        lines = [json.dumps({"text": text, "role": "user"}, ensure_ascii=ascii_only) for text in texts]
        path.write_bytes("\n".join(lines).encode())
        assert [turn.text for turn in read_turns(path)] == texts


def test_the_default_names_fill_every_field(rows):
    """A line under the documented names needs no map."""
    turn = one(
        rows,
        {
            "text": "hello",
            "role": "assistant",
            "session": "s",
            "session_title": "a\tlabel",
            "scope": "acme/ada",
            "agent": "helper",
            "speaker": "Bo",
            "key": "k",
            "time": "2024-03-01T09:00:00+01:00",
            "tool_calls": [{"name": "x"}],
            "metadata": {"n": 1},
        },
    )
    assert (turn.text, turn.role, turn.session, turn.session_title) == ("hello", "assistant", "s", "a label")
    assert (turn.scope, turn.agent, turn.speaker, turn.key) == ("acme/ada", "helper", "Bo", "k")
    assert turn.said_at == 1_709_280_000_000_000
    assert (turn.tool_calls, turn.metadata, turn.line, turn.where) == ([{"name": "x"}], {"n": 1}, 1, "line 1")


@pytest.mark.parametrize(
    "style", ["created_at thread_id", "createdAt threadId", "Created At,Thread Id", "created-at THREAD-ID"]
)
def test_a_usual_name_is_known_in_every_style(rows, style):
    """Of programs in JavaScript, of spreadsheets, of anything between; also in the path that `--field` names."""
    time, session = style.split("," if "," in style else " ")
    turn = one(rows, {"text": "hi", time: "2024-03-01T09:00:00Z", session: "t9"})
    assert (turn.said_at, turn.session) == (1_709_283_600_000_000, "t9")
    assert one(rows, {"text": "hi", "Meta Data": {session: "t9"}}, "session=meta_data.thread_id").session == "t9"


def test_a_constant_role_holds_whatever_the_fields_are_called(rows):
    """`role=user` is the role, also where a field is called `user`."""
    row = {"type": "message", "user": "U1", "text": "hi"}
    assert (one(rows, row, "role=user", role=None).role, one(rows, row, "role=bot", role=None).role) == (
        "user",
        "assistant",
    )


def test_several_fields_join_into_one(rows):
    """Texts and speakers with a space, sessions, scopes and keys with a slash; what is missing is passed over."""
    fields = "text=said+caption,session=room+day,scope=org+room,speaker=first+last,key=room+n,time=date+clock"
    row = {"said": "hi", "room": "r", "day": 1, "org": "o", "first": "A", "last": "B", "n": 2}
    turn = one(rows, row | {"date": "2024-03-01", "clock": "09:00"}, fields)
    assert (turn.text, turn.session, turn.scope, turn.speaker, turn.key) == ("hi", "r/1", "o/r", "A B", "r/2")
    assert turn.said_at == 1_709_283_600_000_000
    assert one(rows, row | {"caption": "a boat"}, fields).text == "hi a boat"
    assert one(rows, {"text": "hi", "namespace": ["memories", "ada"]}, "scope=namespace").scope == "memories/ada"


def test_a_map_leaves_the_other_fields_as_documented(rows):
    """A path reaches into objects, unless a field has that name; metadata takes named fields and merges objects."""
    assert one(rows, {"message": {"content": "deep"}}, "text=message.content").text == "deep"
    assert one(rows, {"a.b": "flat", "a": {"b": "deep"}}, "text=a.b").text == "flat"
    turn = one(rows, {"body": "hi", "session": "s", "key": 0}, "text=body")
    assert (turn.text, turn.session, turn.key) == ("hi", "s", "0")
    assert one(rows, {"text": "hi", "lang": "en", "m": {"a": 1}}, "metadata=m+lang").metadata == {"a": 1, "lang": "en"}
    assert rows({"text": "hi"}, name="monday.jsonl")[0].session == "monday"
    assert rows({"text": "hi"}, name="tuesday.jsonl.gz")[0].session == "tuesday"


@pytest.mark.parametrize(
    ("row", "role", "speaker"),
    [
        ({"speaker": "Ada"}, "user", "Ada"),
        ({"speaker": "Assistant"}, "assistant", None),
        ({"speaker": "bot", "role": "user"}, "user", "bot"),
        ({"role": "human"}, "user", None),
        ({"role": "AI"}, "assistant", None),
        ({"role": "model"}, "assistant", None),
        ({"role": "developer"}, "system", None),
        ({"role": "function"}, "tool", None),
        ({"type": "human"}, "user", None),
        ({"type": "AIMessageChunk", "name": "Bo"}, "assistant", "Bo"),
        ({"sender_type": "user_message"}, "user", None),
        ({"from": "gpt"}, "assistant", None),
        ({"author": "Claude"}, "assistant", None),
        ({"is_user": True, "name": "Bo"}, "user", "Bo"),
        ({"isUser": False, "name": "Ada"}, "assistant", "Ada"),
        ({"is_user": False, "is_system": True}, "system", None),
        ({"is_bot": True}, "assistant", None),
        ({"isCreatedByUser": False, "sender": "GPT-4o"}, "assistant", "GPT-4o"),
        ({"Is Sent By User": "true"}, "user", None),
        ({"from-me": 0, "isDeletedByUser": True}, "assistant", None),
    ],
)
def test_roles_may_be_words_of_providers(rows, row, role, speaker):
    """A role word means a role; a speaker who is called like one is that role."""
    turn = one(rows, {"text": "hi"} | row, role=None)
    assert (turn.role, turn.speaker) == (role, speaker)


@pytest.mark.parametrize("row", [{}, {"role": ""}, {"type": "message"}, {"is_user": None}])
def test_a_role_that_nothing_tells_is_asked_for(rows, row):
    """It is never guessed. `--field role=user` says it for all rows, and so does a word of a provider."""
    row = {"text": "hi"} | row
    with pytest.raises(
        ImportRefused, match=r"role: nothing says who speaks; the fields are 'role', 'text'.*--field role="
    ):
        rows(row, role=None)
    assert [one(rows, row, f"role={word}", role=None).role for word in ("user", "gpt")] == ["user", "assistant"]


def test_content_blocks_calls_and_results_of_tools_are_read_without_a_map(rows):
    """Logs of chat interfaces, a message a line, as providers write them."""
    assert one(rows, {"role": "user", "content": [{"type": "text", "text": "hi"}]}).text == "hi"
    assert one(rows, {"text": None, "tool_calls": [{"name": "Bash"}]}, "text=text").text == "[tool call: Bash]"
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Lisbon"}}
    turn = one(rows, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
    assert (turn.text, turn.tool_calls) == ("I look.", [{"id": "c1", "name": "weather", "input": {"city": "Lisbon"}}])
    assert one(rows, {"role": "assistant", "content": [call]}).text == "[tool call: weather]"
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "sun"}
    turn = one(rows, {"role": "user", "content": [result], "metadata": {"n": 1}})
    assert (turn.role, turn.text, turn.metadata) == ("tool", "sun", {"n": 1, "tool_use_id": "c1"})


def test_a_key_without_an_id_is_a_place_and_not_a_text(rows):
    """Role, time of saying, and number in the session. Never change it: what was forgotten would be imported again."""
    said = [{"time": 1_773_651_600}, {}, {"time": 1_773_651_600}, {"role": "assistant"}, {}, {"session": "t"}]
    for text in ("hello", "bye"):
        keys = [turn.key for turn in rows(*({"text": text} | row for row in said))]
        assert keys == [
            *("user@1773651600000000/1", "user/1", "user@1773651600000000/2", "assistant/1", "user/2", "user/1"),
        ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            {"said": "hi"},
            "text: no field with a usual name for a text; the fields are 'role', 'said'; name the right one with --f",
        ),
        ({"text": 5}, "text: expected text in 'text', got int: 5"),
        ({"text": "a\0b"}, "text: contains a NUL character at 1"),
        ({"text": "x" * (1 << 20) + "y"}, "text: 1,048,577 bytes of UTF-8"),
        ({"text": "hi", "role": "boss"}, "role: 'boss' is none of user"),
        ({"text": "hi", "scope": "a//b"}, "scope: 'a//b' has an empty segment"),
        ({"text": "hi", "scope": "a/../b"}, "scope: "),
        ({"text": "hi", "session": [["s"]]}, "session: expected text or a number, got list"),
        ({"text": "hi", "session": True}, "session: expected text or a number, got bool"),
        ({"text": "hi", "session": "s" * 257}, "session: 257 bytes"),
        ({"text": "hi", "key": "k" * 513}, "key: 513 bytes"),
        ({"text": "hi", "time": "soon"}, "time: 'soon' cannot be parsed as a time"),
        ({"text": "hi", "metadata": [1]}, "metadata: expected an object"),
        ({"text": "hi", "metadata": {"n": 1 << 64}}, "metadata: cannot be stored"),
        ({"text": "hi", "tool_calls": "Bash"}, "tool_calls: expected a list"),
        (["hi"], "JSON: expected an object on the line, got list"),
    ],
)
def test_a_line_that_the_log_cannot_hold_is_refused_with_its_place(rows, tmp_path, row, why):
    """Every refusal names file, line and reason."""
    with pytest.raises(ImportRefused) as caught:
        rows({"text": "fine"}, row, format="jsonl")
    assert (caught.value.path, caught.value.line) == (tmp_path / "talk.jsonl", 2)
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'talk.jsonl'}:2: ")
