"""The command line as a person meets it: help, hints, errors, exit codes, Ctrl-C.

The examples in the help of the commands run as they are printed, in a folder that has what they name. What somebody
sees who tries mnemolog for the first time, and makes the mistakes that one makes then.
"""

import inspect
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, connect, errors
from mnemolog.cli import every_command
from mnemolog.cli.app import COMMANDS, DONE_BY, MODULES, SAME_AS, loaded
from mnemolog.domain.events import AssertFact, SessionEnded, SessionStarted, SessionSwitched, TokenCreated, ValueSet
from mnemolog.domain.session import session_stream
from mnemolog.domain.switching import agent_stream
from mnemolog.infra.version import this_version
from mnemolog.operations.copies import BackupReport
from mnemolog.server.client import connection
from tests.e2e.conftest import Ran
from tests.integration.test_encoder import tiny_model
from tests.pages import ROOT, blocks, commands, run_block, run_command, shown_output

SAMPLE = Path(__file__).parents[2] / "examples" / "sample.jsonl"


def in_a_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MNEMOLOG")}
    command = [sys.executable, "-m", "mnemolog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def memory(folder):
    """A store with a few turns, closed."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip-1", title="trip", scope="acme/support/alice")
        for n, text in enumerate(("I moved to Lisbon in March.", "The dog is called Nero.", "ERR_42 came up again.")):
            session.record("user", text, key=f"t{n}")
    return folder


def refused(ran: Ran | subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that an error is, after checking that it is one, with a hint and no traceback."""
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == ""
    error, hint = ran.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error


READS = {
    "recall": ("recall", "where is the dog", "--model", "none"),
    "sessions": ("sessions",),
    "scopes": ("scopes",),
    "agents": ("agents",),
    "show": ("show", "trip"),
    "status": ("status",),
    "head": ("head",),
    "replay": ("replay", "--to", "3"),
    "show POSITION": ("show", "2"),
    "diff": ("diff", "1"),
    "verify": ("verify",),
    "rebuild --dry-run": ("rebuild", "views", "--dry-run"),
}


@pytest.mark.local
@pytest.mark.log_file
def test_every_read_gives_json_and_takes_the_store_from_the_environment(memory, run):
    """The same answer with the folder first and with MNEMOLOG_STORE."""
    for what, (command, *rest) in READS.items():
        named, ambient = run(command, memory, *rest, "--json").json, run(command, *rest, "--json", store=memory).json
        if what == "rebuild --dry-run":
            named[0].pop("seconds"), ambient[0].pop("seconds")
        assert named == ambient, what
        assert run(command, memory, *rest).stdout
    assert run("record", "trip", "more", store=memory).returncode == 0
    for option in ("-k", "--k", "--limit", "-n"):  # The names that people try.
        assert len(run("recall", memory, "the", "--model", "none", option, "1", "--json").json["hits"]) == 1


@pytest.fixture
def branched(memory):
    """The same store with a branch of the session, one of that branch, working memory and a switch."""
    with MemoryStore.open(memory, model=None) as store:
        first = SessionStarted(
            title="plan [b]", agent="ada", scope="acme/sales", parent="trip-1", branched_at=3, reason="branch"
        )
        second = SessionStarted(title="short", agent="ada", parent="b-1", branched_at=5, reason="compress")
        appended = [
            (session_stream("b-1"), first),
            (session_stream("b-1"), ValueSet(key="k", value=1)),
            (session_stream("c-1"), second),
            (session_stream("b-1"), SessionEnded()),
            (agent_stream("ada"), SessionSwitched(from_="b-1", to="c-1", reason="compress")),
        ]
        store.parts.log.appends.transact(lambda tx: [tx.append(stream, event) for stream, event in appended])
    return memory


@pytest.mark.local
def test_the_list_of_sessions_names_the_parent_of_each_if_any_has_one(branched, run):
    """As a column beside the scope."""
    heading, _, *rows = run("sessions", branched).stdout.splitlines()
    assert heading.split()[:5] == ["session", "title", "scope", "agent", "parent"]
    assert "acme/sales" in rows[1]
    assert [row.split()[0] for row in rows if " trip-1 " in row] == ["b-1"]


@pytest.mark.local
def test_events_beside_turns_disturb_no_command(branched, run):
    """Working memory and agents' streams are passed over, and replay tells where a branch comes from."""
    for command, *rest in READS.values():
        ran = run(command, branched, *rest)
        assert ran.returncode == 0, ran.stderr
    replayed = json.loads(run("replay", branched, "--json").stdout)
    assert [(s["parent"], s["branched_at"], s["reason"]) for s in replayed["sessions"]] == [
        (None, None, "new"),
        ("trip-1", 3, "branch"),
        ("b-1", 5, "compress"),
    ]
    assert "b-1 (plan [b]) in acme/sales, branched at 3 of trip-1" in run("replay", branched).stdout


@pytest.mark.local
def test_record_reads_standard_input_starts_a_session_and_repeats_safely(tmp_path, run):
    """What a shell script needs."""
    assert "there before" not in run("init", tmp_path / "m").stdout
    assert run("init", tmp_path / "m").stdout.startswith(f"store {tmp_path / 'm'}, there before, log ")
    arguments = ("record", tmp_path / "m", "notes", "-", "--start", "--scope", "me", "--key", "k", "--json")
    first, second = (json.loads(run(*arguments, stdin="from a pipe").stdout) for _ in range(2))
    assert first == second
    assert (first["text"], first["scope"]) == ("from a pipe", "me")


@pytest.mark.local
def test_errors_are_one_line_a_hint_and_the_exit_code_of_their_kind(memory, tmp_path, run):
    """No traceback, nothing on stdout."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("")
    assert "there is no store" in refused(run("status", tmp_path / "missing"), 1)
    assert "not a mnemolog store" in refused(run("status", tmp_path / "files"), 1)
    assert "there is no session 'nope'" in refused(run("show", memory, "nope"), 1)
    assert "scope" in refused(run("recall", memory, "q", "--scope", "/x", "--model", "none"), 2)
    assert "QUERY" in refused(run("recall", memory, "", "--model", "none"), 2)
    assert "--mode" in refused(run("recall", memory, "q", "--mode", "psychic", "--model", "none"), 2)
    assert "not in this log" in refused(run("replay", memory, "--to", "99"), 2)
    assert "POSITION:DIGEST" in refused(run("verify", memory, "--expect-head", "what"), 2)
    assert "JSON object" in refused(run("record", memory, "trip", "x", "--metadata", "[1]"), 2)
    assert "without a model" in refused(run("rebuild", memory, "vectors", "--model", "none"), 1)
    assert f"`mnemolog record {memory} nope x --start`" in run("record", memory, "nope", "x").stderr
    assert "at or below the scope 'no/such'" in refused(run("forget", memory, "--scope", "no/such"), 1)
    assert "there is no such file" in refused(run("verify", memory, "--heads", tmp_path / "missing"), 1)
    assert run("export", memory, tmp_path / "log.jsonl").returncode == 0
    assert "exists" in refused(run("export", memory, tmp_path / "log.jsonl"), 1)


@pytest.mark.local
@pytest.mark.log_file
def test_a_process_ends_with_the_codes_that_are_promised(memory, run):
    """0, 1, 2 and 3, and errors go to stderr, as a shell sees it."""
    noted = in_a_process("head", memory).stdout.strip()
    assert noted.startswith("4:")
    assert "there is no session 'nope'" in refused(in_a_process("show", memory, "nope"), 1)
    assert in_a_process("sing").returncode == 2
    outside = dbapi2.connect(str(memory / "log.db"))
    outside.executescript("DROP TRIGGER events_refuse_update; UPDATE events SET recorded_at = 1 WHERE position = 3")
    outside.close()
    ran = run("verify", memory, "--expect-head", noted, "--json")
    assert ran.returncode == 3
    assert {(f["kind"], f["position"]) for f in json.loads(ran.stdout)["findings"]} >= {("changed", 3)}
    assert "position 3" in run("verify", memory).stdout
    os.truncate(memory / "log.db", 5_000)
    assert "malformed" in refused(in_a_process("verify", memory), 3)


@pytest.mark.local
def test_the_sample_conversation_is_imported_and_answered_by_text(tmp_path, run):
    """Words suffice where an error has a code."""
    run("init", tmp_path / "m")
    assert run("import", tmp_path / "m", SAMPLE, "--no-vectors").returncode == 0
    answer = json.loads(run("recall", tmp_path / "m", "ERR_42", "--model", "none", "--json").stdout)
    assert "ERR_42" in answer["hits"][0]["text"]
    assert json.loads(run("status", tmp_path / "m", "--json").stdout)["turns"] >= 60


@pytest.mark.local
@pytest.mark.model
def test_the_real_model_answers_in_other_words_than_were_said(memory, run):
    """MiniLM, FAISS and SQLite together, through the command line."""
    answer = run("recall", memory, "what is the pet's name?", "--mode", "vector", "--json").json
    assert answer["hits"][0]["text"] == "The dog is called Nero."
    assert answer["vectors_cover"] == answer["head"]
    rebuilt = run("rebuild", memory, "all", "--json").json
    assert [report["built_turns"] for report in rebuilt] == [3, 3]
    assert rebuilt[1]["encoded_texts"] == 0


@pytest.mark.local
@pytest.mark.parametrize("options", [["none"], ["no-such-model"]])
def test_projecting_without_a_model_that_can_be_loaded_is_refused(memory, options, run):
    """One line and a hint; the turns are as they were."""
    ran = run("project", memory, "--model", *options)
    # Offline there is no such model; online it cannot be loaded.
    why = "without a model" if options[0] == "none" else "no model 'no-such-model'|cannot be loaded"
    assert re.search(why, refused(ran, 1 if options[0] == "none" else 2))


@pytest.fixture
def two_sessions(folder):
    """A store with two sessions, closed."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip-1", scope="acme/alice").record("user", "My dog is called Rex.")
        store.start_session("a:b-2", scope="acme/bob", agent="ada").record("user", "Tea, please.")
    return folder


