"""Sessions and working memory from the command line: switch, come back, remember, and look at the past.

Most commands run in this process, through the same `main`: starting Python a hundred times would take minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mnemolog import MemoryStore

pytestmark = pytest.mark.local

HEAD = 11


@pytest.fixture
def memory(folder):
    """A store with one agent in a session of four turns, a checkpoint behind the first two. The head is HEAD."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.switch("trip-1", reason="new", agent="ann", title="trip", scope="acme/alice")
        session.record("user", "I moved to Lisbon.")
        session.record("assistant", "Noted.")
        session.set("budget", {"eur": 900})
        session.set_task("book flights", step=1, total=4)
        session.checkpoint("before", "nothing is paid")
        session.set("paid", True)
        session.note("she prefers [night] trains")
        session.record("user", "Book it.")
        session.record("assistant", "Booked.")
        assert store.head().position == HEAD
    return folder


def head(folder):
    """How far the log goes."""
    with MemoryStore.open(folder, model=None, create=False) as store:
        return store.head()


def refused(ran, code=1):
    """The one line that an error is, with a hint, no answer on stdout and no traceback."""
    assert ran.returncode == code, ran
    assert ran.stdout == "" or list(json.loads(ran.stdout)) == ["error"]
    error, hint = ran.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error


def texts(turns):
    return [turn["text"] for turn in turns]


READS = {
    "current": ("--agent", "ann"),
    "show": ("trip",),
    "show --at": ("trip", "--at", 9),
    "show --hidden": ("trip", "--hidden"),
    "task": ("trip",),
    "task --at": ("trip", "--at", 6),
    "notes": ("trip",),
    "notes --at": ("trip", "--at", 9),
    "memory get": ("trip", "budget"),
    "memory get --at": ("trip", "budget", "--at", 5),
    "memory list": ("trip", "--pattern", "b*"),
    "memory list --at": ("trip", "--at", 5),
    "checkpoint list": ("trip",),
    "checkpoint restore --dry-run": ("trip", "before"),
    "rewind --dry-run": ("trip", "--turns", 1),
    "switch --dry-run": ("--reason", "compress", "--agent", "ann"),
}


@pytest.mark.parametrize("what", READS)
def test_every_read_gives_json_takes_the_store_from_the_environment_and_writes_nothing(run, memory, monkeypatch, what):
    """Dry runs are reads."""
    *command, option = what.split() if "--" in what else (*what.split(), None)
    rest = [*READS[what], *([option] if option in ("--dry-run",) else [])]
    before = head(memory)
    named = run(*command, memory, *rest, "--json").json
    plain = run(*command, memory, *rest)
    assert (plain.returncode, bool(plain.stdout)) == (0, True)
    monkeypatch.setenv("MNEMOLOG_STORE", str(memory))
    assert run(*command, *rest, "--json").json == named
    assert head(memory) == before


WRITES = {
    "switch": ("--reason", "new", "--to", "t"),
    "branch": ("trip", "--to", "t"),
    "rewind": ("trip", "--turns", "1"),
    "task": ("trip", "--percent", "50"),
    "notes": ("trip", "--add", "x"),
    "memory set": ("trip", "k", "1"),
    "memory delete": ("trip", "paid"),
    "checkpoint create": ("trip", "now"),
    "checkpoint restore": ("trip", "before"),
    "checkpoint delete": ("trip", "before"),
}


@pytest.mark.parametrize("what", WRITES)
def test_every_write_gives_json_and_takes_an_id_or_the_beginning_of_one(run, memory, what):
    """The whole id here, its beginning elsewhere."""
    rest = ["trip-1" if word == "trip" else word for word in WRITES[what]]
    assert run(*what.split(), memory, *rest, "--json").json
    assert head(memory).position > HEAD


@pytest.mark.parametrize("what", WRITES)
def test_every_write_says_in_plain_words_what_it_did(run, memory, what):
    """On stdout, and nothing on stderr."""
    ran = run(*what.split(), memory, *WRITES[what])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip()
    assert "would" not in ran.stdout


