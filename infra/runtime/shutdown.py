"""Let the process exit while a background thread is working.

Before Python 3.14 a daemon thread is ended where it next asks for the interpreter. Where that is inside C++, as in
torch, it takes the whole process with it ("terminate called without an active exception", SIGABRT), after the
program had finished well. So such a thread is interrupted as soon as it is back in Python.
"""

import atexit
import threading
import weakref
from typing import Protocol


class Endable(Protocol):
    """What wants to know that the process ends."""

    def end(self) -> None:
        """Called in the main thread, after its work is done, while all of Python is still there."""


_watched: weakref.WeakSet[Endable] = weakref.WeakSet()


def watch(item: Endable) -> None:
    """Call `item.end()` when the process ends, if `item` lives then."""
    _watched.add(item)


def interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in `thread` before its next line of Python. A call into C is finished before.

    Nothing is left in order but what `finally` and `with` put there: for a process that ends.
    """
    import ctypes

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def _end() -> None:
    for item in list(_watched):
        item.end()


atexit.register(_end)
