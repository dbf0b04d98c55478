"""Sessions and working memory from the command line: switch, come back, remember, and look at the past.

A line of a table is a command as it is typed, without `mnemolog` and the folder of the store. `mnemolog import`:
what it shows, creates and says after a stop. Models from the command line: add, activate, go back, drop, with two
small SentenceTransformer models.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers import FORMATS, import_files
from mnemolog.cli import importing
from mnemolog.domain.errors import ImportRefused
from tests.integration.test_encoder import tiny_model

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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_what_makes_no_sense_is_refused_in_one_line_and_nothing_is_written(type_, memory, here):
    """A dry run of a switch says what the switch itself would say."""
    for line, why in REFUSED.items():
        for more in ((), ("--dry-run",)) if line.startswith("switch") else ((),):
            assert why in refused(type_(line, *more)), line
    assert head(memory).position == HEAD


@pytest.mark.local
def test_wrong_usage_is_exit_code_2(type_, memory):
    """Unknown words, missing arguments, options that contradict one another."""
    for line in WRONG_USAGE:
        assert type_(line).exited(2).stdout == ""
    assert "neither a position" in type_("show trip --at soon").stderr
    assert head(memory).position == HEAD


@pytest.mark.local
def test_a_store_that_is_not_there_is_not_made(type_, tmp_path):
    """By a read or by a write."""
    for line in (*WRITES, "current"):
        assert "there is no store" in refused(type_(line, folder=tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_what_is_no_json_is_refused_and_nothing_is_written(run, memory):
    """One line, however deep or long."""
    for value in ("[" * 100_000, "9" * 5_000, "9" * 40, '"\\ud800"', "a\udcff"):
        assert refused(run("memory", "set", memory, "trip", "k", value)).startswith("error: VALUE: ")
    assert head(memory).position == HEAD


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_show_pages_from_either_end(type_):
    """A limit, a position to continue after, or before."""
    for options, positions in SHOWN.items():
        assert [turn["position"] for turn in type_(f"show trip --json {options}").json] == positions


@pytest.mark.local
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


@pytest.mark.local
def test_a_branch_continues_from_a_position_or_a_checkpoint(type_):
    """A checkpoint that is called like a number comes first. The agent stays where it is."""
    type_("checkpoint create trip 3")
    for number, (at, turns) in enumerate({"before": 2, "10": 3, "3": 4}.items()):
        made = type_(f"branch trip --at {at} --to b{number} --title b{number} --json").json["session"]
        assert len(type_(f"show {made} --json").json) == turns
    assert type_("memory list b0 --json").json == {"budget": {"eur": 900}}
    assert type_("current --agent ann --json").json["session"] == "trip-1"


@pytest.mark.local
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


@pytest.mark.local
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


DATA = Path(__file__).parents[1] / "integration" / "data" / "importing"
MODEL = ("--model", "none")


def lines_of(path, *rows):
    """Write rows, those of a user unless they say so."""
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps({"role": "user"} | row)) + "\n" for row in rows)
    )
    return path


def texts_in(memory):
    with MemoryStore.open(memory, model=None, create=False) as store:
        return [turn.text for session in store.sessions() for turn in store.session(session.session).turns()]


def test_an_import_creates_the_store_and_says_so(tmp_path, run):
    """`init` is not needed first."""
    memory = tmp_path / "new"
    ran = run("import", memory, DATA / "table.csv", *MODEL).exited()
    assert f"note: created the store {memory}" in ran.stderr
    assert ran.stdout.startswith("3 turns read from 1 file, 3 recorded, 0 already there, 2 sessions")
    assert "created the store" not in run("import", memory, DATA / "table.csv", *MODEL).stderr
    assert len(texts_in(memory)) == 3


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_a_file_without_turns_is_an_error_and_creates_no_store(tmp_path, run, content):
    """Exit status 1, and which file it was."""
    empty = tmp_path / "x.json"
    empty.write_text(content)
    assert f"error: no turns in {empty}" in run("import", tmp_path / "new", empty, *MODEL).exited(1).stderr
    assert not (tmp_path / "new").exists()
    run("init", tmp_path / "old")
    assert run("import", tmp_path / "old", empty, *MODEL).returncode == 1
    answer = run("import", tmp_path / "old", empty, *MODEL, "--json")
    assert (json.loads(answer.stdout)["turns"], answer.returncode) == (0, 1)
    ran = run("import", tmp_path / "old", empty, DATA / "table.csv", *MODEL).exited()
    assert f"note: no turns in {empty}" in ran.stderr


def test_a_file_of_an_unknown_format_creates_no_store(tmp_path, run):
    """The error says what the file looks like, and what to do."""
    path = tmp_path / "t.csv"
    path.write_text("who,said\nAda,hello\n")
    ran = run("import", tmp_path / "new", path, *MODEL).exited(1)
    assert "it looks like CSV, and none of its columns has a usual name for a text: 'who', 'said'" in ran.stderr
    assert "e.g. --field text=said" in ran.stderr
    assert not (tmp_path / "new").exists()
    assert run("import", tmp_path / "new", path, "--field", "text=said,speaker=who", *MODEL).returncode == 0
    assert texts_in(tmp_path / "new") == ["hello"]


def test_a_dry_run_shows_the_first_three_turns_and_writes_nothing(tmp_path, run):
    """And which field became what, and how many turns there are."""
    ran = run("import", tmp_path / "new", DATA / "table.csv", "--dry-run").exited()
    shown = ran.stdout.splitlines()
    assert shown[0].endswith("table.csv: CSV with a header; 3 turns in 2 sessions")
    assert [line.split(maxsplit=1) for line in shown[1:6]] == [
        ["text", "Message"],
        ["role", "user, unless the speaker names a role"],
        ["session", "Conversation"],
        ["time", "Created At"],
        ["speaker", "Sender"],
    ]
    assert shown[6] == "1. trip, user Alice, 2026-03-16 09:00Z, line 2"
    assert shown[7:9] == ["   │ I moved; to Lisbon,", "   │ at last."]
    assert shown[-1] == "left out: 3 field Score"
    assert "nothing was written; to import: `mnemolog import " in ran.stderr
    assert "--dry-run" not in ran.stderr
    assert not (tmp_path / "new").exists()


def test_a_dry_run_is_json_too(tmp_path, run):
    """One object for each file. In words, the fields of a transcript are fixed and not named."""
    shown = run("import", tmp_path / "new", DATA / "codex.jsonl", "--dry-run").stdout.splitlines()
    assert shown[0].endswith("codex.jsonl: a rollout of Codex; 4 turns in 1 session")
    assert shown[1].startswith("1. ")
    files = [DATA / "zep.json", DATA / "claude_ai.json"]
    zep, claude = run("import", tmp_path / "new", *files, "--dry-run", "--json", "--scope", "acme").json
    assert (zep["format"], zep["turns"], zep["sessions"]) == ("zep", 3, 1)
    assert zep["mapping"]["role"] == "role_type"
    assert zep["first"][0] | {"text": "", "said_at": ""} == {
        "where": "message 1",
        "session": "trip",
        "session_title": "",
        "scope": "acme",
        "agent": "imported",
        "role": "user",
        "speaker": "Alice",
        "said_at": "",
        "text": "",
    }
    assert claude["first"][0]["session_title"] == "Ferry to Skye"
    assert len(claude["first"]) == 3


def test_a_dry_run_names_every_line_that_would_be_refused(tmp_path, run):
    """And says that the import would stop there."""
    path = lines_of(tmp_path / "t.jsonl", {"text": "one"}, "broken", {"text": "two"}, {"text": "three", "role": "boss"})
    ran = run("import", tmp_path / "new", path, "--dry-run")
    assert [line for line in ran.stderr.splitlines() if line.startswith("refused: ")] == [
        f"refused: {path}:2: JSON: invalid JSON: Expecting value at column 1",
        next(line for line in ran.stderr.splitlines() if f"{path}:4: role: 'boss'" in line),
    ]
    assert "the import would stop at the first bad line; with --skip-bad it leaves out 2 lines" in ran.stderr


def test_an_import_names_what_it_does_not_read_and_reads_the_standard_input(tmp_path, run):
    """Columns on every import, and by reason what was left out; as JSON too."""
    path = tmp_path / "odd.csv"
    path.write_text("when,type,text,mood\n2026-01-05,human,hello,glad\n2026-01-05,ai,,sad\n")
    ran = run("import", tmp_path / "memory", path, *MODEL)
    assert ran.stdout.splitlines()[1:] == ["left out: 2 field mood, 1 empty"]
    answer = run("import", tmp_path / "other", "-", *MODEL, "--json", stdin=path.read_text()).json
    assert (answer["recorded"], answer["left_out"]) == (1, {"field mood": 2, "empty": 1})
    preview = run("import", tmp_path / "new", path, "--dry-run", "--json").json[0]
    assert preview["left_out"] == answer["left_out"]


def test_a_wrong_field_is_refused_with_the_fields_of_the_file(tmp_path, run):
    """Leaving out every line would be no remedy, nor can what concerns the whole file be left out."""
    path = tmp_path / "t.json"
    path.write_text('[{"text": "one"},\n oops]')
    broken = run("import", tmp_path / "memory", path, *MODEL).stderr
    assert "t.json:2: the JSON document is broken" in broken
    assert "--skip-bad" not in broken
    assert "hint: correct the file, or name another, and run the same command again" in broken
    ran = run("import", tmp_path / "new", DATA / "table.csv", "--field", "text=Nope", *MODEL)
    assert "no field 'Nope'; the fields are 'Conversation', 'Sender', 'Created At', 'Message', 'Score'" in ran.stderr
    assert "hint: name the field; `mnemolog import " in ran.stderr
    assert "--skip-bad" not in ran.stderr
    assert not (tmp_path / "new").exists()


def test_after_a_broken_line_an_import_says_what_is_recorded_and_how_to_continue(tmp_path, run):
    """The same command, with the option that helps; continuing records nothing twice, and a changed text once."""
    memory = tmp_path / "memory"
    path = lines_of(tmp_path / "t.jsonl", {"text": "one", "key": "k"}, "broken", {"text": "two"}, {"text": "three"})
    hint = run("import", memory, path, *MODEL).exited(1).stderr.splitlines()[-1]
    assert hint.startswith("hint: 1 turn recorded; correct the line and run the same command again: ")
    assert hint.endswith(f"leave out such lines: `mnemolog import {memory} {path} --model none --skip-bad`")
    again = run("import", memory, path, *MODEL, "--skip-bad", "--json").json
    assert (again["recorded"], again["already_there"], len(again["refused"])) == (2, 1, 1)
    lines_of(path, {"text": "two"}, {"text": "other words", "key": "k"})
    for recorded in (1, 0):
        assert run("import", memory, path, *MODEL, "--json").json["recorded"] == recorded
    assert texts_in(memory) == ["one", "two", "three", "other words"]


def test_ctrl_c_after_the_turns_are_recorded_says_how_many_and_how_to_continue(tmp_path, run, monkeypatch):
    """While they are indexed. While they are read: test_cli.py."""

    def stopped(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "_catch_up", stopped)
    ran = run("import", tmp_path / "memory", DATA / "table.csv", *MODEL).exited(130)
    assert "interrupted: 3 turns recorded; to continue, run the same command again" in ran.stderr


def test_the_error_of_the_library_has_a_note_with_the_number_of_turns_recorded(tmp_path):
    """A traceback prints it."""
    path = lines_of(tmp_path / "t.jsonl", {"text": "one"}, {"text": "two"}, "broken")
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        import_files(store, path, skip_bad=True)
        with pytest.raises(ImportRefused) as caught:
            import_files(store, path)
        assert caught.value.__notes__ == ["0 turns recorded, 2 turns were there before"]
        assert caught.value.skippable


def test_every_export_is_imported_twice_without_doubles(tmp_path, run):
    """All samples at once; the second time nothing is new. A session has the title of its conversation."""
    memory, files = tmp_path / "memory", []
    for path in sorted(DATA.iterdir()):
        files.append(tmp_path / path.name)
        shutil.copyfile(path, files[-1])
    first = run("import", memory, *files, *MODEL, "--json").json
    second = run("import", *files, *MODEL, "--json", store=memory).json
    assert (first["recorded"], second["recorded"], second["already_there"]) == (first["turns"], 0, first["turns"])
    assert first["files"] == len(files)
    with MemoryStore.open(memory, model=None) as store:
        titles = {session.session: session.title for session in store.sessions()}
    assert titles["8f2e0a5c-1111-4222-8333-444455556666"] == "Ferry to Skye"


def test_the_help_of_import_names_every_format_and_shows_examples(run):
    """What `--format` takes."""
    shown = " ".join(run("import", "--help").stdout.split())
    assert set(FORMATS) == set(importing.FORMAT_NAMES.replace(" or ", ", ").split(", "))
    assert importing.FORMAT_NAMES in shown
    assert "mnemolog import memory/ conversations.json --dry-run" in shown


@pytest.fixture(scope="module")
def mean(tmp_path_factory):
    """A model of a few weights."""
    return tiny_model(tmp_path_factory.mktemp("models") / "mean")


@pytest.fixture(scope="module")
def largest(tmp_path_factory):
    """Another one of the same dimension and the same weights, put together otherwise."""
    return tiny_model(tmp_path_factory.mktemp("models") / "largest", pooling="max")


@pytest.fixture
def talk(folder):
    """A store with a few turns, closed."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        for text in ("I moved to Lisbon in March.", "The dog is called Nero.", "She is allergic to peanuts."):
            session.record("user", text)
    return folder


