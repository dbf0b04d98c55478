"""What Hermes has told, in order, until it is in the log; and the store that it goes into."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from mnemolog.adapters.hermes import stores
from mnemolog.adapters.hermes.told import Told
from mnemolog.domain import errors
from mnemolog.store import MemoryStore

WAITING_MAX: Final = 10_000
"""What waits while the store cannot be written. Beyond it more is refused."""

_PASSING: Final = (errors.StoreError, errors.AppendError, errors.LogDamaged, errors.ProjectionError)
"""What may be otherwise next time. All else would be refused again, and is not to keep back what follows."""
_REFUSED: Final = (errors.DuplicateKey, errors.ContentForgotten)
_ANOTHER_STORE: Final = (errors.StoreClosed, errors.StoreForked)
_USABLE_ALL_THE_SAME: Final = (errors.LogBusy, errors.StorageFull)

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


class Outbox:
    """Writes what it is given before it returns. What cannot be written now waits, and all that follows behind it.

    `open_store` is called again whenever there is no store that can be used; `report` is told what went wrong.
    """

    def __init__(self, open_store: Callable[[], MemoryStore], report: Callable[[str], None]) -> None:
        self._open, self._report = open_store, report
        self._lock = threading.RLock()
        self._waiting: deque[Told] = deque()
        self._store: MemoryStore | None = None
        self._closed = False

    def put(self, told: Told) -> None:
        """Write it. Raises what keeps it from being written: it waits, unless it would be refused for ever."""
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                raise errors.LimitExceeded("outbox", limit=WAITING_MAX, actual=len(self._waiting) + 1, unit="turns")
            self._waiting.append(told)
            self.write()

    def write(self) -> None:
        """Write what waits. Raises as `put` does."""
        refused: Exception | None = None
        with self._lock:
            while self._waiting:
                store = self._usable()
                try:
                    self._waiting[0].write(store)
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
        """Ask the store, or another one opened anew where that was closed by another agent or came through a fork."""
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
            self.write()
        finally:
            self._let_go()

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
        """Give the store back, unless it is another one than was `used`: somebody has opened that meanwhile."""
        with self._lock:
            if self._store is not None and (used is None or used is self._store):
                store, self._store = self._store, None
                stores.give_back(store, broken=broken)

    def _tell(self, error: Exception, what: str) -> None:
        hint = f"; {error.hint}" if isinstance(error, errors.MnemologError) and error.hint else ""
        logger.warning("mnemolog: %s: %s%s", what, error, hint)
        self._report(f"mnemolog: {what}: {error}{hint}")
