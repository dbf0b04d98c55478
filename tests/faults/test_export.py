"""An export: the same log again, or refused at the line that does not fit; verified by us and without us."""

import base64
import errno
import gzip
import json
import runpy
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import InvalidInput, LogDamaged, MemoryStore, NewTurn, StorageFull, import_log
from mnemolog.audit.exports import is_log_export
from mnemolog.domain.chain import genesis, link
from mnemolog.domain.errors import FormatTooNew, ImportRefused
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from tests.faults.tamper import Tampering, copy_store
from tests.support import wait_until

pytestmark = pytest.mark.promise("P6")

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_export.py"
MAIN = runpy.run_path(str(SCRIPT))["main"]
EVENTS = 13


@pytest.fixture
def exported(store, tmp_path):
    """The export of a store with two sessions, a switch, working memory, keys and texts in several scripts."""
    a = store.start_session("a", scope="acme/ä", agent="ada")
    for n, text in enumerate(("hello", "Olá, Inês! ☕", "\U0001f980\n\ttabs\u2028", "x" * 5_000)):
        a.record("user", text, key=f"k{n}" if n % 2 else None, metadata={"n": [n, None, 1.5]})
    a.set("city", {"name": "Lisbon"})
    a.checkpoint("before")
    store.switch("b", reason="branch", session="a")
    for n in range(3):
        store.record("b", "assistant", f"answer {n}", key=f"k{n}")
    store.end_session("b")
    assert store.head().position == EVENTS
    path = tmp_path / "log.jsonl"
    done = store.audit.export(path)
    assert (done.events, done.head, done.bytes) == (EVENTS, store.head(), path.stat().st_size)
    return path


def rows_of(folder):
    """Everything that the log file says, as SQLite has it."""
    connection = dbapi2.connect(f"file:{folder / LOG_FILE}?mode=ro", uri=True)
    connection.text_factory = bytes
    tables = ("log", "events", "sqlite_sequence")
    found = [connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in tables]
    found += [connection.execute("PRAGMA application_id").fetchall()]
    connection.close()
    return found


def script(path, *head, **how):
    """Exit status and output of the script that knows nothing of mnemolog."""
    command = [sys.executable, "-I", SCRIPT, *([] if "stdin" in how else [path.name]), *head]
    ran = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False, **how)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def script_here(path, capsys):
    """The same in this process, where a test has many files."""
    capsys.readouterr()
    status, (said, complaint) = MAIN([str(path)]), capsys.readouterr()
    assert complaint == ""
    return status, said


def script_says(path, *head):
    """The same, which is what it says of standard input too."""
    with path.open("rb") as file:
        piped = script(path, *head, stdin=file)
    assert piped == script(path, *head)
    return piped


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def relink(lines):
    """Make every digest fit what the lines say now, as somebody would who knows how they are made."""
    header = lines[0]
    digest = genesis(log_id=header["log_id"], log_format=header["log_format"], created_at=header["created_at"])
    header["digest"] = digest.hex()
    for line in lines[1:-1]:
        key = None if line["key"] is None else line["key"].encode()
        state = base64.b64decode(line["state"])
        columns = (line["stream"].encode(), line["version"], line["topic"].encode(), state, key, line["recorded_at"])
        digest = link(digest, line["position"], *columns)
        line["digest"] = digest.hex()
    lines[-1] |= {"events": len(lines) - 2, "position": lines[-2]["position"], "digest": digest.hex()}


def give_keys(store, copy, between):
    """Put the keys of a store that is open beside a copy of its log."""
    store.backup(between.with_name("backup"), keys=between)
    (copy / "keys.db").write_bytes(next(between.glob("*.db")).read_bytes())


