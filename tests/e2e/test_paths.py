"""Paths as people write them, and names that are no UTF-8."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import MemoryStore, import_log, restore_backup
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.domain.errors import InvalidInput
from tests.support import WAIT_S, HashEncoder

pytestmark = pytest.mark.local


def test_a_tilde_is_the_home_folder_in_every_path(tmp_path, monkeypatch):
    """Of a store, its backup and keys, a file of heads, an export, an import: no folder is called `~`."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    (home / "chat.jsonl").write_text('{"role": "user", "text": "Tea."}\n')
    with MemoryStore.open("~/memory", model=None) as store:
        assert store.path == home / "memory"
        assert import_files(store, "~/chat.jsonl").recorded == 1
        store.audit.append_head("~/heads.jsonl")
        assert store.verify(heads="~/heads.jsonl").sound
        store.audit.export("~/log.jsonl")
        store.backup("~/copy", keys="~/keys")
    import_log("~/log.jsonl", "~/again")
    restore_backup("~/copy", "~/restored", keys="~/keys")
    found = {path.name for path in home.iterdir()}
    assert found == {"memory", "chat.jsonl", "heads.jsonl", "log.jsonl", "copy", "keys", "again", "restored"}
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("path", [None, 5, "", b"memory", "~nobody-of-that-name/memory", ":memory:", "sqlite:///m.db"])
def test_what_is_no_path_is_refused(path):
    """With the name of the argument."""
    with pytest.raises(InvalidInput, match="path: "):
        MemoryStore.open(path, model=None)


def test_one_file_or_several_are_imported(store, tmp_path):
    """A path alone is one file, not a list of letters."""
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "text": "Tea."}\n')
    assert import_files(store, str(file)).files == 1
    assert import_files(store, file).already_there == 1
    assert import_files(store, [file]).already_there == 1


SHOWN = "\\udcff"


@pytest.fixture
def odd(tmp_path):
    """A folder with a byte that is no UTF-8 in its name."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    return folder


@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_a_store_in_such_a_folder_works(odd, encrypt):
    """Recording, both kinds of search, vectors, forgetting, verifying, and all that is shown of it."""
    with MemoryStore.open(odd / "m", model=HashEncoder(), background=False, encrypt=encrypt) as store:
        store.session("trip").record("user", "tea in Porto")
        store.admin.catch_up_vectors()
        assert store.recall("tea").hits[0].text == "tea in Porto"
        assert SHOWN in json.loads(store.status().to_json())["path"]
        assert SHOWN in repr(store.status().path)
        assert store.verify().sound
    with MemoryStore.open(odd / "m", model=None, create=False) as store:
        assert len(store.turns("trip")) == 1
    assert [path.name for path in odd.iterdir()] == ["m"]
    assert [path.name for path in odd.parent.iterdir()] == [odd.name]


def test_a_log_file_in_utf8_takes_the_path(odd, caplog):
    """Messages show the byte escaped."""
    caplog.set_level("INFO", logger="mnemolog")
    MemoryStore.open(odd / "m", model=None, background=False).close()
    assert f"odd{SHOWN}/m" in caplog.text
    assert caplog.text.encode("utf-8")


def test_every_target_and_source_of_a_command_may_have_such_a_name(odd, run):
    """Backup, restore, export, import, a file of heads; as text and as JSON."""
    store = odd / "m"
    with MemoryStore.open(store, model=None, background=False, encrypt=False) as opened:
        opened.session("trip").record("user", "tea in Porto")
    command = [sys.executable, "-m", "mnemolog", "status", os.fsencode(store)]
    assert SHOWN in subprocess.run(command, capture_output=True, timeout=WAIT_S, check=True).stdout.decode()
    for name in ("status", "doctor"):
        assert SHOWN in run(name, store).stdout.encode().decode()
        assert run(name, store, "--json").json
    for line in (
        ("head", store, "--append", odd / "heads"),
        ("verify", store, "--heads", odd / "heads"),
        ("backup", store, odd / "b", "--json"),
        ("restore", odd / "b", odd / "r", "--json"),
        ("export", store, odd / "log.jsonl"),
        ("import", odd / "i", odd / "log.jsonl"),
    ):
        assert run(*line).exited().stdout.encode() != b""
    for copy in ("r", "i"):
        assert "tea in Porto" in run("recall", odd / copy, "tea", "--model", "none").stdout
    assert sorted(path.name for path in odd.iterdir()) == ["b", "heads", "i", "log.jsonl", "m", "r"]
