"""Noticing a fork, so that a child never touches its parent's log.

A child has the file descriptors of its parent and none of its locks; closing one of them takes the parent's
locks away (https://www.sqlite.org/howtocorrupt.html, section 2.6). The interpreter tells of a fork once;
asking for the process id would be a system call at every append.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What wants to know that it is in a child now."""

    def forked(self) -> None:
        """Called in the child, before anything else runs there."""
        ...


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(item: Forkable) -> None:
    """Call `item.forked()` in every child forked from now on, as long as `item` lives."""
    _watched.add(item)


def _in_child() -> None:
    for item in list(_watched):
        item.forked()


os.register_at_fork(after_in_child=_in_child)