def recalled(run, folder, model):
    """Fingerprint of the model that answers, opened with `model` and told of no other."""
    answer = run("recall", folder, "dog", "--mode", "vector", "--model", model, "--json").json
    assert len(answer["hits"]) == 3
    assert answer["hits"][0]["similarity"] <= 1.0 + 1e-5
    return answer["model"]


@pytest.mark.model
def test_a_change_of_model_and_back(run, talk, mean, largest):
    """Built, activated, found by its folder from any process, gone back from without embedding, and dropped."""
    assert run("model", "list", talk, "--json").json == []
    assert "no model was activated" in run("model", "list", talk).stdout
    planned = run("model", "add", talk, largest, "--dry-run", "--json").json
    assert (planned["encoded_texts"], planned["dry_run"]) == (3, True)
    assert run("model", "list", talk, "--json").json == []
    for model in (mean, largest):
        assert run("model", "add", talk, model, "--json").json["built_turns"] == 3
    by_name = {item["name"]: item for item in run("model", "list", talk, "--json").json}
    assert {name: (item["state"], item["vectors"], item["active"]) for name, item in by_name.items()} == {
        str(model): ("current", 3, False) for model in (mean, largest)
    }
    old, new = by_name[str(mean)]["fingerprint"], by_name[str(largest)]["fingerprint"]
    assert recalled(run, talk, mean) == old
    activated = run("model", "activate", talk, largest, "--json").json
    assert (activated["fingerprint"], activated["appended"], activated["encoded_texts"]) == (new, True, 0)
    assert recalled(run, talk, mean) == new
    note = f"note: {largest} is active and answers; --model {mean} has no effect"
    said = {model: run("recall", talk, "dog", "--model", model).stderr for model in (mean, largest, "none")}
    assert {model: note in text for model, text in said.items()} == {mean: True, largest: False, "none": False}
    assert "was active already" in run("model", "activate", talk, new[:8]).exited().stdout
    assert run("model", "activate", talk, old[:8], "--json").json["encoded_texts"] == 0
    assert recalled(run, talk, largest) == old
    shown = run("model", "list", talk).stdout
    assert f"{old[:8]}" in shown
    assert "at 6, active" in shown


