"""Derive coroutines from blocking methods, with the same names, parameters and types, and run them in threads.

The decorator names the worker pool that runs the call. Type checkers see the exact signature, `help` the docstring.
Each pool has its own threads and queue: slow work never delays fast work, and a stuck model never delays recording.
Nothing here belongs to one loop: calls may come from several, in any thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial, update_wrapper
from inspect import signature
from itertools import islice
from typing import Any, Concatenate, Final, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeVar, cast

from mnemolog.domain import errors
from mnemolog.infra.runtime import cancellation, fork_guard, shutdown
from mnemolog.projections.ports import Progress, tell

WRITERS_MAX: Final = 32
"""Appends that can share one commit. More threads gain next to nothing (ADR 13)."""
READERS_MAX: Final = 4
RECALLERS_MAX: Final = 4
BACKGROUND_MAX: Final = 2
ACCESS_MAX: Final = 1
"""Requests that wait for it at the same time share one read."""
LINGER_S: Final = 5.0
"""How long a thread waits for more work before it ends."""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long a close waits for work that was asked to stop."""
EXIT_TIMEOUT_S: Final = 1.0
"""How long the end of the process waits for running threads, and then again after interrupting them."""


Result = TypeVar("Result")


class Job(Generic[Result]):
    """Work queued or running in a pool, and the future that waits for it, if any."""

    __slots__ = ("_context", "_future", "_work", "given_up")

    def __init__(self, work: Callable[[], Result], future: asyncio.Future[Result] | None = None) -> None:
        self._work, self._future = work, future
        self._context = copy_context()
        self.given_up = False
        """Whether its caller no longer waits for it."""

    def run(self, stop: Callable[[], bool] | None) -> None:
        """Do the work in its caller's context, stopping when `stop()` is true, and settle the future."""
        try:
            result = self._context.run(self._work if stop is None else partial(_stoppable, self._work, stop))
        except cancellation.Stopped:
            self.fail(errors.StoreClosed())
        except StopIteration as error:  # A future accepts any other exception.
            self.fail(RuntimeError(f"the call raised {error!r}"))
        except BaseException as error:
            self.fail(error)
        else:
            self._settle(lambda future: future.set_result(result))

    def fail(self, error: BaseException) -> None:
        """Raise `error` in the caller, unless the outcome is set."""
        self._settle(lambda future: future.set_exception(error))

    def give_up(self) -> None:
        """Drop the outcome: the caller has stopped waiting."""
        self.given_up = True
        if self._future is not None:
            self._future.cancel()

    def _settle(self, settle: Callable[[asyncio.Future[Any]], None]) -> None:
        if self._future is not None:
            with suppress(RuntimeError):  # The loop is closed: no caller waits any more.
                self._future.get_loop().call_soon_threadsafe(_settle, self._future, settle)


