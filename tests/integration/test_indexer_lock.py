"""The lock of who writes vectors is free again whatever went wrong while it was taken."""

from __future__ import annotations

from mnemolog.infra.runtime import atomic_files
from mnemolog.projections.vectors.lock import IndexerLock


def test_a_note_that_cannot_be_written_does_not_keep_the_lock(tmp_path, monkeypatch):
    """Found by a sweep over file descriptors: the lock was taken, the note failed, and nobody could index any more."""

    def fail(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(atomic_files, "write_unsynced", fail)
        with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
            assert IndexerLock(tmp_path, "f" * 64).holder() == "another process"
    with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
        pass


def test_who_gives_the_lock_back_leaves_no_note(tmp_path):
    """A note that is left is for doctor to report: its process was killed."""
    with IndexerLock(tmp_path, "f" * 64).held(wait_s=0):
        (note,) = tmp_path.glob("*.holder.json")
    assert not note.exists()
