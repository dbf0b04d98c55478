"""Following files that are being written: half lines, files cut off and replaced, signals, crashes, two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mnemolog import ExtraMissing, InvalidInput, MemoryStore, restore_backup
from mnemolog.adapters.watch import Watcher, default_folders
from mnemolog.adapters.watch import watcher as watching
from tests.adapters.watch.transcripts import Claude, Codex, Transcript
from tests.support import in_thread, wait_until

A, B = (f"{letter * 8}-0000-4000-8000-000000000001" for letter in "ab")
WAYS = [pytest.param({}, id="told"), pytest.param({"poll_s": 0.05}, id="polls")]


def texts_in(store, session):
    try:
        return [turn.text for turn in store.session(session).turns()]
    except Exception:
        return []


class Following:
    """A watcher that follows in a thread."""

    def __init__(self, store, folders, **how):
        self.reports = []
        self.watcher = Watcher(store, folders)
        self.run = in_thread(lambda: self.watcher.follow(self.reports.append, **how))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watcher.stop.set()
        self.run.result()
        self.watcher.close()


@pytest.mark.parametrize("how", WAYS)
def test_what_is_written_is_recorded(memory, projects, rollouts, how):
    """By both agents, in files and folders that come later."""
    with Following(memory, [projects, rollouts], **how):
        talk, rollout = Claude(projects, A), Codex(rollouts, B)
        for number in range(3):
            talk.say(f"question {number}")
            rollout.say(f"task {number}")
            wait_until(lambda: len(texts_in(memory, A)) > number and len(texts_in(memory, B)) > number, what="both")  # noqa: B023
    assert texts_in(memory, A) == ["question 0", "question 1", "question 2"]
    assert texts_in(memory, B) == ["task 0", "task 1", "task 2"]


def test_a_half_written_line_waits_for_its_end(projects, read, said):
    """It is no bad line, however often it is looked at."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    talk.answer("A long answer.")
    whole = talk.path.read_text()
    for cut in (len(whole) - 200, len(whole) - 100, len(whole) - 3):
        talk.path.write_text(whole[:cut])
        assert read().refused == 0
    assert said(A) == ["Hello."]
    talk.path.write_text(whole)
    read()
    talk.say("Thanks.")
    read()
    assert said(A) == ["Hello.", "A long answer.", "Thanks."]