def test_an_import_gives_the_same_log_bytes_digests_and_identity(store, exported, tmp_path):
    """Every column of every table, from a packed file too; the copy is sound, answers alike and can be written to."""
    copy, packed = tmp_path / "copy", tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(exported.read_bytes()))
    copy.mkdir()
    done = import_log(packed, copy)
    assert (done.events, done.head) == (EVENTS, store.head())
    assert done.needs_keys
    assert [path.name for path in copy.iterdir()] == [LOG_FILE]
    assert rows_of(copy) == rows_of(store.path)
    give_keys(store, copy, tmp_path / "keys")
    with MemoryStore.open(copy, model=None, create=False) as again:
        assert again.verify(expect_head=str(store.head())).sound
        assert again.replay() == store.replay()
        assert again.session("b").get("city") == {"name": "Lisbon"}
        assert again.record("a", "user", "Olá, Inês! ☕", key="k1", metadata={"n": [1, None, 1.5]}).position == 3
        assert again.record("a", "user", "more").position == EVENTS + 1
        assert again.audit.export(tmp_path / "again.jsonl").events == EVENTS + 1
    assert (tmp_path / "again.jsonl").read_text().startswith(exported.read_text().rpartition('{"line":"end"')[0])


def test_the_script_says_what_we_say_of_a_good_export_under_any_name(store, exported):
    """Number of events and head; it takes a head that was noted, and a name of digits is a file."""
    head, early = str(store.head()), f"3:{store.audit.event(3).digest}"
    named = exported.rename(exported.with_name("2026"))
    for noted in ((), (head,), (early,)):
        assert script_says(named, *noted) == (0, f"sound: {EVENTS} events, head {head}\n")
    assert script_says(named, f"3:{'0' * 64}")[0] == 3
    header = named.read_text().splitlines(keepends=True)[0]
    named.write_text(header + "[" * 200_000 + "\n")
    status, said = script_says(named)
    assert (status, said[:10]) == (3, "NOT SOUND:"), "no line ends it with a traceback"


def test_the_script_says_that_there_is_nothing_to_verify(tmp_path):
    """An empty file, an empty standard input and a wrong name are no finding about a log."""
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for arguments in ([empty], [], [tmp_path / "missing.jsonl"]):
        command = [sys.executable, "-I", SCRIPT, *arguments]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith("nothing to verify: ")


def test_the_script_is_short_and_needs_python_alone():
    """220 lines, to be read before it is trusted. (`-I` keeps our packages from it.)"""
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 220
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= set(sys.stdlib_module_names)


EDITS = {
    "state": lambda line: base64.b64encode(b"\x80").decode(),
    "recorded_at": lambda line: line["recorded_at"] + 1,
    "stream": lambda line: "session/c",
    "topic": lambda line: "session.ended.v1",
    "key": lambda line: None if line["key"] else "other",
    "version": lambda line: line["version"] + 1,
    "position": lambda line: line["position"] + 1,
    "digest": lambda line: "0" * 64,
}


def edited_first_line(field):
    def edit(lines):
        was = lines[0][field]
        lines[0][field] = was + 1 if isinstance(was, int) else "0" * len(was)

    return edit


CHANGES = {
    "removed": lambda lines: lines.pop(5),
    "swapped": lambda lines: lines.insert(5, lines.pop(4)),
    "repeated": lambda lines: lines.insert(5, lines[4]),
    "last removed": lambda lines: lines.pop(-2),
    "cut off": lambda lines: lines.pop(),
    "cut off early": lambda lines: lines.__delitem__(slice(3, None)),
    "only its first line": lambda lines: lines.__delitem__(slice(1, None)),
    "no first line": lambda lines: lines.pop(0),
    "two first lines": lambda lines: lines.insert(3, lines[0]),
    "something behind the end": lambda lines: lines.append(lines[3]),
    "two ends": lambda lines: lines.append(lines[-1]),
    "another count": lambda lines: lines[-1].update(events=EVENTS - 1),
    "another kind of line": lambda lines: lines[3].update(line="other"),
}


