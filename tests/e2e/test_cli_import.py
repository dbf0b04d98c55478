"""`mnemolog import`: what it shows, creates and says after a stop."""

import json
import shutil
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers import FORMATS, import_files
from mnemolog.cli import importing
from mnemolog.domain.errors import ImportRefused

DATA = Path(__file__).parents[1] / "integration" / "data" / "importing"
MODEL = ("--model", "none")


def lines_of(path, *rows):
    """Write rows, those of a user unless they say so."""
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps({"role": "user"} | row)) + "\n" for row in rows)
    )
    return path


def texts(memory):
    with MemoryStore.open(memory, model=None, create=False) as store:
        return [turn.text for session in store.sessions() for turn in store.session(session.session).turns()]


def test_an_import_creates_the_store_and_says_so(tmp_path, run):
    """`init` is not needed first."""
    memory = tmp_path / "new"
    ran = run("import", memory, DATA / "table.csv", *MODEL).exited()
    assert f"note: created the store {memory}" in ran.stderr
    assert ran.stdout.startswith("3 turns read from 1 file, 3 recorded, 0 already there, 2 sessions")
    assert "created the store" not in run("import", memory, DATA / "table.csv", *MODEL).stderr
    assert len(texts(memory)) == 3


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_a_file_without_turns_is_an_error_and_creates_no_store(tmp_path, run, content):
    """Exit status 1, and which file it was."""
    empty = tmp_path / "x.json"
    empty.write_text(content)
    assert f"error: no turns in {empty}" in run("import", tmp_path / "new", empty, *MODEL).exited(1).stderr
    assert not (tmp_path / "new").exists()
    run("init", tmp_path / "old")
    assert run("import", tmp_path / "old", empty, *MODEL).returncode == 1
    answer = run("import", tmp_path / "old", empty, *MODEL, "--json")
    assert (json.loads(answer.stdout)["turns"], answer.returncode) == (0, 1)
    ran = run("import", tmp_path / "old", empty, DATA / "table.csv", *MODEL).exited()
    assert f"note: no turns in {empty}" in ran.stderr


def test_a_file_of_an_unknown_format_creates_no_store(tmp_path, run):
    """The error says what the file looks like, and what to do."""
    path = tmp_path / "t.csv"
    path.write_text("who,said\nAda,hello\n")
    ran = run("import", tmp_path / "new", path, *MODEL).exited(1)
    assert "it looks like CSV, and none of its columns has a usual name for a text: 'who', 'said'" in ran.stderr
    assert "e.g. --field text=said" in ran.stderr
    assert not (tmp_path / "new").exists()
    assert run("import", tmp_path / "new", path, "--field", "text=said,speaker=who", *MODEL).returncode == 0
    assert texts(tmp_path / "new") == ["hello"]


def test_a_dry_run_shows_the_first_three_turns_and_writes_nothing(tmp_path, run):
    """And which field became what, and how many turns there are."""
    ran = run("import", tmp_path / "new", DATA / "table.csv", "--dry-run").exited()
    shown = ran.stdout.splitlines()
    assert shown[0].endswith("table.csv: CSV with a header; 3 turns in 2 sessions")
    assert [line.split(maxsplit=1) for line in shown[1:6]] == [
        ["text", "Message"],
        ["role", "user, unless the speaker names a role"],
        ["session", "Conversation"],
        ["time", "Created At"],
        ["speaker", "Sender"],
    ]
    assert shown[6] == "1. trip, user Alice, 2026-03-16 09:00Z, line 2"
    assert shown[7:9] == ["   │ I moved; to Lisbon,", "   │ at last."]
    assert shown[-1] == "left out: 3 field Score"
    assert "nothing was written; to import: `mnemolog import " in ran.stderr
    assert "--dry-run" not in ran.stderr
    assert not (tmp_path / "new").exists()


def test_a_dry_run_is_json_too(tmp_path, run):
    """One object for each file. In words, the fields of a transcript are fixed and not named."""
    shown = run("import", tmp_path / "new", DATA / "codex.jsonl", "--dry-run").stdout.splitlines()
    assert shown[0].endswith("codex.jsonl: a rollout of Codex; 4 turns in 1 session")
    assert shown[1].startswith("1. ")
    files = [DATA / "zep.json", DATA / "claude_ai.json"]
    zep, claude = run("import", tmp_path / "new", *files, "--dry-run", "--json", "--scope", "acme").json
    assert (zep["format"], zep["turns"], zep["sessions"]) == ("zep", 3, 1)
    assert zep["mapping"]["role"] == "role_type"
    assert zep["first"][0] | {"text": "", "said_at": ""} == {
        "where": "message 1",
        "session": "trip",
        "session_title": "",
        "scope": "acme",
        "agent": "imported",
        "role": "user",
        "speaker": "Alice",
        "said_at": "",
        "text": "",
    }
    assert claude["first"][0]["session_title"] == "Ferry to Skye"
    assert len(claude["first"]) == 3


def test_a_dry_run_names_every_line_that_would_be_refused(tmp_path, run):
    """And says that the import would stop there."""
    path = lines_of(tmp_path / "t.jsonl", {"text": "one"}, "broken", {"text": "two"}, {"text": "three", "role": "boss"})
    ran = run("import", tmp_path / "new", path, "--dry-run")
    assert [line for line in ran.stderr.splitlines() if line.startswith("refused: ")] == [
        f"refused: {path}:2: JSON: invalid JSON: Expecting value at column 1",
        next(line for line in ran.stderr.splitlines() if f"{path}:4: role: 'boss'" in line),
    ]
    assert "the import would stop at the first bad line; with --skip-bad it leaves out 2 lines" in ran.stderr


