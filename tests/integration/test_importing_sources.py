"""Files as they are found: compressed, with marks, cut off, in other encodings.

Imported files as turns: each format, its field maps, and what turns keep of what they were made of.
"""

import gzip
import json
import os
import threading
import tracemalloc
import zipfile
import zlib
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog import (
    DuplicateKey,
    InvalidInput,
    LimitExceeded,
    LogDamaged,
    MemoryStore,
    MnemologError,
    NewTurn,
    SessionAlreadyEnded,
    UnknownSession,
    import_log,
)
from mnemolog.adapters.importers import FORMATS, detect_format, import_files, parse_field_map, read_turns, source
from mnemolog.adapters.importers.import_files import preview_files
from mnemolog.adapters.importers.turn import DEFAULT_FIELDS
from mnemolog.adapters.support.framework_sessions import reconcile
from mnemolog.adapters.support.store_access import sessions_of, switches_of, visible_of
from mnemolog.domain.errors import ImportRefused
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.session import Original, new_turn, original_of
from mnemolog.domain.threads import Blob
from mnemolog.domain.values import BLOB_BYTES_MAX
from mnemolog.infra import text_file
from mnemolog.infra.text_file import UNPACKED_BYTES_MIN
from tests.support import nothing_written

THREE = b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n'.replace(b"{", b'{"role": "user", ')


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file."""

    def write(data, name="talk.jsonl"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def texts(path, **options):
    return [turn.text for turn in read_turns(path, **options)]


def refusal(path, **options):
    with pytest.raises(ImportRefused) as caught:
        texts(path, **options)
    assert caught.value.path == path
    return caught.value.line, str(caught.value).removeprefix(f"{path}:{caught.value.line}: ")


def test_a_gzip_file_is_detected_from_its_content(file):
    """The name does not matter."""
    assert texts(file(gzip.compress(THREE), "talk.txt")) == ["one", "two", "three"]
    assert texts(file(THREE, "talk.jsonl.gz")) == ["one", "two", "three"]


BOMBS = {
    name: gzip.compress(begin + unit * ((60 << 20) // len(unit)))
    for name, begin, unit in (
        ("array", b"[", b"{},"),
        ("document", b'{"messages": [', b"{},"),
        ("line", b"", b"a"),
        ("lines", b"", b'{"text": "' + b"a" * 100_000 + b'"}\n'),
    )
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_gzip_file_that_unpacks_a_hundredfold_is_refused_before_it_fills_memory(file, tmp_path, bomb):
    """By every importer, by a preview, and as an export. The error says how to import it all the same."""
    path, refusals = file(BOMBS[bomb], "talk.gz"), []
    forms = (None, *FORMATS)
    reads = [partial(texts, path, format=form, on_refused=lambda _: None) for form in forms]
    reads += [partial(preview_files, [path]), partial(import_log, path, tmp_path / "r")]
    for read in reads:
        tracemalloc.start()
        try:
            with pytest.raises(MnemologError) as refused:
                read()
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
        finally:
            tracemalloc.stop()
        refusals.append("50 times its size; if you know what is in it, unpack it with gunzip" in str(refused.value))
    assert sum(refusals) >= len(forms), refusals


CHAT = b'[{"uuid": "c", "chat_messages": [{"sender": "human", "text": "hi"}, {"sender": "human", "text": ""}]}]'
EXPORT = {
    "conversations.json": CHAT,
    "projects/p.json": CHAT.replace(b"hi", b"more"),
    "users.json": b'[{"uuid": "u", "full_name": "Ada"}]',
    "feedback.json": b'[{"content": "good", "role": "user"}]',
    "empty.json": b"[]",
    "chat.html": b"<html>",
    "picture.json": b"\x89PNG\xff\xd8",
}


@pytest.fixture
def packed(tmp_path):
    """Writes files to a folder and to an archive."""

    def write(files, compression=zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "export.zip", "w", compression) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
                if not name.startswith(("/", "..")):
                    (tmp_path / "export" / name).parent.mkdir(parents=True, exist_ok=True)
                    (tmp_path / "export" / name).write_bytes(data)
        return tmp_path / "export.zip", tmp_path / "export"

    return write


def test_an_archive_and_a_folder_are_read_as_the_files_in_them(packed, folder):
    """The export of a program without the files about the account, which are named. What was left out is counted."""
    reached = []
    for path in packed(EXPORT):
        previews = preview_files(path)
        assert [(shown.path, shown.turns, shown.left_out) for shown in previews[:2]] == [
            (str(path / "conversations.json"), 1, {"empty": 1}),
            (str(path / "projects" / "p.json"), 1, {"empty": 1}),
        ]
        skipped = [str(path / name) for name in ("empty.json", "feedback.json", "picture.json", "users.json")]
        assert [shown.path for shown in previews[2:]] == skipped
        with MemoryStore.open(folder / path.name, model=None) as store:
            report = import_files(store, path, progress=lambda done, total: reached.append((done, total)))
            assert (report.files, report.recorded, report.left_out) == (2, 2, {"empty": 2})
            assert (list(report.skipped), reached[-1][0]) == (skipped, reached[-1][1])
            assert sorted(turn.text for turn in store.turns("c")) == ["hi", "more"]


def test_a_path_in_an_archive_leads_nowhere_else(packed, tmp_path):
    """Neither `..` nor an absolute path, nor a symbolic link in a folder."""
    secret = tmp_path / "secret.json"
    secret.write_bytes(CHAT.replace(b"hi", b"secret"))
    archive, export = packed({"../secret.json": CHAT, str(secret): CHAT, "a/../../secret.json": CHAT, "c.json": CHAT})
    assert [shown.path for shown in preview_files(archive)] == [str(archive / "c.json")]
    (export / "link.json").symlink_to(secret)
    assert {str(export / "link.json"), str(secret)}.isdisjoint(shown.path for shown in preview_files(export))


def test_an_archive_that_cannot_be_read_is_refused(packed, tmp_path):
    """A bomb before anything of it is unpacked, one without conversations, a damaged and an encrypted one."""
    archive, export = packed({"c.json": b'["%s"]' % (b"a" * (6 << 20))})
    with pytest.raises(ImportRefused, match="unpacks to more than 4,194,304 bytes, 50 times its size"):
        preview_files(archive)
    assert "unpacks to more than 50 times its size" in refusal(archive / "c.json")[1]
    archive, export = packed({"users.json": b"{}"})
    for path in (archive, export):
        with pytest.raises(ImportRefused, match=r"none of the \d files in it holds conversations"):
            preview_files(path)
    archive, _ = packed({"c.json": CHAT}, zipfile.ZIP_STORED)
    whole = archive.read_bytes()
    archive.write_bytes(whole.replace(b"human", b"HUMAN", 1))
    with pytest.raises(ImportRefused, match="damaged or cut short: Bad CRC-32"):
        texts(archive / "c.json", format="claude-ai")
    archive.write_bytes(whole[:-30])
    with pytest.raises(ImportRefused, match="the zip archive cannot be read"):
        preview_files(archive)
    at = whole.index(b"PK\x01\x02") + 8
    archive.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
    with pytest.raises(ImportRefused, match="the zip archive is encrypted"):
        preview_files(archive)


@pytest.mark.parametrize(("repeated", "times"), [(3, 12), (15, 30)])
def test_a_gzip_file_of_conversations_or_of_logs_is_imported(file, rng, repeated, times):
    """They unpack to some 10 or 30 times their size."""
    lines = [
        b'{"role": "user", "text": "%s%010x"}\n' % (b"GET /healthz 200 " * repeated, rng.getrandbits(40))
        for _ in range(80_000)
    ]
    packed, size = gzip.compress(b"".join(lines)), sum(map(len, lines))
    assert size > UNPACKED_BYTES_MIN
    assert times * 0.8 < size / len(packed) < times * 1.2
    assert len(texts(file(packed))) == len(lines)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + THREE, THREE.replace(b"\n", b"\r\n\r\n"), THREE[:-1]])
def test_marks_blank_lines_and_line_ends_do_not_matter(file, data):
    """A byte order mark, Windows line ends, no last line end; a mark in front of a document too."""
    assert texts(file(data)) == ["one", "two", "three"]
    assert texts(file(b'\xef\xbb\xbf [{"role": "user", "content": "hi"}]')) == ["hi"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_another_encoding_is_named(file, encoding):
    """The mark in front shows which it is."""
    assert refusal(file(THREE.decode().encode(encoding))) == (
        1,
        f"the file is {encoding.upper()}; convert it to UTF-8",
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"text": "caf\xe9"}', "JSON: not UTF-8: byte 0xe9 at byte 13"),
        (b'{"text": "two"', "JSON: invalid JSON: Expecting ',' delimiter at column 15"),
        (b'{"text": ' + b"[" * 100_000, "JSON: nested too deeply"),
    ],
)
def test_a_line_that_is_not_json_is_refused_or_skipped(file, bad, why):
    """The reason is raised, or passed on and reading continues."""
    path = file(THREE.replace(b'{"role": "user", "text": "two"}', bad))
    line, reason = refusal(path)
    assert line == 2
    assert reason.startswith(why)
    turns = read_turns(path)
    assert next(turns).text == "one", "turns before the refused line come first"
    with pytest.raises(ImportRefused):
        next(turns)
    refused = []
    assert texts(path, on_refused=refused.append) == ["one", "three"]
    assert [error.line for error in refused] == [2]


@pytest.mark.parametrize(
    ("odd", "texts_read"),
    [
        (rb'"text": "tw\ud83d"', ["tw\ufffd"]),
        (rb'"text": "two", "m\udc00": 1', ["two"]),
        (b'"text": "two", "n": NaN', ["two"]),
        (b'"text": "two", "n": [-Infinity, 1e999]', ["two"]),
        (b'"text": "two"} {"role": "user", "text": "2b"', ["two", "2b"]),
    ],
)
def test_half_an_emoji_a_number_that_is_none_and_two_objects_on_a_line_lose_nothing(file, odd, texts_read):
    """In lines, and in a document, where it must not hide the neighbours."""
    assert texts(file(THREE.replace(b'"text": "two"', odd))) == ["one", *texts_read, "three"]
    array = b"[%s]" % THREE.replace(b'"text": "two"', odd).strip().replace(b"\n", b",").replace(b"} {", b"},{")
    assert texts(file(array)) == ["one", *texts_read, "three"]
    assert texts(file(b'{"messages": %s}' % array.replace(b"text", b"content"))) == ["one", *texts_read, "three"]


def test_a_line_or_a_document_beyond_its_limit_is_refused(file, monkeypatch):
    """No line is held in memory beyond the limit. A document is held whole, so it has a limit as well."""
    monkeypatch.setattr(text_file, "LINE_BYTES_MAX", 50)
    path = file(THREE.replace(b"two", b"2" * 200))
    refused = []
    assert texts(path, on_refused=refused.append) == ["one", "three"]
    assert "2: the line is longer than 50 bytes" in str(refused[0])
    monkeypatch.setattr(source, "DOCUMENT_BYTES_MAX", 20)
    assert refusal(file(b'[{"role": "user", "content": "hi"}]'))[1] == "the document is larger than 20 bytes"


@pytest.mark.parametrize("cut", [5, -12, -5])
def test_a_damaged_gzip_file_is_refused_as_a_whole(file, cut):
    """What follows the damage is unknown, so reading cannot continue."""
    path = file(gzip.compress(THREE * 2_000)[:cut])
    with pytest.raises(ImportRefused, match="the gzip file is damaged or cut short"):
        texts(path, on_refused=lambda error: None)


def test_a_broken_document_names_the_line_it_breaks_at(file):
    """Lines of the text, for an editor to find."""
    path = file(b'[\n  {"role": "user", "content": "hi"},\n  oops\n]\n', "talk.json")
    assert refusal(path)[0] == 3
    path = file(b'{\n  "messages": [\n    {"role": "user" "content": "hi"}\n  ]\n}\n', "talk.json")
    line, why = refusal(path, format="openai")
    assert line == 3
    assert "Expecting ',' delimiter" in why


@pytest.mark.parametrize("form", ["jsonl", "claude-code", "codex", "chatgpt", "openai"])
def test_an_empty_file_holds_no_turns(file, form):
    """In whatever format."""
    for data in (b"", b"\n\n", b"\xef\xbb\xbf"):
        assert texts(file(data), format=form) == []


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    """Missing, a folder, a pipe."""
    assert refusal(tmp_path / "missing")[1] == "the file cannot be read: No such file or directory"
    assert refusal(tmp_path)[1] == "it is a folder, not a file; save it to one first"
    os.mkfifo(tmp_path / "pipe")
    keep_open = os.open(tmp_path / "pipe", os.O_RDWR)  # Else opening it to read would wait for a writer.
    try:
        assert refusal(tmp_path / "pipe")[1] == "it is a named pipe, not a file; save it to one first"
    finally:
        os.close(keep_open)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_progress_rises_to_the_size_of_the_file(file, pack):
    """Bytes as they are on disk, compressed or not."""
    path = file(pack(b'{"role": "user", "text": "%s"}\n' % (b"tea " * 500) * 2_000))
    told = []
    texts(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told == sorted(told)
    assert len(told) > 1
    assert told[-1] == (size, size)
    assert {total for _, total in told} == {size}


def test_a_reader_that_is_closed_early_closes_its_file(file):
    """Warnings are errors: a file left open would fail here."""
    turns = read_turns(file(THREE))
    next(turns)
    turns.close()
    assert detect_format(file(THREE)) == "jsonl"


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


FORM = "tests.bytes"


def turn(session, text, data=None, role="user"):
    original = None if data is None else Original(form=FORM, data=data)
    return NewTurn(session=session, role=role, text=text, original=original)


def texts_in(store, session, **how):
    return [recorded.event.text for recorded in visible_of(store).seen(session, **how)]


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"{}" * 100, bytes(range(256)) * 9_000], ids=len)
def test_an_original_comes_back_to_the_byte(data, folder):
    """Whatever it is, after the store was closed and opened again."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s")
        store.record_many([turn("s", "said", data), turn("s", "said")])
    with MemoryStore.open(folder, model=None) as store:
        first, second = visible_of(store).seen("s")
        assert original_of(first.event) == Original(form=FORM, data=data)
        assert original_of(second.event) is None