def test_every_changed_line_is_refused_and_nothing_is_left_behind(exported, tmp_path, capsys):
    """By an import and by the script. An edited line is named; the line of position n is n + 1."""
    whole = exported.read_text()
    changes = [(name, None, change) for name, change in CHANGES.items()]
    for field in ("log_id", "log_format", "created_at", "digest"):
        changes.append((f"first line, {field}", 1, edited_first_line(field)))
    for column, value in EDITS.items():
        for at in (1, 4, EVENTS - 1):
            edit = lambda lines, at=at, column=column, value=value: lines[at].update({column: value(lines[at])})  # noqa: E731
            changes.append((f"line {at + 1}, {column}", at + 1, edit))
    for name, line, change in changes:
        exported.write_text(whole)
        lines = lines_of(exported)
        change(lines)
        write(exported, lines)
        with pytest.raises(ImportRefused) as caught:
            import_log(exported, tmp_path / "copy")
        assert line is None or caught.value.line == line, name
        code, said = script_here(exported, capsys)
        assert code == 3, name
        assert line in (None, 1) or f"line {line}" in said, name
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "memory"], name


def test_a_field_that_is_missing_renamed_or_damaged_is_named_with_its_line(exported, capsys):
    """Every field of every kind of line."""
    rows = lines_of(exported)
    for at in (0, 3, len(rows) - 1):
        for field in rows[at]:
            others = {name: value for name, value in rows[at].items() if name != field}
            for changed in (others, {**others, f"{field}_": rows[at][field]}, {**rows[at], field: [{}]}):
                write(exported, [*rows[:at], changed, *rows[at + 1 :]])
                code, said = script_here(exported, capsys)
                assert (code, said.count("\n"), f"line {at + 1}:" in said) == (3, 1, True), (at, field, said)
                assert changed is not others or f"line {at + 1}: it has no field '{field}'" in said, (field, said)


