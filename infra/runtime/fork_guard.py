"""Detect a fork, so that a child process never uses its parent's log.

A child has the file descriptors of its parent and none of its locks; closing one of them takes the parent's
locks away (https://www.sqlite.org/howtocorrupt.html, section 2.6). The interpreter reports a fork once;
asking for the process id would be a system call at every append.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from mnemolog.domain import errors


class Forkable(Protocol):
    """What wants to know that it is in a child now."""

    def forked(self) -> None:
        """Called in the child, before anything else runs there."""
        ...


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(item: Forkable) -> None:
    """Call `item.forked()` in every child forked from now on, as long as `item` lives."""
    _watched.add(item)


class Origin:
    """The process that something was opened in. A child of it has to leave that thing alone."""

    def __init__(self) -> None:
        self._pid, self.is_here = os.getpid(), True
        watch(self)

    def forked(self) -> None:
        """Remember that this is a child now."""
        self.is_here = False

    def require_here(self) -> None:
        """Raise `StoreForked` in a child."""
        if not self.is_here:
            raise errors.StoreForked(opened_in=self._pid, used_in=os.getpid())


def _in_child() -> None:
    for item in list(_watched):
        item.forked()


os.register_at_fork(after_in_child=_in_child)
