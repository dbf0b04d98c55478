"""Read the bodies of requests, so that no caller fills the memory with them.

A body becomes up to sixty times its size when it is decoded: `[{},{},…]`. So what it holds is counted before, and
bodies that hold much are worked on one after another, from decoding to the end of the call.
"""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Final, TypeVar

from starlette.requests import Request

from mnemolog.defaults import BODY_MAX
from mnemolog.domain.errors import InvalidInput, LimitExceeded
from mnemolog.server.http.authentication import Caller
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.guard import BYTES, SMALL_BODY_MAX
from mnemolog.server.http.problems import RequestRefused

TAKEN: Final = 64 << 10
"""A body of up to so many bytes takes no room of others."""
BESIDE: Final = 8 << 20
"""Bytes for other callers beside the largest body."""
COUNTED: Final = 8 << 10
"""What a body of fewer bytes holds is not counted."""
DENSE: Final = 10_000
"""Parts from which on a body is dense: dense ones are worked on one at a time."""
LARGE: Final = 256 << 10
"""Bytes of a body from which on the event loop does not wait until it is read."""
PARTS_MAX: Final = 500_000
"""A body of more parts is refused."""
WAIT_S: Final = 10.0
"""How long a body waits for room."""

Read = TypeVar("Read")
_TEXT_OR_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)
_OBJECT: Final = 4
"""Parts that an object counts as: it takes about as much memory as four items of a list."""


class Bodies:
    """The bodies that a server works on."""

    def __init__(self, most: int = BODY_MAX) -> None:
        """`most` are the bytes of the largest body, which are also those that one caller may have read at a time."""
        self.most = most
        self._free = most + BESIDE
        self._of_caller: Counter[str] = Counter()
        self._freed = asyncio.Condition()
        self._dense = asyncio.Lock()

    @asynccontextmanager
    async def read(self, request: Request, caller: Caller, *, large: bool) -> AsyncIterator[bytes | bytearray]:
        """Read a body and keep its room until the block ends; it is empty if there is none.

        `large` allows `most` bytes, not `SMALL_BODY_MAX`. Raises `LimitExceeded`, and `RequestRefused` without room.
        """
        most = self.most if large else min(self.most, SMALL_BODY_MAX)
        size = most if "transfer-encoding" in request.headers else int(request.headers.get("content-length", 0))
        if size > most:
            raise LimitExceeded("body", limit=most, actual=size, unit=BYTES)
        if (running := request.scope["state"].get(RUNNING)) is not None:
            running.body_max = most
        taken = size if size > TAKEN else 0
        await self._take(caller, taken)
        try:
            body = bytearray()
            async for part in request.stream():
                body += part
            parts = 0 if len(body) < COUNTED else await in_thread_if_large(parts_in, body)
            if parts > PARTS_MAX:
                raise LimitExceeded("body", limit=PARTS_MAX, actual=parts, unit="parts outside of texts")
            async with self._dense if parts > DENSE else nullcontext():
                await in_thread_if_large(require_single_keys, body)
                yield body
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # They keep what was decoded.
            raise
        finally:
            await self._give_back(caller, taken)

    async def _take(self, caller: Caller, size: int) -> None:
        if not size:
            return
        try:
            async with asyncio.timeout(WAIT_S), self._freed:
                await self._freed.wait_for(
                    lambda: size <= self._free and self._of_caller[caller.token] + size <= self.most
                )
                self._free -= size
                self._of_caller[caller.token] += size
        except TimeoutError:
            why = "the server works on as many large requests as it has memory for"
            raise RequestRefused("TooBusy", 503, why, "send the request again later") from None

    async def _give_back(self, caller: Caller, size: int) -> None:
        if size:
            self._free += size
            self._of_caller.subtract({caller.token: size})
            if not self._of_caller[caller.token]:
                del self._of_caller[caller.token]
            async with self._freed:
                self._freed.notify_all()


def parts_in(body: bytes | bytearray) -> int:
    """Return how much JSON holds: its items, and four for each object; marks in texts do not count.

    Exact from `DENSE` to `PARTS_MAX`, where it ends.
    """
    found = _OBJECT * body.count(b"{") + body.count(b"[") + body.count(b",")
    if found <= DENSE:
        return found
    found = 0
    for token in _TEXT_OR_MARK.finditer(body):
        match body[token.start()]:
            case 0x7B:  # {
                found += _OBJECT
            case 0x5B | 0x2C:  # [ or a comma
                found += 1
        if found > PARTS_MAX:
            break
    return found


def require_single_keys(body: bytes | bytearray) -> None:
    """Raise `InvalidInput`, with its name, for a key that stands twice in one object. Each reader takes another one."""
    with suppress(json.JSONDecodeError, UnicodeDecodeError):  # What reads the body says why it is no JSON.
        try:
            _SINGLE_KEYS.decode(body.decode())
        except RecursionError as error:
            raise InvalidInput("body", "is nested too deeply") from error


def _require_once(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) < len(members):
        ((name, _),) = Counter(name for name, _ in members).most_common(1)
        raise InvalidInput(name, "is given twice in one object")


_SINGLE_KEYS: Final = json.JSONDecoder(object_pairs_hook=_require_once, parse_int=len, parse_float=len, strict=False)


async def in_thread_if_large(read: Callable[[bytes | bytearray], Read], body: bytes | bytearray) -> Read:
    """Return what a function makes of a body, without keeping the event loop from other requests if it is large."""
    return await asyncio.to_thread(read, body) if len(body) > LARGE else read(body)