@pytest.mark.model
def test_a_drop_says_what_it_would_do_and_wants_a_yes(run, talk, mean, largest):
    """The active model is refused, and before any activation the one the store is opened with."""
    for model in (mean, largest):
        run("model", "add", talk, model)
    before = run("model", "list", talk, "--json").json
    refused = run("model", "drop", talk, mean, "--model", mean, "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this store uses it" in refused.stderr
    for look, code in ((("--dry-run",), 0), ((), 1)):
        looked = run("model", "drop", talk, mean, "--model", "none", *look).exited(code)
        assert "would remove 1 generation of 3 vectors and 0 texts of the embedding cache" in looked.stdout
        assert ("--yes" in looked.stderr) == (code == 1)
    assert run("model", "list", talk, "--json").json == before
    dropped = run("model", "drop", talk, mean, "--model", "none", "--yes", "--json").json
    assert (dropped["vectors"], dropped["embeddings"], dropped["dry_run"]) == (3, 0, False)
    assert [item["name"] for item in run("model", "list", talk, "--json").json] == [str(largest)]
    assert run("model", "add", talk, mean, "--json").json["encoded_texts"] == 3
    run("model", "activate", talk, mean)
    refused = run("model", "drop", talk, mean, "--yes")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 2)
    assert "is active" in refused.stderr


@pytest.mark.model
def test_a_folder_is_named_by_its_whole_path(run, talk, mean, monkeypatch):
    """The name in the event can be opened from any working directory; both ways to write it mean the same."""
    monkeypatch.chdir(mean.parent)
    run("model", "add", talk, "./mean")
    for asked, said in (("no-such-model", "model 'no-such-model'"), ("abcdef0123", "no model with that name")):
        ran = run("model", "activate", talk, asked)
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 2)
        assert said in ran.stderr
    activated = run("model", "activate", talk, "mean", "--json").json
    assert (activated["model"], activated["appended"]) == (str(mean), True)
    monkeypatch.chdir(talk)
    assert recalled(run, talk, "all-MiniLM-L6-v2") == run("model", "list", talk, "--json").json[0]["fingerprint"]
    monkeypatch.chdir(mean.parent)
    assert "is active" in run("model", "drop", talk, "mean", "--yes").stderr
    with MemoryStore.open(talk, model="mean", create=False) as store:
        assert store.models.activate("./mean").appended is False
        assert store.models.activate(mean).model == str(mean)
