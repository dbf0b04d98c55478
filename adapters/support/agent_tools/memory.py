"""A store behind agent tools, and the state of its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mnemolog.adapters.support.store_access import has_model, with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain.errors import MnemologError
from mnemolog.projections.projector import START_DELAY_S

MODEL_WAIT_S: Final = 5.0
"""How long a recall waits for a model that is being loaded, before it searches by words."""
NO_MODEL: Final = "none: searching by words only"
"""The state of the model of a store that was opened without one."""


class Memory:
    """A store to serve. `agent` is the default of calls; with `read_only`, tools that append are not offered."""

    def __init__(self, store: AsyncMemoryStore, *, agent: str = DEFAULT_AGENT, read_only: bool = False) -> None:
        self.store = store
        self.agent = agent
        self.read_only = read_only
        self.proposes = not read_only
        """Whether facts can be proposed."""
        self.one_person_approves = not with_pools(store)[0].parts.proposals.four_eyes
        """Whether the person who is at the client may approve what is proposed there."""
        self.model = "loading"
        """`loading`, `ready`, `NO_MODEL`, or why the model cannot be loaded."""
        self._loading: asyncio.Task[None] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self.store.path

    async def memory(self) -> Memory:
        """Return this memory. One that is still being opened waits here."""
        return self

    async def before_refusal(self, began: float) -> None:
        """Wait before a call is refused that began at that time (`time.monotonic`). Here it returns at once."""

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Load the model in the background. Until it is loaded, recall waits `MODEL_WAIT_S`, then searches by words."""
        task = self._loading = asyncio.create_task(self._load())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def is_loaded(self) -> bool:
        """Wait for the model, `MODEL_WAIT_S` at most. Return whether it is loaded, or cannot be."""
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=MODEL_WAIT_S)
        return self.model != "loading"

    async def _load(self) -> None:
        if not has_model(self.store):
            self.model = NO_MODEL
            return
        await asyncio.sleep(START_DELAY_S)  # Answer the greeting first: importing torch may block everything else.
        try:
            await self.store.models.load()
            self.model = "ready"
        except Exception as error:  # `status` reports it; text search still works.
            self.model = str(error) if isinstance(error, MnemologError) else repr(error)


@asynccontextmanager
async def opened(folder: Path, *, agent: str, read_only: bool, **how: Any) -> AsyncIterator[Memory]:
    """Open the memory of a store; create the store unless `read_only`. `how` as in `MemoryStore.open`."""
    async with AsyncMemoryStore.open(folder, create=not read_only, **how) as store:
        yield Memory(store, agent=agent, read_only=read_only)
