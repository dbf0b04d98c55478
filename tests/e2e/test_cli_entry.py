"""How a person gets into the command line: help, other words for commands, completion, errors with what to do next."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.cli import every_command
from mnemolog.cli.app import COMMANDS, DONE_BY, MODULES, SAME_AS
from mnemolog.infra.version import this_version
from tests.e2e.test_cli import in_a_process
from tests.postgres import put_log_in_postgres

pytestmark = pytest.mark.local


@pytest.fixture
def memory(folder):
    """A store with two sessions, closed."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip-1", scope="acme/alice").record("user", "My dog is called Rex.")
        store.start_session("a:b-2", scope="acme/bob", agent="ada").record("user", "Tea, please.")
    return folder


EVERY = [tuple(name.split()) for name in every_command()]


def test_the_version_is_printed_in_each_way_that_people_ask_for_it(run):
    """`--version` and `version`."""
    for asked in ("--version", "version"):
        assert run(asked).stdout == f"mnemolog {this_version()}\n"


@pytest.mark.parametrize("words", [("recall", "-h"), ("help", "recall"), ("recall", "--help")], ids=" ".join)
def test_help_is_there_in_each_way_that_people_ask_for_it(words, run):
    """`-h`, `help COMMAND` and `--help`."""
    ran = run(*words)
    assert ran.returncode == 0
    assert ran.stdout.startswith("Usage: mnemolog recall DIR QUERY")


def test_help_of_a_subcommand_and_of_a_group(run):
    """Groups list their commands, with and without an option."""
    assert run("help", "checkpoint", "create").stdout == run("checkpoint", "create", "-h").stdout
    assert run("memory").stdout == run("memory", "-h").stdout == run("help", "memory").stdout
    assert run().stdout == run("help").stdout == run("-h").stdout
    assert run().returncode == 0


