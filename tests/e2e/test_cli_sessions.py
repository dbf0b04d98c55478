"""Sessions and working memory from the command line: switch, come back, remember, and look at the past.

A line of a table is a command as it is typed, without `mnemolog` and the folder of the store.
"""

import json
import shlex
import shutil

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


@pytest.fixture
def type_(run, memory):
    """Run a line of a table on the store."""

    def type_(line, *more, folder=memory, **how):
        words = shlex.split(line)
        place = 1 + (words[0] in ("memory", "checkpoint"))
        return run(*words[:place], folder, *words[place:], *more, **how)

    return type_


def head(folder):
    """How far the log goes."""
    with MemoryStore.open(folder, model=None, create=False) as store:
        return store.head()


def refused(ran):
    """The one line that an error is, with a hint, no answer on stdout and no traceback."""
    assert ran.returncode in (1, 2), ran
    assert ran.stdout == "" or list(json.loads(ran.stdout)) == ["error"]
    error, hint = ran.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error


def texts(turns):
    return [turn["text"] for turn in turns]


READS = {
    "current --agent ann": "trip-1 (trip) in acme/alice, agent ann",
    "show trip": "user: I moved to Lisbon.",
    "show trip --at 9": "book flights",
    "show trip --hidden": "assistant: Booked.",
    "task trip": "25 %",
    "task trip --at 6": "step 1 of 4",
    "task trip --at 5": "no task",
    "notes trip": "she prefers [night] trains",
    "notes trip --at 9": "she prefers [night] trains",
    "memory get trip budget": '{"eur":900}',
    "memory get trip budget --at 5": '{"eur":900}',
    "memory list trip --pattern 'b*'": 'budget {"eur":900}\n',
    "memory list trip": 'budget {"eur":900}\npaid true\n',
    "memory list trip --at 5": 'budget {"eur":900}\n',
    "checkpoint list trip": "nothing is paid",
    "checkpoint restore trip before --dry-run": "would restore checkpoint before of position 7",
    "rewind trip --turns 3 --dry-run": "would hide 3 turns; nothing was written",
    "rewind trip --to now": "no turn to hide\n",
    "switch --reason compress --agent ann --dry-run": "nothing was written",
}


def test_reads_answer_in_words_and_json_take_the_store_from_the_environment_and_write_nothing(
    run, type_, memory, monkeypatch
):
    """Dry runs are reads."""
    for line, said in READS.items():
        assert said in type_(line).exited().stdout
        named = type_(line, "--json").json
        with monkeypatch.context() as only_here:
            only_here.setenv("MNEMOLOG_STORE", str(memory))
            assert run(*shlex.split(line), "--json").json == named, line
    assert head(memory).position == HEAD


WRITES = {
    "switch --reason new --to t --scope acme": "t in acme, agent agent",
    "branch trip --to t": "agent ann, from trip-1",
    "rewind trip --turns 1": "hid 1 turn;",
    "task trip --percent 50": "50 %",
    "notes trip --add x": "added a note; session trip-1 has 2 notes now",
    "memory set trip k 1": "set k of session trip-1",
    "memory delete trip paid": "deleted paid of session trip-1",
    "checkpoint create trip now": "checkpoint now (",
    "checkpoint restore trip before": "restored checkpoint before of position 7",
    "checkpoint delete trip before": "was at position 7",
}


@pytest.mark.log_file
@pytest.mark.parametrize("line", WRITES)
def test_a_write_says_what_it_did_in_words_and_json_and_refuses_unknown_or_ambiguous_sessions(
    type_, memory, tmp_path, line
):
    """An id may be given by its beginning. Nothing is written for one that cannot be an id."""
    other = shutil.copytree(memory, tmp_path / "other")
    if "trip" in line:
        for name, why in (("nope", "there is no session 'nope'"), ("a\udcff", "not valid Unicode")):
            assert why in refused(type_(line.replace("trip", name)))
    assert head(memory).position == HEAD
    ran = type_(line)
    assert (ran.returncode, ran.stderr, WRITES[line] in ran.stdout) == (0, "", True), ran
    assert head(memory).position > HEAD
    assert type_(line.replace("trip", "trip-1"), "--json", folder=other).json
    with MemoryStore.open(memory, model=None) as store:
        store.start_session("trip-2")
    before = head(memory)
    if "trip" in line:
        assert "2 ids begin with 'trip': trip-1, trip-2" in refused(type_(line))
        assert head(memory) == before


