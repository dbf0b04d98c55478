"""Paths as people write them."""

import pytest

from mnemolog import MemoryStore, import_log, restore_backup
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.domain.errors import InvalidInput

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