def test_help_lists_commands_in_the_order_in_which_a_person_meets_them(run):
    """Panels from the first step to maintenance, one line each at 80 columns."""
    shown = run("--help").stdout
    assert re.findall(r"^(\S.*):$", shown, re.M) == [*COMMANDS, "Options"]
    names = re.findall(r"^  ([a-z]+) ", shown, re.M)
    assert names == list(MODULES)
    assert names[:4] == ["init", "record", "import", "recall"]
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_is_in_plain_words_and_has_an_example(words, run, monkeypatch):
    """No ranges, no types of the parser, no markup, nothing both required and from a variable."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*words, "--help").stdout
    assert re.search(rf"^Example: .*mnemolog {' '.join(words)}\b", shown, re.M)
    for noise in ("<int", "<float", "[x", "x>=", "range", "{DIR", "{FILE", "[required]", "[dim]", "[default"):
        assert noise not in shown, noise
    described = shown.partition("\n\nExample")[0].splitlines()
    assert max(map(len, described)) <= 80


@pytest.mark.parametrize("word", SAME_AS)
def test_other_words_for_reading_run_the_command(word, run):
    """`search`, `ls`, `stats`, `timeline`."""
    assert SAME_AS[word] in MODULES
    assert run(word, "-h").stdout == run(SAME_AS[word], "-h").stdout


@pytest.mark.parametrize("word", DONE_BY)
def test_other_words_for_writing_name_the_command_that_does_it(word, run):
    """`delete` explains `forget`, and runs nothing."""
    ran = run(word, "memory", "trip")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: there is no command '{word}'\nhint: ")
    for named in re.findall(r"`mnemolog ([^`]+)`", ran.stderr):
        assert run(*[part for part in named.split() if not part.startswith("-")], "-h").returncode == 0


@pytest.mark.parametrize(
    ("typo", "meant"), [("recal", "'recall'"), ("sess", "'sessions'"), ("statu", "'status'"), ("zzz", None)]
)
def test_an_unknown_command_suggests_only_sensible_neighbours(typo, meant, run):
    """Close spellings and beginnings, or nothing."""
    ran = run(typo)
    assert ran.returncode == 2
    assert re.findall(r"did you mean (.*)\?", ran.stderr) == ([meant] if meant else [])


def test_an_error_is_json_where_json_was_asked_for(memory, run):
    """One line on stdout with class, text, hint and fields; the same words on stderr, the same exit status."""
    ran = run("show", memory, "nope", "--json")
    (line,) = ran.stdout.splitlines()
    error = json.loads(line)["error"]
    assert ran.returncode == 1
    assert (error["type"], error["session"]) == ("UnknownSession", "nope")
    assert ran.stderr == f"error: {error['message']}\nhint: {error['hint']}\n"
    used = run("recall", memory, "--k", "x", "--json")
    assert used.returncode == 2
    assert json.loads(used.stdout)["error"]["type"] == "UsageError"
    assert json.loads(used.stdout)["error"]["message"] == "--k: 'x' is not a whole number"
    assert json.loads(run("sing", "--json").stdout)["error"]["type"] == "Refused"


def test_a_reader_is_never_told_that_nothing_was_written(memory, run):
    """It only looked."""
    for words in (
        ("show", memory, "nope"),
        ("replay", memory, "--to", "99"),
        ("recall", memory, "", "--model", "none"),
    ):
        ran = run(*words)
        assert ran.returncode == 1
        assert "nothing was" not in ran.stderr


def test_hints_are_commands_with_the_arguments_that_were_given(memory, run):
    """They can be copied."""
    assert f"`mnemolog sessions {memory}` lists" in run("show", memory, "nope").stderr
    assert f"`mnemolog record {memory} nope hello --start` starts" in run("record", memory, "nope", "hello").stderr
    assert f"`mnemolog checkpoint list {memory} trip-1`" in run("checkpoint", "restore", memory, "trip-1", "x").stderr
    assert f"`mnemolog init {memory}-2`" in run("status", f"{memory}-2").stderr
    assert f"`mnemolog memory list {memory} trip-1`" in run("memory", "get", memory, "trip-1", "x").stderr
    assert "--metadata" in run("record", memory, "trip-1", "x", "--metadata", "[1]").stderr
    assert "--since: " in run("recall", memory, "x", "--since", "nonsense", "--model", "none").stderr


def test_an_unknown_session_is_answered_with_the_closest_ids(memory, run):
    """A typo, or the title in place of the id."""
    assert "the closest ids are 'trip-1'" in run("show", memory, "trp-1").stderr


def test_who_leaves_out_the_folder_is_told_so(memory, run, monkeypatch, tmp_path):
    """Also where the first word is taken for the folder."""
    monkeypatch.chdir(tmp_path)
    for words, also in ((("status",), ""), (("recall", "dog"), "there is no folder 'dog'")):
        ran = run(*words)
        assert ran.returncode == 2
        assert "hint: the first argument is the folder of the store; or set MNEMOLOG_STORE to it" in ran.stderr
        assert also in ran.stderr


def test_a_file_of_heads_that_is_not_there_is_named_with_the_command_that_creates_it(memory, tmp_path, run):
    """A typo is no finding about the log."""
    missing = tmp_path / "none.jsonl"
    ran = run("verify", memory, "--heads", missing)
    assert f"error: {missing}: there is no such file" in ran.stderr
    assert f"`mnemolog head {memory} --append {missing}` creates a file of heads" in ran.stderr


def test_a_model_that_is_missing_is_named_with_the_command_that_does_without_it(memory, run):
    """Whether the command fails or reports it."""
    assert (
        f"`mnemolog rebuild {memory} vectors --model all-"
        in run("rebuild", memory, "vectors", "--model", "none").stderr
    )
    assert f"`mnemolog doctor {memory} --model none`" in run("doctor", memory, "--model", "no-such-model").stdout


def test_an_error_says_that_an_environment_variable_named_the_store(tmp_path, run):
    """In the line of the error."""
    assert "missing (from MNEMOLOG_STORE)\n" in run("recall", "dog", store=tmp_path / "missing").stderr


def test_an_error_names_the_variable_that_gave_a_wrong_value(memory, run, monkeypatch):
    """A model, a switch, the level of the log."""
    wrong = {
        "MNEMOLOG_MODEL": ("project", memory),
        "MNEMOLOG_RECEIPTS": ("recall", memory, "dog", "--model", "none"),
        "MNEMOLOG_LOG": ("status", memory),
    }
    for variable, words in wrong.items():
        with monkeypatch.context() as only_here:
            only_here.setenv(variable, "/no such thing")
            ran = run(*words)
        assert ran.returncode in (1, 2)
        assert variable in ran.stderr.splitlines()[0]


def test_a_folder_that_is_given_wins_over_the_environment(memory, tmp_path, run):
    """Also one that does not exist yet."""
    assert run("init", tmp_path / "new", store=memory).returncode == 0
    assert f"there is no store at {tmp_path / 'typo'}\n" in run("status", tmp_path / "typo", store=memory).stderr
    assert run("show", "trip-1", store=memory).returncode == 0


def test_an_export_and_a_backup_are_replaced_with_the_same_option(memory, tmp_path, run):
    """And each error names it."""
    for command, target in (("export", tmp_path / "log.jsonl"), ("backup", tmp_path / "copy")):
        assert run(command, memory, target).returncode == 0
        ran = run(command, memory, target)
        assert ran.returncode == 1
        assert "--replace" in ran.stderr
        assert run(command, memory, target, "--replace").returncode == 0


# Completion.

LINES = {
    "mnemolog reb": ["rebuild"],
    "mnemolog checkpoint cr": ["create"],
    "mnemolog show MEMORY tr": ["trip-1"],
    "mnemolog recall MEMORY dog --scope acme/": ["acme/alice", "acme/bob"],
    "mnemolog recall MEMORY dog --lin": ["--lineage"],
    "mnemolog recall MEMORY dog --mode t": ["text"],
    "mnemolog switch MEMORY --reason resume --agent a": ["ada", "agent"],
    "mnemolog project MEMORY --model n": ["none"],
    "mnemolog completion f": ["fish"],
}


def asked(line: str) -> list[str]:
    """What the command answers when a shell asks for the words that can follow a line."""
    words = {"_MNEMOLOG_COMPLETE": "1", "_TYPER_COMPLETE_ARGS": line}
    command = [sys.executable, "-m", "mnemolog"]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **words}, check=False)
    assert ran.stderr == ""
    return [answer.partition("\t")[0] for answer in ran.stdout.splitlines()]


@pytest.mark.log_file
@pytest.mark.parametrize("line", LINES)
def test_tab_completes_commands_options_and_what_the_store_holds(line, memory):
    """Sessions, scopes, agents and models too."""
    assert asked(line.replace("MEMORY", str(memory))) == LINES[line]


def test_tab_completes_what_a_node_has_read_of_its_log(folder, postgres_url):
    """Nothing is asked over a network."""
    put_log_in_postgres(folder, postgres_url)
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip-1", scope="acme/alice").record("user", "My dog is called Rex.")
        assert asked(f"mnemolog show {folder} tr") == []
        store.recall("dog")
    assert asked(f"mnemolog show {folder} tr") == ["trip-1"]
    assert asked(f"mnemolog recall {folder} dog --scope acme/") == ["acme/alice"]


@pytest.mark.log_file
def test_completion_writes_nothing_and_loads_no_model(memory):
    """Not even files beside the database."""
    before = {path: path.stat().st_mtime_ns for path in memory.rglob("*")}
    assert asked(f"mnemolog show {memory} ") == ["a:b-2", "trip-1"]
    assert {path: path.stat().st_mtime_ns for path in memory.rglob("*")} == before
    assert asked(f"mnemolog show {memory}-missing ") == []


@pytest.fixture
def shell(tmp_path):
    """A folder for PATH with a command `mnemolog` that runs this code."""
    command = tmp_path / "bin" / "mnemolog"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mnemolog "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}


def said_by(shell: dict[str, str], *command: str) -> list[str]:
    """The lines that a shell prints."""
    ran = subprocess.run(command, capture_output=True, text=True, env=shell, check=True, timeout=60)
    return [line.partition("\t")[0] for line in ran.stdout.splitlines()]


@pytest.mark.log_file
def test_bash_completes(shell, memory):
    """With colons, which bash takes for the end of a word."""
    script = f"""
        eval "$(mnemolog completion bash)"
        try() {{ COMP_LINE=$1; COMP_POINT=${{#1}}; _mnemolog_completion mnemolog; echo "${{COMPREPLY[*]}}"; }}
        try "mnemolog reb"; try "mnemolog show {memory} "; try "mnemolog show {memory} a:b"; complete -p mnemolog
    """
    reb, sessions, colon, registered = said_by(shell, "bash", "--norc", "-c", script)
    assert (reb, sessions, colon) == ("rebuild", "a:b-2 trip-1", "b-2")
    assert registered == "complete -o default -F _mnemolog_completion mnemolog"


@pytest.mark.log_file
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(shell, memory):
    """Asked by fish itself."""
    script = f'mnemolog completion fish | source; complete -C"mnemolog reb"; complete -C"mnemolog show {memory} tr"'
    assert said_by({**shell, "HOME": str(memory.parent)}, "fish", "--no-config", "-c", script) == ["rebuild", "trip-1"]


@pytest.mark.log_file
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(shell, memory):
    """The function that zsh calls, with what it would add."""
    script = f"""
        compdef() {{ }}; compadd() {{ print -r -- "${{found[*]}}" }}; _files() {{ print files }}
        eval "$(mnemolog completion zsh)"
        try() {{ words=("$@"); CURRENT=$#words; _mnemolog_completion }}
        try mnemolog reb; try mnemolog show {memory} tr; try mnemolog init ""
    """
    assert said_by(shell, "zsh", "-f", "-c", script) == ["rebuild", "trip-1", "files"]


def test_help_and_errors_take_no_time(memory):
    """They import no command but the one that is asked about."""
    script = (
        "import sys; from mnemolog.cli import main\ntry: main()\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    )
    for words in (["--help"], ["help"], ["sing"], ["delete"], ["--version"]):
        ran = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        loaded = ran.stderr.splitlines()[-1]
        assert "'rich'" not in loaded
        assert "'mnemolog.store'" not in loaded


def test_a_command_of_its_own_process_says_the_same(memory):
    """As a shell sees it."""
    assert in_a_process("help", "recall").stdout.startswith("Usage: mnemolog recall DIR QUERY")
    assert in_a_process("recall").returncode == 2
    assert Path(memory).is_dir()
