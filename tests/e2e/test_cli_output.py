"""What the command line draws: stored text that steers nothing, tables, and how far the work is."""

import json
import re

import pytest

from mnemolog import MemoryStore
from mnemolog.cli import every_command
from mnemolog.cli.command import bar, phases
from mnemolog.domain import events
from mnemolog.domain.choices import LANGUAGE_STREAM
from mnemolog.domain.display import Bytes
from mnemolog.domain.events import AssertFact
from mnemolog.domain.session import session_stream
from mnemolog.domain.switching import agent_stream
from mnemolog.projections.sql import database
from mnemolog.projections.sql.conversation_views import Views
from tests.support import HashEncoder, wait_until

pytestmark = pytest.mark.local


EVIL = "\x1b]0;owned\x07\x1b[2Jwipe\r\n2. @99 forged\n@99 forged\x9b2J\u202egpj\u2066\u2028tab\tend\x7f"
"""Sets the title, clears the screen, begins a line that looks like the next hit, reverses what follows."""
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
FORGED = re.compile(r" {0,3}(2\. )?@99")
"""Continued lines are indented by more."""
READS = {
    "sessions": ["sessions"],
    "scopes": ["scopes"],
    "agents": ["agents"],
    "retention --list": ["retention", "--list"],
    "status": ["status"],
    "nodes": ["nodes"],
    "keys": ["keys"],
    "head": ["head"],
    "recall": ["recall", "forged", "--mode", "text", "--model", "none", "--context-turns", "1"],
    "recall --explain": ["recall", "forged", "--mode", "text", "--model", "none", "--explain"],
    "context": ["context", "forged", "--mode", "text", "--model", "none", "--session", "evil"],
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
    "quarantine purge": ["quarantine", "purge", "--dry-run"],
    "memory list": ["memory", "list", "evil"],
    "memory get": ["memory", "get", "evil", "key"],
    "facts": ["facts"],
    "standing": ["standing", "--model", "none"],
    "facts --history": ["facts", "--history", "key"],
    "retract": ["retract", "--maker", "none"],
    "task": ["task", "evil"],
    "notes": ["notes", "evil"],
    "checkpoint list": ["checkpoint", "list", "evil"],
    "checkpoint restore": ["checkpoint", "restore", "evil", "c-1", "--dry-run"],
    "current": ["current"],
    "switch": ["switch", "--reason", "resume", "--from", "evil", "--to", "plain", "--agent", "agent", "--dry-run"],
    "rewind": ["rewind", "evil", "--turns", "1", "--dry-run"],
    "forget": ["forget", "--session", "evil", "--dry-run"],
    "forgotten": ["forgotten"],
    "forgotten --pending": ["forgotten", "--pending"],
    "forgotten --erasures": ["forgotten", "--erasures"],
    "proposals": ["proposals", "--state", "all"],
    "decline": ["decline", "{proposal}", "--reason", "none", "--dry-run"],
    "effects": ["effects", "4"],
    "distrust": ["distrust", "--maker", "none", "--reason", "none", "--yes"],
    "distrusted": ["distrusted"],
    "model list": ["model", "list"],
    "token list": ["token", "list"],
    "language": ["language"],
    "redaction": ["redaction"],
    "scan-secrets": ["scan-secrets"],
    "judge": ["judge", "{receipt}", "--nothing"],
    "audit": ["audit", "--model", "none"],
    "rebuild": ["rebuild", "views", "--dry-run", "--model", "none"],
}
"""Commands that print what was stored. `{head}` is the last position, `{receipt}` that of a receipt."""
PRINT_NOTHING_STORED = {
    *("init", "record", "import", "project", "export", "subject", "backup", "restore", "copy"),
    *("watch", "mcp", "serve", "reads", "hermes install", "branch", "memory set", "memory delete", "assert"),
    *("checkpoint create", "checkpoint delete", "token create", "token rotate", "token revoke"),
    *("propose", "approve", "set-retention", "hold", "lift-hold"),
    *("model add", "model activate", "model drop"),
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
            ("facts/", events.FactAsserted(key="key", value=EVIL, maker=EVIL)),
            ("facts/", events.FactAsserted(key=EVIL, value={EVIL: EVIL})),
            (session, events.NoteAdded(text=EVIL)),
            ("distrust", events.SourceDistrusted(turns=[4], sessions=[EVIL], maker=EVIL, reason=EVIL, actor=EVIL)),
            (session, events.CheckpointCreated(id="c-1", name=EVIL, description=EVIL)),
            ("proposals/", events.ProposalMade(act=AssertFact(EVIL, EVIL), why=EVIL, actor=EVIL)),
            (session, events.NoteAdded(text=f"later {EVIL}")),
            (session, events.TurnRecorded(role="user", text=EVIL)),
            (agent, events.SessionSwitched(from_="plain", to="evil", reason=EVIL)),
            (session_stream("branch"), events.SessionStarted(title=EVIL, agent="agent", parent="evil", branched_at=6)),
            (agent_stream("models"), events.ModelActivated(fingerprint="0f" * 32, model=EVIL, dimension=4)),
            (LANGUAGE_STREAM, events.LanguageChosen(language=EVIL)),
            (
                "tokens",
                events.TokenCreated(id=EVIL, acts_as=EVIL, verbs=["read", EVIL], scopes=["a"], digest=bytes(32)),
            ),
        ]
        store.parts.log.appends.transact(lambda tx: [tx.append(stream, event) for stream, event in appended])
        store.forget(positions=[2], reason="a reason")
        answer = store.recall(f"forged {EVIL}", mode="text", receipt=True)
        judged = events.RecallJudged(receipt=answer.receipt, good=[answer.hits[0].position], by=EVIL)
        store.parts.log.appends.transact(lambda tx: tx.append("recalls", judged))
    return folder


