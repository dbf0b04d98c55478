"""Watch for commits of other processes. One thread per database, while a log in it is followed.

The thread queries the heads of all followed logs together: soon after news, then less and less often, as seldom as the
most impatient follower allows.
"""

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

import psycopg

from mnemolog.domain import errors, structured_log
from mnemolog.infra.log.postgres.schema import SCHEMA
from mnemolog.infra.postgres import Driver, Settings
from mnemolog.infra.runtime import fork_guard, shutdown

POLL_GROWTH: Final = 1.25
POLL_SPAN: Final = 50
"""How many times longer the longest pause between two queries is than that after news."""
RETRY_S: Final = 0.5
END_S: Final = 1.0
"""How long `close` waits for the thread to end: it may be connecting."""

_HEADS: Final = f"SELECT log, position FROM {SCHEMA}.head WHERE log = ANY(%b::bigint[])"


class LogHeads:
    """Watches one log for commits of other processes. Safe for many threads.

    `number` returns its number in the database of a connection.
    """

    def __init__(self, settings: Settings, number: Callable[[Driver], int]) -> None:
        self._url, self.number = settings.url, number
        self.changed: Callable[[], None] = lambda: None
        self.poll_s_max, self.seen = 0.0, 0
        """`seen` is the head that was reported last."""
        self._poller: _Poller | None = None

    def follow(self, changed: Callable[[], None], *, poll_s_max: float) -> None:
        """Call `changed` in a thread of its own when the log has grown, at most `poll_s_max` seconds later.

        It must be quick and must not raise. It is called after commits of this process as well. A later call replaces
        both arguments.
        """
        self.changed, self.poll_s_max = changed, poll_s_max
        with suppress(RuntimeError):  # No more threads: followers still look every `poll_interval_s`.
            self._poller = _POLLERS.join(self._url, self)

    def unfollow(self) -> None:
        """Undo `follow`. One more call of `changed` may be under way."""
        if self._poller is not None:
            _POLLERS.leave(self._poller, self)

    def close(self) -> None:
        """Stop watching."""
        self.unfollow()
        if self._poller is not None:
            self._poller.wait_for_end()


class _Pollers:
    """The threads of this process, by the URL of their database."""

    def __init__(self) -> None:
        self.lock = fork_guard.lock()
        self.running: dict[str, _Poller] = {}
        fork_guard.watch(self)

    def forked(self) -> None:
        """Drop all threads: they stayed with the parent."""
        self.running = {}

    def join(self, url: str, log: LogHeads) -> "_Poller":
        """Add a log to the thread for its database, which is started for the first one."""
        with self.lock:
            poller = self.running.get(url) or _Poller(url)
            poller.followed.add(log)
            poller.woken.set()
            if url not in self.running:
                poller.start()
                self.running[url] = poller
            return poller

    def leave(self, poller: "_Poller", log: LogHeads) -> None:
        """Remove a log from its thread. The thread ends after the last one."""
        with self.lock:
            poller.followed.discard(log)
            if not poller.followed:
                poller.ended = True
                poller.woken.set()
                if self.running.get(poller.url) is poller:
                    del self.running[poller.url]


_POLLERS: Final = _Pollers()


class _Poller(threading.Thread):
    """Watches the heads of the followed logs in one database."""

    def __init__(self, url: str) -> None:
        # A daemon: the process may end while it waits for the server.
        super().__init__(name="mnemolog-heads", daemon=True)
        self.url, self._settings = url, Settings(url)
        self.followed: set[LogHeads] = set()
        """Changed under the lock of `_Pollers`."""
        self.ended, self.woken = False, threading.Event()
        self._origin = fork_guard.Origin()
        shutdown.watch(self)

    def end(self) -> None:
        """End because the process exits."""
        if self._origin.is_here:
            self.ended = True
            self.woken.set()
            self.wait_for_end()

    def wait_for_end(self) -> None:
        """Wait for the thread to end, if it has been told to."""
        if self.ended and threading.current_thread() is not self:
            self.join(END_S)

    def run(self) -> None:
        """Poll until no log is followed. Connect again after an error of the server."""
        while not self.ended:
            try:
                with closing(self._settings.connect()) as driver:
                    interval_s = 0.0
                    while not self.ended:
                        with _POLLERS.lock:
                            followed = list(self.followed)
                        longest_s = min((log.poll_s_max for log in followed), default=0.0)
                        interval_s = 0.0 if self._poll(driver, followed) else interval_s * POLL_GROWTH
                        interval_s = min(longest_s, max(interval_s, longest_s / POLL_SPAN))
                        self._wait(interval_s)
            except (psycopg.Error, errors.MnemologError) as error:
                structured_log.debug("heads.not_seen", error=error)
                self._wait(RETRY_S)

    def _wait(self, timeout_s: float) -> None:
        self.woken.wait(timeout_s)
        self.woken.clear()

    def _poll(self, driver: Driver, followed: list[LogHeads]) -> bool:
        """Report heads that have moved to their followers. Return whether there were any."""
        numbers = {}
        for log in followed:
            with suppress(errors.MnemologError):  # It is not in the database any more.
                numbers[log] = log.number(driver)
        heads: dict[int, int] = dict(driver.execute(_HEADS, (sorted(set(numbers.values())),)).fetchall())
        moved = [log for log, number in numbers.items() if heads.get(number, 0) != log.seen]
        for log in moved:
            log.seen = heads.get(numbers[log], 0)
            log.changed()
        return bool(moved)
