"""A prefetch that can be awaited."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mnemolog.aio.wrappers import AsyncWrapper
from mnemolog.projections.recall.prefetch_ticket import Outcome, PrefetchReason, Request, Stamp, Ticket


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
