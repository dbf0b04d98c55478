"""See commits of other processes soon, and tell them of those of this one: one thread for each database.

It asks for the heads of all logs that are followed in one query, after 1 ms where that finds news, then ever more
seldom, up to once a second. A notification has it ask at once. Notifications are sent by this thread as well, on its
own connection: one inside an append would take a lock of the whole server. None is sent for a log that no other process
listens to: who listens holds an advisory lock, to be seen. They may be lost; then asking is enough.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from mnemolog.domain import errors, structured_log
from mnemolog.infra.log.postgres.schema import SCHEMA
from mnemolog.infra.postgres import Driver, Settings
from mnemolog.infra.runtime import fork_guard, shutdown

POLL_S_MIN: Final = 0.001
POLL_S_NOTIFIED: Final = 0.05
"""Where notifications arrive, asking is for those that get lost."""
POLL_S_MAX: Final = 1.0
POLL_GROWTH: Final = 1.5
NOTIFY_S: Final = 0.004
"""The least time between two notifications of a process."""
BEGIN_S: Final = 0.01
"""How long a thread waits before it connects: a command that appends once has ended by then."""
LISTENERS_S: Final = 1.0
"""How often a process that appends asks whether another one listens. Until it knows, that one finds news by asking."""
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
END_S: Final = 1.0
"""How long the last user of a thread waits for its end, which a connection that is being made may delay."""
LISTENING: Final = 0x6D6E656D
"""A process that listens holds an advisory lock of this number and the log's, shared: so that others see it."""

_HEADS: Final = f"SELECT log, position FROM {SCHEMA}.head WHERE log = ANY(%b::bigint[])"
_LISTEN: Final = "LISTEN {channel}; SELECT pg_advisory_lock_shared({listening}, {number})"
_UNLISTEN: Final = "UNLISTEN {channel}; SELECT pg_advisory_unlock_shared({listening}, {number})"
_LISTENERS: Final = (
    "SELECT DISTINCT l.objid::bigint FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
    f"WHERE l.locktype = 'advisory' AND l.classid = {LISTENING} AND l.objsubid = 2 "
    "AND d.datname = current_database() AND l.pid <> pg_backend_pid()"
)
_NOTIFY: Final = "SELECT pg_notify(channel, '') FROM unnest(%b::text[]) AS channel"


class LogHeads:
    """Implements `CommitWatch` for one log. `number` returns its number in the database of a connection."""

    def __init__(self, settings: Settings, number: Callable[[Driver], int]) -> None:
        self._url, self.number = settings.url, number
        self.changed: Callable[[], None] | None = None
        self.seen = 0
        """The head that was told last."""
        self.has_news = False
        """Whether this process has committed something that the others were not told of."""
        self._thread: _Thread | None = None

    def follow(self, changed: Callable[[], None]) -> None:
        """See `CommitWatch`."""
        self.changed, self.seen = changed, 0
        self._wake()

    def unfollow(self) -> None:
        """See `CommitWatch`."""
        self.changed = None
        self._wake()

    def committed(self) -> None:
        """See `CommitWatch`."""
        if not self.has_news:
            self.has_news = True
            self._wake()

    def close(self) -> None:
        """See `CommitWatch`."""
        if self._thread is not None:
            self._thread.leave(self)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # No more threads. An append that has succeeded must not fail by it.
            if self._thread is None:
                self._thread = _THREADS.join(self._url, self)
            self._thread.wake()


class _Threads:
    """The threads of this process, by the URL of their database."""

    def __init__(self) -> None:
        self.lock = fork_guard.lock()
        self.running: dict[str, _Thread] = {}
        fork_guard.watch(self)

    def forked(self) -> None:
        """Know of no thread: they stayed with the parent."""
        self.running = {}

    def join(self, url: str, log: LogHeads) -> _Thread:
        """Return the thread for a database, started if there is none. Raises `RuntimeError`."""
        with self.lock:
            found = self.running.get(url)
            if found is None:
                found = _Thread(url)
                found.logs.add(log)
                found.start()
                self.running[url] = found
            found.logs.add(log)
            return found


_THREADS: Final = _Threads()