@pytest.mark.parametrize("what", sorted(WRITES.keys() - {"switch"}))
def test_an_unknown_session_and_an_ambiguous_beginning_are_refused(run, memory, what):
    """Also an id that cannot be one, such as bytes that are no UTF-8. Nothing is written."""
    rest = WRITES[what][1:]
    assert "there is no session 'nope'" in refused(run(*what.split(), memory, "nope", *rest))
    assert "not valid Unicode" in refused(run(*what.split(), memory, "a\udcff", *rest))
    with MemoryStore.open(memory, model=None) as store:
        store.start_session("trip-2")
    before = head(memory)
    assert "2 ids begin with 'trip': trip-1, trip-2" in refused(run(*what.split(), memory, "trip", *rest))
    assert head(memory) == before


def test_switch_leaves_the_session_of_the_agent_and_current_says_where_it_is(run, memory):
    """Every reason; sessions to leave and to resume are called by id, or by the beginning of one."""
    switch = ("switch", memory, "--json", "--agent", "ann", "--reason")
    first = run("current", memory, "--agent", "ann", "--json").json
    assert first == {
        "session": "trip-1",
        "title": "trip",
        "agent": "ann",
        "scope": "acme/alice",
        "lineage": ["trip-1"],
    }
    new = run(*switch, "new", "--title", "work", "--scope", "acme/work").json
    assert (new["title"], new["scope"], new["lineage"]) == ("work", "acme/work", [new["session"]])
    assert run(*switch, "resume", "--to", "trip").json == first
    branch = run(*switch, "branch", "--to", "b", "--from", "trip", "--at", "4", "--title", "b").json
    assert (branch["session"], branch["lineage"]) == ("b", ["trip-1", "b"])
    assert texts(run("show", memory, "b", "--json").json) == ["I moved to Lisbon.", "Noted."]
    assert run(*switch, "rewind", "--turns", "1").json["session"] == "b"
    assert texts(run("show", memory, "b", "--json").json) == ["I moved to Lisbon."]
    assert run(*switch, "compress", "--to", "c", "--title", "c").json["lineage"] == ["trip-1", "b", "c"]
    assert run(*switch, "reset", "--to", "d", "--title", "d").json["lineage"] == ["d"]
    assert run("current", memory, "--agent", "ann").stdout.startswith("d (d) in acme/alice, agent ann")


@pytest.mark.parametrize(
    "how",
    [
        ("new", "--to", "t", "--title", "work"),
        ("reset", "--to", "t"),
        ("resume", "--to", "trip"),
        ("branch", "--to", "t", "--at", "4"),
        ("compress",),
        ("compress", "--to", "t"),
        ("rewind", "--turns", "3"),
        ("rewind", "--to", "t", "--at", "4"),
    ],
    ids=" ".join,
)
def test_a_dry_run_of_a_switch_lists_the_events_that_the_switch_then_appends(run, memory, how):
    """Their positions included; and the log is as long as before."""
    switch, before = ("switch", memory, "--agent", "ann", "--reason", *how), head(memory)
    preview = run(*switch, "--dry-run", "--json").json
    assert "nothing was written" in run(*switch, "--dry-run").stdout
    assert head(memory) == before
    assert run(*switch, "--json").json["session"] == preview["to"]
    with MemoryStore.open(memory, model=None) as store:
        events = list(store.events(after=HEAD))
    assert [(e["position"], e["stream"], e["topic"]) for e in preview["events"]] == [
        (e.position, e.stream, e.event.topic) for e in events
    ]
    assert events[-1].event.topic == "session.switched.v1"
    if how[0] not in ("resume", "compress", "rewind"):  # Those are not retries: each counts as a switch.
        assert run(*switch, "--from", "trip-1", "--dry-run", "--json").json["events"] == []
        assert "has already been made" in run(*switch, "--from", "trip-1", "--dry-run").stdout


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (("resume",), "say which session to resume"),
        (("resume", "--to", "nope"), "there is no session 'nope'"),
        (("branch", "--to", "trip-1"), "is the session to leave"),
        (("new", "--to", "trip-1"), "a session 'trip-1' already"),
        (("branch", "--at", "99"), "position 99 is not in this log"),
        (("branch", "--at", "-1"), "position -1 is not in this log"),
        (("new", "--turns", "1"), "leave out `turns`"),
        (("rewind", "--turns", "1", "--at", "4"), "say either"),
        (("new", "--scope", "/x"), "scope"),
        (("new", "--from", "nope"), "there is no session 'nope'"),
    ],
    ids=str,
)
def test_a_switch_that_makes_no_sense_is_refused_dry_or_not(run, memory, how, why):
    """A dry run says what the switch itself would say."""
    before = head(memory)
    for dry in ((), ("--dry-run",)):
        assert why in refused(run("switch", memory, "--agent", "ann", "--reason", *how, *dry))
    assert head(memory) == before


