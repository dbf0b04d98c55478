"""A condition variable that stays consistent when Ctrl-C interrupts a wait.

`threading.Condition` is entered and left by code in Python, and `wait()` lets go of the lock a moment before it
is ready to take it back. A KeyboardInterrupt in between leaves a lock that is released twice, or never.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from mnemolog.infra.runtime import fork_guard

Found = TypeVar("Found")


class Listener(Protocol):
    """An object to notify of commits; `threading.Event` is one."""

    def set(self) -> None:
        """Called by the thread that writes: must be quick and must not raise."""


class InterruptSafeCondition:
    """One lock, and a way to wait until something that it guards has changed. Safe for many threads."""

    def __init__(self) -> None:
        self.mutex = fork_guard.lock()
        """Held for moments, never while anything is waited for. Take it with `with`: that is interrupt-safe."""
        self._gates: list[threading.Lock] = []

    def wait_for(self, attempt: Callable[[], Found | None], *, timeout_s: float | None) -> Found | None:
        """Call `attempt` with the mutex held, now and after every change, until it returns something.

        Return that, or None after `timeout_s` seconds without a result; None waits without a limit.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            gate = threading.Lock()
            gate.acquire()
            try:
                with self.mutex:
                    if (found := attempt()) is not None:
                        return found
                    if end is not None and time.monotonic() >= end:
                        return None
                    self._gates.append(gate)
                gate.acquire(timeout=-1 if end is None else min(max(0, end - time.monotonic()), threading.TIMEOUT_MAX))
            finally:
                with self.mutex:
                    if gate in self._gates:
                        self._gates.remove(gate)

    def notify_all(self) -> None:
        """Wake all waiting threads. Call it with the mutex held, after the change."""
        for gate in self._gates:
            # An interrupt may end this halfway. A thread still in the list is woken by the next change; one that was
            # woken already has left, or has an open gate.
            if gate.locked():
                gate.release()
        self._gates.clear()

    def forked(self) -> None:
        """Forget the threads that waited: in a child process they do not exist."""
        self._gates = []
