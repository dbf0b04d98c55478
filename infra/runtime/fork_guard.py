"""Detect a fork, so that a child process never uses what it inherited from its parent.

A child has a copy of all objects, but none of the other threads: their locks would never be released. What becomes
of connections is in `mnemolog.infra.sqlite_driver`. The interpreter reports a fork once; asking for the process id
would be a system call at every append.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from mnemolog.domain import errors
from mnemolog.domain.options import named_here


class Forkable(Protocol):
    """What wants to know that it is in a child now."""

    def forked(self) -> None:
        """Called in the child, before anything else runs there."""


_watched: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_locks: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def watch(item: Forkable) -> None:
    """Call `item.forked()` in every child forked from now on, as long as `item` lives."""
    _watched.add(item)


def lock() -> threading.Lock:
    """Return a lock that is free in a child, even if a thread of the parent held it at the fork."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> Any:
    """Return a lock as `lock` does that its holder may take again."""
    made = threading.RLock()
    _locks.add(made)
    return made


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


class OfOneProcess:
    """The base of what belongs to the process that opened it, and cannot be pickled for another one.

    An attribute that it does not have is reported with the name that does the same here.
    """

    if not TYPE_CHECKING:  # For a type checker it would make any attribute known.

        def __getattr__(self, name: str) -> NoReturn:
            here = named_here(name, dir(type(self)))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{here}", name=name, obj=self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise errors.StoreError(
            f"a {type(self).__name__} cannot be pickled or copied: it belongs to the process that opened it; "
            "pass the path of the store, and open it there"
        )


def _in_child() -> None:
    for held in list(_locks):
        held._at_fork_reinit()  # As the standard library does with its own.
    for item in list(_watched):
        item.forked()


os.register_at_fork(after_in_child=_in_child)