def test_an_agent_before_any_switch_is_in_no_session(run, memory):
    """Exit status 1, so that a script does not go on with nothing."""
    assert "agent 'agent' has no current session" in refused(run("current", memory))
    assert "agent 'agent' has no current session" in refused(run("current", memory, "--json"))
    assert "agent" in refused(run("current", memory, "--agent", ""))
    assert "agent" in refused(run("current", memory, "--agent", "a\udcff"))


def test_wrong_usage_is_exit_code_2(run, memory):
    """Unknown words, missing arguments, options that contradict one another."""
    for arguments in (
        ("switch", memory),
        ("switch", memory, "--reason", "jump"),
        ("memory", "get", memory, "trip"),
        ("memory", "sing", memory),
        ("rewind", memory, "trip", "--turns", "0"),
        ("rewind", memory, "trip", "--to", "soon"),
        ("show", memory, "trip", "--at", "2026-03-16T25:00"),
        ("diff", memory, "1", "soon"),
        ("show", memory, "trip", "--at", "4", "--hidden"),
        ("task", memory, "trip", "--set", "x", "--at", "4"),
        ("notes", memory, "trip", "--add", "x", "--clear", "--yes"),
        ("notes", memory, "trip", "--add", "x", "--at", "4"),
        ("reconcile", memory, "trip"),
    ):
        ran = run(*arguments)
        assert (ran.returncode, ran.stdout) == (2, ""), arguments
    assert "neither a position" in run("show", memory, "trip", "--at", "soon").stderr
    assert head(memory).position == HEAD


def test_a_store_that_is_not_there_is_not_made(run, tmp_path):
    """By a read or by a write."""
    for what, rest in {**WRITES, "current": ()}.items():
        assert "there is no store" in refused(run(*what.split(), tmp_path / "missing", *rest))
    assert not (tmp_path / "missing").exists()


def test_values_are_json_or_text_and_a_missing_one_is_exit_1(run, memory):
    """What a shell script needs: text comes out as it is, the rest as JSON."""
    for value, options, plain in (
        ('{"b": [1, null]}', (), '{"b":[1,null]}'),
        ("null", (), "null"),
        ('"tea"', (), "tea"),
        ("12", ("--text",), "12"),
    ):
        assert run("memory", "set", memory, "trip", "k", value, *options).returncode == 0
        assert run("memory", "get", memory, "trip", "k").stdout == plain + "\n"
    assert run("memory", "get", memory, "trip", "k", "--json").json == "12"
    assert run("memory", "set", memory, "trip", "k", "--json", "--", "-5").json["value"] == -5
    assert run("memory", "set", memory, "trip", "k", "-", "--text", stdin="a\nb").returncode == 0
    assert run("memory", "get", memory, "trip", "k").stdout == "a\nb\n"
    assert "no value 'nope'" in refused(run("memory", "get", memory, "trip", "nope"))
    assert "no value 'k' at position 11" in refused(run("memory", "get", memory, "trip", "k", "--at", HEAD, "--json"))
    assert "reserved" in refused(run("memory", "get", memory, "trip", "mnemolog.x"))


@pytest.mark.parametrize("value", ["tea", "", "NaN", "[" * 100_000, "9" * 5_000, "9" * 40, '"\\ud800"', "a\udcff"])
def test_what_is_no_json_is_refused_and_nothing_is_written(run, memory, value):
    """One line, however deep or long."""
    assert refused(run("memory", "set", memory, "trip", "k", value)).startswith("error: VALUE: ")
    assert head(memory).position == HEAD


