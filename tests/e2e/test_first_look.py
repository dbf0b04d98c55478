"""What somebody sees who tries mnemolog for the first time, and makes the mistakes that one makes then."""

import shutil
import socket
from types import SimpleNamespace

import pytest

from mnemolog import MemoryStore, connect, errors
from mnemolog.server.client import connection
from tests.pages import ROOT, blocks, commands, run_block, run_command, shown_output

pytestmark = pytest.mark.local

DATA = ROOT / "tests" / "integration" / "data"
NO_MODEL = ("--model", "none")


def test_the_commands_and_the_script_of_the_readme_fit_together(tmp_path, monkeypatch, capsys):
    """One after the other in one folder: the script twice, which then prints the same, and the commands."""
    monkeypatch.chdir(tmp_path)
    (line,) = blocks("README.md")
    for _ in range(2):
        run_block("README.md", line)
        assert capsys.readouterr().out == shown_output("README.md") != ""
    for command, _ in commands("README.md"):
        if command.startswith("mnemolog"):
            run_command(command, tmp_path)


def test_a_first_record_makes_store_and_session_and_names_the_folder(tmp_path, run):
    """Only with --start, and only with arguments that can be read."""
    folder = tmp_path / "memory"
    assert run("record", folder, "trip", "tea").returncode == 1
    assert run("record", folder, "trip", "tea", "--start", "--metadata", "[]").returncode == 2
    assert not folder.exists()
    assert run("record", folder, "trip", "tea", "--start").stderr == f"note: created the store {folder}\n"
    assert run("record", folder, "trip", "coffee", "--start").stderr == ""


def test_the_cursor_is_on_standard_error_if_there_is_more_and_nothing_that_fits_is_said(folder, run):
    """`recall` says it as `context` does; the cursor continues the answer."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("trip")
        session.record_many([{"role": "user", "text": f"the ferry to Porto, {n}"} for n in range(4)])
        session.record("assistant", "We can of course look at other things too.")
    first = run("recall", folder, "ferry to Porto", *NO_MODEL, "-k", 3)
    assert ("--after" in first.stdout, first.stderr.count("\n"), first.stderr[:14]) == (False, 1, "more: --after ")
    last = run("recall", folder, "ferry to Porto", *NO_MODEL, "-k", 3, *first.stderr.split()[1:])
    assert (last.stdout.count("ferry"), last.stderr) == (1, "")
    for command in ("recall", "context"):
        strange = run(command, folder, "which colour has the bicycle that others bought", *NO_MODEL)
        assert "note: nothing fits the question well\n" in strange.stderr


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *(("7", 7), ('"7"', "7"), ("null", None), ("[1]", [1])),
        *((text, text) for text in ("Porto", "007", "2026-03", "NaN", "no, {x}")),
        *((broken, errors) for broken in ("[1", ' {"a": ', '"Porto')),
    ],
)
def test_a_value_that_is_no_json_is_text(folder, run, given, value):
    """Unless it begins like an object, an array or a string: then it is a mistake, which --text says is none."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip")
    for command in (("assert", folder, "user/city"), ("memory", "set", folder, "trip", "city")):
        ran = run(*command, given, "--json")
        assert ran.returncode == (2 if value is errors else 0), ran.stderr
        assert value is errors or ran.json["value"] == value
        assert run(*command, given, "--text", "--json").json["value"] == given


def test_files_that_a_pattern_names_are_skipped_as_in_their_folder(tmp_path, run):
    """An unpacked export of ChatGPT; files none of which is known are refused."""
    export = tmp_path / "export"
    export.mkdir()
    shutil.copy(DATA / "importing" / "chatgpt.json", export / "conversations.json")
    for name, text in (("user", '{"id": "u"}'), ("feedback", '[{"id": "1", "content": "{}"}]'), ("more", "{}")):
        (export / f"{name}.json").write_text(text)
    whole, named, *foreign = [export], sorted(export.iterdir()), export / "user.json", export / "more.json"
    reports = [
        run("import", tmp_path / str(n), *files, *NO_MODEL, "--json").json for n, files in enumerate((whole, named))
    ]
    assert reports[0] == reports[1]
    assert (run("import", tmp_path / "new", *foreign, *NO_MODEL).returncode, (tmp_path / "new").exists()) == (1, False)


@pytest.mark.parametrize("command", ["recall", "context", "import"])
def test_a_model_that_does_not_exist_is_wrong_usage_and_writes_nothing(folder, run, command):
    """The default model may be missing: everything else works without it."""
    ran = run(command, folder, DATA / "importing" / "turns.jsonl", "--model", "bge")
    assert (ran.returncode, ran.stdout, folder.exists()) == (2, "", False)
    assert ran.stderr.startswith("error: no model 'bge' on this machine; installed: ")


def test_the_first_call_to_a_port_where_nothing_listens_is_quick_and_later_ones_are_patient(monkeypatch):
    """The address may be wrong; a later call may meet a restart."""
    now = [0.0]
    sleep = lambda seconds: now.append(now.pop() + seconds)  # noqa: E731
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(url) as store:
        for least, most, tries in ((0.1, 1.0, "tries"), (3.0, 30.0, "8 tries")):
            begun = now[0]
            with pytest.raises(errors.LogUnreachable, match=tries):
                store.head()
            assert least < now[0] - begun <= most