class WorkerPool:
    """Up to `threads_max` threads that run jobs, the oldest first. Threads start when needed.

    With `stops`, work gets a stop request (`infra.runtime.cancellation`) when it is given up or the pool is shut. The
    queue has no limit of its own: each job in it has a waiting task.
    """

    def __init__(
        self,
        name: str,
        *,
        threads_max: int,
        stops: bool = False,
        linger_s: float = LINGER_S,
        origin: fork_guard.Origin | None = None,
    ) -> None:
        self._name = name
        self._threads_max = threads_max
        self._stops = stops
        self._linger_s = linger_s
        self._origin = origin
        self._shut = False
        self.reset()

    def reset(self) -> None:
        """Begin with no threads: at first, and in the child after a fork, where they stayed in the parent."""
        self._mutex = threading.Condition(fork_guard.lock())
        """Notified when there is work, and when the pool is shut."""
        self._queue: OrderedDict[Job[Any], None] = OrderedDict()
        self._running: set[Job[Any]] = set()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        """Threads that wait for work, also those that were notified and do not run yet."""

    async def __call__(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns. If cancelled before it starts, it never runs; after that it runs on, unobserved.

        Raises what it raises, and `StoreClosed` after `shut`.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        job = Job(work, future)
        self.put(job)
        try:
            return await future
        except BaseException:
            job.give_up()
            with self._mutex:
                self._queue.pop(job, None)
            raise

    async def to_completion(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns. A cancellation is raised only when it is done, so that the outcome is known."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.put(Job(work, future))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled from future.exception()
        return future.result()

    def put(self, job: Job[Any]) -> None:
        """Queue a job, and start a thread for it if needed. Raises `StoreClosed`."""
        if self._origin is not None:
            self._origin.require_here()
        with self._mutex:
            if self._shut:
                raise errors.StoreClosed
            self._queue[job] = None
            self._mutex.notify()
            if len(self._queue) > self._idle and len(self._threads) < self._threads_max:
                self._start_thread(job)

    def shut(self) -> None:
        """Accept no more jobs. Accepted jobs are completed; a pool that `stops` stops or rejects them instead."""
        with self._mutex:
            self._shut = True
            rejected = list(self._queue) if self._stops else []
            for job in rejected:
                del self._queue[job]
            self._mutex.notify_all()
        for job in rejected:
            job.fail(errors.StoreClosed())

    def join(self, timeout_s: float | None = None) -> list[threading.Thread]:
        """Wait for the threads of a pool that is shut. Return those still running after `timeout_s` seconds."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        with self._mutex:
            for job in self._running:
                job.fail(errors.StoreClosed())
        return [thread for thread in threads if thread.is_alive()]

    def _start_thread(self, job: Job[Any]) -> None:
        # Daemons: the process may end while an encoder is running.
        thread = threading.Thread(target=self._work, name=f"mnemolog-{self._name}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # No more threads can start: the existing ones will run the job.
            self._threads.discard(thread)
            if not self._threads:
                del self._queue[job]
                raise

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.run(partial(self._must_stop, job) if self._stops else None)
            with self._mutex:
                self._running.discard(job)
            del job  # This releases the result too: nothing is kept while waiting for the next job.

    def _next(self) -> Job[Any] | None:
        """Return the next job, None if this thread has to end."""
        with self._mutex:
            while not self._queue:
                if self._shut:
                    return None
                self._idle += 1
                notified = self._mutex.wait(self._linger_s)
                self._idle -= 1
                if not notified and not self._queue:
                    self._threads.discard(threading.current_thread())
                    return None
            job, _ = self._queue.popitem(last=False)
            self._running.add(job)
            return job

    def _must_stop(self, job: Job[Any]) -> bool:
        return job.given_up or self._shut


class WorkerPools:
    """The pools of one store. After a fork the child gets `StoreForked`."""

    def __init__(self) -> None:
        self._origin = fork_guard.Origin()
        self.write = WorkerPool("writes", threads_max=WRITERS_MAX, origin=self._origin)
        """For work that appends to the log. It is never stopped early."""
        self.read = WorkerPool("reads", threads_max=READERS_MAX, origin=self._origin)
        """For work that reads and calls no model."""
        self.recall = WorkerPool("recalls", threads_max=RECALLERS_MAX, stops=True, origin=self._origin)
        """For work that may call a model."""
        self.background = WorkerPool("background", threads_max=BACKGROUND_MAX, stops=True, origin=self._origin)
        """For work that may take minutes."""
        self.access = WorkerPool("access", threads_max=ACCESS_MAX, origin=self._origin)
        """For the short read that decides who makes a request: it must not wait for the reads of others."""
        self._startup = WorkerPool("startup", threads_max=1, linger_s=0.0)
        fork_guard.watch(self)
        shutdown.watch(self)

    async def startup(self, work: Callable[[], Result], undo: Callable[[Result], None]) -> Result:
        """Run the work that opens the store. If its caller is cancelled, `undo` is called with the result."""
        made: list[Result] = []

        def do() -> None:
            made.append(work())

        def take_back() -> None:
            for result in made:
                undo(result)

        try:
            await self._startup(do)
        except BaseException:
            self._startup.put(Job(take_back))  # One thread: this runs after the other job.
            raise
        return made[0]

    async def close(self, last: Callable[[], None]) -> None:
        """Accept no more work, wait for the accepted work, then call `last`. A cancellation is raised after that.

        Stoppable work gets a stop request. After `CLOSE_TIMEOUT_S` it is abandoned and its caller gets `StoreClosed`.
        """
        self._shut()
        await self._startup.to_completion(partial(self._finish, last))

    def forked(self) -> None:
        """Reset in the child after a fork: all work stayed in the parent."""
        for pool in (*self._all, self._startup):
            pool.reset()

    def end(self) -> None:
        """Stop running work, or interrupt it: the process is ending."""
        self._shut()
        if self._origin.is_here and (left := self._join(EXIT_TIMEOUT_S, EXIT_TIMEOUT_S)):
            for thread in left:
                shutdown.interrupt(thread)
            for thread in left:
                thread.join(EXIT_TIMEOUT_S)

    @property
    def _all(self) -> tuple[WorkerPool, ...]:
        return self.write, self.read, self.recall, self.background, self.access

    def _shut(self) -> None:
        for pool in self._all:
            pool.shut()

    def _finish(self, last: Callable[[], None]) -> None:
        self._join(None, CLOSE_TIMEOUT_S)
        last()

    def _join(self, timeout_s: float | None, stopping_timeout_s: float) -> list[threading.Thread]:
        end = time.monotonic() + stopping_timeout_s
        left = self.write.join(timeout_s) + self.read.join(timeout_s) + self.access.join(timeout_s)
        for pool in (self.recall, self.background):
            left += pool.join(max(0.0, end - time.monotonic()))
        return left


def _stoppable(work: Callable[[], Result], stop: Callable[[], bool]) -> Result:
    with cancellation.when(stop):
        return work()


def _settle(future: asyncio.Future[Any], settle: Callable[[asyncio.Future[Any]], None]) -> None:
    if not future.done():
        settle(future)


ITEMS_PER_CALL: Final = 500
"""Equal to the number of events that the log reads at once."""

Pool = Literal["write", "read", "recall", "background", "access"]
"""A pool of `WorkerPools`."""
_POOL: Final = "pool"

Item = TypeVar("Item")
Of_co = TypeVar("Of_co", covariant=True)
Self = TypeVar("Self")
Value = TypeVar("Value")
Wrapper = TypeVar("Wrapper")
Call = TypeVar("Call", bound=Callable[..., Any])
P = ParamSpec("P")


class AsyncWrapper(fork_guard.OfOneProcess, Generic[Of_co]):
    """The asyncio version of an object whose methods block."""

    def __init__(self, of: Of_co, pools: WorkerPools) -> None:
        self._of, self._pools = of, pools

    def __repr__(self) -> str:
        return f"Async{self._of!r}"


class Attribute(Generic[Value]):
    """An attribute of the blocking object, read at once: it waits for no file and no lock."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: AsyncWrapper[Any] | None, _owner: type) -> Value:
        return cast(Value, self if wrapper is None else getattr(wrapper._of, self._name))

    def __set__(self, wrapper: AsyncWrapper[Any], value: Value) -> NoReturn:
        raise AttributeError(f"{type(wrapper).__name__!r} object has no setter for {self._name!r}")


class Pooled(Protocol[Of_co]):
    """What wraps an object, or is it, and has the pools that run its methods."""

    @property
    def _of(self) -> Of_co: ...
    @property
    def _pools(self) -> WorkerPools: ...


Method = Callable[Concatenate[Self, P], Result]
AsyncMethod = Callable[Concatenate[Pooled[Self], P], Coroutine[Any, Any, Result]]


def _own(of: Self, method: Method[Self, P, Result]) -> Callable[P, Result]:
    """Return the method of that name as `of` has it: a subclass may have its own."""
    return cast(Callable[P, Result], getattr(of, method.__name__))


def in_write_pool(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that appends."""

    async def call(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._pools.write(partial(_own(self._of, method), *args, **kwargs))

    return _named(call, method, "write")


def in_read_pool(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that reads and calls no model."""

    async def call(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._pools.read(partial(_own(self._of, method), *args, **kwargs))

    return _named(call, method, "read")


def in_recall_pool(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that may call a model. With `mode="text"` it does not."""

    async def call(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        pool = self._pools.read if kwargs.get("mode") == "text" else self._pools.recall
        return await pool(partial(_own(self._of, method), *args, **kwargs))

    return _named(call, method, "recall")


def in_background_pool(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that may take minutes. It can be stopped whenever it reports progress."""
    reports = "progress" in signature(method).parameters

    async def call(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        work = partial(_own(self._of, method), *args, **kwargs)
        if reports:
            work.keywords["progress"] = stopping(work.keywords.get("progress"))
        return await self._pools.background(work)

    return _named(call, method, "background")


def in_pages(
    method: Method[Self, P, Iterator[Item]],
) -> Callable[Concatenate[Pooled[Self], P], AsyncIterator[Item]]:
    """Make an asynchronous iterator of a method that reads and yields. It fetches `ITEMS_PER_CALL` at a time."""

    async def call(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        items = await self._pools.read(partial(_own(self._of, method), *args, **kwargs))
        while page := await self._pools.read(lambda: list(islice(items, ITEMS_PER_CALL))):
            for item in page:
                yield item

    return _named(call, method)


def wrapped(
    wrapper: Callable[[Result, WorkerPools], Wrapper], call: AsyncMethod[Self, P, Result]
) -> AsyncMethod[Self, P, Wrapper]:
    """Make a coroutine return its result wrapped for asyncio."""

    async def given(self: Pooled[Self], /, *args: P.args, **kwargs: P.kwargs) -> Wrapper:
        return wrapper(await call(self, *args, **kwargs), self._pools)

    return _named(given, call)


def pool_of(coroutine: Callable[..., Any]) -> Pool:
    """Return the pool that runs the calls of a coroutine made here; `read` for any other one."""
    return cast(Pool, getattr(coroutine, _POOL, "read"))


async def run_in(pool: Pool, of: Pooled[Self], work: Callable[[Self], Result]) -> Result:
    """Run work on the object that `of` wraps, in one of its pools. Raises what it raises, and `StoreClosed`."""
    run: Callable[[Callable[[], Result]], Coroutine[Any, Any, Result]] = getattr(of._pools, pool)
    return await run(partial(work, of._of))


def _named(call: Call, method: Callable[..., Any], pool: Pool | None = None) -> Call:
    update_wrapper(call, method)
    call.__qualname__ = f"Async{method.__qualname__.removeprefix('Async')}"
    if pool is not None:
        setattr(call, _POOL, pool)
    return call


def stopping(progress: Progress | None) -> Progress:
    """Return a `progress` that also ends the call where it was given up."""

    def report(done: int, total: int) -> None:
        cancellation.check()
        tell(progress, done, total)

    return report