def test_what_the_text_says_is_not_stored_twice(rng):
    """The text is the dictionary of the original."""
    text = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz 0123456789") for _ in range(20_000))
    data = f'{{"role":"user","content":"{text}"}}'.encode()
    made = new_turn(role="user", text=text, original=Original(form=FORM, data=data))
    assert len(made.original.data) < 400 < len(zlib.compress(data))
    assert original_of(made).data == data


def test_an_original_that_does_not_fit_its_turn_is_damage():
    """It is not given out as if it were whole."""
    for blob in (
        Blob(kind=FORM, data=b"none", packed=True),
        Blob(kind=FORM, data=zlib.compress(b"x")[2:-6], packed=True),
    ):
        with pytest.raises(LogDamaged):
            original_of(TurnRecorded(role="user", text="said", original=blob))


def test_what_cannot_be_an_original_is_refused_and_nothing_is_written(store):
    """Not even the turns before it."""
    store.start_session("s")
    with nothing_written(store):
        for original, error in (
            (Original(form="", data=b"x"), InvalidInput),
            (Original(form=FORM, data=bytes(BLOB_BYTES_MAX + 1)), LimitExceeded),
        ):
            with pytest.raises(error):
                store.record_many(
                    [turn("s", "said"), NewTurn(session="s", role="user", text="said", original=original)]
                )


