"""The first steps on the command line: help, other words for commands, completion, errors with what to do next."""

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

from mnemolog import MemoryStore
from mnemolog.cli import every_command
from mnemolog.cli.app import COMMANDS, DONE_BY, MODULES, SAME_AS, loaded
from mnemolog.infra.version import this_version

pytestmark = pytest.mark.local


@pytest.fixture
def memory(folder):
    """A store with two sessions, closed."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip-1", scope="acme/alice").record("user", "My dog is called Rex.")
        store.start_session("a:b-2", scope="acme/bob", agent="ada").record("user", "Tea, please.")
    return folder


def callback_of(name):
    """The function of a command, such as `checkpoint create`."""
    group, _, subcommand = name.partition(" ")
    return (loaded(group).commands[subcommand] if subcommand else loaded(group)).callback


def test_help_is_there_in_each_way_that_people_ask_for_it(run):
    """`-h`, `help COMMAND` and `--help`; of groups also without an option. So is the version."""
    for asked in ("--version", "version"):
        assert run(asked).stdout == f"mnemolog {this_version()}\n"
    for ways in (
        [("recall", "-h"), ("help", "recall"), ("recall", "--help")],
        [("help", "checkpoint", "create"), ("checkpoint", "create", "-h")],
        [("memory",), ("memory", "-h"), ("help", "memory")],
        [(), ("help",), ("-h",)],
    ):
        (shown,) = {run(*words) for words in ways}
        assert shown.returncode == 0
        assert shown.stdout.startswith("Usage: mnemolog")


def test_help_lists_commands_in_the_order_in_which_a_person_meets_them(run):
    """From the first step to maintenance, one line each at 80 columns."""
    first = run("--help").stdout
    assert re.findall(r"^(\S.*):$", first, re.M) == ["Options", "Start"]
    assert f"`mnemolog more` lists all {len(MODULES)} commands" in first
    shown = run("more").stdout
    assert re.findall(r"^(\S.*):$", shown, re.M) == ["Options", *COMMANDS]
    names = re.findall(r"^  ([a-z-]+) ", shown.partition("Start:")[2], re.M)
    assert names == list(MODULES)
    assert names[:4] == ["init", "record", "import", "recall"]
    assert max(map(len, shown.splitlines())) <= 80


def test_every_command_has_help_with_an_example_that_can_be_copied(run, monkeypatch):
    """Each example is on one line, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    for name in every_command():
        shown = run(*name.split(), "--help").stdout
        assert re.search(rf"^  Example: .*mnemolog {name}\b", shown, re.M), name
        examples = re.findall(r"Example: (.*)", inspect.getsource(callback_of(name)))
        assert [line for line in examples if f"  Example: {line}\n" not in shown] == []


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
    ("typo", "meant"),
    [
        ("recal", "'recall'"),
        ("sess", "'sessions'"),
        ("statu", "'status' or 'stats'"),
        ("serch", "'search'"),
        ("zzz", None),
    ],
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
    assert "'x'" in json.loads(used.stdout)["error"]["message"]
    assert json.loads(run("sing", "--json").stdout)["error"]["type"] == "Refused"


def test_hints_are_commands_with_the_arguments_that_were_given(memory, tmp_path, run):
    """They can be copied. An error of a command that only looked does not say that nothing was written."""
    for words, status in (
        (("show", memory, "nope"), 1),
        (("replay", memory, "--to", "99"), 2),
        (("recall", memory, ""), 2),
    ):
        ran = run(*words)
        assert (ran.returncode, "nothing was" in ran.stderr) == (status, False)
    missing = tmp_path / "none.jsonl"
    heads = run("verify", memory, "--heads", missing).stderr
    assert f"error: {missing}: there is no such file" in heads
    assert f"`mnemolog head {memory} --append {missing}` creates a file of heads" in heads
    rebuilt = run("rebuild", memory, "vectors", "--model", "none").stderr
    assert f"`mnemolog rebuild {memory} vectors --model all-" in rebuilt
    assert f"`mnemolog doctor {memory} --model none`" in run("doctor", memory, "--model", "no-such-model").stdout
    assert "the closest ids are 'trip-1'" in run("show", memory, "trp-1").stderr
    assert f"`mnemolog sessions {memory}` lists" in run("show", memory, "nope").stderr
    assert f"`mnemolog record {memory} nope hello --start` starts" in run("record", memory, "nope", "hello").stderr
    assert f"`mnemolog checkpoint list {memory} trip-1`" in run("checkpoint", "restore", memory, "trip-1", "x").stderr
    assert f"`mnemolog init {memory}-2`" in run("status", f"{memory}-2").stderr
    assert f"`mnemolog memory list {memory} trip-1`" in run("memory", "get", memory, "trip-1", "x").stderr
    assert "--metadata" in run("record", memory, "trip-1", "x", "--metadata", "[1]").stderr
    assert "'--since': " in run("recall", memory, "x", "--since", "nonsense", "--model", "none").stderr


def test_a_missing_folder_argument_is_named_in_the_error(memory, run, monkeypatch, tmp_path):
    """Also where the first word is taken for the folder."""
    monkeypatch.chdir(tmp_path)
    for words, also in ((("status",), ""), (("recall", "dog"), "there is no folder 'dog'")):
        ran = run(*words)
        assert ran.returncode == 2
        assert "hint: the first argument is the folder of the store; or set MNEMOLOG_STORE to it" in ran.stderr
        assert also in ran.stderr


def test_an_error_names_the_variable_that_gave_a_wrong_value(memory, run, monkeypatch):
    """A model, a switch, the level of the log, the store."""
    assert "missing (from MNEMOLOG_STORE)\n" in run("recall", "dog", store=memory.parent / "missing").stderr
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


COMPLETED = {
    "mnemolog reb": ["rebuild"],
    "mnemolog checkpoint cr": ["create"],
    "mnemolog recall memory dog --lin": ["--lineage"],
    "mnemolog switch memory --reason co": ["compress"],
}


@pytest.mark.parametrize("line", COMPLETED)
def test_tab_completes_commands_options_and_their_values(line):
    """Asked as bash asks."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    asked = {**os.environ, **words, "_MNEMOLOG_COMPLETE": "complete_bash", "_TYPER_COMPLETE_ARGS": line}
    command = [sys.executable, "-m", "mnemolog"]
    ran = subprocess.run(command, capture_output=True, text=True, env=asked, check=True)
    assert ran.stdout.split() == COMPLETED[line]


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