def test_values_expire_are_listed_by_pattern_and_deleted_once(run, memory):
    """At a position they are what they were."""
    assert run("memory", "set", memory, "trip", "user/a", "1", "--ttl", "0.000001", "--json").json["ttl"] == 1e-6
    assert "no value 'user/a'" in refused(run("memory", "get", memory, "trip", "user/a"))
    assert "ttl" in refused(run("memory", "set", memory, "trip", "k", "1", "--ttl", "nan"))
    assert run("memory", "list", memory, "trip", "--json").json == {"budget": {"eur": 900}, "paid": True}
    assert run("memory", "list", memory, "trip", "--pattern", "*d", "--json").json == {"paid": True}
    assert run("memory", "list", memory, "trip", "--at", 7, "--json").json == {"budget": {"eur": 900}}
    assert run("memory", "list", memory, "trip").stdout == 'budget {"eur":900}\npaid true\n'
    assert [run("memory", "delete", memory, "trip", "paid", "--json").json["deleted"] for _ in "12"] == [True, False]
    assert "nothing was deleted" in run("memory", "delete", memory, "trip", "paid").stdout


def test_a_task_is_begun_changed_shown_with_a_bar_and_seen_in_the_past(run, memory):
    """Options that are left out leave their fields as they are."""
    assert "25 %" in run("task", memory, "trip").stdout
    changed = run("task", memory, "trip", "--percent", "62.5", "--status", "waiting", "--json").json
    assert (changed["description"], changed["step"], changed["percent"]) == ("book flights", 1, 62.5)
    shown = run("task", memory, "trip").stdout
    assert all(part in shown for part in ("book flights", "62.5 %", "step 1 of 4", "waiting"))
    begun = run("task", memory, "trip", "--set", "pack [all]", "--json").json
    assert (begun["description"], begun["step"], begun["status"]) == ("pack [all]", None, "active")
    assert "pack [all]" in run("task", memory, "trip").stdout
    assert run("task", memory, "trip", "--at", HEAD, "--json").json["description"] == "book flights"
    assert run("task", memory, "trip", "--at", 5, "--json").json is None
    assert run("task", memory, "trip", "--at", 5).stdout == "no task\n"
    assert "percent" in refused(run("task", memory, "trip", "--percent", "101"))
    run("branch", memory, "trip", "--at", 3, "--to", "b")
    assert "has no task" in refused(run("task", memory, "b", "--step", "2"))


def test_notes_are_added_and_cleared_only_with_yes(run, memory):
    """Without it, what would be done is said, and the exit status is 1."""
    assert "she prefers [night] trains" in run("notes", memory, "trip").stdout
    assert run("notes", memory, "trip", "--add", "book [x]", "--json").json == {
        "session": "trip-1",
        "added": 1,
        "cleared": 0,
        "notes": 2,
    }
    before = head(memory)
    assert "would clear 2 notes" in refused(run("notes", memory, "trip", "--clear"))
    assert "note" in refused(run("notes", memory, "trip", "--add", ""))
    assert head(memory) == before
    assert "cleared 2 notes" in run("notes", memory, "trip", "--clear", "--yes").stdout
    assert run("notes", memory, "trip", "--json").json == []
    assert [note["text"] for note in run("notes", memory, "trip", "--at", HEAD, "--json").json] == [
        "she prefers [night] trains"
    ]


def test_a_checkpoint_is_created_listed_restored_and_deleted(run, memory):
    """A dry run of the restore says just what the restore then says."""
    created = run("checkpoint", "create", memory, "trip", "paid", "--description", "all [paid]", "--json").json
    assert (created["name"], created["position"]) == ("paid", HEAD + 1)
    assert [item["name"] for item in run("checkpoint", "list", memory, "trip", "--json").json] == ["before", "paid"]
    assert "all [paid]" in run("checkpoint", "list", memory, "trip").stdout
    assert [item["name"] for item in run("checkpoint", "list", memory, "trip", "--at", 9, "--json").json] == ["before"]
    assert "checkpoint 'paid'" in refused(run("checkpoint", "create", memory, "trip", "paid"))

    run("memory", "set", memory, "trip", "budget", "0")
    run("memory", "set", memory, "trip", "paid", "true", "--ttl", "1000")
    run("task", memory, "trip", "--status", "done")
    before = head(memory)
    dry = run("checkpoint", "restore", memory, "trip", "before", "--dry-run", "--json").json
    assert "would restore checkpoint before of position 7" in (
        run("checkpoint", "restore", memory, "trip", "before", "--dry-run").stdout
    )
    assert head(memory) == before
    done = run("checkpoint", "restore", memory, "trip", "before", "--json").json
    assert (dry["dry_run"], done["dry_run"], dry["changes"]) == (True, False, done["changes"])
    changes = done["changes"]
    assert changes["values"] == [
        {"key": "budget", "change": "changed", "before": 0, "after": {"eur": 900}},
        {"key": "paid", "change": "removed", "before": True, "after": None},
    ]
    assert (changes["task_before"]["status"], changes["task_after"]["status"]) == ("done", "active")
    assert [note["text"] for note in changes["notes_removed"]] == ["she prefers [night] trains"]
    assert (changes["notes_added"], changes["turns_hidden"]) == ([], 2)
    assert run("memory", "list", memory, "trip", "--json").json == {"budget": {"eur": 900}}

    back = run("checkpoint", "restore", memory, "trip", created["id"])
    assert all(line in back.stdout for line in ("value paid + true", "note + she prefers [night] trains", "hidden: 0"))
    assert "was at position 7" in run("checkpoint", "delete", memory, "trip", "before").stdout
    for what in (("restore",), ("delete",), ("restore", "--dry-run")):
        ran = run("checkpoint", what[0], memory, "trip", "before", *what[1:])
        assert "no checkpoint 'before'" in refused(ran)


