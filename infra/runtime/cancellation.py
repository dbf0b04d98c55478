"""Cancel long work between two calls of the model.

The worker sets a check for its thread, and the encoders call it between batches. It belongs to the thread and is no
argument: a recall that uses the same encoder at that moment must not stop with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_asked: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("mnemolog_stop", default=None)


class Stopped(Exception):
    """The work was cancelled. What it had finished stays."""


@contextmanager
def when(asked: Callable[[], bool]) -> Iterator[None]:
    """Have `check` raise in this thread, inside the block, once `asked()` is true.

    In a nested block both checks count.
    """
    outer = _asked.get()
    token = _asked.set(asked if outer is None else lambda: outer() or asked())
    try:
        yield
    finally:
        _asked.reset(token)


def check() -> None:
    """Raise `Stopped` if this thread's work was cancelled."""
    asked = _asked.get()
    if asked is not None and asked():
        raise Stopped
