"""How many requests each caller may make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic
from typing import Any, Final

from mnemolog.adapters.http.exchange import PROBLEM
from mnemolog.adapters.http.problems import problem, to_body

MINUTE_S: Final = 60.0


class RateLimit:
    """Lets each caller make `per_minute` requests at once, and then so many in each minute."""

    def __init__(self, app: Any, *, per_minute: int) -> None:
        self._app, self._per_minute = app, per_minute
        self._left: dict[str, tuple[float, float]] = {}
        """By caller: how many requests it had left, and when that was."""

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request, or refuse it with the time until the next one."""
        if scope["type"] != "http" or (wait_s := self._wait_s(scope["state"]["caller"])) == 0:
            await self._app(scope, receive, send)
            return
        why = f"this caller has made {self._per_minute} requests in a minute"
        body = to_body(problem("TooManyRequests", 429, why, f"send it again in {wait_s} s"))
        headers = [
            (b"content-type", PROBLEM),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", str(wait_s).encode()),
        ]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _wait_s(self, caller: Any) -> int:
        """Count a request. Return 0, or in how many seconds the caller may make it."""
        key, now = caller.actor, monotonic()
        left, since = self._left.get(key, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - since) * self._per_minute / MINUTE_S)
        if left < 1:
            self._left[key] = left, now
            return ceil((1 - left) * MINUTE_S / self._per_minute)
        self._left[key] = left - 1, now
        return 0