def test_a_last_line_that_is_whole_needs_no_end(projects, read, said):
    """JSON is whole when its last bracket is there."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    talk.path.write_text(talk.path.read_text().rstrip("\n"))
    assert read().recorded == 1
    talk.path.write_text(talk.path.read_text() + "\n")
    talk.answer("Hi.")
    assert read().recorded == 1
    assert said(A) == ["Hello.", "Hi."]


def test_a_bad_line_is_named_and_passed_over(projects, read, said):
    """No JSON, no object, a time that is none."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    talk.put("{oops", "[]", "")
    talk.say("Never said.", timestamp="yesterday-ish")
    talk.say("x" * ((1 << 20) + 1))
    talk.answer("Hi.")
    report = read()
    assert (report.recorded, report.refused) == (2, 4)
    assert [refusal.split(f"{talk.path}:")[1].split(":")[0] for refusal in report.refusals] == ["2", "3", "5", "6"]
    assert said(A) == ["Hello.", "Hi."]
    assert read().refused == 0


def test_a_name_that_the_store_refuses_stops_nothing(projects, read, said):
    """A session called by half a kilobyte."""
    Claude(projects, "x" * 300, file="long").say("Never said.")
    Claude(projects, A).say("Hello.")
    report = read()
    assert (report.recorded, report.refused) == (1, 1)
    assert said(A) == ["Hello."]


def test_the_rest_of_the_store_does_not_mind(projects, memory, read):
    """Doctor and verify see nothing that should not be there."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    talk.compact()
    talk.say("And now?")
    read()
    memory.catch_up_views()
    assert memory.doctor().findings == ()
    assert memory.verify(contents=True).findings == ()


def test_a_file_that_was_cut_off_or_replaced_is_read_anew(projects, memory, read, said):
    """What is new in it is told by its keys."""
    talk = Claude(projects, A)
    for number in range(5):
        talk.say(f"question {number}")
    read()
    lines = talk.path.read_text().splitlines(keepends=True)
    talk.path.write_text("".join(lines[:2]))
    assert read().recorded == 0
    talk.last = "aaaaaa-0005"
    talk.say("after the cut")
    assert read().recorded == 1
    talk.path.write_text("".join(reversed(lines)))
    report = read()
    assert (report.recorded, report.lines) == (0, 5)
    assert sorted(turn.text for turn in memory.turns(A)) == ["after the cut", *(f"question {n}" for n in range(5))]


def test_a_file_that_vanishes_is_fine(projects, memory, read, monkeypatch):
    """Before it is looked at, and between that and its opening."""
    talk, other = Claude(projects, A), Claude(projects, B)
    talk.say("Hello.")
    other.say("Hello.")
    listed = Watcher._files
    monkeypatch.setattr(Watcher, "_files", lambda *args: [*listed(*args), talk.path.unlink()][:-1])
    assert read().recorded == 1
    assert memory.find_session(B).turns == 1


def test_files_can_be_left_out(projects, rollouts, memory, read):
    """Old ones, and those that fit a pattern."""
    Claude(projects, A).say("Hello.")
    Codex(rollouts, B).say("Hello.")
    os.utime(next(rollouts.rglob("*.jsonl")), (1_000_000_000, 1_000_000_000))
    assert read(since=datetime(2020, 1, 1, tzinfo=UTC), exclude=["*/-home-ada-*"]).files == 0
    assert read(since=datetime(2020, 1, 1, tzinfo=UTC)).recorded == 1
    assert read(exclude=["*/-home-ada-*"]).recorded == 1
    assert {item.session for item in memory.sessions()} == {A, B}


def test_other_files_are_passed_over_unless_they_are_asked_for(projects, memory, read, said):
    """A plain file of turns is one where somebody says so; keys that are made count on."""
    plain = Transcript(projects / "chat.jsonl")
    plain.put({"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Hello."})
    assert read().lines == 0
    assert read(format="jsonl", scope="ada").recorded == 2
    plain.put({"role": "user", "text": "Hello."})
    assert read(format="jsonl").recorded == 1
    assert said("chat") == ["Hello."] * 3
    assert memory.session("chat").scope == "ada"


def test_a_dry_run_says_what_would_come(projects, rollouts, memory, read):
    """And changes nothing; what comes then is that."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    read()
    talk.answer("Hi.")
    fork = talk.fork(projects, B, upto=talk.rows[0]["uuid"])
    fork.say("Good day.")
    Codex(rollouts, "c").say("Hello.")
    head = memory.head().position
    with Watcher(memory, [projects, rollouts]) as watcher:
        would = watcher.preview()
        assert memory.head().position == head
        did = watcher.catch_up()
    assert (would.recorded, would.sessions, would.files) == (did.recorded, did.sessions, did.files) == (3, 2, 3)


def test_two_watchers_record_each_turn_once(folder, projects, rollouts):
    """Two processes' worth of stores on one folder, while it is written to."""
    folders, opened = [projects, rollouts], {"model": None, "background": False}
    with MemoryStore.open(folder, **opened) as one, MemoryStore.open(folder, **opened) as two:
        with Following(one, folders, poll_s=0.05), Following(two, folders, poll_s=0.05):
            talk, rollout = Claude(projects, A), Codex(rollouts, B)
            for number in range(30):
                talk.say(f"question {number}")
                rollout.say("again")
            wait_until(lambda: len(texts_in(one, A)) == 30 and len(texts_in(one, B)) == 30, what="all turns")
        assert one.head().position == 30 * 2 + 2 * 2
        assert texts_in(two, A) == [f"question {number}" for number in range(30)]


def test_one_watcher_reads_at_a_time(folder, projects, memory):
    """The other waits for it, and ends at once where it is told to."""
    Claude(projects, A).say("Hello.")
    with (
        MemoryStore.open(folder, model=None, background=False) as store,
        Watcher(memory, [projects]) as one,
        Watcher(store, [projects]) as two,
    ):
        with one._held() as held:
            waiting = in_thread(two.catch_up)
            waiting.thread.join(0.3)
            assert held
            assert waiting.running
            assert memory.sessions() == []
        assert waiting.result().recorded == 1
        Claude(projects, A).answer("Hi.")
        with one._held():
            waiting = in_thread(two.catch_up)
            two.stop.set()
            assert waiting.result(1.0).recorded == 0


def test_places_of_a_log_that_lost_its_end_are_of_no_use(folder, projects, tmp_path):
    """A store that was restored from a backup has what was read since recorded again."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    with (
        MemoryStore.open(folder, model=None, background=False, encrypt=False) as store,
        Watcher(store, [projects]) as watcher,
    ):
        watcher.catch_up()
        store.backup(tmp_path / "backup")
        talk.answer("Hi.")
        watcher.catch_up()
        places = {p.name: p.read_bytes() for p in (folder / "projections").glob("watch.db*")}
    back = tmp_path / "back"
    restore_backup(tmp_path / "backup", back)
    (back / "projections").mkdir(exist_ok=True)
    for name, data in places.items():
        (back / "projections" / name).write_bytes(data)
    with MemoryStore.open(back, model=None, background=False) as store, Watcher(store, [projects]) as watcher:
        assert watcher.catch_up().recorded == 1
        assert texts_in(store, A) == ["Hello.", "Hi."]


def test_forgetting_does_not_lose_count(projects, rollouts, memory, read, said):
    """It empties the places; the same words later are still another turn."""
    rollout = Codex(rollouts, A)
    rollout.say("again")
    with Watcher(memory, [rollouts]) as watcher:
        watcher.catch_up()
        memory.forget(session=A)
        rollout.say("again")
        assert watcher.catch_up().recorded == 1
    rollout.say("again")
    assert read().recorded == 1
    assert said(A) == ["again", "again"]


def test_the_folders_of_agents_are_where_they_say(tmp_path):
    """In the user's own, or where the environment names another; those that are not there are left out."""
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    (tmp_path / "elsewhere" / "sessions").mkdir(parents=True)
    assert default_folders({}, tmp_path) == [tmp_path / ".claude" / "projects"]
    environment = {"CODEX_HOME": str(tmp_path / "elsewhere"), "CLAUDE_CONFIG_DIR": str(tmp_path / "none")}
    assert default_folders(environment, tmp_path) == [tmp_path / "elsewhere" / "sessions"]


def test_what_cannot_be_watched_is_said_at_once(memory, projects):
    """No folder, no such format."""
    with pytest.raises(InvalidInput, match="is no folder"):
        Watcher(memory, [projects / "missing"])
    with pytest.raises(InvalidInput, match="empty segment"):
        Watcher(memory, [projects], scope="/x")
    with pytest.raises(InvalidInput, match="none of claude-code, codex, jsonl"):
        Watcher(memory, [projects], format="csv")


def test_without_its_extra_it_says_which_one(memory, projects, monkeypatch):
    """Only to be told of changes takes it."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with Watcher(memory, [projects]) as watcher, pytest.raises(ExtraMissing, match=r"mnemolog\[watch\]"):
        watcher.follow(print)


def test_where_the_system_tells_nothing_it_looks(memory, projects, monkeypatch):
    """The number of watches is limited for each user."""
    monkeypatch.setattr(watching, "SCAN_S", 0.05)

    def full(*_, **__):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("watchfiles.watch", full)
    with Following(memory, [projects]):
        Claude(projects, A).say("Hello.")
        wait_until(lambda: texts_in(memory, A) == ["Hello."], what="the turn")


def command(*arguments, **options):
    script = "from mnemolog.cli import main; main()"
    line = [sys.executable, "-c", script, "watch", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_once_is_for_cron(folder, projects):
    """It records, says so and ends; as JSON too. A dry run makes no store."""
    Claude(projects, A).say("Hello.")
    ran = command(folder, projects, "--dry-run")
    assert ran.communicate(timeout=60)[1].startswith("error: ")
    assert not folder.exists()
    ran = command(folder, projects, "--once")
    out, _ = ran.communicate(timeout=60)
    assert (ran.returncode, out) == (0, "recorded 1 turn, 1 session started, switches: 1 new, 1 file read\n")
    ran = command(folder, projects, "--once", "--json")
    out, _ = ran.communicate(timeout=60)
    assert (ran.returncode, json.loads(out)["recorded"]) == (0, 0)


def waited_for_a_cpu(pid):
    """Seconds that a process' main thread was ready to run and others ran (Linux); 0 where nobody tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(folder, projects, number):
    """In under a second, with exit status 0, and with what was said recorded.

    What it waited for others to leave it a CPU does not count: that is as long as the machine is busy.
    """
    talk = Claude(projects, A)
    talk.say("Hello.")
    ran = command(folder, projects, "--json")
    assert json.loads(ran.stdout.readline())["recorded"] == 1
    talk.answer("Hi.")
    assert json.loads(ran.stdout.readline())["recorded"] == 1
    began, before = time.monotonic(), waited_for_a_cpu(ran.pid)
    waited = [before]
    ran.send_signal(number)
    wait_until(lambda: waited.append(waited_for_a_cpu(ran.pid)) or ran.poll() is not None, what="its end")
    took = time.monotonic() - began
    assert ran.returncode == 0
    assert took - (max(waited) - before) < 1.0
    assert ran.stderr.read() == ""
    ran.stdout.close()
    ran.stderr.close()


def test_a_watcher_that_is_killed_loses_and_doubles_nothing(folder, projects, rollouts, rng):
    """However often, at whatever moment: each turn exactly once, in its order."""
    talk, rollout = Claude(projects, A), Codex(rollouts, B)
    for number in range(400):
        talk.say(f"question {number}")
        rollout.say(f"task {number % 3}")
        if number % 50 == 49:
            talk.compact()
            rollout.compact()
    script = Path(__file__).with_name("dying.py")
    for _ in range(4):  # Two at a time: what one was doing the other goes on with.
        steps = [str(rng.randrange(1, 50)) for _ in range(2)]
        dying = [subprocess.Popen([sys.executable, script, folder, projects, rollouts, step]) for step in steps]
        ends = [child.wait(timeout=60) for child in dying]
        assert set(ends) <= {0, -signal.SIGKILL}
    with MemoryStore.open(folder, model=None, background=False) as store:
        with Watcher(store, [projects, rollouts]) as watcher:
            watcher.catch_up()
        assert texts_in(store, A) == [f"question {number}" for number in range(400)]
        assert texts_in(store, B) == [f"task {number % 3}" for number in range(400)]
        kinds = [switch.event.reason for switch in store.events() if switch.event.topic == "session.switched.v1"]
        assert (kinds.count("new"), kinds.count("compress")) == (2, 14)
        assert store.verify().findings == ()
