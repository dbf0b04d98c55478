"""Recall in the background, whose late answers can never reach another session.

An answer is kept under the session that asked, with the stamp of its asking, and handed out only while that
stamp holds. A late answer is dropped on arrival, or found stale when it is fetched.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard, shutdown
from mnemolog.infra.runtime.condition import InterruptSafeCondition
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch_ticket import (
    HANDED_OUT,
    Moment,
    Outcome,
    PrefetchReason,
    PrefetchResult,
    Request,
    Stamp,
    Ticket,
)

WAITING_MAX: Final = 64
"""Sessions whose prefetch waits for its turn. Beyond it the oldest is given up, as `replaced`."""

REMEMBERED_MAX: Final = 256
"""Sessions with a prefetch that was not fetched, finished or not. Beyond this number the oldest is dropped."""

CLOSE_TIMEOUT_S: Final = 1.0

EXIT_TIMEOUT_S: Final = 1.0
"""How long the end of the process waits for a recall that was interrupted, and may be inside a long call into C."""


class Prefetcher:
    """Runs recalls one at a time in a thread of its own, which the first prefetch starts.

    A session has one prefetch: a newer one replaces it, also when it is running already. `recall` answers a
    request, in the background. `moment` says where a session's agent, the log and the model are; it is
    called in the caller's thread and should read the log, so that switches in other processes count.

    Safe for many threads. After a fork the child gets `StoreForked`.
    """

    def __init__(self, recall: Callable[[Request], Recall], moment: Callable[[str], Moment]) -> None:
        self._recall, self._moment = recall, moment
        self._changes = InterruptSafeCondition()
        self._newest: dict[str, Ticket] = {}
        """The newest ticket of each session, as long as it was not fetched. Those that wait are in line."""
        self._running: Ticket | None = None
        self._thread: threading.Thread | None = None
        self._last_number = 0
        self._closed = False
        self._origin = fork_guard.Origin()
        fork_guard.watch(self)
        shutdown.watch(self)

    def submit(self, request: Request) -> Ticket:
        """Ask for a recall in the background and return at once.

        Raises `InvalidInput`, `StoreClosed`, `StoreForked`, and what `moment` raises: nothing was asked for,
        and what the session had asked for before stands.
        """
        request.question()
        self._require_usable()
        asked = self._moment(request.session)
        with self._changes.mutex:
            self._require_usable()
            self._start_thread()
            self._last_number += 1
            stamp = Stamp(number=self._last_number, session=request.session, query=request.query, asked=asked)
            ticket = Ticket(stamp, request, self._changes)
            self._put(ticket)
            self._keep_limits()
            self._changes.notify_all()
        return ticket

    def take(self, session: str, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to the session's newest prefetch while its stamp holds, or why there is none.

        An answer is handed out once; one whose stamp is broken is dropped. Waits up to `wait_s` seconds for
        one that is not done. `max_behind` is how many log positions may have been recorded since the
        prefetch; None for any number, 0 for none.

        Raises `StoreForked`, and what `moment` raises: the answer stays where it is.
        """
        end = time.monotonic() + wait_s
        while True:
            self._origin.require_here()
            with self._changes.mutex:
                ticket = self._newest.get(session)
            if ticket is None:
                return PrefetchResult(reason=PrefetchReason.CLOSED if self._closed else PrefetchReason.NONE_ASKED)
            now = self._moment(session)
            with self._changes.mutex:
                if self._newest.get(session) is not ticket:
                    continue  # Replaced, taken or discarded meanwhile.
                taken = ticket.taken(now, max_behind=max_behind)
                if taken.reason is not PrefetchReason.NOT_READY:
                    del self._newest[session]
                    ticket.settle(HANDED_OUT) if taken.reason is None else ticket.give_up(taken.reason)
                    return taken
            if (left_s := end - time.monotonic()) <= 0:
                return taken
            ticket.wait(left_s)

    def discard(self, session: str) -> None:
        """Forget what the session asked for. To be called when its agent switches."""
        with self._changes.mutex:
            if (ticket := self._newest.get(session)) is not None:
                ticket.give_up(PrefetchReason.CANCELLED)
                del self._newest[session]

    def close(self, *, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Refuse new work, drop what there is, and wait up to `timeout_s` seconds for the running recall.

        Returns whether it is over. One that is not is abandoned: its answer goes nowhere, and the process
        may end while it runs. May be called again.
        """
        with self._changes.mutex:
            self._closed = True
            for ticket in self._newest.values():
                ticket.give_up(PrefetchReason.CLOSED)
            self._newest.clear()
            self._changes.notify_all()
        if threading.current_thread() is self._thread:
            return False
        return self._changes.wait_for(lambda: self._running is None or None, timeout_s=timeout_s) is not None

    def forked(self) -> None:
        """Refuse everything from now on: this is a child, and the thread stayed with the parent."""
        self._running = self._thread = None
        self._changes.forked()
        for ticket in self._newest.values():
            ticket.give_up(PrefetchReason.CLOSED)
        self._newest.clear()

    def end(self) -> None:
        """Interrupt what still runs: the process ends."""
        self.close(timeout_s=0)
        if self._running is not None and self._thread is not None:
            shutdown.interrupt(self._thread)
            self._thread.join(EXIT_TIMEOUT_S)

    def _start_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            # A daemon: the process may end while an encoder is at work.
            self._thread = threading.Thread(target=self._work, name="mnemolog-prefetch", daemon=True)
            self._thread.start()

    def _put(self, ticket: Ticket) -> None:
        session = ticket.stamp.session
        if (before := self._newest.get(session)) is not None:
            # Who waits keeps the place in line, else one that asks often would never have its turn. Who is
            # being served goes to the end, else the others would never have theirs.
            if not self._waits(before):
                del self._newest[session]
            before.give_up(PrefetchReason.REPLACED)
        self._newest[session] = ticket

    def _keep_limits(self) -> None:
        waiting = [ticket for ticket in self._newest.values() if self._waits(ticket)]
        if len(waiting) > WAITING_MAX:
            min(waiting, key=lambda ticket: ticket.id).give_up(PrefetchReason.REPLACED)
        if len(self._newest) > REMEMBERED_MAX:
            session, first = next((name, ticket) for name, ticket in self._newest.items() if ticket.done)
            del self._newest[session]
            first.give_up(PrefetchReason.REPLACED)

    def _waits(self, ticket: Ticket) -> bool:
        return not ticket.done and ticket is not self._running

    def _work(self) -> None:
        while self._changes.wait_for(self._begin_next, timeout_s=None):
            self._answer()

    def _begin_next(self) -> bool | None:
        # Not our thread: its start was interrupted, and another one was started.
        if self._closed or self._thread is not threading.current_thread():
            return False
        self._running = next((ticket for ticket in self._newest.values() if self._waits(ticket)), None)
        return None if self._running is None else True

    def _answer(self) -> None:
        if (ticket := self._running) is None:
            return
        outcome = _outcome_of(self._recall, ticket.request)
        with self._changes.mutex:
            self._running = None
            if not ticket.done:
                ticket.settle(outcome)
            self._changes.notify_all()

    def _require_usable(self) -> None:
        self._origin.require_here()
        if self._closed:
            raise errors.StoreClosed


def _outcome_of(recall: Callable[[Request], Recall], request: Request) -> Outcome:
    try:
        return Outcome(recall=recall(request))
    except BaseException as error:  # The caller gets the error, and the thread continues.
        return Outcome(reason=PrefetchReason.FAILED, error="".join(traceback.format_exception_only(error)).strip())
