"""What is served: a store, and whether its model has been loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain.errors import MnemologError
from mnemolog.projections.projector import START_DELAY_S


class Memory:
    """A store as it is served. `agent` is meant where a call names none; `read_only` offers nothing that appends."""

    def __init__(self, store: AsyncMemoryStore, *, agent: str = DEFAULT_AGENT, read_only: bool = False) -> None:
        self.store, self.agent, self.read_only = store, agent, read_only
        self.model = "loading"
        """`loading`, `ready`, or why the model cannot be loaded."""

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Load the model meanwhile. Until it is there, recalls do without."""
        task = asyncio.create_task(self._load())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _load(self) -> None:
        await asyncio.sleep(START_DELAY_S)  # The greeting goes first: the import of torch stops all else.
        try:
            await self.store.models.load()
            self.model = "ready"
        except Exception as error:  # Whatever it is, it is told in every answer, and words are found all the same.
            self.model = str(error) if isinstance(error, MnemologError) else repr(error)


@asynccontextmanager
async def opened(folder: Path, *, agent: str, read_only: bool, **how: Any) -> AsyncIterator[Memory]:
    """Give the memory of a store, which is created if it is not there and may be. `how` as `MemoryStore.open`."""
    async with AsyncMemoryStore.open(folder, create=not read_only, **how) as store:
        yield Memory(store, agent=agent, read_only=read_only)
