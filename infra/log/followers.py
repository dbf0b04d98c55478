"""Those who follow a log: they are called after every commit."""

from __future__ import annotations

from typing import Final

from mnemolog.infra.log.engine import LogEngine
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.condition import Listener

FOLLOWER_POLL_S: Final = 0.05
"""How late a follower may see commits of other processes."""


class Followers:
    """The followers of one log. Safe for many threads."""

    def __init__(self, engine: LogEngine) -> None:
        self._engine = engine
        self._listeners: dict[Listener, float] = {}
        """With the most seconds after which commits of other processes have to be seen."""
        self._lock = fork_guard.lock()

    @property
    def poll_interval_s(self) -> float:
        """How often a listener has to look for commits of other processes, in seconds."""
        return self._engine.poll_interval_s

    def listen(self, listener: Listener, *, poll_s_max: float = FOLLOWER_POLL_S) -> None:
        """Call `listener.set()` after every commit of this process.

        Where the engine watches for those of other processes, it is called after them as well, at most `poll_s_max`
        seconds later. Elsewhere look for them every `poll_interval_s` seconds.
        """
        with self._lock:
            self._listeners[listener] = poll_s_max
            self._watch_commits()

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._watch_commits()

    def _watch_commits(self) -> None:
        commits = self._engine.commits
        if commits is not None and self._listeners:
            commits.follow(self.notify, poll_s_max=min(self._listeners.values()))
        elif commits is not None:
            commits.unfollow()

    def notify(self) -> None:
        """Call `set()` of every listener."""
        if self._listeners:
            with self._lock:
                for listener in self._listeners:
                    listener.set()
