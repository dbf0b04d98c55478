"""The lock of who writes vectors is free again whatever went wrong while it was taken."""

import os

import pytest

from mnemolog.domain.errors import IndexerBusy
from mnemolog.infra.runtime import files
from mnemolog.projections.vectors.folders import IndexerLock


def test_a_note_that_cannot_be_written_does_not_keep_the_lock(tmp_path, monkeypatch):
    """Found by a sweep over file descriptors: the lock was taken, the note failed, and nobody could index any more."""

    def fail(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_unsynced", fail)
        with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
            assert IndexerLock(tmp_path, "f" * 64).holder() == "another process"
    with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
        pass


def test_a_held_lock_names_its_holder_and_is_released_without_a_note(tmp_path):
    """Of another thread as of another process."""
    one, two = (IndexerLock(tmp_path, "f" * 64) for _ in range(2))
    with one.held():
        (note,) = tmp_path.glob("*.holder.json")
        with pytest.raises(IndexerBusy, match=f"process {os.getpid()}") as caught, two.held(wait_s=0):
            pass
        assert f"process {os.getpid()}" in caught.value.holder
        with pytest.raises(IndexerBusy), one.held(wait_s=0):
            pass
    assert not note.exists()
    with two.held(wait_s=0), IndexerLock(tmp_path, "e" * 64).held(wait_s=0):
        pass