REFUSED = {
    "switch --agent ann --reason resume": "say which session to resume",
    "switch --agent ann --reason resume --to nope": "there is no session 'nope'",
    "switch --agent ann --reason branch --to trip-1": "is the session to leave",
    "switch --agent ann --reason new --to trip-1": "a session 'trip-1' already",
    "switch --agent ann --reason branch --at 99": "position 99 is not in this log",
    "switch --agent ann --reason branch --at -1": "position -1 is not in this log",
    "switch --agent ann --reason new --turns 1": "leave out `turns`",
    "switch --agent ann --reason rewind --turns 1 --at 4": "turns",
    "switch --agent ann --reason new --scope /x": "scope",
    "switch --agent ann --reason new --from nope": "there is no session 'nope'",
    "current": "agent 'agent' has no current session",
    "current --json": "agent 'agent' has no current session",
    "current --agent ''": "agent",
    "memory get trip nope": "no value 'nope'",
    "memory get trip paid --at 5 --json": "no value 'paid' at position 5",
    "memory get trip mnemolog.x": "reserved",
    "memory set trip k 1 --ttl nan": "ttl",
    "task trip --percent 101": "percent",
    "notes trip --clear": "would clear 1 note",
    "notes trip --add ''": "note",
    "checkpoint create trip before": "checkpoint 'before'",
    "checkpoint restore trip none": "no checkpoint 'none'",
    "checkpoint restore trip none --dry-run": "no checkpoint 'none'",
    "checkpoint delete trip none": "no checkpoint 'none'",
    "rewind trip": "turns",
    "rewind trip --turns 1 --to 4 --dry-run": "turns",
    "rewind trip --to 99": "position 99 is not in this log",
    "show trip --at 0": "did not exist at position 0; it began at position 1",
    "show trip --at 99": "position 99 is not in this log",
    "show trip --at -1": "position -1 is not in this log",
    "branch trip --at nope": "no checkpoint",
    "branch trip --at 999999999999999999999999999999": "no checkpoint",
    "branch trip --at 99": "position 99 is not in this log",
    "branch trip --at -3": "position -3 is not in this log",
    "branch trip --to trip-1 --title else": "'trip-1'",
    "replay --from 5 --to 3": "--to: position 3 comes before the beginning of the range; give the earlier one first",
    "record trip-1 hello --title journey": "journey",
    "record trip-1 hello --start --scope acme/bob": "acme/bob",
    "record trip-1 hello --start --agent ben": "ben",
}
WRONG_USAGE = (
    "switch",
    "switch --reason jump",
    "memory get trip",
    "memory sing",
    "rewind trip --turns 0",
    "rewind trip --to soon",
    "show trip --at 2026-03-16T25:00",
    "diff 1 soon",
    "show trip --at 4 --hidden",
    "task trip --set x --at 4",
    "notes trip --add x --clear --yes",
    "notes trip --add x --at 4",
    "sessions --since banana",
    "status --loud",
)


def test_what_makes_no_sense_is_refused_in_one_line_and_nothing_is_written(type_, memory, monkeypatch, tmp_path):
    """A dry run of a switch says what the switch itself would say."""
    monkeypatch.chdir(tmp_path)
    for line, why in REFUSED.items():
        for more in ((), ("--dry-run",)) if line.startswith("switch") else ((),):
            assert why in refused(type_(line, *more)), line
    assert head(memory).position == HEAD


def test_wrong_usage_is_exit_code_2(type_, memory):
    """Unknown words, missing arguments, options that contradict one another."""
    for line in WRONG_USAGE:
        assert type_(line).exited(2).stdout == ""
    assert "neither a position" in type_("show trip --at soon").stderr
    assert head(memory).position == HEAD


