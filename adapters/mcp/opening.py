"""Open a memory in the background, so that the server answers the client at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.domain.errors import MnemologError

_log = logging.getLogger(__name__)


class OpeningMemory:
    """A memory that is opened when this is entered, and closed when it is left.

    `open_memory` returns the context manager that opens it. An error at opening is raised by `memory`, whose next call
    tries again; if the memory was never opened, leaving raises the last error.
    """

    def __init__(
        self, folder: Path, open_memory: Callable[[], AbstractAsyncContextManager[Memory]], *, read_only: bool
    ) -> None:
        self.folder, self.read_only = folder, read_only
        self._open_memory = open_memory
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[Memory] | None = None

    async def __aenter__(self) -> Self:
        self._opening = asyncio.create_task(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opening is not None
        await asyncio.wait([self._opening])
        await self._stack.aclose()
        if (failed := self._opening.exception()) is not None:
            raise failed

    async def memory(self) -> Memory:
        """Return the memory, waiting until it is open. Raises the error that prevents it from being opened."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Memory:
        try:
            memory = await self._stack.enter_async_context(self._open_memory())
        except MnemologError as error:
            _log.error("%s: %s; %s", type(error).__name__, error, error.hint)
            raise
        except Exception:
            _log.exception("the store could not be opened")
            raise
        await self._stack.enter_async_context(memory.loading())
        return memory
