"""Every state of a store: what doctor, status, verify and recall say about it, and that the command they name mends it.

No state gives a raw error, and none is called healthy beyond what was looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import LogDamaged, MemoryStore
from tests.support import HashEncoder

TURNS = 40
PAGE = 4_096


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with two sessions, views and vectors, its backup and a copy of its keys; all closed."""
    base = tmp_path_factory.mktemp("a store's health")
    with MemoryStore.open(base / "memory", model=HashEncoder(), background=False) as store:
        for name in ("a", "b"):
            store.start_session(name, scope=f"acme/{name}")
        for number in range(TURNS):
            store.record("ab"[number % 2], "user", f"note number{number} " + "with some more words " * 10)
        store.recall("number3")
        store.admin.catch_up_vectors()
        store.backup(base / "backup", keys=base / "keys")
    return base


@pytest.fixture
def memory(sound, tmp_path):
    """A copy of that store, which knows of the same backup. Its folder has to be quoted."""
    folder = tmp_path / "my memory"
    shutil.copytree(sound / "memory", folder)
    return folder


def zero(path, page):
    """Overwrite a page of a database with zeros; a negative one counts from the end."""
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(page % pages * PAGE)
        file.write(bytes(PAGE))


def other_database(path):
    path.unlink()
    with dbapi2.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()


LOST = {
    "log.db is missing": lambda folder: (folder / "log.db").unlink(),
    "log.db is empty": lambda folder: (folder / "log.db").write_bytes(b""),
    "log.db is the database of another program": lambda folder: other_database(folder / "log.db"),
    "log.db is not a SQLite database": lambda folder: zero(folder / "log.db", 0),
}
"""How a log is lost, by what is said about it."""


def files(folder):
    """The files of a store with their sizes, without those that SQLite needs for reading."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def shell(command):
    """Run a command as it was printed, in a shell."""
    mnemolog = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{mnemolog}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, (command, ran)


def command_in(text):
    """The last command that a text names."""
    return re.findall(r"`([^`]*)`", text)[-1]


@pytest.mark.parametrize("command", ["doctor", "doctor --deep", "status", "verify", "recall", "sessions"])
@pytest.mark.parametrize("how", LOST)
def test_a_store_without_its_log_is_called_one_and_the_command_restores_it(memory, run, command, how):
    """Exit status 3, the newest backup by its path, and nothing written into the folder."""
    LOST[how](memory)
    before = files(memory)
    name, *options = command.split()
    ran = run(name, memory, *options, *(["number3", "--mode", "text"] if name == "recall" else []))
    assert ran.returncode == 3
    assert re.search(rf"was a store: it has \S+, but its {re.escape(how)}", ran.stdout + ran.stderr)
    assert files(memory) == before
    if command == "status":
        shell(command_in(ran.stderr))
        restored = memory.with_name("my memory-restored")
        with MemoryStore.open(restored, model=None, create=False) as store:
            assert store.head().position == TURNS + 2
            assert store.verify(contents=True).sound


@pytest.mark.parametrize("encrypt", [True, False])
@pytest.mark.parametrize("how", LOST)
def test_no_new_log_is_created_where_one_was_lost(tmp_path, encrypt, how):
    """By `open` either, whether the content was encrypted or not."""
    folder = tmp_path / "memory"
    with MemoryStore.open(folder, model=None, encrypt=encrypt) as store:
        store.session("s").record("user", "hello")
        store.sessions()
    LOST[how](folder)
    left = (folder / "log.db").read_bytes() if (folder / "log.db").exists() else None
    for _ in range(2):
        with pytest.raises(LogDamaged, match="was a store"):
            MemoryStore.open(folder, model=None)
    assert ((folder / "log.db").read_bytes() if (folder / "log.db").exists() else None) == left


def test_without_a_known_backup_the_hint_says_so_and_names_no_folder(memory, run):
    """A command with a made-up path would be worse than none."""
    (memory / "log.db").unlink()
    (memory / "backups.json").unlink()
    ran = run("verify", memory)
    assert ran.returncode == 3
    assert "no backup of this store is known here" in ran.stderr
    assert command_in(ran.stderr) == "mnemolog restore --help"
