"""What commands print: stored text that cannot steer a terminal, long turns, tables, counts."""

from __future__ import annotations

import re

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import log_of
from mnemolog.cli import every_command
from mnemolog.domain import events
from mnemolog.domain.agent import agent_stream
from mnemolog.domain.session import session_stream

EVIL = "\x1b]0;owned\x07\x1b[2Jwipe\r\n2. @99 forged\n@99 forged\x9b2J\u202egpj\u2066\u2028tab\tend\x7f"
"""Sets the title, clears the screen, begins a line that looks like the next hit, reverses what follows."""
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
FORGED = re.compile(r" {0,3}(2\. )?@99")
"""Continued lines are indented by more."""

READS = {
    "sessions": ["sessions"],
    "sessions --tree": ["sessions", "--tree"],
    "status": ["status"],
    "head": ["head"],
    "recall": ["recall", "forged", "--mode", "text", "--model", "none", "--context-turns", "1"],
    "find": ["find", "forged"],
    "find --full": ["find", "forged", "--full"],
    "show": ["show", "evil"],
    "show --hidden": ["show", "evil", "--hidden"],
    "show --at": ["show", "evil", "--at", "{head}"],
    "show --full": ["show", "evil", "--full"],
    "replay": ["replay"],
    "replay --jsonl": ["replay", "--jsonl"],
    "replay --full": ["replay", "--full"],
    "diff": ["diff", "0"],
    "verify": ["verify"],
    "doctor": ["doctor", "--deep"],
    "quarantine list": ["quarantine", "list"],
    "quarantine purge": ["quarantine", "purge", "--all", "--dry-run"],
    "memory list": ["memory", "list", "evil"],
    "memory get": ["memory", "get", "evil", "key"],
    "task": ["task", "evil"],
    "notes": ["notes", "evil"],
    "checkpoint list": ["checkpoint", "list", "evil"],
    "checkpoint restore": ["checkpoint", "restore", "evil", "c-1", "--dry-run"],
    "current": ["current"],
    "switch": ["switch", "--reason", "resume", "--from", "evil", "--to", "plain", "--agent", "agent", "--dry-run"],
    "rewind": ["rewind", "evil", "--turns", "1", "--dry-run"],
    "forget": ["forget", "--session", "evil", "--dry-run"],
    "forgotten": ["forgotten"],
    "forgotten --erasures": ["forgotten", "--erasures"],
    "model list": ["model", "list"],
    "audit recalls": ["audit", "recalls", "--model", "none"],
    "rebuild": ["rebuild", "views", "--dry-run", "--model", "none"],
}
"""Commands that print what was stored. `{head}` is the last position."""
PRINT_NOTHING_STORED = {
    *("init", "record", "import", "project", "export", "backup", "restore", "reconcile", "watch", "mcp"),
    "completion",
    *("branch", "memory set", "memory delete", "checkpoint create", "checkpoint delete"),
    *("model add", "model activate", "model drop", "hermes install"),
}
"""They print what they were just given, a summary, or an export."""


