"""A memory that is opened while its client is greeted: what it is made of takes as long to import as the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from mnemolog.domain.errors import MnemologError

if TYPE_CHECKING:
    from mnemolog.adapters.support.agent_tools import Memory

PATIENCE_S: Final = 0.25
"""How long the greeting goes first, where the client does not say that it is through with it."""

_log = logging.getLogger(__name__)


class PendingMemory:
    """A memory that will be there soon: opened a moment after this is entered, closed when it is left.

    `prepare` is called in a thread of its own, for it imports; what it returns is entered in the event loop. What it
    raises is raised to whoever waits for the memory; who asks after that has it tried again. Whoever leaves without
    it ever having been there is told as well.
    """

    def __init__(self, prepare: Callable[[], AbstractAsyncContextManager[Memory]], *, read_only: bool) -> None:
        self.read_only = read_only
        self._prepare = prepare
        self._greeted = asyncio.Event()
        self._opened: asyncio.Task[Memory] | None = None
        self._unasked: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._unasked = asyncio.create_task(self._open_unasked())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._unasked is not None
        self.greeted()
        await self._unasked
        await self._stack.aclose()
        if self._opened is not None and (why := self._opened.exception()) is not None:
            raise why

    def greeted(self) -> None:
        """Say that the client knows what there is: the memory is opened now."""
        self._greeted.set()

    async def memory(self) -> Memory:
        """Return the memory when it is there. Raises what keeps it from being opened."""
        self.greeted()
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def _open_unasked(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._greeted.wait(), PATIENCE_S)
        with suppress(Exception):  # It is told to who asks, and at the end.
            await self.memory()

    async def _open(self) -> Memory:
        try:
            memory = await self._stack.enter_async_context(await asyncio.to_thread(self._prepare))
        except MnemologError as error:
            _log.error("%s: %s; %s", type(error).__name__, error, error.hint)
            raise
        await self._stack.enter_async_context(memory.loading())
        return memory
