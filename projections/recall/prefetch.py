"""Recall in the background. A late answer never reaches another session.

An answer is stored for the session that requested it, with the stamp of the request, and is returned only while that
stamp is valid. A late answer is dropped on arrival, or found stale when it is fetched.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.result import Result
from mnemolog.domain.values import Position, checked_number, checked_whole
from mnemolog.infra.runtime import fork_guard, shutdown
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import Question, SearchOptions, question


class PrefetchReason(StrEnum):
    """Why there is no answer."""

    NONE_ASKED = "none-asked"
    """No prefetch was requested since the last answer, or it was discarded."""
    NOT_READY = "not-ready"
    """It is queued or running."""
    SWITCHED = "switched"
    """The agent switched after the request, in this process or another."""
    OTHER_MODEL = "other-model"
    """The store uses another model now."""
    FORGOTTEN = "forgotten"
    """Content was forgotten since; the answer might contain it."""
    DISTRUSTED = "distrusted"
    """Something was distrusted since, or trusted again; the answer might show it, or lack it."""
    BEHIND = "behind"
    """More events were recorded since than `max_behind`."""
    REPLACED = "replaced"
    """A newer prefetch of the session took its place, or too many sessions were waiting."""
    CANCELLED = "cancelled"
    """`Ticket.cancel` was called, or the session's prefetch was discarded."""
    FAILED = "failed"
    """The recall raised; see `error`."""
    CLOSED = "closed"
    """The store was closed, or this process was forked from the one that requested it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to recall. Fields as in `Session.recall`."""

    session: str
    query: str
    k: int = 5
    scope: str | Sequence[str] | None = None
    lineage: bool = False
    own: str = ""
    """The scope of the session."""
    options: SearchOptions = {}

    def question(self) -> Question:
        """Return the question to recall. Raises `InvalidInput` for one that no recall can answer."""
        return question(
            self.query,
            session=self.session,
            own=self.own,
            scope=self.scope,
            lineage=self.lineage,
            k=self.k,
            **self.options,
        )


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a session's agent, the log and the model."""

    generation: int
    """Changes with every switch of the session's agent, and never repeats."""
    head: Position
    """The last position of the log."""
    model: str | None = None
    """Fingerprint of the model; None if it is not known (yet), or there is no model."""
    epoch: int = 0
    """The forgetting epoch."""
    distrusts: int = 0
    """How many events say what is distrusted."""


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """When, at which position and for which session a recall was requested."""

    number: int
    """Number of the ticket, rising from 1 in each store object."""
    session: str
    query: str
    asked: StoreState

    def broken(self, now: StoreState, *, answered_by: str | None, max_behind: int | None) -> PrefetchReason | None:
        """Return why an answer must not be returned `now`; None if the stamp is valid.

        `answered_by` is the fingerprint in the answer. All known fingerprints must be equal. `max_behind` is how many
        log positions may have been recorded since the request; None for any number.
        """
        if now.generation != self.asked.generation:
            return PrefetchReason.SWITCHED
        if len({self.asked.model, answered_by, now.model} - {None}) > 1:
            return PrefetchReason.OTHER_MODEL
        if now.epoch != self.asked.epoch:
            return PrefetchReason.FORGOTTEN
        if now.distrusts != self.asked.distrusts:
            return PrefetchReason.DISTRUSTED
        if max_behind is not None and now.head - self.asked.head > max_behind:
            return PrefetchReason.BEHIND
        return None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a ticket ended: an answer, or why there is none, or neither once the answer was returned."""

    recall: Recall | None = None
    reason: PrefetchReason | None = None
    error: str | None = None


HANDED_OUT: Final = Outcome()
Show = Callable[[Recall], Recall]


def as_it_is(recall: Recall) -> Recall:
    """Return an answer: the holder of its ticket may see all of it."""
    return recall


class Ticket:
    """A recall requested in the background. Created by `MemoryStore`. Safe for many threads."""

    def __init__(self, stamp: Stamp, request: Request, lock: threading.Lock, show: Show = as_it_is) -> None:
        """`show` returns what its holder may see of an answer."""
        self.stamp, self.request = stamp, request
        self._lock = lock
        self._ending = Future[Outcome]()
        self._show = show

    def __repr__(self) -> str:
        outcome = self.ended
        state = "not done" if outcome is None else outcome.reason or "answered"
        return f"Ticket({self.id}, session={self.stamp.session!r}, {state})"

    @property
    def id(self) -> int:
        """Number of the ticket, starting at 1."""
        return self.stamp.number

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None until it has. An answer that is looked at here is in the audit of reads."""
        outcome = self.ended
        if outcome is None or outcome.recall is None:
            return outcome
        return msgspec.structs.replace(outcome, recall=self._show(outcome.recall))

    @property
    def ended(self) -> Outcome | None:
        """How it ended, for the prefetcher, which shows it to no caller; None until it has."""
        ending = self._ending
        return ending.result() if ending.done() else None

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an answer."""
        return self._ending.done()

    @property
    def reason(self) -> PrefetchReason | None:
        """Why there is no answer; None while it runs, and after an answer."""
        return None if (outcome := self.ended) is None else outcome.reason

    @property
    def error(self) -> str | None:
        """What the recall raised, when the reason is `failed`."""
        return None if (outcome := self.ended) is None else outcome.error

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds. Return whether it is done."""
        with suppress(TimeoutError):
            self._ending.result(checked_number("timeout_s", timeout_s))
        return self.done

    def when_done(self, call: Callable[[], None]) -> None:
        """Call `call`, in any thread, once it is done, or at once if it is. `call` must be fast and must not raise."""
        self._ending.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Cancel it. If it has not started it never runs; an answer not yet returned is discarded."""
        with self._lock:
            self.give_up(PrefetchReason.CANCELLED)

    def give_up(self, reason: PrefetchReason) -> None:
        """End it without an answer, dropping one that was not returned yet. Needs the lock."""
        if (outcome := self.ended) is None or outcome.recall is not None:
            self.settle(Outcome(reason=reason))

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome and wake waiting threads. Needs the lock."""
        if self._ending.done():  # An answer that was returned or dropped: it is kept no longer.
            self._ending = _ended(outcome)
        else:
            self._ending.set_result(outcome)

    def forked(self) -> None:
        """End it without an answer in a forked child, where locks of the parent's threads may be held forever."""
        self._ending = _ended(Outcome(reason=PrefetchReason.CLOSED))

    def taken(self, now: StoreState, *, max_behind: int | None) -> PrefetchResult:
        """Return the result to hand out `now`. See `Stamp.broken`."""
        outcome = self.ended or Outcome(reason=PrefetchReason.NOT_READY)
        if outcome.reason in (None, PrefetchReason.NOT_READY):
            answered_by = None if outcome.recall is None else outcome.recall.model
            broken = self.stamp.broken(now, answered_by=answered_by, max_behind=max_behind)
            if broken is not None:
                return PrefetchResult(reason=broken, ticket=self)
        return PrefetchResult(recall=outcome.recall, reason=outcome.reason, error=outcome.error, ticket=self)