@pytest.fixture
def evil(folder):
    """A store whose every text holds escapes, also where this release would refuse to write them."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("plain", scope="team")
        store.record("plain", "user", "forged passports", key="k")
        session, agent = session_stream("evil"), agent_stream("agent")
        appended = [
            (session, events.SessionStarted(title=EVIL, agent=EVIL, scope=f"team/{EVIL}", reason=EVIL)),
            (session, events.TurnRecorded(role="user", text=EVIL, speaker=EVIL, metadata={EVIL: EVIL})),
            (session, events.TurnRecorded(role="user", text=f"forged {EVIL}", tool_calls=[{"name": EVIL}])),
            (session, events.ValueSet(key="key", value=EVIL)),
            (session, events.ValueSet(key=EVIL, value={EVIL: EVIL})),
            (session, events.TaskChanged(description=EVIL, status=EVIL)),
            (session, events.NoteAdded(text=EVIL)),
            (session, events.CheckpointCreated(id="c-1", name=EVIL, description=EVIL)),
            (session, events.NoteAdded(text=f"later {EVIL}")),
            (session, events.TurnRecorded(role="user", text=EVIL)),
            (agent, events.SessionSwitched(from_="plain", to="evil", reason=EVIL)),
            (session_stream("branch"), events.SessionStarted(title=EVIL, agent="agent", parent="evil", branched_at=6)),
            (agent_stream("models"), events.ModelActivated(fingerprint="0f" * 32, model=EVIL, dimension=4)),
        ]
        log_of(store).transact(lambda tx: [tx.append(stream, event) for stream, event in appended])
        store.recall(f"forged {EVIL}", mode="text", receipt=True)
        store.forget(positions=[2], reason="a reason")
    return folder


def of(evil, what):
    """The arguments of a read of that store."""
    with MemoryStore.open(evil, model=None) as store:
        head = store.head().position
    command, *rest = (argument.format(head=head) for argument in READS[what])
    groups = {"quarantine", "memory", "checkpoint", "model", "audit"}
    return [command, rest[0], evil, *rest[1:]] if command in groups else [command, evil, *rest]


def test_every_command_that_reads_is_tried_below():
    """A new command cannot be forgotten here."""
    leaves = set(every_command())
    tried = {" ".join(w for w in what.split() if not w.startswith("-")) for what in READS}
    assert leaves == tried | PRINT_NOTHING_STORED


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["plain", "json"])
@pytest.mark.parametrize("what", READS)
def test_what_was_stored_cannot_steer_the_terminal(evil, run, terminal, what, extra):
    """No control character but the line feed reaches a pipe or a terminal, and no text begins a line of its own."""
    if extra and what in ("replay --jsonl", "forgotten --erasures"):
        pytest.skip("it is JSON already")
    arguments = [*of(evil, what), *extra]
    piped, drawn = run(*arguments), terminal(*arguments)
    assert piped.stdout
    for shown in (piped.stdout, piped.stderr, drawn.stdout):
        assert "Traceback" not in shown
        assert not STEERING.search(shown), STEERING.search(shown)
        if what != "memory get":  # It prints one value and nothing else.
            assert not [line for line in shown.splitlines() if FORGED.match(line)]


def test_json_of_such_texts_is_exact(evil, run):
    """Escapes in JSON mean the characters themselves."""
    assert [turn["text"] for turn in run("show", evil, "evil", "--json").json] == [EVIL, f"forged {EVIL}", EVIL]
    assert run("memory", "get", evil, "evil", "key", "--json").json == EVIL


def test_an_error_cannot_steer_the_terminal_either(evil, run):
    """It may quote what was typed or stored."""
    ran = run("show", evil, "no\x1b]0;owned\x07\n")
    assert ran.returncode == 1
    assert not STEERING.search(ran.stderr)
    assert len(ran.stderr.splitlines()) == 2


def test_a_padded_text_cannot_begin_a_line_where_the_terminal_continues_it(folder, terminal):
    """Spaces up to the edge of the terminal, then what looks like the next turn."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", " " * 41 + "2. @99 2026-01-01 forged " * 3, key="k")
    for arguments in (["show", folder, "s"], ["recall", folder, "forged", "--mode", "text"], ["replay", folder]):
        lines = terminal(*arguments).stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if FORGED.match(line)]


LONG = "The meeting notes. " + "blah " * 2_470
PRINT_TURNS = {
    "show": ["show", "s"],
    "show --at": ["show", "s", "--at", "2"],
    "show POSITION": ["show", "2"],
    "recall": ["recall", "meeting", "--model", "none"],
    "replay": ["replay"],
    "diff": ["diff", "0"],
    "notes": ["notes", "s"],
}


@pytest.mark.parametrize("what", PRINT_TURNS)
def test_a_long_turn_is_cut_unless_it_is_asked_for(folder, run, what):
    """A turn of a megabyte does not fill the terminal; JSON has all of it."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        session.record("user", LONG, key="k")
        session.note(LONG)
    command, *rest = PRINT_TURNS[what]
    cut = run(command, folder, *rest).stdout
    assert len(cut) < 2_500
    assert "The meeting notes. blah" in cut
    assert "…" in cut
    if what not in ("replay", "diff"):  # They print a line for each event.
        assert "… +11,969 characters, --full shows them" in cut
    assert " ".join(LONG.split()) in " ".join(run(command, folder, *rest, "--full").stdout.split())
    assert LONG[:-1] in run(command, folder, *rest, "--json").stdout


def test_the_lines_of_a_turn_stay_apart_from_those_of_the_answer(folder, run):
    """Its line breaks are kept, and a margin shows what belongs to it."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "a list:\n- tea\n- bread", key="k")
    first, second, third = run("show", folder, "s").stdout.splitlines()
    assert first.endswith("user: a list:")
    assert (second, third) == ("    │ - tea", "    │ - bread")
    hit = run("recall", folder, "tea", "--model", "none").stdout.splitlines()
    assert hit[1:4] == ["   │ a list:", "   │ - tea", "   │ - bread"]


def test_a_text_with_markup_or_emoji_names_is_printed_as_it_is(folder, run):
    """Neither is for the terminal to interpret."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "[bold]my[/bold] :dog: [x]", key="k")
    for arguments in (["show", folder, "s"], ["recall", folder, "dog", "--model", "none"], ["replay", folder]):
        assert "[bold]my[/bold] :dog: [x]" in run(*arguments).stdout
