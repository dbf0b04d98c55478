"""What Ctrl-C does, without a keyboard: while something waits, or before any line of our own code."""

import linecache
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.support import in_thread


class Interrupt(BaseException):
    """What Ctrl-C raises."""


def line_of(thread: int) -> str:
    """The line of source that a thread is at."""
    frame = sys._current_frames()[thread]
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)


@contextmanager
def interrupted_when(ready: Callable[[], None]) -> Iterator[None]:
    """Interrupt the body, run in the main thread, when `ready`, run in another one, returns. It must end in that."""
    this = threading.get_ident()

    def interrupt() -> None:
        ready()
        signal.pthread_kill(this, signal.SIGUSR1)

    def raise_it(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        interrupting = in_thread(interrupt)
        with pytest.raises(Interrupt):
            yield
        interrupting.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def at_each_line(files: Collection[str], *, more_than: int) -> Iterator[Callable[[Callable[[], Any]], bool]]:
    """Yield, time after time, what does a call and interrupts it: before its first line, before its second, and so on.

    It tells whether the call came through; that was the last time. `more_than` is how many lines there are at least.
    """
    at, through = 0, False
    while not through:
        seen: list[str] = []

        def see(line: str, seen: list[str] = seen, at: int = at) -> None:
            seen.append(line)
            if len(seen) == at + 1:
                raise Interrupt

        def came_through(call: Callable[[], Any], see: Callable[[str], None] = see, seen: list[str] = seen) -> bool:
            nonlocal through
            with suppress(Interrupt):
                trace_lines(files, see, call)
                through = True
            print(f"interrupted before: {seen[-1]}")  # Shown where a test fails.
            return through

        yield came_through
        at += 1
    assert at > more_than


def trace_lines(files: Collection[str], see: Callable[[str], None], call: Callable[[], Any]) -> Any:
    """Do `call`, and `see` each line of the code in `files` before it is run.

    Not the `with` lines: between taking a lock and being inside, and on the way out, Python takes no signal.
    """

    def local(frame: Any, event: str, _: Any) -> Any:
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not source.startswith("with "):
            see(source)
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: local if frame.f_code.co_filename in files else None)
    try:
        return call()
    finally:
        sys.settrace(before)