def test_an_import_names_what_it_does_not_read_and_reads_the_standard_input(tmp_path, run):
    """Columns on every import, and by reason what was left out; as JSON too."""
    path = tmp_path / "odd.csv"
    path.write_text("when,type,text,mood\n2026-01-05,human,hello,glad\n2026-01-05,ai,,sad\n")
    ran = run("import", tmp_path / "memory", path, *MODEL)
    assert ran.stdout.splitlines()[1:] == ["left out: 2 field mood, 1 empty"]
    answer = run("import", tmp_path / "other", "-", *MODEL, "--json", stdin=path.read_text()).json
    assert (answer["recorded"], answer["left_out"]) == (1, {"field mood": 2, "empty": 1})
    preview = run("import", tmp_path / "new", path, "--dry-run", "--json").json[0]
    assert preview["left_out"] == answer["left_out"]


def test_a_wrong_field_is_refused_with_the_fields_of_the_file(tmp_path, run):
    """Leaving out every line would be no remedy, nor can what concerns the whole file be left out."""
    path = tmp_path / "t.json"
    path.write_text('[{"text": "one"},\n oops]')
    broken = run("import", tmp_path / "memory", path, *MODEL).stderr
    assert "t.json:2: the JSON document is broken" in broken
    assert "--skip-bad" not in broken
    assert "hint: correct the file, or name another, and run the same command again" in broken
    ran = run("import", tmp_path / "new", DATA / "table.csv", "--field", "text=Nope", *MODEL)
    assert "no field 'Nope'; the fields are 'Conversation', 'Sender', 'Created At', 'Message', 'Score'" in ran.stderr
    assert "hint: name the field; `mnemolog import " in ran.stderr
    assert "--skip-bad" not in ran.stderr
    assert not (tmp_path / "new").exists()


def test_after_a_broken_line_an_import_says_what_is_recorded_and_how_to_continue(tmp_path, run):
    """The same command, with the option that helps; continuing records nothing twice, and a changed text once."""
    memory = tmp_path / "memory"
    path = lines_of(tmp_path / "t.jsonl", {"text": "one", "key": "k"}, "broken", {"text": "two"}, {"text": "three"})
    hint = run("import", memory, path, *MODEL).exited(1).stderr.splitlines()[-1]
    assert hint.startswith("hint: 1 turn recorded; correct the line and run the same command again: ")
    assert hint.endswith(f"leave out such lines: `mnemolog import {memory} {path} --model none --skip-bad`")
    again = run("import", memory, path, *MODEL, "--skip-bad", "--json").json
    assert (again["recorded"], again["already_there"], len(again["refused"])) == (2, 1, 1)
    lines_of(path, {"text": "two"}, {"text": "other words", "key": "k"})
    for recorded in (1, 0):
        assert run("import", memory, path, *MODEL, "--json").json["recorded"] == recorded
    assert texts(memory) == ["one", "two", "three", "other words"]


def test_ctrl_c_after_the_turns_are_recorded_says_how_many_and_how_to_continue(tmp_path, run, monkeypatch):
    """While they are indexed. While they are read: test_cli.py."""

    def stopped(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "_catch_up", stopped)
    ran = run("import", tmp_path / "memory", DATA / "table.csv", *MODEL).exited(130)
    assert "interrupted: 3 turns recorded; to continue, run the same command again" in ran.stderr


def test_the_error_of_the_library_has_a_note_with_the_number_of_turns_recorded(tmp_path):
    """A traceback prints it."""
    path = lines_of(tmp_path / "t.jsonl", {"text": "one"}, {"text": "two"}, "broken")
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        import_files(store, path, skip_bad=True)
        with pytest.raises(ImportRefused) as caught:
            import_files(store, path)
        assert caught.value.__notes__ == ["0 turns recorded, 2 turns were there before"]
        assert caught.value.skippable


def test_every_export_is_imported_twice_without_doubles(tmp_path, run):
    """All samples at once; the second time nothing is new. A session has the title of its conversation."""
    memory, files = tmp_path / "memory", []
    for path in sorted(DATA.iterdir()):
        files.append(tmp_path / path.name)
        shutil.copyfile(path, files[-1])
    first = run("import", memory, *files, *MODEL, "--json").json
    second = run("import", *files, *MODEL, "--json", store=memory).json
    assert (first["recorded"], second["recorded"], second["already_there"]) == (first["turns"], 0, first["turns"])
    assert first["files"] == len(files)
    with MemoryStore.open(memory, model=None) as store:
        titles = {session.session: session.title for session in store.sessions()}
    assert titles["8f2e0a5c-1111-4222-8333-444455556666"] == "Ferry to Skye"


def test_the_help_of_import_names_every_format_and_shows_examples(run):
    """What `--format` takes."""
    shown = " ".join(run("import", "--help").stdout.split())
    assert set(FORMATS) == set(importing.FORMAT_NAMES.replace(" or ", ", ").split(", "))
    assert importing.FORMAT_NAMES in shown
    assert "mnemolog import memory/ conversations.json --dry-run" in shown
