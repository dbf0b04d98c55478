"""A prefetched recall: its request, its outcome, and when its answer becomes invalid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from mnemolog.domain.limits import checked_number
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
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
        self._lock, self._ending, self._show = lock, Future[Outcome](), show

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