def test_a_restore_that_only_changes_an_expiry_says_so(run, memory):
    """The value is the same; how long it lives is not."""
    run("memory", "set", memory, "trip", "budget", '{"eur": 900}', "--ttl", "1000")
    assert 'value budget {"eur":900}, with another expiry' in (
        run("checkpoint", "restore", memory, "trip", "before", "--dry-run").stdout
    )


def test_a_rewind_hides_turns_and_show_can_show_them(run, memory):
    """By a number of turns, or to a position; they are marked."""
    before = head(memory)
    assert "would hide 3 turns" in run("rewind", memory, "trip", "--turns", "3", "--dry-run").stdout
    assert run("rewind", memory, "trip", "--to", "3", "--dry-run", "--json").json["hidden"] == 3
    assert head(memory) == before
    assert run("rewind", memory, "trip", "--turns", "1", "--json").json == {
        "session": "trip-1",
        "hidden": 1,
        "dry_run": False,
    }
    assert "hid 1 turn;" in run("rewind", memory, "trip", "--to", "4").stdout
    assert texts(run("show", memory, "trip", "--json").json) == ["I moved to Lisbon.", "Noted."]
    assert len(run("show", memory, "trip", "--hidden", "--json").json) == 4
    lines = run("show", memory, "trip", "--hidden").stdout.splitlines()
    assert [line.startswith("hidden @") for line in lines] == [False, False, True, True]
    assert [line.startswith("hidden @") for line in run("show", memory, "trip").stdout.splitlines()] == [False, False]
    assert "say either" in refused(run("rewind", memory, "trip"))
    assert "say either" in refused(run("rewind", memory, "trip", "--turns", "1", "--to", "4", "--dry-run"))
    assert "position 99 is not in this log" in refused(run("rewind", memory, "trip", "--to", "99"))


def test_show_pages_from_either_end(run, memory):
    """A limit, a position to go on behind, or before."""
    show = ("show", memory, "trip", "--json")
    assert [turn["position"] for turn in run(*show, "--limit", "2").json] == [3, 4]
    assert [turn["position"] for turn in run(*show, "--after", "4").json] == [10, 11]
    assert [turn["position"] for turn in run(*show, "--newest-first", "--limit", "3").json] == [11, 10, 4]
    assert [turn["position"] for turn in run(*show, "--newest-first", "--before", "10").json] == [4, 3]
    assert run(*show, "--limit", (1 << 63) - 1).returncode == 0