def inserted(arguments, folder):
    """A command line with the folder of the store in its place: after the command, or its subcommand."""
    place = 1 + (arguments[0] in {"quarantine", "memory", "checkpoint", "model", "token"})
    return [*arguments[:place], folder, *arguments[place:]]


def test_every_command_that_reads_is_tried_below():
    """A new command cannot be forgotten here."""
    leaves = set(every_command())
    tried = {" ".join(w for w in what.split() if not w.startswith("-")) for what in READS}
    assert leaves == tried | PRINT_NOTHING_STORED


def test_what_was_stored_cannot_steer_the_terminal(evil, run, terminal):
    """No control character but the line feed reaches a pipe or a terminal, and no text begins a line of its own.

    In JSON, escapes mean the characters themselves. An error may quote what was typed.
    """
    with MemoryStore.open(evil, model=None) as store:
        places = {"head": store.head().position, "receipt": store.audit.judgements()[0].receipt}
        places["proposal"] = store.proposals()[0].position
    for what, words in READS.items():
        for extra in [[]] if what in ("replay --jsonl", "forgotten --erasures") else [[], ["--json"]]:
            arguments = [*inserted([word.format(**places) for word in words], evil), *extra]
            piped, drawn = run(*arguments), terminal(*arguments)
            assert piped.stdout, what
            for shown in (piped.stdout, piped.stderr, drawn.stdout):
                assert "Traceback" not in shown
                assert not STEERING.search(shown), (what, extra, STEERING.search(shown))
                if what != "memory get":  # It prints one value and nothing else.
                    assert not [line for line in shown.splitlines() if FORGED.match(line)], (what, extra)
    assert [turn["text"] for turn in run("show", evil, "evil", "--json").json] == [EVIL, f"forged {EVIL}", EVIL]
    assert run("memory", "get", evil, "evil", "key", "--json").json == EVIL
    refused = run("show", evil, "no\x1b]0;owned\x07\n")
    assert refused.returncode == 2
    assert not STEERING.search(refused.stderr)
    assert len(refused.stderr.splitlines()) == 2


