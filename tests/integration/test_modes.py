"""What is remembered is its owner's alone: modes of every file and folder, under a umask that would allow all."""

import os
import stat

import pytest

from mnemolog import MemoryStore
from tests.support import HashEncoder


@pytest.fixture
def lax():
    """A umask that takes nothing away."""
    was = os.umask(0)
    yield
    os.umask(was)


def modes_below(folder):
    """Modes by path of the folder and everything below it."""
    found = {".": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
    return found


def lax_ones(folder):
    """Of them those that others may read, write or enter."""
    return {name: oct(mode) for name, mode in modes_below(folder).items() if mode & 0o077}


def test_every_file_and_folder_of_a_store_is_its_owners_alone(folder, lax):
    """While it is open, with a write-ahead log, and after it was closed: segments, locks, quarantine and notes too."""
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        session = store.start_session("trip")
        for number in range(3):
            session.record("user", f"turn {number}")
        session.checkpoint("here")
        store.recall("turn")
        store.admin.catch_up_vectors()
        assert (folder / "log.db-wal").exists()
        assert (folder / "log.db-shm").exists()
        assert lax_ones(folder) == {}
        store.rebuild("all")
    assert (folder / "projections" / "views.db-seal").exists()
    (folder / "projections" / "views.db").write_bytes(b"no database at all")  # Nobody has it open.
    with MemoryStore.open(folder, model=None) as store:
        store.sessions()
        assert store.admin.quarantine().items()
        assert lax_ones(folder) == {}
    names = modes_below(folder)
    assert any("manifest.json" in name for name in names)
    assert any(".lock" in name for name in names)
    assert lax_ones(folder) == {}


def test_forgetting_leaves_no_file_that_others_may_read(tmp_path, lax):
    """Its lock, and the folders above a store that it creates, are its owner's alone too."""
    folder = tmp_path / "above" / "m"
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "tea")
        store.forget(session="trip")
    assert lax_ones(folder.parent) == {}