def callback_of(name):
    """The function of a command, such as `checkpoint create`."""
    group, _, subcommand = name.partition(" ")
    return (loaded(group).commands[subcommand] if subcommand else loaded(group)).callback


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_every_command_has_help_with_an_example_that_can_be_copied(run, monkeypatch):
    """Each example is on one line, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    for name in every_command():
        shown = run(*name.split(), "--help").stdout
        assert re.search(rf"^  Example: .*mnemolog {name}\b", shown, re.M), name
        examples = re.findall(r"Example: (.*)", inspect.getsource(callback_of(name)))
        assert [line for line in examples if f"  Example: {line}\n" not in shown] == []


@pytest.mark.local
@pytest.mark.parametrize("word", SAME_AS)
def test_other_words_for_reading_run_the_command(word, run):
    """`search`, `ls`, `stats`, `timeline`."""
    assert SAME_AS[word] in MODULES
    assert run(word, "-h").stdout == run(SAME_AS[word], "-h").stdout


@pytest.mark.local
@pytest.mark.parametrize("word", DONE_BY)
def test_other_words_for_writing_name_the_command_that_does_it(word, run):
    """`delete` explains `forget`, and runs nothing."""
    ran = run(word, "memory", "trip")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: there is no command '{word}'\nhint: ")
    for named in re.findall(r"`mnemolog ([^`]+)`", ran.stderr):
        assert run(*[part for part in named.split() if not part.startswith("-")], "-h").returncode == 0


@pytest.mark.local
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


@pytest.mark.local
def test_an_error_is_json_where_json_was_asked_for(two_sessions, run):
    """One line on stdout with class, text, hint and fields; the same words on stderr, the same exit status."""
    ran = run("show", two_sessions, "nope", "--json")
    (line,) = ran.stdout.splitlines()
    error = json.loads(line)["error"]
    assert ran.returncode == 1
    assert (error["type"], error["session"]) == ("UnknownSession", "nope")
    assert ran.stderr == f"error: {error['message']}\nhint: {error['hint']}\n"
    used = run("recall", two_sessions, "--k", "x", "--json")
    assert used.returncode == 2
    assert json.loads(used.stdout)["error"]["type"] == "UsageError"
    assert "'x'" in json.loads(used.stdout)["error"]["message"]
    assert json.loads(run("sing", "--json").stdout)["error"]["type"] == "Refused"


@pytest.mark.local
def test_hints_are_commands_with_the_arguments_that_were_given(two_sessions, tmp_path, run):
    """They can be copied. An error of a command that only looked does not say that nothing was written."""
    for words, status in (
        (("show", two_sessions, "nope"), 1),
        (("replay", two_sessions, "--to", "99"), 2),
        (("recall", two_sessions, ""), 2),
    ):
        ran = run(*words)
        assert (ran.returncode, "nothing was" in ran.stderr) == (status, False)
    missing = tmp_path / "none.jsonl"
    heads = run("verify", two_sessions, "--heads", missing).stderr
    assert f"error: {missing}: there is no such file" in heads
    assert f"`mnemolog head {two_sessions} --append {missing}` creates a file of heads" in heads
    rebuilt = run("rebuild", two_sessions, "vectors", "--model", "none").stderr
    assert f"`mnemolog rebuild {two_sessions} vectors --model all-" in rebuilt
    assert (
        f"`mnemolog doctor {two_sessions} --model none`"
        in run("doctor", two_sessions, "--model", "no-such-model").stdout
    )
    assert "the closest ids are 'trip-1'" in run("show", two_sessions, "trp-1").stderr
    assert f"`mnemolog sessions {two_sessions}` lists" in run("show", two_sessions, "nope").stderr
    assert (
        f"`mnemolog record {two_sessions} nope hello --start` starts"
        in run("record", two_sessions, "nope", "hello").stderr
    )
    assert (
        f"`mnemolog checkpoint list {two_sessions} trip-1`"
        in run("checkpoint", "restore", two_sessions, "trip-1", "x").stderr
    )
    assert f"`mnemolog init {two_sessions}-2`" in run("status", f"{two_sessions}-2").stderr
    assert f"`mnemolog memory list {two_sessions} trip-1`" in run("memory", "get", two_sessions, "trip-1", "x").stderr
    assert "--metadata" in run("record", two_sessions, "trip-1", "x", "--metadata", "[1]").stderr
    assert "'--since': " in run("recall", two_sessions, "x", "--since", "nonsense", "--model", "none").stderr


@pytest.mark.local
def test_a_missing_folder_argument_is_named_in_the_error(two_sessions, run, here):
    """Also where the first word is taken for the folder."""
    for words, also in ((("status",), ""), (("recall", "dog"), "there is no folder 'dog'")):
        ran = run(*words)
        assert ran.returncode == 2
        assert "hint: the first argument is the folder of the store; or set MNEMOLOG_STORE to it" in ran.stderr
        assert also in ran.stderr


@pytest.mark.local
def test_an_error_names_the_variable_that_gave_a_wrong_value(two_sessions, run, monkeypatch):
    """A model, a switch, the level of the log, the store."""
    assert "missing (from MNEMOLOG_STORE)\n" in run("recall", "dog", store=two_sessions.parent / "missing").stderr
    wrong = {
        "MNEMOLOG_MODEL": ("project", two_sessions),
        "MNEMOLOG_RECEIPTS": ("recall", two_sessions, "dog", "--model", "none"),
        "MNEMOLOG_LOG": ("status", two_sessions),
    }
    for variable, words in wrong.items():
        with monkeypatch.context() as only_here:
            only_here.setenv(variable, "/no such thing")
            ran = run(*words)
        assert ran.returncode in (1, 2)
        assert variable in ran.stderr.splitlines()[0]


@pytest.mark.local
def test_a_folder_that_is_given_wins_over_the_environment(two_sessions, tmp_path, run):
    """Also one that does not exist yet."""
    assert run("init", tmp_path / "new", store=two_sessions).returncode == 0
    assert f"there is no store at {tmp_path / 'typo'}\n" in run("status", tmp_path / "typo", store=two_sessions).stderr
    assert run("show", "trip-1", store=two_sessions).returncode == 0


COMPLETED = {
    "mnemolog reb": ["rebuild"],
    "mnemolog checkpoint cr": ["create"],
    "mnemolog recall memory dog --lin": ["--lineage"],
    "mnemolog switch memory --reason co": ["compress"],
}


@pytest.mark.local
@pytest.mark.parametrize("line", COMPLETED)
def test_tab_completes_commands_options_and_their_values(line):
    """Asked as bash asks."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    asked = {**os.environ, **words, "_MNEMOLOG_COMPLETE": "complete_bash", "_TYPER_COMPLETE_ARGS": line}
    command = [sys.executable, "-m", "mnemolog"]
    ran = subprocess.run(command, capture_output=True, text=True, env=asked, check=True)
    assert ran.stdout.split() == COMPLETED[line]


