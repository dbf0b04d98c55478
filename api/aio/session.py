"""Handles on sessions, for asyncio: `mnemolog.session` and `mnemolog.working_memory`, method by method."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from mnemolog.aio.ticket import AsyncTicket
from mnemolog.aio.wrappers import Face, gives, reads, recalls, writes
from mnemolog.domain.position import Position
from mnemolog.projections.recall.prefetch_ticket import PrefetchReason, Taken
from mnemolog.session import Session, SessionAt
from mnemolog.working_memory import MemoryView

View_co = TypeVar("View_co", bound=MemoryView, covariant=True)


class AsyncMemoryView(Face[View_co]):
    """Working memory to be read. Methods are those of `MemoryView`."""

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._of.id

    def __repr__(self) -> str:
        return f"Async{self._of!r}"

    get = reads(MemoryView.get)
    exists = reads(MemoryView.exists)
    keys = reads(MemoryView.keys)
    all = reads(MemoryView.all)
    task = reads(MemoryView.task)
    notes = reads(MemoryView.notes)
    checkpoints = reads(MemoryView.checkpoints)
    lineage = reads(MemoryView.lineage)
    stats = reads(MemoryView.stats)


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

    turns = reads(SessionAt.turns)


class AsyncSession(AsyncMemoryView[Session]):
    """A conversation. See `Session`: methods, arguments and errors are the same, to be awaited."""

    @property
    def name(self) -> str:
        """What the session was called when it was started."""
        return self._of.name

    @property
    def agent(self) -> str:
        """The agent that it was started for."""
        return self._of.agent

    @property
    def scope(self) -> str:
        """The scope that it was started in."""
        return self._of.scope

    record = writes(Session.record)
    reconcile = writes(Session.reconcile)
    recall = recalls(Session.recall)
    context_for = recalls(Session.context_for)
    turns = reads(Session.turns)
    rewind = writes(Session.rewind)
    undone = reads(Session.undone)
    mark_undone = writes(Session.mark_undone)
    rewind_to_transcript = writes(Session.rewind_to_transcript)
    preview_rewind = writes(Session.preview_rewind)
    preview_restore = writes(Session.preview_restore)
    branch = gives(lambda of, lanes: AsyncSession(of, lanes), writes(Session.branch))
    end = writes(Session.end)
    at = gives(AsyncSessionAt, reads(Session.at))
    prefetch = gives(AsyncTicket, reads(Session.prefetch))

    set = writes(Session.set)
    delete = writes(Session.delete)
    clear = writes(Session.clear)
    set_task = writes(Session.set_task)
    update_task = writes(Session.update_task)
    note = writes(Session.note)
    clear_notes = writes(Session.clear_notes)
    checkpoint = writes(Session.checkpoint)
    restore = writes(Session.restore)
    delete_checkpoint = writes(Session.delete_checkpoint)

    async def take_prefetch(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> Taken:
        """Return the answer to this session's newest prefetch, once, or why there is none. See `Session`.

        No thread waits meanwhile. Cancelled while it waits, it has taken nothing.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while True:
            taken = await self._take(max_behind=max_behind)
            left_s = end - loop.time()
            if taken.reason is not PrefetchReason.NOT_READY or taken.ticket is None or left_s <= 0:
                return taken
            await AsyncTicket(taken.ticket, self._lanes).wait(left_s)

    _take = reads(Session.take_prefetch)