def _ended(outcome: Outcome) -> Future[Outcome]:
    ending = Future[Outcome]()
    ending.set_result(outcome)
    return ending


class PrefetchResult(Result, frozen=True, kw_only=True):
    """A prefetched answer, or why there is none."""

    recall: Recall | None = None
    reason: PrefetchReason | None = None
    """None when there is an answer."""
    error: str | None = None
    """What the recall raised, when the reason is `failed`."""
    ticket: Ticket | None = None
    """The ticket it belongs to; None if nothing was requested."""


WAITING_MAX: Final = 64
"""Maximum number of sessions with a queued prefetch. Beyond it, the oldest is cancelled as `replaced`."""

REMEMBERED_MAX: Final = 256
"""Maximum number of sessions with an unfetched prefetch, finished or not. Beyond it, the oldest is dropped."""

REMEMBERED_CHARACTERS_MAX: Final = 8 << 20
"""Characters of the hits of all unfetched answers. Beyond them the oldest answers are dropped."""

CLOSE_TIMEOUT_S: Final = 1.0

EXIT_TIMEOUT_S: Final = 1.0
"""How long the exit of the process waits for an interrupted recall, which may be in a long call into C, in seconds."""


class Prefetcher:
    """Runs recalls one at a time in its own thread, which the first prefetch starts.

    A session has one prefetch: a newer one replaces it, even if it is already running. `recall` answers a
    request, in the background. `moment` returns the current state of a session's agent, the log and the model. It is
    called in the caller's thread and should read the log, so that switches in other processes count.

    Safe for many threads. After a fork, the child gets `StoreForked`.
    """

    def __init__(
        self,
        recall: Callable[[Request], Recall],
        moment: Callable[[str], StoreState],
        show: Show = as_it_is,
    ) -> None:
        """`show` returns what the holder of a ticket may see of an answer."""
        self._recall = recall
        self._moment = moment
        self._show = show
        self._lock = fork_guard.lock()
        """Held for moments, never during a recall."""
        self._requested = threading.Condition(self._lock)
        self._newest: dict[str, Ticket] = {}
        """The newest ticket of each session that was not fetched yet. Queued ones are in order."""
        self._running: Ticket | None = None
        self._run: Future[None] | None = None
        """Done when the running recall has ended."""
        self._thread: threading.Thread | None = None
        self._last_number = 0
        self._closed = False
        self._origin = fork_guard.Origin()
        fork_guard.watch(self)
        shutdown.watch(self)

    def submit(self, request: Request) -> Ticket:
        """Request a recall in the background and return at once.

        Raises `InvalidInput`, `StoreClosed`, `StoreForked`, and errors of `moment`. Then nothing was requested,
        and an earlier request of the session remains.
        """
        request.question()
        self._require_usable()
        asked = self._moment(request.session)
        with self._lock:
            self._require_usable()
            self._start_thread()
            self._last_number += 1
            stamp = Stamp(number=self._last_number, session=request.session, query=request.query, asked=asked)
            ticket = Ticket(stamp, request, self._lock, self._show)
            self._put(ticket)
            self._keep_limits()
            self._requested.notify()
        return ticket

    def take(self, session: str, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to the session's newest prefetch while its stamp is valid, or why there is none.

        An answer is returned once; one with an invalid stamp is dropped. Waits up to `wait_s` seconds for an unfinished
        prefetch. `max_behind` is how many log positions may have been recorded since the prefetch; None for any
        number, 0 for none.

        Raises `StoreForked`, and errors of `moment`: then the answer is kept.
        """
        checked_whole("max_behind", max_behind or 0)
        end = time.monotonic() + checked_number("wait_s", wait_s)
        while True:
            self._origin.require_here()
            with self._lock:
                ticket = self._newest.get(session)
            if ticket is None:
                return PrefetchResult(reason=PrefetchReason.CLOSED if self._closed else PrefetchReason.NONE_ASKED)
            now = self._moment(session)
            with self._lock:
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
        """Discard the request of a session. Call it when its agent switches."""
        with self._lock:
            if (ticket := self._newest.get(session)) is not None:
                ticket.give_up(PrefetchReason.CANCELLED)
                del self._newest[session]

    def close(self, *, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Refuse new requests, drop existing ones, and wait up to `timeout_s` seconds for the running recall.

        Returns whether it has ended. Otherwise it is abandoned: its answer is dropped, and the process may end while it
        runs. May be called again.
        """
        with self._lock:
            self._closed = True
            for ticket in self._newest.values():
                ticket.give_up(PrefetchReason.CLOSED)
            self._newest.clear()
            self._requested.notify()
            run = self._run
        if run is None or threading.current_thread() is self._thread:
            return run is None
        with suppress(TimeoutError):
            run.result(timeout_s)
        return run.done()

    def forked(self) -> None:
        """Refuse all calls from now on: this is a forked child, and the thread exists only in the parent."""
        self._running = self._run = self._thread = None
        for ticket in self._newest.values():
            ticket.forked()
        self._newest.clear()

    def end(self) -> None:
        """Interrupt the running recall, because the process ends."""
        if not self.close(timeout_s=0) and self._thread is not None:
            shutdown.interrupt(self._thread)
            self._thread.join(EXIT_TIMEOUT_S)

    def _start_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            # A daemon, and so no `ThreadPoolExecutor`: the process may end while an encoder is at work.
            self._thread = threading.Thread(target=self._work, name="mnemolog-prefetch", daemon=True)
            self._thread.start()

    def _put(self, ticket: Ticket) -> None:
        session = ticket.stamp.session
        if (before := self._newest.get(session)) is not None:
            # A queued session keeps its place, or frequent requests would postpone it without end. A session that
            # is being served moves to the end of the queue, or the others would starve.
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

    def _drop_oldest_answers(self) -> None:
        """Keep `REMEMBERED_CHARACTERS_MAX`, but the newest answer in any case."""
        answers = [ticket for ticket in self._newest.values() if ticket.ended and ticket.ended.recall]
        room = REMEMBERED_CHARACTERS_MAX
        for ticket in sorted(answers, key=lambda ticket: ticket.id, reverse=True):
            outcome = ticket.ended
            if room < 0:
                del self._newest[ticket.stamp.session]
                ticket.give_up(PrefetchReason.REPLACED)
            elif outcome is not None and outcome.recall is not None:
                room -= sum(len(hit.text) for hit in outcome.recall.hits)

    def _waits(self, ticket: Ticket) -> bool:
        return not ticket.done and ticket is not self._running

    def _work(self) -> None:
        while (ticket := self._next()) is not None:
            try:
                outcome = Outcome(recall=self._recall(ticket.request))
            except BaseException as error:  # The caller gets the error, and the thread continues.
                why = "".join(traceback.format_exception_only(error)).strip()
                outcome = Outcome(reason=PrefetchReason.FAILED, error=why)
            with self._lock:
                if self._newest.get(ticket.stamp.session) is ticket and not ticket.done:
                    ticket.settle(outcome)
                    self._drop_oldest_answers()
                run, self._running, self._run = self._run, None, None
            if run is not None:
                run.set_result(None)

    def _next(self) -> Ticket | None:
        """Wait for the next request to answer. None once the prefetcher is closed."""
        with self._lock:
            while True:
                # The second: this thread's start was interrupted, and another thread was started in its place.
                if self._closed or self._thread is not threading.current_thread():
                    return None
                self._running = next(filter(self._waits, self._newest.values()), None)
                if self._running is not None:
                    self._run = Future()
                    return self._running
                self._requested.wait()

    def _require_usable(self) -> None:
        self._origin.require_here()
        if self._closed:
            raise errors.StoreClosed
