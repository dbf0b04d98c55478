"""Ending a long piece of work between two calls of the model.

Who works says beforehand how it is told to stop; the encoders look at that between batches. It goes with the
thread and not with an argument: a recall that uses the same encoder at that moment is not to be stopped with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_asked: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("mnemolog_stop", default=None)


class Stopped(Exception):
    """The work was told to stop. What it had finished stays."""


@contextmanager
def when(asked: Callable[[], bool]) -> Iterator[None]:
    """Have `check` raise in this thread, inside the block, as soon as `asked()` is true.

    Inside another such block both count.
    """
    outer = _asked.get()
    token = _asked.set(asked if outer is None else lambda: outer() or asked())
    try:
        yield
    finally:
        _asked.reset(token)


def check() -> None:
    """Raise `Stopped` if this thread's work was told to stop."""
    asked = _asked.get()
    if asked is not None and asked():
        raise Stopped
