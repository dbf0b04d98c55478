"""Methods of the store made into coroutines, one line each: names, parameters and types are those of the original.

The decorator says in which lane the call is made. Type checkers see the exact signature, `help` the docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from mnemolog.aio.worker_pools import Lanes
from mnemolog.infra.runtime import cancellation
from mnemolog.projections.ports import Progress

Of_co = TypeVar("Of_co", covariant=True)
Self = TypeVar("Self")
Result = TypeVar("Result")
Face_ = TypeVar("Face_")
P = ParamSpec("P")


class Face(Generic[Of_co]):
    """The asyncio side of an object whose methods block."""

    def __init__(self, of: Of_co, lanes: Lanes) -> None:
        self._of, self._lanes = of, lanes


Method = Callable[Concatenate[Self, P], Result]
AsyncMethod = Callable[Concatenate[Face[Self], P], Coroutine[Any, Any, Result]]


def writes(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that appends."""

    async def call(self: Face[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._lanes.write(partial(method, self._of, *args, **kwargs))

    return _named(call, method)


def reads(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that reads and calls no model."""

    async def call(self: Face[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._lanes.read(partial(method, self._of, *args, **kwargs))

    return _named(call, method)


def recalls(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that may call a model. With `mode="text"` it does not."""

    async def call(self: Face[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        lane = self._lanes.read if kwargs.get("mode") == "text" else self._lanes.recall
        return await lane(partial(method, self._of, *args, **kwargs))

    return _named(call, method)


def chores(method: Method[Self, P, Result]) -> AsyncMethod[Self, P, Result]:
    """Make a coroutine of a method that may take minutes. What tells its progress can be stopped wherever it does."""
    tells = "progress" in signature(method).parameters

    async def call(self: Face[Self], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        work = partial(method, self._of, *args, **kwargs)
        if tells:
            work.keywords["progress"] = _stopping(work.keywords.get("progress"))
        return await self._lanes.chore(work)

    return _named(call, method)


def gives(face: Callable[[Result, Lanes], Face_], call: AsyncMethod[Self, P, Result]) -> AsyncMethod[Self, P, Face_]:
    """Have a coroutine return the asyncio side of its result."""

    async def given(self: Face[Self], /, *args: P.args, **kwargs: P.kwargs) -> Face_:
        return face(await call(self, *args, **kwargs), self._lanes)

    return _named(given, call)


def _named(call: AsyncMethod[Self, P, Result], method: Callable[..., Any]) -> AsyncMethod[Self, P, Result]:
    update_wrapper(call, method)
    call.__qualname__ = f"Async{method.__qualname__.removeprefix('Async')}"
    return call


def _stopping(progress: Progress | None) -> Progress:
    def told(done: int, total: int) -> None:
        cancellation.check()
        if progress is not None:
            progress(done, total)

    return told
