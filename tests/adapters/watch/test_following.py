"""Following folders: what is written comes into the log, by two watchers too; the command, and what ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.adapters.watch import Watcher, default_folders
from mnemolog.adapters.watch import watcher as watching
from mnemolog.domain.errors import ExtraMissing
from tests.e2e.transcripts.written import Claude, Codex
from tests.support import in_thread, wait_until

A, B = (f"{letter * 8}-0000-4000-8000-000000000001" for letter in "ab")
WAYS = [pytest.param({}, id="told"), pytest.param({"poll_s": 0.05}, id="polls")]


def texts_in(store, session):
    found = store.find_session(session)
    return [] if found is None else [turn.text for turn in found.turns()]


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
def test_new_lines_are_recorded_as_they_are_written(memory, projects, rollouts, how):
    """Of both agents, also in files and folders that are created later."""
    with Following(memory, [projects, rollouts], **how):
        talk, rollout = Claude(projects, A), Codex(rollouts, B)
        for number in range(3):
            talk.say(f"question {number}")
            rollout.say(f"task {number}")
            wait_until(lambda: len(texts_in(memory, A)) > number and len(texts_in(memory, B)) > number, what="both")  # noqa: B023
    assert texts_in(memory, A) == ["question 0", "question 1", "question 2"]
    assert texts_in(memory, B) == ["task 0", "task 1", "task 2"]


def test_files_can_be_left_out(projects, rollouts, memory, read):
    """Old ones, and those that match a pattern."""
    Claude(projects, A).say("Hello.")
    Codex(rollouts, B).say("Hello.")
    os.utime(next(rollouts.rglob("*.jsonl")), (1_000_000_000, 1_000_000_000))
    assert read(since=datetime(2020, 1, 1, tzinfo=UTC), exclude=["*/-home-ada-*"]).files == 0
    assert read(since=datetime(2020, 1, 1, tzinfo=UTC)).recorded == 1
    assert read(exclude=["*/-home-ada-*"]).recorded == 1
    assert {item.session for item in memory.sessions()} == {A, B}


def test_two_watchers_record_each_turn_once(folder, projects, rollouts):
    """Two stores opened on one folder, while it is written to."""
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


def test_the_folders_of_agents_are_found(tmp_path):
    """In the user's home, or where the environment says; missing ones are left out."""
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    codex = [tmp_path / "elsewhere" / name for name in ("sessions", "archived_sessions")]
    for folder in codex:
        folder.mkdir(parents=True)
    assert default_folders({}, tmp_path) == [tmp_path / ".claude" / "projects"]
    environment = {"CODEX_HOME": str(tmp_path / "elsewhere"), "CLAUDE_CONFIG_DIR": str(tmp_path / "none")}
    assert default_folders(environment, tmp_path) == codex


def test_a_missing_folder_or_an_unknown_format_is_refused_at_once(memory, projects):
    """Before anything is read."""
    for why, folder, how in (
        ("is not a folder", projects / "missing", {}),
        ("empty segment", projects, {"scope": "/x"}),
        ("none of claude-code, codex, jsonl", projects, {"format": "csv"}),
    ):
        with pytest.raises(InvalidInput, match=why):
            Watcher(memory, [folder], **how)


def test_a_missing_extra_is_named(memory, projects, monkeypatch):
    """Only notifications of changes need it."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with Watcher(memory, [projects]) as watcher, pytest.raises(ExtraMissing, match="watchfiles"):
        watcher.follow(print)


def test_without_notifications_the_files_are_polled(memory, projects, monkeypatch):
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


def test_once_records_and_ends(folder, projects, run):
    """It prints what it recorded, as JSON too."""
    Claude(projects, A).say("Hello.")
    ran = run("watch", folder, projects, "--once")
    assert (ran.returncode, ran.stdout) == (0, "recorded 1 turn, 1 session started, switches: 1 new, 1 file read\n")
    assert run("watch", folder, projects, "--once", "--json").json["recorded"] == 0


def waited_for_a_cpu(pid):
    """Seconds that the main thread of a process was ready but other threads ran (Linux); 0 if not reported."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(folder, projects, number):
    """In under a second, with exit status 0, and with everything recorded.

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
