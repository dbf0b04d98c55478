"""Group commit: the thread at the front of the queue writes for all threads waiting behind it.

This is the leader-and-followers scheme of LevelDB's write queue (`DBImpl::Write`): no thread of its own,
so a lone caller pays for no hand-over, and the next group forms while one becomes durable.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import Any, Final, Generic, TypeVar

from mnemolog.domain import errors
from mnemolog.infra.runtime import fork_guard

GROUP_MAX: Final = 256
QUEUE_MAX: Final = 4_096
GATHER_S_MAX: Final = 0.001

Context = TypeVar("Context")
Result = TypeVar("Result")


class CommitRequest(Generic[Context]):
    """One unit of work in the queue, with its outcome once `settled`."""

    __slots__ = ("error", "gate", "orphaned", "result", "settled", "wakes", "work")

    def __init__(self, work: Callable[[Context], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = self.orphaned = False
        self.gate: threading.Lock | None = None
        self.wakes: CommitRequest[Context] | None = None
        """A settled request that this one wakes: woken one after the other, they do not fight for the GIL."""


class GroupCommit(Generic[Context]):
    """Run submitted work in FIFO order, in groups, one group at a time.

    `run_group` gets 1 to `GROUP_MAX` requests and settles each: sets `result` or `error`, and `settled`.
    It runs in the thread of one of the submitters. What it leaves unsettled by raising is run again as
    part of the next group. An interrupt (Ctrl-C) may hit a submitter anywhere: the leader then hands over.
    """

    def __init__(self, run_group: Callable[[Sequence[CommitRequest[Context]]], None]) -> None:
        self.run_group = run_group
        self._mutex = fork_guard.lock()
        self._room = threading.Condition(self._mutex)
        self._queue: deque[CommitRequest[Context]] = deque()
        self._leader: CommitRequest[Context] | None = None
        self._in_flight = 0
        self._awaited = 0
        """The length of the queue that a leader waits for. `_company` is opened when it is reached."""
        self._company = threading.Lock()
        self._patience_s = 0.0
        self._last_group = 1
        self._closed = False

    def submit(self, work: Callable[[Context], Result]) -> Result:
        """Run `work` in FIFO order and return its result once its group is committed.

        Blocks while `QUEUE_MAX` requests wait. Raises what `work` raises, `StoreClosed` after `close()`.
        """
        request: CommitRequest[Context] = CommitRequest(work)
        try:
            with self._mutex:
                while len(self._queue) >= QUEUE_MAX and not self._closed:
                    self._room.wait()
                if self._closed:
                    raise errors.StoreClosed
                if self._leader is None:
                    self._leader, self._in_flight = request, 1
                else:
                    request.gate = threading.Lock()
                    request.gate.acquire()
                self._queue.append(request)
                if len(self._queue) == self._awaited:
                    self._awaited = 0
                    self._company.release()
            if request.gate is not None:
                request.gate.acquire()  # Opened when this request is settled, or the next to lead.
                if request.wakes is not None:
                    _open(request.wakes)
                if not request.settled:
                    self._lead(request)
            elif self._last_group > 1:
                self._lead(request)
            else:
                self.run_group([request])
                self._hand_over(request)
        except BaseException:
            self._leave(request)
            raise
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Refuse new work, and return when all that was queued is settled."""
        with self._mutex:
            self._closed = True
            self._room.notify_all()
            while self._queue:
                self._room.wait()

    def _lead(self, own: CommitRequest[Context]) -> None:
        group = self._gather()
        began = time.monotonic()
        self.run_group(group)
        self._patience_s = min(time.monotonic() - began, GATHER_S_MAX)
        self._hand_over(own)

    def _gather(self) -> list[CommitRequest[Context]]:
        """Return the group to write: the waiting requests, once those of the last group had time to come back.

        Their callers were woken a moment ago and would find us writing alone. We wait no longer than a write takes.
        """
        with self._mutex:
            missing = self._last_group - len(self._queue)
            if missing > 0:
                self._awaited = self._last_group
                self._company = company = threading.Lock()
                company.acquire()
        if missing > 0:
            company.acquire(timeout=self._patience_s)
        with self._mutex:
            self._awaited = 0
            group = list(islice(self._queue, GROUP_MAX))
            self._in_flight = len(group)
        return group

    def _leave(self, request: CommitRequest[Context]) -> None:
        """Withdraw the request of an interrupted caller, so that no other request waits for it."""
        if self._leader is request:
            self._hand_over(request)
        with self._mutex:
            if request in islice(self._queue, self._in_flight):
                request.orphaned = True  # It is being written now: its outcome is the group's.
            elif request in self._queue:
                self._queue.remove(request)
            self._room.notify_all()
        if request.wakes is not None:
            _open(request.wakes)

    def _hand_over(self, own: CommitRequest[Context]) -> None:
        """Release the settled requests, and let the next one lead. May be called again after an interrupt."""
        with self._mutex:
            queue, written = self._queue, self._in_flight
            if len(queue) == 1 and queue[0] is own:
                queue.popleft()  # A new deque would be half a kilobyte of memory to touch.
            else:
                done = [r for r in islice(queue, written) if r.settled and not (r is own or r.orphaned)]
                for request, following in pairwise(done):
                    request.wakes = following
                for request in done[:1]:
                    _open(request)
                # Ours leaves whatever happened; others stay if an interrupt left them unsettled.
                queue = deque(r for r in queue if not (r.settled or r is own or r.orphaned))
            if queue:
                _open(queue[0])
            self._last_group, self._awaited = max(1, written), 0
            self._queue = queue
            self._in_flight = 0
            self._leader = queue[0] if queue else None
            if self._closed or len(queue) >= QUEUE_MAX - written:
                self._room.notify_all()


def _open(request: CommitRequest[Any]) -> None:
    # Open already: its caller has not reached it yet. Closed again: it has passed and does not come back.
    if request.gate is not None and request.gate.locked():
        request.gate.release()
