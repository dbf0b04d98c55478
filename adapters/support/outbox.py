"""An outbox whose entries wait until a store takes them, and stores shared by the agents of a process."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import local_path
from mnemolog.store import MemoryStore


@dataclass
class _Shared:
    store: MemoryStore
    how: dict[str, Any]
    """Kept alive, so that no other object gets the `id` of one that is in the key."""
    users: int = 0


class _Stores:
    """The shared stores of this process. A forked child starts with none: stores do not survive a fork."""

    def __init__(self) -> None:
        self.mutex, self.shared = fork_guard.lock(), dict[Any, _Shared]()
        fork_guard.watch(self)

    def forked(self) -> None:
        """Start empty."""
        self.shared = {}


_stores: Final = _Stores()


def acquire(path: str | Path, **how: Any) -> MemoryStore:
    """Return the shared store in the folder `path`; the first caller opens it. Pass it to `release` once.

    `how` are the options of `MemoryStore.open`. Callers with the same path and options share a store; options that
    are not text or numbers, such as a model, are compared by identity. Safe for many threads. Raises as
    `MemoryStore.open` does.
    """
    given = sorted(
        (name, value if isinstance(value, str | int | float | None) else id(value)) for name, value in how.items()
    )
    key = (local_path("path", path).resolve(), tuple(given))
    with _stores.mutex:
        if key not in _stores.shared:
            _stores.shared[key] = _Shared(MemoryStore.open(path, **how), how)
        _stores.shared[key].users += 1
        return _stores.shared[key].store


def release(store: MemoryStore, *, broken: bool = False) -> None:
    """Close a store when its last user releases it. A `broken` store is closed now, and the next caller gets a new one.

    A store that is not shared is closed.
    """
    with _stores.mutex:
        for key, shared in _stores.shared.items():
            if shared.store is store:
                shared.users -= 1
                if shared.users and not broken:
                    return
                del _stores.shared[key]
                break
    store.close()


WAITING_MAX: Final = 10_000
"""How many writes may wait. Further ones are refused."""

_PASSING: Final = (errors.StoreError, errors.AppendError, errors.LogDamaged, errors.ProjectionError)
"""Errors that a retry may not meet again. A write that raises another one is dropped, so that it blocks no others."""
_REFUSED: Final = (errors.DuplicateKey, errors.ContentForgotten)
_ANOTHER_STORE: Final = (errors.StoreClosed, errors.StoreForked)
_STORE_STILL_USABLE: Final = (errors.LogBusy, errors.StorageFull)

Write = Callable[[MemoryStore], object]
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


class Outbox:
    """Runs each write before `put` returns. A write that fails for now waits, and so do all later ones.

    For frameworks that report a turn once and never retry. Waiting writes are kept in memory only. A write is a
    function of the store. It may be called again after it has reached the log: give turns a `key`. `open_store` is
    called whenever there is no usable store; `shared_store.acquire` is meant for it. `report` receives a message for
    each error, and so does the logger; a message that repeats the last one is not reported.

    Safe for many threads, one write at a time. In a forked child it opens a store of its own.
    """

    def __init__(self, open_store: Callable[[], MemoryStore], report: Callable[[str], object] = lambda _: None) -> None:
        self._open, self._report = open_store, report
        self._lock = fork_guard.rlock()
        self._waiting: deque[Write] = deque()
        self._store: MemoryStore | None = None
        self._closed = False
        self._reported = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, write: Write) -> None:
        """Run a write, after those that wait. Raises the error if it fails: it waits then, unless a retry is useless.

        Raises `LimitExceeded` if `WAITING_MAX` writes wait already: this one is refused.
        """
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                raise errors.LimitExceeded("outbox", limit=WAITING_MAX, actual=len(self._waiting) + 1, unit="writes")
            self._waiting.append(write)
            self.flush()

    def flush(self) -> None:
        """Run the waiting writes. Raises as `put` does."""
        refused: Exception | None = None
        with self._lock:
            while self._waiting:
                store = self._usable()
                try:
                    self._waiting[0](store)
                except _ANOTHER_STORE:
                    self._release(store, broken=True)
                    continue
                except Exception as error:
                    if isinstance(error, _PASSING) and not isinstance(error, _REFUSED):
                        self._report_error(error, "the write waits for a retry")
                        self._release(store, broken=not isinstance(error, _STORE_STILL_USABLE))
                        raise
                    self._report_error(error, "it was not recorded")
                    refused = error
                self._waiting.popleft()
            if self._closed:
                self._release()
        if refused is not None:
            raise refused

    def ask(self, question: Callable[[MemoryStore], Answer]) -> Answer:
        """Return the answer of the store; of a newly opened one, if it was closed by others or came through a fork."""
        try:
            store = self._usable()
            try:
                return question(store)
            except _ANOTHER_STORE:
                self._release(store, broken=True)
                return question(self._usable())
        finally:
            if self._closed:
                self._release()

    def close(self) -> None:
        """Run the waiting writes and release the store. Later calls of `put` still work, and open it again."""
        self._closed = True
        try:
            self.flush()
        finally:
            self._release()

    def _usable(self) -> MemoryStore:
        with self._lock:
            if self._store is None:
                try:
                    self._store = self._open()
                except Exception as error:  # Of any kind: it is reported, and the next call tries again.
                    self._report_error(error, "the memory cannot be opened")
                    raise
            return self._store

    def _release(self, used: MemoryStore | None = None, *, broken: bool = False) -> None:
        """Release the store, unless another thread has opened a new one since this one was `used`."""
        with self._lock:
            if self._store is not None and (used is None or used is self._store):
                store, self._store = self._store, None
                release(store, broken=broken)

    def _report_error(self, error: Exception, what: str) -> None:
        hint = f"; {error.hint}" if isinstance(error, errors.MnemologError) and error.hint else ""
        _log.warning("mnemolog: %s: %s%s", what, error, hint)
        if (message := f"mnemolog: {what}: {error}{hint}") != self._reported:
            self._reported = message
            self._report(message)