@pytest.mark.local
def test_help_and_errors_take_no_time(two_sessions):
    """They import no command but the one that is asked about."""
    script = (
        "import sys; from mnemolog.cli import main\ntry: main()\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    )
    for words in (["--help"], ["help"], ["sing"], ["delete"], ["--version"]):
        ran = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        loaded = ran.stderr.splitlines()[-1]
        assert "'rich'" not in loaded
        assert "'mnemolog.store'" not in loaded


def interrupted(function: str, n: int, *arguments: object) -> str:
    """The line that a command prints when Ctrl-C arrives at the nth call of a function."""
    command = [sys.executable, "-m", "tests.children.command_line", function, str(n), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (130, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("interrupted: ")
    assert f"`mnemolog {' '.join(map(str, arguments))}`" in line
    return line


@pytest.fixture
def hundred_lines(folder):
    """A store with some turns, closed."""
    with MemoryStore.open(folder, model=None) as store:
        for n in range(100):
            store.session("trip").record("user", f"line {n} about tea", key=str(n))
    return folder


@pytest.fixture
def conversation(tmp_path):
    """A file of 2,000 turns."""
    file = tmp_path / "turns.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"session": "s", "role": "user", "text": f"line {n}", "key": str(n)}) for n in range(2_000)
        )
    )
    return file


@pytest.mark.local
def test_an_interrupted_import_says_how_much_is_recorded_and_continues(hundred_lines, conversation, run):
    """The same command, run again, records the rest."""
    line = interrupted("record_batch", 3, "import", hundred_lines, conversation, "--no-vectors")
    with MemoryStore.open(hundred_lines, model=None, background=False) as store:
        recorded = store.head().position - 101
    assert recorded == 1_001  # With the start of the session.
    assert "interrupted: 1,000 turns recorded; to continue, run the same command again: " in line
    (again,) = re.findall(r"`mnemolog (.*)`", line)
    report = run(*again.split(), "--json").json
    assert (report["recorded"], report["already_there"]) == (1_000, 1_000)


INTERRUPTED = {
    "verify": ("walk", 1, "nothing was changed"),
    "backup": ("_copy", 1, "no backup was made"),
    "export": ("export_lines", 1, "no file was written"),
    "replay": ("replay", 1, "to continue"),
    "copy": ("verify_copy", 1, "copying stopped at 101 of 101 events; events that were copied stay"),
    "sessions": ("do_executemany", 1, "to continue"),  # While SQLAlchemy waits for SQLite, which brings the views up.
}


@pytest.mark.local
@pytest.mark.log_file
@pytest.mark.parametrize("command", INTERRUPTED)
def test_an_interrupted_command_says_what_was_kept(command, hundred_lines, tmp_path):
    """And leaves nothing half made."""
    function, n, kept = INTERRUPTED[command]
    target = [tmp_path / "target"] if command in ("backup", "export", "copy") else []
    assert kept in interrupted(function, n, command, hundred_lines, *target)
    assert (tmp_path / "target").exists() is (command == "copy")
    with MemoryStore.open(hundred_lines, model=None, create=False, background=False) as store:
        assert store.verify().sound


@pytest.mark.local
@pytest.mark.model
@pytest.mark.parametrize("command", ["project", "rebuild", "recall"])
def test_an_interrupted_command_with_a_model_says_what_was_kept(command, hundred_lines, tmp_path, run):
    """While the model embeds; the next try succeeds."""
    model = tiny_model(tmp_path / "model")
    words = (command, hundred_lines, *(["vectors"] if command == "rebuild" else ["tea"] if command == "recall" else []))
    assert "kept" in interrupted("_encode_batch", 1, *words, "--model", model)
    assert run(*words, "--model", model).returncode == 0


@pytest.mark.local
def test_an_interrupt_is_json_too(hundred_lines):
    """For programs."""
    command = [sys.executable, "-m", "tests.children.command_line", "walk", "1", "verify", str(hundred_lines), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert json.loads(ran.stdout)["error"]["type"] == "Interrupted"


NEED_MORE = {
    **dict.fromkeys(("model add", "model activate", "model drop"), "they need a model of the hub"),
    **dict.fromkeys(("project", "mcp", "serve", "watch"), "they run until they are stopped"),
    "hermes install": "it needs Hermes",
    'mnemolog backup memory/ /backups/daily --replace --after-backup "rclone sync /backups offsite:backups"': (
        "it needs rclone"
    ),
    "mnemolog doctor memory/ --accept-loss": "it needs a log that has lost events",
}
HELD, PROPOSED = 10, 11
"""The positions of the hold that an example lifts, and of the proposal that another approves."""
ABSOLUTE = ("/mnt/elsewhere", "/backups", "/safe")


def examples():
    """Every example of every command, without what a shell would do with the output."""
    for name in every_command():
        group, _, subcommand = name.partition(" ")
        command = loaded(group)
        shown = (command.commands[subcommand] if subcommand else command).help
        for line in re.findall(r"Example: (.*)", shown):
            why = NEED_MORE.get(line.partition(" --actor")[0]) or NEED_MORE.get(name)
            marks = [pytest.mark.skip(reason=why)] if why else []
            yield pytest.param(line, id=line, marks=marks)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a store, a backup, transcripts and folders elsewhere."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ABSOLUTE:
        (folder / name[1:]).mkdir(parents=True)
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good morning"}]
    (folder / "conversations.json").write_text(json.dumps([{"messages": said}]))
    (folder / "chats.csv").write_text("role,body,room,date,clock\nuser,hello,r,2026-03-16,12:00\n")
    with MemoryStore.open(folder / "memory", model=None, audit_reads=folder / "reads.jsonl") as store:
        trip = store.session("trip", scope="acme/support/alice", agent="assistant")
        for text in ("I moved to Lisbon in March.", "Take the ferry.", "Or the train."):
            trip.record("user", text, speaker="Ada")
        trip.set("budget", {"eur": 900})
        trip.set_task("book")
        trip.checkpoint("before-booking")
        store.switch("trip", reason="resume", agent="assistant")
        seen = [{"role": turn.role, "text": turn.text} for turn in trip.turns()]
        (folder / "transcript.json").write_text(json.dumps([*seen, {"role": "user", "text": "One more."}]))
        report: BackupReport = store.backup(folder / "backups" / "2026-11-21", keys=folder / "safe" / "keys")
        assert report.head == store.head().position
        (folder / "questions.jsonl").write_text('{"question": "Where did I move?", "evidence": [2]}')
        store.audit.export(folder / "exported.jsonl")
        store.audit.append_head(folder / "mnt" / "elsewhere" / "heads.jsonl")
        (folder / "mnt" / "elsewhere" / "mnemolog.key").write_text("00" * 32)
        assert len(store.recall("Lisbon, ferry or train?", receipt=True)) == 3
        assert store.admin.hold("elsewhere", reason="case 4711").position == HELD
        assert store.propose(AssertFact("user/city", "Lisbon")).position == PROPOSED
        token = TokenCreated(id="0a1b2c3d4e5f", acts_as="alice", verbs=["read"], digest=bytes(32))
        store.parts.log.appends.transact(lambda tx: tx.append("tokens", token))
    return folder


@pytest.mark.parametrize("line", list(examples()))
def test_an_example_of_the_help_runs(line, prepared, tmp_path, monkeypatch, run):
    """Copied as it is; only folders at the root of the file system are moved."""
    here = tmp_path / "here"
    shutil.copytree(prepared, here)
    monkeypatch.chdir(here)
    command, *arguments = shlex.split(line.partition(" > ")[0])
    assert command == "mnemolog"
    if arguments[0] in ("init", "restore"):
        shutil.rmtree("memory")
    if arguments[0] == "backup":
        shutil.rmtree("backups")
        (here / "backups").mkdir()
    if arguments[:2] == ["checkpoint", "create"]:
        run("checkpoint", "delete", "memory", "trip", "before-booking")
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("MNEMOLOG_KEY_FILE", "")  # Which an example may set: it is undone.
    moved = [f".{argument}" if argument.startswith(ABSOLUTE) else argument for argument in arguments]
    without_model = ["--model", "none"] if arguments[0] in ("recall", "rebuild", "audit") else []
    if arguments[0] == "rebuild":
        moved, without_model = [word.replace("vectors", "views") for word in moved], []
    run(*moved, *without_model).exited()


DATA = ROOT / "tests" / "integration" / "data"
NO_MODEL = ("--model", "none")


@pytest.mark.local
def test_the_commands_and_the_script_of_the_readme_fit_together(tmp_path, capsys, here):
    """One after the other in one folder: the script twice, which then prints the same, and the commands."""
    (line,) = blocks("README.md")
    for _ in range(2):
        run_block("README.md", line)
        assert capsys.readouterr().out == shown_output("README.md") != ""
    for command, _ in commands("README.md"):
        if command.startswith("mnemolog"):
            run_command(command, tmp_path)


@pytest.mark.local
def test_a_first_record_makes_store_and_session_and_names_the_folder(tmp_path, run):
    """Only with --start, and only with arguments that can be read."""
    folder = tmp_path / "memory"
    assert run("record", folder, "trip", "tea").returncode == 1
    assert run("record", folder, "trip", "tea", "--start", "--metadata", "[]").returncode == 2
    assert not folder.exists()
    assert run("record", folder, "trip", "tea", "--start").stderr == f"note: created the store {folder}\n"
    assert run("record", folder, "trip", "coffee", "--start").stderr == ""


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.parametrize("command", [["keys", "--wrap"], ["checkpoint", "list", "trip"]])
def test_an_option_of_all_commands_behind_one_is_told_where_it_stands(folder, run, command):
    """Such as `--key-file`, which a person looks for at the command that wraps keys."""
    told = run(*command, folder, "--key-file", "file.key").exited(2).stderr
    words = " ".join(word for word in command if word not in ("--wrap", "trip"))
    assert f"`mnemolog --key-file … {words} …`" in told


@pytest.mark.local
@pytest.mark.parametrize("command", ["recall", "context", "import"])
def test_a_model_that_does_not_exist_is_wrong_usage_and_writes_nothing(folder, run, command):
    """The default model may be missing: everything else works without it."""
    ran = run(command, folder, DATA / "importing" / "turns.jsonl", "--model", "bge")
    assert (ran.returncode, ran.stdout, folder.exists()) == (2, "", False)
    assert ran.stderr.startswith("error: no model 'bge' on this machine; installed: ")


@pytest.mark.local
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