def test_a_store_that_is_not_there_is_not_made(type_, tmp_path):
    """By a read or by a write."""
    for line in (*WRITES, "current"):
        assert "there is no store" in refused(type_(line, folder=tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


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


SWITCHES = (
    "new --to t --title work",
    "reset --to t",
    "resume --to trip",
    "branch --to t --at 4",
    "compress",
    "compress --to t",
    "rewind --turns 3",
    "rewind --to t --at 4",
)


@pytest.mark.log_file
def test_a_dry_run_of_a_switch_lists_the_events_that_the_switch_then_appends(type_, memory, tmp_path):
    """Their positions included; and the log is as long as before."""
    for number, how in enumerate(SWITCHES):
        folder = shutil.copytree(memory, tmp_path / str(number))
        switch = f"switch --agent ann --reason {how}"
        preview = type_(switch, "--dry-run", "--json", folder=folder).json
        assert head(folder).position == HEAD
        assert type_(switch, "--json", folder=folder).json["session"] == preview["to"]
        with MemoryStore.open(folder, model=None) as store:
            events = list(store.events(after=HEAD))
        assert [(e["position"], e["stream"], e["topic"]) for e in preview["events"]] == [
            (e.position, e.stream, e.event.topic) for e in events
        ]
        assert events[-1].event.topic == "session.switched.v1"
        if how.split()[0] not in ("resume", "compress", "rewind"):  # Those are not retries: each counts as a switch.
            again = (f"{switch} --from trip-1", "--dry-run")
            assert type_(*again, "--json", folder=folder).json["events"] == []
            assert "has already been made" in type_(*again, folder=folder).stdout


def test_values_are_json_or_text(run, memory):
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


def test_what_is_no_json_is_refused_and_nothing_is_written(run, memory):
    """One line, however deep or long."""
    for value in ("[" * 100_000, "9" * 5_000, "9" * 40, '"\\ud800"', "a\udcff"):
        assert refused(run("memory", "set", memory, "trip", "k", value)).startswith("error: VALUE: ")
    assert head(memory).position == HEAD


def test_values_expire_are_listed_by_pattern_and_deleted_once(type_, memory):
    """At a position they are what they were. The log alone is needed to find the session by its id."""
    assert type_("memory set trip-1 user/a 1 --ttl 0.000001 --json").json["ttl"] == 1e-6
    assert not (memory / "projections" / "views.db").exists()
    assert "no value 'user/a'" in refused(type_("memory get trip user/a"))
    assert type_("memory list trip --json").json == {"budget": {"eur": 900}, "paid": True}
    assert type_("memory list trip --pattern '*d' --json").json == {"paid": True}
    assert type_("memory list trip --at 7 --json").json == {"budget": {"eur": 900}}
    assert [type_("memory delete trip paid --json").json["deleted"] for _ in "12"] == [True, False]
    assert "nothing was deleted" in type_("memory delete trip paid").stdout


def test_a_task_is_begun_changed_shown_with_a_bar_and_seen_in_the_past(type_):
    """Options that are left out leave their fields as they are."""
    changed = type_("task trip --percent 62.5 --status waiting --json").json
    assert (changed["description"], changed["step"], changed["percent"]) == ("book flights", 1, 62.5)
    shown = type_("task trip").stdout
    assert all(part in shown for part in ("book flights", "62.5 %", "step 1 of 4", "waiting"))
    begun = type_("task trip --set 'pack [all]' --json").json
    assert (begun["description"], begun["step"], begun["status"]) == ("pack [all]", None, "active")
    assert "pack [all]" in type_("task trip").stdout
    assert type_(f"task trip --at {HEAD} --json").json["description"] == "book flights"
    assert type_("task trip --at 5 --json").json is None
    type_("branch trip --at 3 --to b")
    assert "has no task" in refused(type_("task b --step 2"))


def test_a_checkpoint_is_created_listed_and_restored_and_notes_are_cleared_only_with_yes(type_, memory):
    """A dry run of the restore says just what the restore then says. `notes --clear` alone is refused above."""
    created = type_("checkpoint create trip paid --description 'all [paid]' --json").json
    assert (created["name"], created["position"]) == ("paid", HEAD + 1)
    assert [item["name"] for item in type_("checkpoint list trip --json").json] == ["before", "paid"]
    assert "all [paid]" in type_("checkpoint list trip").stdout
    assert [item["name"] for item in type_("checkpoint list trip --at 9 --json").json] == ["before"]
    for line in ("memory set trip budget 0", "memory set trip paid true --ttl 1000", "task trip --status done"):
        type_(line)
    before = head(memory)
    dry = type_("checkpoint restore trip before --dry-run --json").json
    assert head(memory) == before
    done = type_("checkpoint restore trip before --json").json
    assert (dry["dry_run"], done["dry_run"], dry["changes"]) == (True, False, done["changes"])
    changes = done["changes"]
    assert changes["values"] == [
        {"key": "budget", "change": "changed", "before": 0, "after": {"eur": 900}},
        {"key": "paid", "change": "removed", "before": True, "after": None},
    ]
    assert (changes["task_before"]["status"], changes["task_after"]["status"]) == ("done", "active")
    assert texts(changes["notes_removed"]) == ["she prefers [night] trains"]
    assert (changes["notes_added"], changes["turns_hidden"]) == ([], 2)
    assert type_("memory list trip --json").json == {"budget": {"eur": 900}}
    back = type_(f"checkpoint restore trip {created['id']}")
    assert all(line in back.stdout for line in ("value paid + true", "note + she prefers [night] trains", "hidden: 0"))
    type_("memory set trip budget '{\"eur\": 900}' --ttl 1000")
    assert 'value budget {"eur":900}, with another expiry' in type_("checkpoint restore trip before --dry-run").stdout
    written = {"session": "trip-1", "added": 1, "cleared": 0, "notes": 2}
    assert type_("notes trip --add 'book [x]' --json").json == written
    assert "cleared 2 notes" in type_("notes trip --clear --yes").stdout
    assert type_("notes trip --json").json == []


def test_a_rewind_hides_turns_and_show_can_show_them(type_):
    """By a number of turns, or to a position; they are marked."""
    assert type_("rewind trip --to 3 --dry-run --json").json["hidden"] == 3
    assert type_("rewind trip --turns 1 --json").json == {"session": "trip-1", "hidden": 1, "dry_run": False}
    assert "hid 1 turn;" in type_("rewind trip --to 4").stdout
    assert texts(type_("show trip --json").json) == ["I moved to Lisbon.", "Noted."]
    assert len(type_("show trip --hidden --json").json) == 4
    lines = type_("show trip --hidden").stdout.splitlines()
    assert [line.startswith("hidden @") for line in lines] == [False, False, True, True]
    assert [line.startswith("hidden @") for line in type_("show trip").stdout.splitlines()] == [False, False]


SHOWN = {
    "--limit 2": [3, 4],
    "--after 4": [10, 11],
    "--newest-first --limit 3": [11, 10, 4],
    "--newest-first --before 10": [4, 3],
    f"--limit {(1 << 63) - 1}": [3, 4, 10, 11],
}


def test_show_pages_from_either_end(type_):
    """A limit, a position to continue after, or before."""
    for options, positions in SHOWN.items():
        assert [turn["position"] for turn in type_(f"show trip --json {options}").json] == positions


def test_show_at_a_position_gives_the_session_as_it_was(type_):
    """Turns, task, values, notes and checkpoints; what was hidden or changed later is as before."""
    type_("rewind trip --turns 4")
    type_("memory set trip budget 0")
    then = type_("show trip --at 10 --json").json
    assert texts(then["turns"]) == ["I moved to Lisbon.", "Noted.", "Book it."]
    assert then["values"] == {"budget": {"eur": 900}, "paid": True}
    assert (then["task"]["description"], then["position"], then["ended"]) == ("book flights", 10, False)
    assert texts(then["notes"]) == ["she prefers [night] trains"]
    assert [item["name"] for item in then["checkpoints"]] == ["before"]
    plain = type_("show trip --at 10").stdout
    assert all(part in plain for part in ("Book it.", "book flights", "paid true", "[night]", "nothing is paid"))
    assert "notes\n" in plain.partition("checkpoints\n")[0]
    assert texts(type_("show trip --at 10 --newest-first --limit 1 --json").json["turns"]) == ["Book it."]


def test_a_branch_continues_from_a_position_or_a_checkpoint(type_):
    """A checkpoint that is called like a number comes first. The agent stays where it is."""
    type_("checkpoint create trip 3")
    for number, (at, turns) in enumerate({"before": 2, "10": 3, "3": 4}.items()):
        made = type_(f"branch trip --at {at} --to b{number} --title b{number} --json").json["session"]
        assert len(type_(f"show {made} --json").json) == turns
    assert type_("memory list b0 --json").json == {"budget": {"eur": 900}}
    assert type_("current --agent ann --json").json["session"] == "trip-1"


def test_an_ended_session_is_refused_dry_or_not(type_, memory):
    """Reading it continues."""
    with MemoryStore.open(memory, model=None) as store:
        store.end_session("trip-1")
    dry = ("rewind trip --turns 1 --dry-run", "checkpoint restore trip before --dry-run")
    for line in (*WRITES, *dry):
        if line.split()[0] not in ("switch", "branch"):
            assert "ended" in refused(type_(line)), line
    assert type_("memory get trip paid").stdout == "true\n"
    assert type_(f"show trip --at {HEAD + 1} --json").json["ended"]


def test_what_is_empty_is_called_so(type_):
    """Working memory, and a session without turns. A scope that agrees with the session is accepted."""
    assert type_("record trip-1 hello --start --scope acme/alice").returncode == 0
    type_("record other hello --start")
    type_("branch trip-1 --at 1 --to empty --title empty")
    for line, said in {
        "notes other": "no notes\n",
        "memory list other": "no values\n",
        "checkpoint list other": "no checkpoints\n",
        "show empty": "no turns\n",
    }.items():
        assert type_(line).stdout == said