def test_show_at_a_position_gives_the_session_as_it_was(run, memory):
    """Turns, task, values, notes and checkpoints; what was hidden or changed later is as before."""
    run("rewind", memory, "trip", "--turns", "4")
    run("memory", "set", memory, "trip", "budget", "0")
    then = run("show", memory, "trip", "--at", "10", "--json").json
    assert texts(then["turns"]) == ["I moved to Lisbon.", "Noted.", "Book it."]
    assert then["values"] == {"budget": {"eur": 900}, "paid": True}
    assert (then["task"]["description"], then["position"], then["ended"]) == ("book flights", 10, False)
    assert ([n["text"] for n in then["notes"]], [c["name"] for c in then["checkpoints"]]) == (
        ["she prefers [night] trains"],
        ["before"],
    )
    plain = run("show", memory, "trip", "--at", "10").stdout
    assert all(part in plain for part in ("Book it.", "book flights", "paid true", "[night]", "nothing is paid"))
    newest = run("show", memory, "trip", "--at", "10", "--newest-first", "--limit", "1", "--json").json
    assert texts(newest["turns"]) == ["Book it."]
    assert "did not exist at position 0; it began at position 1" in refused(run("show", memory, "trip", "--at", 0))
    for position in (-1, 99):
        assert f"position {position} is not in this log" in refused(run("show", memory, "trip", "--at", position))


def test_a_branch_goes_on_from_a_position_or_a_checkpoint(run, memory):
    """A checkpoint that is called like a number comes first. The agent stays where it is."""
    run("checkpoint", "create", memory, "trip", "3")
    made = {
        at: run("branch", memory, "trip", "--at", at, "--to", f"b{n}", "--title", f"b{n}", "--json").json["session"]
        for n, at in enumerate(("before", "10", "3"))
    }
    assert [len(run("show", memory, made[at], "--json").json) for at in ("before", "10", "3")] == [2, 3, 4]
    assert run("memory", "list", memory, "b0", "--json").json == {"budget": {"eur": 900}}
    assert run("branch", memory, "trip", "--title", "other").stdout.rstrip().endswith("agent ann, from trip-1")
    assert run("current", memory, "--agent", "ann", "--json").json["session"] == "trip-1"
    for at in ("nope", "9" * 30):
        assert "no checkpoint" in refused(run("branch", memory, "trip", "--at", at))
    for at in ("99", "-3"):
        assert f"position {at} is not in this log" in refused(run("branch", memory, "trip", "--at", at))
    assert "'b0'" in refused(run("branch", memory, "trip", "--to", "b0", "--title", "else"))


MESSAGES = [
    {"role": "user", "content": "I moved to Lisbon."},
    {"role": "assistant", "text": "Noted."},
    {"role": "user", "text": "Book it."},
    {"role": "assistant", "text": "Booked."},
    {"role": "user", "text": "Thanks ☺", "said_at": "2026-03-01T10:00:00", "key": "t9"},
]


@pytest.mark.parametrize("form", ["array", "lines", "standard input"])
def test_a_transcript_is_completed_once(run, memory, tmp_path, form):
    """From a JSON array or JSON Lines, in a file or from a pipe."""
    text = "\n\n".join(json.dumps(m, ensure_ascii=False) for m in MESSAGES)
    if form == "array":
        text = "\ufeff " + json.dumps(MESSAGES, indent=1)
    file = tmp_path / "transcript"
    file.write_text(text, encoding="utf-8")
    given = "-" if form == "standard input" else file
    first = run("reconcile", memory, "trip", given, "--json", stdin=text).json
    assert (first["session"], first["messages"], texts(first["added"])) == ("trip-1", 5, ["Thanks ☺"])
    assert first["added"][0]["said_at"] == "2026-03-01T10:00:00Z"
    assert "5 messages read, 0 added" in run("reconcile", memory, "trip", given, stdin=text).stdout


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"role": "user", "text": "a"}\n{broken', ":2: not JSON"),
        (b'{"role": "user", "text": "a"}\n5', ":2: expected a JSON object"),
        (b'[{"role": "user", "text": "a"},\n {"role"]', ":2: not JSON"),
        (b'["a"]', ":1: expected a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'[{"role": "king", "text": "a"}]', "messages[0].role"),
        (b'[{"role": "user"}]', "messages[0].content"),
        (b'[{"role": "user", "text": [{"no": "type"}]}]', "messages[0].content"),
        (b'[{"role": "user", "text": "a", "said_at": "soon"}]', "said_at"),
        (b'[{"role": "user", "text": "a", "said_at": 5}]', "said_at"),
    ],
    ids=str,
)
def test_a_transcript_that_cannot_be_read_is_refused_whole(run, memory, tmp_path, content, why):
    """File and line, or the message, are named; nothing is written."""
    file = tmp_path / "transcript"
    file.write_bytes(content)
    assert why in refused(run("reconcile", memory, "trip", file))
    assert "cannot be read" in refused(run("reconcile", memory, "trip", tmp_path / "missing"))
    assert head(memory).position == HEAD