def test_a_padded_text_cannot_begin_a_line_where_the_terminal_continues_it(folder, terminal):
    """Spaces up to the edge of the terminal, then what looks like the next turn."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", " " * 41 + "2. @99 2026-01-01 forged " * 3, key="k")
    for arguments in (["show", folder, "s"], ["recall", folder, "forged", "--mode", "text"], ["replay", folder]):
        lines = terminal(*arguments).stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if FORGED.match(line)]


LONG = "The meeting notes. " + "blah " * 760
PRINT_TURNS = {
    "show": ["show", "s"],
    "show --at": ["show", "s", "--at", "2"],
    "show POSITION": ["show", "2"],
    "recall": ["recall", "meeting", "--model", "none"],
    "replay": ["replay"],
    "diff": ["diff", "0"],
    "notes": ["notes", "s"],
    "memory list": ["memory", "list", "s"],
    "task": ["task", "s"],
    "checkpoint list": ["checkpoint", "list", "s"],
}


def test_a_long_turn_is_cut_unless_requested_whole(folder, run):
    """It does not fill the terminal; JSON has all of it."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        session.record("user", LONG, key="k")
        session.note(LONG)
        session.set("key", LONG)
        session.set_task(LONG)
        session.checkpoint("point", LONG)
    for what, words in PRINT_TURNS.items():
        arguments = inserted(words, folder)
        cut = run(*arguments).stdout
        assert len(cut) < 3_000, what
        assert "The meeting notes. blah" in cut, what
        assert "…" in cut, what
        if what not in ("replay", "diff"):  # They print a line for each event.
            assert re.search(r"… \+3,[34]\d\d characters, --full shows them", cut), what
        assert " ".join(LONG.split()) in " ".join(run(*arguments, "--full").stdout.split()), what
        assert LONG[:-1] in run(*arguments, "--json").stdout, what


def test_a_text_is_printed_as_it_is_with_a_margin_that_shows_what_belongs_to_it(folder, run):
    """Neither markup nor names of emojis are for the terminal to interpret. Line breaks are kept."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "a list:\n- [bold]tea[/bold]\n- :dog: [x]", key="k")
    first, second, third = run("show", folder, "s").stdout.splitlines()
    assert first.endswith("user: a list:")
    assert (second, third) == ("    │ - [bold]tea[/bold]", "    │ - :dog: [x]")
    hit = run("recall", folder, "tea", "--model", "none").stdout.splitlines()
    assert hit[2:5] == ["   │ a list:", "   │ - [bold]tea[/bold]", "   │ - :dog: [x]"]
    assert "[bold]tea[/bold] - :dog: [x]" in run("replay", folder).stdout


@pytest.fixture
def busy(folder):
    """A store with long titles, ended sessions, forgotten events and a file in quarantine."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        for n in range(3):
            session = store.start_session(
                f"{n}d280a6a246ca036",
                title=f"Moving to Lisbon in the long hot summer, part {n}",
                scope=f"acme/user-{n}",
            )
            session.record("user", f"the ferry of {n}", key="k")
        store.end_session(session.id)
        store.rebuild()
        store.forget(positions=[2, 4], reason="asked for on 3 May, by mail, by the person herself")
    (folder / "projections" / "views.db").write_bytes(b"x" * 9_000)
    with MemoryStore.open(folder, model=None) as store:
        store.sessions()
    return folder


