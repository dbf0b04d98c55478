"""Whether this process is still the one that opened a log.

A child of a fork has the log's file descriptors and none of its locks: to use them would take the parent's
locks away (https://www.sqlite.org/howtocorrupt.html, section 2.6). Asking for the process id at every
append would be a system call each; the interpreter tells of a fork once.
"""

from __future__ import annotations

import os
import weakref

from mnemolog.domain import errors

_born_here: weakref.WeakSet[Birth] = weakref.WeakSet()


class Birth:
    """Remembers in which process it was made. `here` is False in every child."""

    def __init__(self) -> None:
        self.here = True
        self._pid = os.getpid()
        _born_here.add(self)

    def require_here(self) -> None:
        """Raise `StoreForked` in a child process."""
        if not self.here:
            raise errors.StoreForked(opened_in=self._pid, used_in=os.getpid())


def _in_child() -> None:
    for birth in _born_here:
        birth.here = False
    _born_here.clear()


os.register_at_fork(after_in_child=_in_child)
