"""How many requests each caller may make, in a minute and at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic
from typing import Any, Final

from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.problems import RETRY_AFTER_S, problem, send_problem

MINUTE_S: Final = 60.0
RETRY_SOON: Final = (b"retry-after", str(RETRY_AFTER_S).encode())
KEPT_MAX: Final = 10_000


class TokenBuckets:
    """A token bucket for each key; `KEPT_MAX` keys are kept. Each has `per_minute` tokens, and fills in a minute."""

    def __init__(self, per_minute: int, *, time: Callable[[], float] = monotonic) -> None:
        self._per_minute, self._time = per_minute, time
        self._left: LruCache[str, tuple[float, float]] = LruCache(KEPT_MAX)
        """How many tokens were left, and when that was."""

    def wait_s(self, key: str) -> int:
        """Take a token. Return 0, or in how many seconds there will be one."""
        now = self._time()
        left, since = self._left.get(key) or (float(self._per_minute), now)
        left = min(self._per_minute, left + (now - since) * self._per_minute / MINUTE_S)
        if left < 1:
            self._left.put(key, (left, now))
            return ceil((1 - left) * MINUTE_S / self._per_minute)
        self._left.put(key, (left - 1, now))
        return 0


class RateLimit:
    """Lets each caller make `per_minute` requests at once, and then so many in each minute."""

    def __init__(self, app: Any, *, per_minute: int) -> None:
        self._app, self._per_minute, self._buckets = app, per_minute, TokenBuckets(per_minute)

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request, or refuse it with the time until the next one."""
        if scope["type"] != "http" or (caller := scope["state"].get("caller")) is None:
            await self._app(scope, receive, send)
            return
        if (wait_s := self._buckets.wait_s(caller.token or caller.actor)) == 0:
            await self._app(scope, receive, send)
            return
        why = f"this caller has made {self._per_minute} requests in a minute"
        members = problem("TooManyRequests", 429, why, f"send it again in {wait_s} s")
        await send_problem(send, members, (b"retry-after", str(wait_s).encode()))


class RunningLimit:
    """Refuses a request while its caller has as many running as may be. `Guard` counts them."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request, or refuse it."""
        running = scope.get("state", {}).get(RUNNING)
        if running is not None and (refused := running.enter()) is not None:
            await send_problem(send, refused, RETRY_SOON)
        else:
            await self._app(scope, receive, send)