def test_tables_fit_80_columns_and_break_no_id_topic_or_digest(busy, terminal, run):
    """What one copies is whole on a terminal; in a pipe each row is one line that does not depend on a width."""
    with MemoryStore.open(busy, model=None) as store:
        status, (moved,) = store.status(), store.admin.quarantine().items()
        request = store.audit.forgotten()[0].request
    for what, shown in {
        "sessions": ["0d280a6a246ca036", "2d280a6a246ca036"],
        "forgotten": [request, "turn.recorded.v1", "session/0d280a6a246ca036"],
        "quarantine list": [moved.name],
        "status": [f"{status.head}:{status.digest}", status.log_id],
        "model list": ["hash-words"],
    }.items():
        arguments = inserted(what.split(), busy)
        drawn = terminal(*arguments).stdout
        # The folder of a test may be longer than a line; a command with it is not broken either.
        assert max(len(line) for line in drawn.splitlines() if str(busy) not in line) <= 80, what
        assert [text for text in shown if text not in drawn] == []
        wide, narrow = run(*arguments).stdout, terminal(*arguments, columns=40).stdout
        assert [text for text in shown if text not in wide or text not in narrow] == []
        assert all(len(line.split()) > 1 or set(line) <= {"─", " "} for line in wide.splitlines()), what
    lines = run("sessions", busy).stdout.splitlines()
    assert len(lines) == 5
    assert "Moving to Lisbon in the long hot summer, part 2  acme/user-2  agent" in lines[4]
    header, _, row = run("model", "list", busy).stdout.splitlines()[:3]
    assert header.split() == ["model", "fingerprint", "state", "to", "behind", "vectors", "activated"]
    assert row.split()[5] == str(run("model", "list", busy, "--json").json[0]["vectors"])
    for output in (run("status", busy), run("status", busy, "--json"), run("doctor", busy)):
        assert not re.search(r"\b(DIR|MODEL|NAME)\b", output.stdout), "commands can be copied as they stand"
    assert f"`mnemolog quarantine list {busy}`" in run("status", busy).stdout
    hit = run("recall", busy, "ferry", "--model", "none").stdout.splitlines()
    assert re.fullmatch(r"1\. @6 \d{4}-\d\d-\d\d \d\d:\d\dZ user  relevance [01]\.\d\d \(by words #1\)", hit[0])
    assert hit[1] == "   2d280a6a246ca036 (Moving to Lisbon in the long hot summer, part 2) in acme/user-2"
    assert hit[2] == "   │ the ferry of 2"
    assert re.fullmatch(r"1 hit, searched by words up to position \d+", hit[3])


def test_forget_shows_what_would_be_forgotten_in_words(busy, run):
    """Titles and a line of text, and kinds of events. A typo in a scope is no request for --yes."""
    for extra in ([], ["--yes"], ["--dry-run"]):
        ran = run("forget", busy, "--scope", "acme/user-11", *extra)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "no session is at or below the scope 'acme/user-11'" in ran.stderr
        assert "the closest scopes: acme/user-1, " in ran.stderr
        assert "--yes" not in ran.stderr
    ran = run("forget", busy, "--scope", "acme/user-1", "--position", "6")
    assert ran.returncode == 1
    assert ran.stdout.splitlines() == [
        "session 1d280a6a246ca036 (Moving to Lisbon in the long hot summer, part 1) in acme/user-1, 0 turns",
        "@6 user: the ferry of 2",
        "2 events would be forgotten: 1 title, 1 turn",
    ]
    assert "add --yes" in ran.stderr
    done = run("forget", busy, "--position", "6", "--yes")
    assert done.returncode == 0
    assert "1 turn" in done.stdout
    assert "ferry" not in done.stdout
    again = run("forget", busy, "--position", "6")
    assert (again.returncode, again.stderr) == (1, "")
    assert again.stdout == "nothing to forget: no event matches, or all that match were forgotten before\n"


