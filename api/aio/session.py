"""Handles on sessions, for asyncio: `mnemolog.session` and `mnemolog.working_memory`, method by method."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

from mnemolog.aio.wrappers import AsyncWrapper, in_read_pool, in_recall_pool, in_write_pool, wrapped
from mnemolog.domain.position import Position
from mnemolog.projections.recall.prefetch_ticket import (
    Outcome,
    PrefetchReason,
    PrefetchResult,
    Request,
    Stamp,
    Ticket,
)
from mnemolog.session import Session, SessionAt
from mnemolog.working_memory import MemoryView

View_co = TypeVar("View_co", bound=MemoryView, covariant=True)


class AsyncTicket(AsyncWrapper[Ticket]):
    """A recall running in the background. See `Ticket`."""

    def __repr__(self) -> str:
        return f"Async{self._of!r}"

    @property
    def stamp(self) -> Stamp:
        """When, at which position and for which session it was requested."""
        return self._of.stamp

    @property
    def request(self) -> Request:
        """The request."""
        return self._of.request

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return self._of.outcome

    @property
    def id(self) -> int:
        """Number of the ticket, from 1."""
        return self._of.id

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an answer."""
        return self._of.done

    @property
    def reason(self) -> PrefetchReason | None:
        """Why there is no answer; None while it runs, and if there was an answer."""
        return self._of.reason

    @property
    def error(self) -> str | None:
        """The error of the recall, if the reason is `failed`."""
        return self._of.error

    async def wait(self, timeout_s: float) -> bool:
        """Return True once it is done, False after `timeout_s` seconds. Blocks no thread while it waits."""
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(told.set)

        self._of.when_done(tell)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await told.wait()
        return self.done

    async def cancel(self) -> None:
        """Cancel it. If it has not started it never runs; an answer not yet returned is discarded."""
        self._of.cancel()


class AsyncMemoryView(AsyncWrapper[View_co]):
    """Working memory, read-only. Methods are those of `MemoryView`."""

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._of.id

    def __repr__(self) -> str:
        return f"Async{self._of!r}"

    get = in_read_pool(MemoryView.get)
    exists = in_read_pool(MemoryView.exists)
    keys = in_read_pool(MemoryView.keys)
    all = in_read_pool(MemoryView.all)
    task = in_read_pool(MemoryView.task)
    notes = in_read_pool(MemoryView.notes)
    checkpoints = in_read_pool(MemoryView.checkpoints)
    lineage = in_read_pool(MemoryView.lineage)


class AsyncSessionAt(AsyncMemoryView[SessionAt]):
    """A session as it was at a position of the log. See `SessionAt`."""

    @property
    def position(self) -> Position:
        """The position."""
        return self._of.position

    @property
    def ended(self) -> bool:
        """Whether the session had ended."""
        return self._of.ended

    turns = in_read_pool(SessionAt.turns)


class AsyncSession(AsyncMemoryView[Session]):
    """A conversation. See `Session`: same methods, arguments and errors, but awaitable."""

    @property
    def title(self) -> str:
        """The title the session was started with; empty if it has none."""
        return self._of.title

    @property
    def agent(self) -> str:
        """The agent the session was started for."""
        return self._of.agent

    @property
    def scope(self) -> str:
        """The scope the session was started in."""
        return self._of.scope

    assert_fact = in_write_pool(Session.assert_fact)
    record = in_write_pool(Session.record)
    record_many = in_write_pool(Session.record_many)
    recall = in_recall_pool(Session.recall)
    context = in_recall_pool(Session.context)
    turns = in_read_pool(Session.turns)
    messages = in_read_pool(Session.messages)
    rewind = in_write_pool(Session.rewind)
    branch = wrapped(lambda of, pools: AsyncSession(of, pools), in_write_pool(Session.branch))
    end = in_write_pool(Session.end)
    at = wrapped(AsyncSessionAt, in_read_pool(Session.at))
    prefetch = wrapped(AsyncTicket, in_read_pool(Session.prefetch))

    set = in_write_pool(Session.set)
    delete = in_write_pool(Session.delete)
    clear = in_write_pool(Session.clear)
    set_task = in_write_pool(Session.set_task)
    update_task = in_write_pool(Session.update_task)
    note = in_write_pool(Session.note)
    clear_notes = in_write_pool(Session.clear_notes)
    checkpoint = in_write_pool(Session.checkpoint)
    restore = in_write_pool(Session.restore)
    delete_checkpoint = in_write_pool(Session.delete_checkpoint)

    async def prefetch_result(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to this session's newest prefetch, once, or why there is none. See `Session`.

        Blocks no thread while it waits. If it is cancelled while waiting, the answer stays available.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while True:
            taken = await self._take(max_behind=max_behind)
            left_s = end - loop.time()
            if taken.reason is not PrefetchReason.NOT_READY or taken.ticket is None or left_s <= 0:
                return taken
            await AsyncTicket(taken.ticket, self._pools).wait(left_s)

    _take = in_read_pool(Session.prefetch_result)