def test_every_cut_of_an_export_is_refused(exported, tmp_path, rng):
    """At any byte: no part of an export passes for the whole."""
    whole = exported.read_bytes()
    for size in [0, 1, len(whole) - 2, *rng.sample(range(len(whole) - 1), 25)]:
        exported.write_bytes(whole[:size])
        with pytest.raises(ImportRefused):
            import_log(exported, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_every_flipped_bit_of_an_export_is_refused_or_changes_nothing(exported, tmp_path, rng):
    """Of random ones. What still imports is the same log, byte for byte: JSON can be written in several ways."""
    import_log(exported, tmp_path / "original")
    expected, whole = rows_of(tmp_path / "original"), exported.read_bytes()
    for n in range(200):
        data, at = bytearray(whole), rng.randrange(len(whole))
        data[at] ^= 1 << rng.randrange(8)
        exported.write_bytes(data)
        try:
            import_log(exported, tmp_path / f"copy{n}")
        except (ImportRefused, FormatTooNew):
            assert not (tmp_path / f"copy{n}").exists()
        else:
            assert rows_of(tmp_path / f"copy{n}") == expected, at


FORGED = {
    "a key of two events": (ImportRefused, lambda lines: (lines[3].update(key="same"), lines[5].update(key="same"))),
    "a gap in the versions": (ImportRefused, lambda lines: lines[3].update(version=9)),
    "a newer format of logs": (FormatTooNew, lambda lines: lines[0].update(log_format=99)),
}


def test_a_forged_export_is_refused_if_no_log_could_be_it_and_else_found_by_a_noted_head(store, exported, tmp_path):
    """To forge an export is to forge a log: all links are right."""
    whole = exported.read_text()
    for name, (error, forge) in FORGED.items():
        exported.write_text(whole)
        lines = lines_of(exported)
        forge(lines)
        relink(lines)
        write(exported, lines)
        with pytest.raises(error):
            import_log(exported, tmp_path / "copy")
        assert not (tmp_path / "copy").exists(), name
    exported.write_text(whole)
    noted, lines = str(store.head()), lines_of(exported)
    lines[4]["recorded_at"] += 1
    relink(lines)
    write(exported, lines)
    assert script_says(exported)[0] == 0
    assert script_says(exported, noted)[0] == 3


def test_a_folder_that_is_not_empty_is_left_as_it_is(store, exported, tmp_path):
    """A store, also of the same log, and the folder of another program. An export of a range is no whole log."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear")
    for folder in (store.path, foreign):
        before = sorted(folder.iterdir())
        with pytest.raises(InvalidInput, match="is not empty"):
            import_log(exported, folder)
        assert sorted(folder.iterdir()) == before
    store.audit.export(tmp_path / "rest.jsonl", after=5)
    with pytest.raises(ImportRefused, match="a new store needs an export from the first event"):
        import_log(tmp_path / "rest.jsonl", tmp_path / "new")


def test_an_import_that_is_killed_leaves_no_store_and_may_be_run_again(store, exported, tmp_path):
    """A store has its name when it is whole; until then it is beside it under another."""
    for n in range(20):
        store.record_many([NewTurn(session="a", role="user", text=f"{n} {m}") for m in range(500)])
    store.audit.export(exported, replace=True)
    copy = tmp_path / "copy"
    child = subprocess.Popen([sys.executable, "-m", "mnemolog", "import", copy, exported], stderr=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob(".copy.import.*/log.db-wal")) or copy.exists(), what="the import to begin")
    child.kill()
    child.wait()
    assert not copy.exists()
    assert list(tmp_path.glob(".copy.import.*"))
    assert import_log(exported, copy).events == EVENTS + 10_000
    assert rows_of(copy) == rows_of(store.path)


def test_an_empty_log_and_a_range_can_be_exported(store, tmp_path):
    """The end says 0 events; a range carries the digest that it follows."""
    assert store.audit.export(tmp_path / "empty.jsonl").events == 0
    assert script_says(tmp_path / "empty.jsonl")[0] == 0
    assert import_log(tmp_path / "empty.jsonl", tmp_path / "copy").events == 0
    store.start_session("s").record("user", "one")
    store.audit.export(tmp_path / "range.jsonl", after=1, upto=2)
    assert script_says(tmp_path / "range.jsonl")[0] == 0
    assert [line["position"] for line in lines_of(tmp_path / "range.jsonl") if line["line"] == "event"] == [2]
    for after, upto in ((3, None), (0, 3), (2, 1), (-1, None)):
        with pytest.raises(InvalidInput):
            store.audit.export(tmp_path / "wrong.jsonl", after=after, upto=upto)
    assert not (tmp_path / "wrong.jsonl").exists()


def test_an_export_is_private_and_replaces_nothing_unasked(store, exported):
    """What was said is in it."""
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    before = exported.read_bytes()
    store.record("a", "user", "more")
    with pytest.raises(InvalidInput, match="exists; choose another name"):
        store.audit.export(exported)
    assert exported.read_bytes() == before
    assert store.audit.export(exported, replace=True).events == EVENTS + 1


def test_a_damaged_log_is_not_exported(store, exported, tmp_path):
    """What cannot be proved is not handed on as if it could; no file is left."""
    for position in (1, 7, EVENTS):
        copy = copy_store(store.parts.log, tmp_path / str(position))
        with closing(Tampering(copy / LOG_FILE)) as tampering:
            tampering.write(position, recorded_at=1)
            tampering.put_triggers_back()
        damaged = MemoryStore.open(copy, model=None, create=False)
        with damaged, pytest.raises(LogDamaged) as caught:
            damaged.audit.export(tmp_path / "damaged.jsonl")
        assert caught.value.position == position
        assert not list(tmp_path.glob("*damaged*"))


def test_a_conversation_that_speaks_of_exports_is_a_conversation(tmp_path):
    """The first line decides what a file is, not a word in it."""
    spoken = tmp_path / "turns.jsonl"
    spoken.write_text('{"role": "user", "text": "mnemolog-export", "session": "s", "line": "header"}\n')
    assert not is_log_export(spoken)


def test_a_disk_without_room_leaves_nothing(store, exported, tmp_path, monkeypatch):
    """Neither a part of a file nor a part of a store."""
    before = {path.name for path in tmp_path.iterdir()}

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for fails, call in (
        ("mnemolog.infra.runtime.files.os.fsync", lambda: store.audit.export(tmp_path / "another.jsonl")),
        ("mnemolog.audit.exports.publish_folder", lambda: import_log(exported, tmp_path / "copy")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(fails, refuse)
            with pytest.raises(StorageFull):
                call()
        assert {path.name for path in tmp_path.iterdir()} == before
