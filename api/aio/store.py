"""The store for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self

from mnemolog.aio.services import AsyncAdminService, AsyncAuditService, AsyncModelService
from mnemolog.aio.session import AsyncSession
from mnemolog.aio.worker_pools import WorkerPools
from mnemolog.aio.wrappers import (
    AsyncWrapper,
    in_background_pool,
    in_pages,
    in_read_pool,
    in_recall_pool,
    in_write_pool,
    wrapped,
)
from mnemolog.session import Session
from mnemolog.store import MemoryStore

P = ParamSpec("P")


class Opening:
    """A store to open: with `await`, or with `async with`, which also closes it."""

    def __init__(self, open_: Callable[[], MemoryStore]) -> None:
        self._open = open_
        self._store: AsyncMemoryStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncMemoryStore]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncMemoryStore:
        self._store = await self._opened()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()

    async def _opened(self) -> AsyncMemoryStore:
        pools = WorkerPools()
        return AsyncMemoryStore(await pools.startup(self._open, MemoryStore.close), pools)


def opening(open_: Callable[P, MemoryStore]) -> Callable[P, Opening]:
    """Make a function that returns a store return it for asyncio, to be used with `await` or `async with`."""

    def opened(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(partial(open_, *args, **kwargs))

    return update_wrapper(opened, open_, updated=())


def _session_or_none(found: Session | None, pools: WorkerPools) -> AsyncSession | None:
    return None if found is None else AsyncSession(found, pools)


class AsyncMemoryStore(AsyncWrapper[MemoryStore]):
    """An agent's memory, for asyncio. See `MemoryStore`: same methods, arguments and errors, but awaitable.

    No call blocks the event loop. Calls run in the store's own threads, in separate pools for writes, reads, recalls
    and background work, in the context (`contextvars`) of the caller. Callbacks (an encoder, a clock, `progress`) are
    called there, not in the loop.

    A call that is cancelled before it starts never runs. A write that has started is completed, but its caller does
    not learn the outcome; a retry with the same `key` finds out. A started recall or background call stops at its
    next step. docs/async.md has the rules.

    Safe for several event loops, also in several threads. Concurrent calls run in no particular order.
    """

    def __init__(self, of: MemoryStore, pools: WorkerPools, *, is_part: bool = False) -> None:
        super().__init__(of, pools)
        self._is_part = is_part
        self.audit = AsyncAuditService(of.audit, pools)
        self.models = AsyncModelService(of.models, pools)
        self.admin = AsyncAdminService(of.admin, pools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._of.path)!r})"

    open = staticmethod(opening(MemoryStore.open))

    async def close(self) -> None:
        """Wait for running calls and close all files. Later calls raise `StoreClosed`.

        Writes and reads are completed first, however long they take. Recalls and background calls stop at their next
        step and raise `StoreClosed`; those still running after a second are abandoned, as `MemoryStore.close` does.
        If `close` itself is cancelled, it still closes the store, then raises the cancellation.
        """
        if self._is_part:
            await self._pools.read(self._of.close)
        else:
            await self._pools.close(self._of.close)

    def within(self, scope: str | Sequence[str]) -> Self:
        """Return this store as `open(scope=)` does, at once and in the same threads. See `MemoryStore.within`."""
        return type(self)(self._of.within(scope), self._pools, is_part=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def path(self) -> Path:
        """The folder of the store."""
        return self._of.path

    start_session = wrapped(AsyncSession, in_write_pool(MemoryStore.start_session))
    session = wrapped(AsyncSession, in_write_pool(MemoryStore.session))
    find_session = wrapped(_session_or_none, in_read_pool(MemoryStore.find_session))
    end_session = in_write_pool(MemoryStore.end_session)
    find = in_background_pool(MemoryStore.find)
    assert_fact = in_write_pool(MemoryStore.assert_fact)
    retract_fact = in_write_pool(MemoryStore.retract_fact)
    retract_facts = in_write_pool(MemoryStore.retract_facts)
    fact = in_read_pool(MemoryStore.fact)
    facts = in_read_pool(MemoryStore.facts)
    fact_history = in_read_pool(MemoryStore.fact_history)
    record = in_write_pool(MemoryStore.record)
    record_many = in_write_pool(MemoryStore.record_many)
    recall = in_recall_pool(MemoryStore.recall)
    context = in_recall_pool(MemoryStore.context)
    standing = in_recall_pool(MemoryStore.standing)
    sessions = in_read_pool(MemoryStore.sessions)
    scopes = in_read_pool(MemoryStore.scopes)
    agents = in_read_pool(MemoryStore.agents)
    turns = in_read_pool(MemoryStore.turns)
    switch = wrapped(AsyncSession, in_write_pool(MemoryStore.switch))
    preview_switch = in_write_pool(MemoryStore.preview_switch)
    current = wrapped(_session_or_none, in_read_pool(MemoryStore.current))
    events = in_pages(MemoryStore.events)
    head = in_read_pool(MemoryStore.head)
    position_at = in_read_pool(MemoryStore.position_at)
    replay = in_background_pool(MemoryStore.replay)
    distrust = in_write_pool(MemoryStore.distrust)
    trust_again = in_write_pool(MemoryStore.trust_again)
    distrusts = in_read_pool(MemoryStore.distrusts)
    forget = in_background_pool(MemoryStore.forget)
    backup = in_background_pool(MemoryStore.backup)
    verify = in_background_pool(MemoryStore.verify)
    status = in_read_pool(MemoryStore.status)
    rebuild = in_background_pool(MemoryStore.rebuild)
