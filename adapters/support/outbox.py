"""Writes that wait, in their order, as long as the store cannot be opened or written."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from mnemolog.adapters.support.shared_store import release
from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard
from mnemolog.store import MemoryStore

WAITING_MAX: Final = 10_000
"""Writes that wait. Beyond it more is refused."""

_PASSING: Final = (errors.StoreError, errors.AppendError, errors.LogDamaged, errors.ProjectionError)
"""What may be otherwise next time. All else would be refused again, and is not to keep back what follows."""
_REFUSED: Final = (errors.DuplicateKey, errors.ContentForgotten)
_ANOTHER_STORE: Final = (errors.StoreClosed, errors.StoreForked)
_USABLE_ALL_THE_SAME: Final = (errors.LogBusy, errors.StorageFull)

Write = Callable[[MemoryStore], object]
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


class Outbox:
    """Writes what it is given before it returns. What cannot be written now waits, and all that follows behind it.

    For frameworks that tell of a turn once, whatever becomes of it. What waits is kept in memory alone. A write is
    called with the store, and called again after a failure of which nobody knows whether it was written: give turns a
    `key`. `open_store` is called whenever there is no store that can be used: `sharing.acquire`, or any other.
    `report` is told in words what went wrong, and so is the logger; the same twice in a row only once.

    Safe for many threads, one write at a time. In a forked child it goes on with a store of its own.
    """

    def __init__(self, open_store: Callable[[], MemoryStore], report: Callable[[str], object] = lambda _: None) -> None:
        self._open, self._report = open_store, report
        self._lock = threading.RLock()
        self._waiting: deque[Write] = deque()
        self._store: MemoryStore | None = None
        self._closed = False
        self._reported = ""
        fork_guard.watch(self)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, write: Write) -> None:
        """Write it. Raises what keeps it from being written: it waits, unless it would be refused for ever.

        Raises `LimitExceeded` where `WAITING_MAX` writes wait: this one is refused.
        """
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                raise errors.LimitExceeded("outbox", limit=WAITING_MAX, actual=len(self._waiting) + 1, unit="writes")
            self._waiting.append(write)
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises as `put` does."""
        refused: Exception | None = None
        with self._lock:
            while self._waiting:
                store = self._usable()
                try:
                    self._waiting[0](store)
                except _ANOTHER_STORE:
                    self._let_go(store, broken=True)
                    continue
                except Exception as error:
                    if isinstance(error, _PASSING) and not isinstance(error, _REFUSED):
                        self._tell(error, "what is said waits to be recorded")
                        self._let_go(store, broken=not isinstance(error, _USABLE_ALL_THE_SAME))
                        raise
                    self._tell(error, "it was not recorded")
                    refused = error
                self._waiting.popleft()
            if self._closed:
                self._let_go()
        if refused is not None:
            raise refused

    def ask(self, question: Callable[[MemoryStore], Answer]) -> Answer:
        """Ask the store, or another one opened anew where that was closed by others or came through a fork."""
        try:
            store = self._usable()
            try:
                return question(store)
            except _ANOTHER_STORE:
                self._let_go(store, broken=True)
                return question(self._usable())
        finally:
            if self._closed:
                self._let_go()

    def close(self) -> None:
        """Write what waits, and let go of the store. What is put later is written all the same."""
        self._closed = True
        try:
            self.flush()
        finally:
            self._let_go()

    def forked(self) -> None:
        """Have a lock of its own: another thread of the parent may have had it."""
        self._lock = threading.RLock()

    def _usable(self) -> MemoryStore:
        with self._lock:
            if self._store is None:
                try:
                    self._store = self._open()
                except Exception as error:  # Whatever it is: it is told, and tried again with the next call.
                    self._tell(error, "the memory cannot be opened")
                    raise
            return self._store

    def _let_go(self, used: MemoryStore | None = None, *, broken: bool = False) -> None:
        """Release the store, unless it is another one than was `used`: somebody has opened that meanwhile."""
        with self._lock:
            if self._store is not None and (used is None or used is self._store):
                store, self._store = self._store, None
                release(store, broken=broken)

    def _tell(self, error: Exception, what: str) -> None:
        hint = f"; {error.hint}" if isinstance(error, errors.MnemologError) and error.hint else ""
        _log.warning("mnemolog: %s: %s%s", what, error, hint)
        if (told := f"mnemolog: {what}: {error}{hint}") != self._reported:
            self._reported = told
            self._report(told)