class _Thread(threading.Thread):
    """Watches the heads of the logs in one database, until the last of them is closed."""

    def __init__(self, url: str) -> None:
        # A daemon: the process may end while it waits for the server.
        super().__init__(name="mnemolog-heads", daemon=True)
        self._url, self._settings = url, Settings(url, synchronous="NORMAL")
        self.logs: set[LogHeads] = set()
        """Changed under the lock of all threads."""
        self._ears, self._voice = os.pipe()
        self._woken = self._exiting = False
        self._left = threading.Event()
        self._origin = fork_guard.Origin()
        self._listening: set[int] = set()
        self._interval_s, self._ask_at, self._notify_at = POLL_S_MIN, 0.0, 0.0
        self._heard: set[int] = set()
        """The logs that other processes listen to, as they were `LISTENERS_S` ago at most where there are news."""
        self._listeners_at = 0.0
        shutdown.watch(self)

    def wake(self) -> None:
        """Look at what is to be done."""
        if not self._woken:
            self._woken = True
            with suppress(OSError):  # It has ended.
                os.write(self._voice, b"x")

    def leave(self, log: LogHeads) -> None:
        """Watch a log no longer. Waits for the end of the thread if it was the last one."""
        with _THREADS.lock:
            self.logs.discard(log)
            is_last = not self.logs
        if is_last:
            self._end()

    def end(self) -> None:
        """End: the process does."""
        if self._origin.is_here:
            self._exiting = True
            self._end()

    def _end(self) -> None:
        self._left.set()
        self.wake()
        if threading.current_thread() is not self:
            self.join(END_S)

    def run(self) -> None:
        """Watch until no log is left. After an error of the server, connect again."""
        delay_s = RETRY_S_MIN
        self._left.wait(BEGIN_S)
        try:
            while not self._is_done():
                try:
                    driver = self._settings.connect()
                    try:
                        self._listening, self._ask_at, self._listeners_at = set(), 0.0, 0.0
                        while not self._is_done():
                            self._look(driver)
                            delay_s = RETRY_S_MIN
                    finally:
                        driver.close()
                except (psycopg.Error, errors.MnemologError) as error:
                    structured_log.debug("heads.not_seen", error=error)
                    self._wait(None, delay_s)
                    delay_s = min(RETRY_S_MAX, 2 * delay_s)
        finally:
            os.close(self._voice)
            os.close(self._ears)

    def _is_done(self) -> bool:
        """Whether nothing is left to be watched. Then nobody joins this thread any more."""
        with _THREADS.lock:
            if self.logs and not self._exiting:
                return False
            if _THREADS.running.get(self._url) is self:
                del _THREADS.running[self._url]
            return True

    def _look(self, driver: Driver) -> None:
        """Tell what is new, here and elsewhere, then wait until there may be more."""
        numbers = self._numbers(driver)
        logs = list(numbers)
        followed = [log for log in logs if log.changed is not None]
        self._listen(driver, {numbers[log] for log in followed})
        now = time.monotonic()
        news = {numbers[log] for log in logs if log.has_news}
        if news and now >= self._listeners_at:
            self._heard = {number for (number,) in driver.execute(_LISTENERS).fetchall()}
            self._listeners_at = now + LISTENERS_S
        told = news & self._heard
        if told and now >= self._notify_at:
            for log in logs:
                log.has_news = log.has_news and numbers[log] not in told
            driver.execute(_NOTIFY, ([_channel(number) for number in told],))
            self._notify_at, news, told = now + NOTIFY_S, news - told, set()
            if not followed:
                self._left.wait(NOTIFY_S)  # Appends meanwhile do not wake this thread.
                return
            self._ask(driver, followed, numbers, notified=True)
        elif followed and now >= self._ask_at:
            self._ask(driver, followed, numbers, notified=False)
        until = [self._ask_at] * bool(followed) + [self._notify_at] * bool(told) + [self._listeners_at] * bool(news)
        ears = driver if followed else None
        if self._wait(ears, min(until) - time.monotonic() if until else None):
            self._ask(driver, followed, numbers, notified=True)

    def _numbers(self, driver: Driver) -> dict[LogHeads, int]:
        """Return the logs with their numbers, without those that are not there."""
        with _THREADS.lock:
            logs = list(self.logs)
        numbers = {}
        for log in logs:
            with suppress(errors.MnemologError):
                numbers[log] = log.number(driver)
        return numbers

    def _listen(self, driver: Driver, wanted: set[int]) -> None:
        for number in wanted - self._listening:
            driver.execute(_LISTEN.format(channel=_channel(number), listening=LISTENING, number=number))
            self._ask_at = 0.0  # What was committed before is not notified.
        for number in self._listening - wanted:
            driver.execute(_UNLISTEN.format(channel=_channel(number), listening=LISTENING, number=number))
        self._listening = wanted

    def _ask(self, driver: Driver, followed: list[LogHeads], numbers: dict[LogHeads, int], *, notified: bool) -> None:
        """Ask for the heads, and tell the followers of those that have moved."""
        found = driver.execute(_HEADS, (sorted({numbers[log] for log in followed}),)).fetchall()
        heads: dict[int, int] = dict(found)
        moved = [log for log in followed if heads.get(numbers[log], 0) != log.seen]
        for log in moved:
            log.seen = heads.get(numbers[log], 0)
            if (changed := log.changed) is not None:
                changed()
        if moved:
            self._interval_s = POLL_S_NOTIFIED if notified else POLL_S_MIN
        elif not notified:
            self._interval_s = min(POLL_S_MAX, self._interval_s * POLL_GROWTH)
        self._ask_at = time.monotonic() + self._interval_s

    def _wait(self, driver: Driver | None, timeout_s: float | None) -> bool:
        """Wait until there is something to do, at most so long. Return whether another process notified this one."""
        if driver is not None and _is_notified(driver):  # It arrived with the answer to a query.
            return True
        polled = select.poll()
        polled.register(self._ears, select.POLLIN)
        if driver is not None:
            polled.register(driver.fileno(), select.POLLIN)
        ready = polled.poll(None if timeout_s is None else max(0.0, timeout_s) * 1_000)
        if any(descriptor == self._ears for descriptor, _ in ready):
            os.read(self._ears, 64)
            self._woken = False
        return driver is not None and _is_notified(driver)


def _channel(number: int) -> str:
    return f"mnemolog_{number}"


def _is_notified(driver: Driver) -> bool:
    """Whether another session has notified this one since the last call. Raises `psycopg.Error` for a lost one."""
    pids = [notify.pid for notify in driver.notifies(timeout=0)]
    return any(pid != driver.info.backend_pid for pid in pids)