def test_an_ended_session_is_refused_dry_or_not(run, memory):
    """Reading it goes on."""
    with MemoryStore.open(memory, model=None) as store:
        store.end_session("trip-1")
    for what, rest in WRITES.items():
        if what not in ("switch", "branch"):
            assert "ended" in refused(run(*what.split(), memory, *rest)), what
    for what in (("rewind", memory, "trip", "--turns", "1"), ("checkpoint", "restore", memory, "trip", "before")):
        assert "ended" in refused(run(*what, "--dry-run"))
    assert run("memory", "get", memory, "trip", "paid").stdout == "true\n"
    assert run("show", memory, "trip", "--at", HEAD + 1, "--json").json["ended"]


def test_sessions_are_found_by_id_without_any_projection(run, memory):
    """A changed working memory needs the log alone."""
    run("memory", "set", memory, "trip-1", "k", "1")
    assert not (memory / "projections" / "views.db").exists()


def test_the_real_command_imports_nothing_heavy_and_exits_with_the_same_codes(memory):
    """In a process of its own."""
    script = (
        "import sys\n"
        "from mnemolog.cli import main\n"
        "folder, codes = sys.argv[1], []\n"
        "for line in sys.argv[2:]:\n"
        "    sys.argv = ['mnemolog', *line.format(folder).split()]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as exited:\n"
        "        codes.append(exited.code)\n"
        "heavy = {'torch', 'sentence_transformers', 'faiss', 'numpy'} & set(sys.modules)\n"
        "print(codes, sorted(heavy), file=sys.stderr)\n"
    )
    lines = [
        "switch {} --reason new --json",
        "show {} trip-1 --at 5",
        "task {} trip-1",
        "checkpoint restore {} trip-1 before",
        "reconcile {} trip-1 -",
        "memory set {} trip-1 k 1",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", script, memory, *lines], capture_output=True, text=True, input="", check=True
    )
    assert ran.stderr == "[0, 0, 0, 0, 0, 0] []\n"
    failed = subprocess.run(
        [sys.executable, "-m", "mnemolog", "memory", "get", memory, "trip-1", "nope"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: ")


def test_record_refuses_a_title_scope_or_agent_that_the_session_does_not_have(memory, run):
    """Nothing that was given is dropped; what agrees with the session is accepted."""
    before = head(memory)
    for option, other in (("--title", "journey"), ("--scope", "acme/bob"), ("--agent", "ben")):
        assert other in refused(run("record", memory, "trip-1", "hello", option, other))
        assert other in refused(run("record", memory, "trip-1", "hello", "--start", option, other))
    assert head(memory) == before
    assert run("record", memory, "trip-1", "hello", "--start", "--scope", "acme/alice").returncode == 0


def test_an_empty_list_of_working_memory_says_that_it_is_empty(memory, run):
    run("record", memory, "other", "hello", "--start")
    assert run("notes", memory, "other").stdout == "no notes\n"
    assert run("memory", "list", memory, "other").stdout == "no values\n"
    assert run("checkpoint", "list", memory, "other").stdout == "no checkpoints\n"
    assert json.loads(run("notes", memory, "other", "--json").stdout) == []


def test_a_session_without_turns_is_shown_as_one_without_turns(memory, run):
    run("branch", memory, "trip-1", "--at", "1", "--title", "empty")
    empty = run("sessions", memory, "--title", "empty", "--json").json[0]["session"]
    assert run("show", memory, empty).stdout == "no turns\n"


def test_a_rewind_that_hides_nothing_says_so(memory, run):
    assert run("rewind", memory, "trip-1", "--to", "now").stdout == "no turn to hide\n"


def test_an_invalid_time_of_sessions_names_the_option(memory, run):
    assert "'--since': 'banana' is not a time" in run("sessions", memory, "--since", "banana").stderr


def test_a_range_that_runs_backwards_names_no_position_that_was_not_given(memory, run):
    said = refused(run("replay", memory, "--from", "5", "--to", "3"))
    assert said == "error: --to: position 3 comes before the beginning of the range; give the earlier one first"