def test_recall_and_status_say_which_turns_have_no_vector_and_what_embeds_them(folder, run, monkeypatch):
    """Two percent of the turns were searched by meaning: that is worth a line. In the cache they are not missing."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert f"no vectors yet: `mnemolog project {folder}` makes them" in run("status", folder).stdout
        session = store.start_session("s")
        session.record("user", "number 0", key="0")
        store.recall("number")
        shown = run("status", folder).stdout
        session.record_many([{"role": "user", "text": f"number {n}", "key": str(n)} for n in range(1, 200)])
    assert f"no vectors on disk yet, only in the cache (embeddings.db): `mnemolog project {folder}` makes" in shown
    monkeypatch.setattr("mnemolog.cli.app.chosen_model", lambda _: HashEncoder())
    monkeypatch.setattr("mnemolog.cli.command.chosen_model", lambda _: HashEncoder())
    ran = run("recall", folder, "number")
    assert f"note: 135 turns have no vector yet; `mnemolog project {folder}` makes them\n" in ran.stderr
    assert run("project", folder).returncode == 0
    assert "no vector yet" not in run("recall", folder, "number").stderr


def test_no_command_says_1_files_or_1_sessions(folder, tmp_path, run):
    """One of each, through every command that counts. A store without sessions says so, not with an empty table."""
    assert run("init", folder).returncode == 0
    assert run("sessions", folder).stdout == "no sessions\n"
    (tmp_path / "one.jsonl").write_text('{"session": "s", "key": "1", "text": "hello", "role": "user"}\n')
    shown = [
        run(*arguments)
        for arguments in (
            ["import", folder, tmp_path / "one.jsonl", "--no-vectors"],
            *(["recall", folder, "hello", "--model", "none"], ["status", folder], ["sessions", folder]),
            *(["verify", folder], ["diff", folder, "1"], ["replay", folder], ["rebuild", folder, "views"]),
            *(["export", folder, tmp_path / "x.jsonl"], ["backup", folder, tmp_path / "b"], ["find", folder, "hello"]),
            *(["rewind", folder, "s", "--turns", "1"], ["forget", folder, "--session", "s", "--dry-run"]),
            *(["notes", folder, "s", "--add", "one"], ["notes", folder, "s", "--clear"], ["doctor", folder]),
            ["watch", folder, tmp_path, "--once"],
        )
    ]
    assert not [ran for ran in shown if re.search(r"(?<![\d,.])1 [a-z]+(?<!s)s\b", ran.stdout + ran.stderr)]


def test_a_file_cannot_steer_the_terminal_before_it_is_imported(folder, tmp_path, run, terminal):
    """The preview of an import, its counts and the lines that it refuses."""
    good = {"session": "s", "key": "1", "role": "user", "text": EVIL}
    bad = {"session": "s", "key": "2", "role": EVIL, "text": "x"}
    (tmp_path / "turns.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    assert run("init", folder).returncode == 0
    for extra in (["--dry-run"], ["--skip-bad", "--no-vectors"], []):
        arguments = ["import", folder, tmp_path / "turns.jsonl", *extra]
        piped, drawn = run(*arguments), terminal(*arguments)
        assert "forged" in piped.stdout + piped.stderr or "--skip-bad" in extra
        for shown in (piped.stdout, piped.stderr, drawn.stdout):
            # The bar of progress hides and shows the cursor.
            assert not STEERING.search(re.sub(r"\x1b\[\?25[lh]|\r?\x1b\[\d*[AK]|\r", "", shown))
            assert not [line for line in shown.splitlines() if FORGED.match(line)]


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def memory(folder):
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "My dog is called Rex.", key="k")
    return folder


def frames(drawn):
    """The texts that were drawn, without the codes that move the cursor."""
    return [text for text in re.split(r"[\r\n]+", ESCAPES.sub("", drawn)) if text.strip()]


def test_a_recall_says_that_it_searches(memory, terminal):
    """Seconds without a sign of life look like a hang."""
    drawn = frames(terminal("recall", memory, "dog", "--model", "none", kind="xterm").stdout)
    assert any("searching" in text for text in drawn)
    assert any("My dog is called Rex." in text for text in drawn)


def test_the_phases_of_an_import_are_named(folder, tmp_path, terminal):
    """Reading, indexing and embedding are different waits."""
    MemoryStore.open(folder, model=None).close()
    lines = [json.dumps({"session": "s", "key": str(n), "role": "user", "text": f"turn {n}"}) for n in range(700)]
    (tmp_path / "turns.jsonl").write_text("\n".join(lines))
    drawn = frames(terminal("import", folder, tmp_path / "turns.jsonl", "--model", "none", kind="xterm").stdout)
    seen = [name for text in drawn for name in ("reading", "indexing") if name in text]
    assert seen[0] == "reading"
    assert seen[-1] == "indexing"
    assert drawn[-1].startswith("700 turns read from 1 file, 700 recorded, 0 already there, 1 session")


def test_a_rebuild_has_a_bar_for_each_projection(memory, terminal):
    """The vectors do not go on with the bar of the views, full from the start."""
    drawn = frames(terminal("rebuild", memory, "--dry-run", kind="xterm", columns=100).stdout)
    assert any("rebuilding views" in text for text in drawn)
    assert any("rebuilding vectors" in text for text in drawn)


def test_percentages_and_remaining_times_are_honest(screen):
    """No 100 % and no 0:00:00 before a phase has ended, also where its work is counted twice."""
    with screen(kind="xterm", columns=100) as drawn, phases() as phase:
        move = phase("checking")
        for done, then in ((500, "50%"), (999, "99%"), (1000, "finishing"), (600, "600/1,000"), (1000, "finishing")):
            drawn.clear()  # The work is counted twice.
            move(done, 1000)
            wait_until(lambda then=then: then.encode() in drawn, what=f"{then} to be drawn")
            assert not re.search(b"100%|0:00:00", drawn)
        phase("writing")
        for _ in range(2):  # What was drawn before may have come in with the first.
            drawn.clear()
            wait_until(lambda: b"writing" in drawn, what="the next phase")
        assert b"finishing" not in drawn


def test_bytes_are_shown_in_megabytes(screen):
    """Of a file that is read, or copied: share, count and rate."""
    with screen(kind="xterm", columns=100) as drawn, bar("reading") as move:
        for done in (1_000_000, 2_000_000, 3_000_000):
            move(done, Bytes(4_000_000))
        wait_until(lambda: b"75%" in drawn and b"3.0 MB/4.0 MB" in drawn and b"MB/s" in drawn, what="the figures")


def test_the_phases_of_a_copy_are_named(memory, tmp_path, terminal):
    """What is copied is verified."""
    terminal("backup", memory, tmp_path / "backup", kind="xterm")
    for words in (("restore", tmp_path / "backup", tmp_path / "restored"), ("copy", memory, tmp_path / "restored")):
        drawn = frames(terminal(*words, kind="xterm", columns=100).stdout)
        seen = [name for text in drawn for name in ("copying", "verifying") if name in text]
        assert (seen[0], seen[-1]) == ("copying", "verifying"), words


def test_whatever_reads_shows_that_it_indexes_first(memory, tmp_path, terminal, monkeypatch):
    """After a restore it takes as long as an import."""
    monkeypatch.setattr(database, "SAVED_TOGETHER", 1)
    monkeypatch.setattr(Views, "batch_max", 1)
    assert any("indexing" in text for text in frames(terminal("sessions", memory, kind="xterm", columns=100).stdout))


@pytest.mark.parametrize(
    ("moves", "notes"),
    [
        ([], []),
        ([(500, 2_000)], ["copying stopped at 500 of 2,000 events"]),
        ([(2_000, 2_000), (700, 3_000)], ["verifying stopped at 700 of 3,000 events"]),
        ([(500, Bytes(2_000))], []),
        ([(2_000, Bytes(2_000)), (2_000, Bytes(2_000)), (700, 3_000)], ["verifying stopped at 700 of 3,000 events"]),
    ],
)
def test_after_ctrl_c_it_is_said_how_far_the_work_was(moves, notes):
    """Also where nothing was drawn. Bytes of a file say nothing of what is kept."""

    def work(move):
        for done, total in moves:
            move(done, total)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, bar("copying", "verifying") as move:
        work(move)
    assert getattr(caught.value, "__notes__", []) == notes


def test_a_pipe_gets_no_progress(capfd):
    """Logs and `--json` are not for bars."""
    with phases() as phase:
        phase("reading")(1, 2)
    assert capfd.readouterr() == ("", "")
