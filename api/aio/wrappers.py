"""Derive coroutines from blocking methods, with the same names, parameters and types.

The decorator names the worker pool that runs the call. Type checkers see the exact signature, `help` the docstring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, update_wrapper
from inspect import signature
from itertools import islice
from typing import Any, Concatenate, Final, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeVar, cast

from mnemolog.aio.worker_pools import WorkerPools
from mnemolog.infra.runtime import cancellation
from mnemolog.infra.runtime.fork_guard import OfOneProcess
from mnemolog.projections.ports import Progress, tell

ITEMS_PER_CALL: Final = 500
"""Equal to the number of events that the log reads at once."""

Pool = Literal["write", "read", "recall", "background", "access"]
"""A pool of `WorkerPools`."""
_POOL: Final = "pool"

Item = TypeVar("Item")
Of_co = TypeVar("Of_co", covariant=True)
Self = TypeVar("Self")
Result = TypeVar("Result")
Value = TypeVar("Value")
Wrapper = TypeVar("Wrapper")
Call = TypeVar("Call", bound=Callable[..., Any])
P = ParamSpec("P")


class AsyncWrapper(OfOneProcess, Generic[Of_co]):
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
