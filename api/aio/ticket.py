"""A prefetch to be awaited."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mnemolog.aio.wrappers import AsyncWrapper
from mnemolog.projections.recall.prefetch_ticket import Outcome, PrefetchReason, Request, Stamp, Ticket


class AsyncTicket(AsyncWrapper[Ticket]):
    """A recall that was asked for in the background. See `Ticket`."""

    def __repr__(self) -> str:
        return f"Async{self._of!r}"

    @property
    def stamp(self) -> Stamp:
        """When, where and for whom it was asked for."""
        return self._of.stamp

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self._of.request

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None as long as it has not."""
        return self._of.outcome

    @property
    def id(self) -> int:
        """Number of the ticket, from 1."""
        return self._of.id

    @property
    def done(self) -> bool:
        """Whether it is decided: there is an answer, or there will be none."""
        return self._of.done

    @property
    def reason(self) -> PrefetchReason | None:
        """Why there will be no answer; None as long as there may be one, and when there was."""
        return self._of.reason

    @property
    def error(self) -> str | None:
        """What the recall raised, when the reason is `failed`."""
        return self._of.error

    async def wait(self, timeout_s: float) -> bool:
        """Return True once it is done, False when it is not within `timeout_s` seconds. No thread waits meanwhile."""
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(told.set)

        with self._of.listening(tell), suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await told.wait()
        return self.done

    async def cancel(self) -> None:
        """Give it up. One that waits never runs, and an answer that was not handed out never will be."""
        self._of.cancel()
