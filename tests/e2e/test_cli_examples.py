"""The examples in the help of the commands run as they are printed, in a folder that has what they name."""

import json
import re
import shlex
import shutil

import pytest

from mnemolog import MemoryStore
from mnemolog.cli import every_command
from mnemolog.cli.app import loaded
from mnemolog.domain.events import AssertFact, TokenCreated
from mnemolog.operations.copies import BackupReport

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
