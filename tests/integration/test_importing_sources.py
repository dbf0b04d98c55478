"""Files as they are found: compressed, with marks, cut off, in other encodings."""

import gzip
import os
import tracemalloc
import zipfile
from functools import partial

import pytest

from mnemolog import MemoryStore, MnemologError, import_log
from mnemolog.adapters.importers import FORMATS, detect_format, import_files, read_turns, source
from mnemolog.adapters.importers.import_files import preview_files
from mnemolog.domain.errors import ImportRefused
from mnemolog.infra import text_file
from mnemolog.infra.text_file import UNPACKED_BYTES_MIN

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
