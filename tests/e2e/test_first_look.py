"""What somebody sees who tries mnemolog for the first time, and makes the mistakes that one makes then."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from types import SimpleNamespace

import pytest

from mnemolog import MemoryStore, connect, connect_async, errors
from mnemolog.server.client import connection
from tests.pages import ROOT, blocks, commands, run_block, run_command, shown_output

pytestmark = pytest.mark.local

DATA = ROOT / "tests" / "integration" / "data"


def test_the_commands_and_the_script_of_the_readme_fit_together(tmp_path, monkeypatch, capsys):
    """One after the other in one folder, and the script twice: its first turn is the one that was recorded before."""
    monkeypatch.chdir(tmp_path)
    for command, _ in commands("README.md"):
        if command.startswith("mnemolog") and "memory/" in command and " serve " not in command:
            run_command(command, tmp_path)
    (line,) = blocks("README.md")
    for _ in range(2):
        run_block("README.md", line)
        assert capsys.readouterr().out == shown_output("README.md") != ""


def test_a_first_record_makes_store_and_session_and_names_the_folder(tmp_path, run):
    """Only with --start, only with a turn that can be recorded, and once."""
    folder = tmp_path / "memory"
    assert run("record", folder, "trip", "tea").returncode == 1
    assert run("record", folder, "trip", "tea", "--start", "--metadata", "[]").returncode == 2
    assert not folder.exists()
    ran = run("record", folder, "trip", "tea", "--start")
    assert (ran.returncode, ran.stdout) == (0, "recorded at position 2 in session trip\n")
    assert ran.stderr == f"note: created the store {folder}\n"
    assert run("record", folder, "trip", "coffee", "--start").stderr == ""


def test_the_cursor_is_on_standard_error_if_there_is_more_and_nothing_that_fits_is_said(folder, run):
    """`recall` says it as `context` does; the cursor continues the answer."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("trip")
        for number in range(4):
            session.record("user", f"the ferry to Porto, {number}")
        session.record("assistant", "We can of course look at other things too.")
    model = ("--model", "none")
    recall = ("recall", folder, "ferry to Porto", *model, "-k")
    first = run(*recall, 3)
    assert "--after" not in first.stdout
    (more,) = [line for line in first.stderr.splitlines() if "after" in line]
    last = run(*recall, 3, *more.removeprefix("more: ").split())
    assert "@5" not in first.stdout or "@5" not in last.stdout
    assert "more:" not in last.stderr
    assert run(*recall, 3, "--json").json["next"]
    strange = (folder, "which colour has the bicycle that others bought", *model)
    for command in ("recall", "context"):
        assert "note: nothing fits the question well" in run(command, *strange).stderr
    assert "fits" not in first.stderr


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
    """An unpacked export of ChatGPT; a file that is named alone is refused, and so are files none of which is known."""
    export = tmp_path / "export"
    export.mkdir()
    shutil.copy(DATA / "importing" / "chatgpt.json", export / "conversations.json")
    (export / "user.json").write_text('{"id": "user-1", "email": "ada@example.org"}')
    (export / "message_feedback.json").write_text('[{"id": "1", "content": "{}", "rating": "thumbsUp"}]')
    whole = run("import", tmp_path / "whole", export, "--model", "none", "--json").json
    ran = run("import", tmp_path / "pattern", *sorted(export.iterdir()), "--model", "none", "--json")
    assert ran.json == whole
    assert run("import", tmp_path / "new", export / "user.json", "--model", "none").returncode == 1
    shutil.copy(export / "user.json", export / "account.json")
    both = export / "user.json", export / "account.json"
    assert run("import", tmp_path / "new", *both, "--model", "none").returncode == 1
    assert not (tmp_path / "new").exists()


def test_a_model_that_does_not_exist_is_wrong_usage_and_writes_nothing(folder, tmp_path, run):
    """Named in the environment too; the default model may be missing, for everything else works without it."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "tea in Porto")
    turns = tmp_path / "turns.jsonl"
    turns.write_text(json.dumps({"text": "hello"}))
    for command in (("recall", folder, "tea"), ("context", folder, "tea"), ("import", tmp_path / "new", turns)):
        ran = run(*command, "--model", "bge")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith("error: no model 'bge' on this machine; installed: ")
    assert not (tmp_path / "new").exists()


def test_the_first_call_to_a_port_where_nothing_listens_is_quick_and_later_ones_are_patient(monkeypatch):
    """Of both clients. A later call may meet a restart."""
    now = [0.0]
    sleep = lambda seconds: now.append(now.pop() + seconds)  # noqa: E731
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(url) as store:
        for seconds, tries in (((0.1, 1.0), "tries"), ((3.0, 30.0), "8 tries")):
            begun = now[0]
            with pytest.raises(errors.LogUnreachable, match=tries):
                store.head()
            assert seconds[0] < now[0] - begun <= seconds[1]
    begun = now[0]

    async def call():
        async with connect_async(url) as store:
            await store.head()

    with pytest.raises(errors.LogUnreachable):
        asyncio.run(call())
    assert 0 < now[0] - begun <= 1.0
