"""Ctrl-C: one line on stderr says what was kept and how to continue, and the status is 130."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from tests.integration.test_encoder import tiny_model

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]


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
def memory(folder):
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


def test_an_interrupted_import_says_how_much_is_recorded_and_continues(memory, conversation, run):
    """The same command, run again, records the rest."""
    line = interrupted("record_batch", 3, "import", memory, conversation, "--no-vectors")
    with MemoryStore.open(memory, model=None, background=False) as store:
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


@pytest.mark.log_file
@pytest.mark.parametrize("command", INTERRUPTED)
def test_an_interrupted_command_says_what_was_kept(command, memory, tmp_path):
    """And leaves nothing half made."""
    function, n, kept = INTERRUPTED[command]
    target = [tmp_path / "target"] if command in ("backup", "export", "copy") else []
    assert kept in interrupted(function, n, command, memory, *target)
    assert (tmp_path / "target").exists() is (command == "copy")
    with MemoryStore.open(memory, model=None, create=False, background=False) as store:
        assert store.verify().sound


@pytest.mark.model
@pytest.mark.parametrize("command", ["project", "rebuild", "recall"])
def test_an_interrupted_command_with_a_model_says_what_was_kept(command, memory, tmp_path, run):
    """While the model embeds; the next try succeeds."""
    model = tiny_model(tmp_path / "model")
    words = (command, memory, *(["vectors"] if command == "rebuild" else ["tea"] if command == "recall" else []))
    assert "kept" in interrupted("_encode_batch", 1, *words, "--model", model)
    assert run(*words, "--model", model).returncode == 0


def test_an_interrupt_is_json_too(memory):
    """For programs."""
    command = [sys.executable, "-m", "tests.children.command_line", "walk", "1", "verify", str(memory), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert json.loads(ran.stdout)["error"]["type"] == "Interrupted"