def test_a_retry_with_another_original_is_another_turn(store):
    """A key stands for all of a turn."""
    store.start_session("s")
    once = NewTurn(session="s", role="user", text="said", key="k", original=Original(form=FORM, data=b"1"))
    first, again = store.record_many([once, once])
    assert first == again
    with pytest.raises(DuplicateKey):
        store.record_many([NewTurn(session="s", role="user", text="said", key="k")])


def test_reconcile_records_originals(store, session):
    """Those of new turns, as it does with everything else they have."""
    assert len(reconcile(session, [turn("s", "one", b"1"), turn("s", "two", b"2")])) == 2
    assert [original_of(found.event).data for found in visible_of(store).seen("s")] == [b"1", b"2"]


def test_the_last_turns_are_those_that_the_session_sees(store):
    """Through branches and rewinds, any number of them, in order."""
    root = store.start_session("root")
    store.record_many([turn("root", f"r{n}") for n in range(5)])
    branch = root.branch("branch", at=store.turns("root")[2].position)
    root.record("user", "later")
    store.record_many([turn("branch", f"b{n}") for n in range(4)])
    branch.rewind(turns=2)
    branch.record("user", "b4")
    branch.set("value", 1)
    seen = ["r0", "r1", "r2", "b0", "b1", "b4"]
    assert texts_in(store, "branch") == seen == [turn.text for turn in branch.turns()]
    for limit in range(8):
        assert texts_in(store, "branch", limit=limit) == seen[len(seen) - min(limit, len(seen)) :]
    assert texts_in(store, "root") == [*(f"r{n}" for n in range(5)), "later"]
    with pytest.raises(UnknownSession):
        visible_of(store).seen("nobody")


