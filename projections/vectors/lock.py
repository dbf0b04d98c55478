"""The indexer lock: one process at a time writes a model's vectors. The lock is released when the process ends."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import filelock
import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.infra.runtime import files, fork_guard
from mnemolog.infra.runtime.files import read_file
from mnemolog.projections.vectors.manifest import prefix_of

WAIT_S: Final = 10.0
"""How long a writer waits for another one, in seconds."""
POLL_S: Final = 0.02
_UNKNOWN: Final = "another process"


class Holder(msgspec.Struct, frozen=True):
    """The holder of a lock. Written beside it, for people only: nothing depends on it."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(Holder)


class IndexerLock:
    """The right to write the vectors of one model, for one thread of one process. Not reentrant.

    An advisory lock on a file (flock), which the system releases when its holder ends.
    Locks with different `purpose` are independent: the holder of one may take the other.
    """

    def __init__(self, root: Path, fingerprint: str, *, purpose: str = "") -> None:
        name = f".{prefix_of(fingerprint)}{purpose and '.'}{purpose}"
        self.path = root / f"{name}.lock"
        self._note = root / f"{name}.holder.json"
        self._lock = files.lock_file(self.path)
        # The file lock belongs to the process, which may take it twice. This lock excludes its threads.
        self._thread = fork_guard.lock()

    @contextmanager
    def held(self, *, wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold the lock. Raises `IndexerBusy` if it is not free within `wait_s` seconds."""
        end = time.monotonic() + wait_s
        if not self._thread.acquire(timeout=wait_s):
            raise errors.IndexerBusy(self.path, holder=self.holder())
        try:
            self._acquire(max(0.0, end - time.monotonic()))
            yield
        finally:
            # Also if the lock was taken and the note of its holder could not be written.
            if self._lock.is_locked:
                with suppress(OSError):  # A note that stays is one of a process that did not end well.
                    self._note.unlink(missing_ok=True)
                self._lock.release()
            self._thread.release()

    def holder(self) -> str:
        """Return a description of the current holder, or of one that was killed."""
        try:
            return str(_DECODER.decode(read_file(self._note)))
        except (OSError, *UNDECODABLE):
            return _UNKNOWN

    def _acquire(self, wait_s: float) -> None:
        try:
            files.make_folder(self.path.parent, root=PROJECTIONS)
            self._lock.acquire(timeout=wait_s, poll_interval=POLL_S)
        except filelock.Timeout as error:
            raise errors.IndexerBusy(self.path, holder=self.holder()) from error
        except OSError as error:
            raise errors.ProjectionUnreadable(self.path, str(error)) from error
        with suppress(OSError):  # Disk full, no descriptors: harmless, only waiting processes cannot name the holder.
            files.write_unsynced(self._note, to_json(Holder(os.getpid(), socket.gethostname())))
