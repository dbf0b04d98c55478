"""The command line as a person meets it: parse, call, print, exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain.events import SessionEnded, SessionStarted, SessionSwitched, ValueSet
from mnemolog.domain.session import session_stream
from mnemolog.domain.switching import agent_stream
from tests.e2e.conftest import Ran

pytestmark = pytest.mark.local

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


def test_the_list_of_sessions_names_the_parent_of_each_if_any_has_one(branched, run):
    """As a column beside the scope."""
    heading, _, *rows = run("sessions", branched).stdout.splitlines()
    assert heading.split()[:5] == ["session", "title", "scope", "agent", "parent"]
    assert "acme/sales" in rows[1]
    assert [row.split()[0] for row in rows if " trip-1 " in row] == ["b-1"]


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


def test_record_reads_standard_input_starts_a_session_and_repeats_safely(tmp_path, run):
    """What a shell script needs."""
    assert "there before" not in run("init", tmp_path / "m").stdout
    assert run("init", tmp_path / "m").stdout.startswith(f"store {tmp_path / 'm'}, there before, log ")
    arguments = ("record", tmp_path / "m", "notes", "-", "--start", "--scope", "me", "--key", "k", "--json")
    first, second = (json.loads(run(*arguments, stdin="from a pipe").stdout) for _ in range(2))
    assert first == second
    assert (first["text"], first["scope"]) == ("from a pipe", "me")


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


def test_the_sample_conversation_is_imported_and_answered_by_text(tmp_path, run):
    """Words suffice where an error has a code."""
    run("init", tmp_path / "m")
    assert run("import", tmp_path / "m", SAMPLE, "--no-vectors").returncode == 0
    answer = json.loads(run("recall", tmp_path / "m", "ERR_42", "--model", "none", "--json").stdout)
    assert "ERR_42" in answer["hits"][0]["text"]
    assert json.loads(run("status", tmp_path / "m", "--json").stdout)["turns"] >= 60


@pytest.mark.model
def test_the_real_model_answers_in_other_words_than_were_said(memory, run):
    """MiniLM, FAISS and SQLite together, through the command line."""
    answer = run("recall", memory, "what is the pet's name?", "--mode", "vector", "--json").json
    assert answer["hits"][0]["text"] == "The dog is called Nero."
    assert answer["vectors_cover"] == answer["head"]
    rebuilt = run("rebuild", memory, "all", "--json").json
    assert [report["built_turns"] for report in rebuilt] == [3, 3]
    assert rebuilt[1]["encoded_texts"] == 0


@pytest.mark.parametrize("options", [["none"], ["no-such-model"]])
def test_projecting_without_a_model_that_can_be_loaded_is_refused(memory, options, run):
    """One line and a hint; the turns are as they were."""
    ran = run("project", memory, "--model", *options)
    # Offline there is no such model; online it cannot be loaded.
    why = "without a model" if options[0] == "none" else "no model 'no-such-model'|cannot be loaded"
    assert re.search(why, refused(ran, 1 if options[0] == "none" else 2))