def test_forgotten_turns_are_not_seen_and_do_not_count(store, session):
    """Neither by who asks for the last ones nor by who takes one back."""
    made = store.record_many([turn("s", f"t{n}", b"x") for n in range(5)])
    store.forget(positions=[made[2].position, made[4].position])
    assert texts_in(store, "s", limit=2) == ["t1", "t3"]
    assert switches_of(store).take_back("s").event.text == "t3"
    assert [found.text for found in session.turns()] == ["t0", "t1"]


def test_a_turn_is_taken_back_by_one_caller_alone(store):
    """However many ask at the same time; and it is only hidden."""
    store.start_session("s")
    store.record_many([turn("s", f"t{n}") for n in range(40)])
    taken, lock = [], threading.Lock()

    def take():
        while (found := switches_of(store).take_back("s")) is not None:
            with lock:
                taken.append(found.event.text)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(f"t{n}" for n in range(40))
    assert texts_in(store, "s") == []
    assert len(store.turns("s")) == 40


def test_a_rewrite_is_there_as_a_whole_or_not_at_all(store, session):
    """Where one turn of it is refused the session sees what it saw."""
    store.record_many([turn("s", "old"), turn("s", "older")])
    with pytest.raises(UnknownSession):
        sessions_of(store).rewrite("s", [turn("s", "new"), turn("nobody", "new")])
    assert texts_in(store, "s") == ["old", "older"]
    sessions_of(store).rewrite("s", [turn("s", "new")])
    assert texts_in(store, "s") == ["new"]
    sessions_of(store).rewrite("s", [])
    assert texts_in(store, "s") == []
    session.end()
    with pytest.raises(SessionAlreadyEnded):
        sessions_of(store).rewrite("s", [turn("s", "new")])


def test_readers_see_a_rewrite_all_at_once(store):
    """Never what was there mixed with what has come."""
    store.start_session("s")
    store.record_many([turn("s", "0") for _ in range(3)])
    done = threading.Event()

    def rewrite():
        for number in range(1, 60):
            sessions_of(store).rewrite("s", [turn("s", str(number)) for _ in range(3)])
        done.set()

    thread = threading.Thread(target=rewrite)
    thread.start()
    last = 0
    while not done.is_set():
        seen = texts_in(store, "s")
        assert len(seen) == 3
        assert len(set(seen)) == 1, seen
        assert int(seen[0]) >= last
        last = int(seen[0])
    thread.join()
    assert texts_in(store, "s") == ["59"] * 3
