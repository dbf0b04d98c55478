"""Answers to calls that take long: the progress as server-sent events, and an export as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mnemolog.adapters.support.store_access import exported_lines
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.projections.ports import Progress
from mnemolog.server.http.operation_table import EVENT_STREAM
from mnemolog.server.http.problems import to_body

PROGRESS_S: Final = 0.1
"""How often a long call reports its progress, in seconds."""
CHUNK_BYTES: Final = 65_536


class Stream(StreamingResponse):
    """An answer that is sent part by part, until it ends or the client hangs up. Then `ended` is called."""

    def __init__(self, parts: AsyncIterator[bytes], kind: str, *, ended: Callable[[], object]) -> None:
        headers = {"content-type": kind, "cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(parts, headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def sent_event(name: str, data: bytes) -> bytes:
    """Return a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def progress_response(
    made: Callable[[Progress], Coroutine[Any, Any, Any]], last_event: Callable[[asyncio.Future[Any]], tuple[str, bytes]]
) -> Stream:
    """Make a call, and send `progress` events while it runs: `done` of `total`. `last_event` returns what ends it."""
    reached: tuple[int, int] | None = None

    def report(done: int, total: int) -> None:
        nonlocal reached
        reached = (done, total)

    call = asyncio.ensure_future(made(stopping(report)))

    async def events() -> AsyncIterator[bytes]:
        sent: tuple[int, int] | None = None
        while not call.done() or reached != sent:
            await asyncio.wait({call}, timeout=PROGRESS_S)
            if reached is not None and reached != sent:
                sent = reached
                yield sent_event("progress", to_body({"done": sent[0], "total": sent[1]}))
        yield sent_event(*last_event(call))

    def end() -> None:
        if not call.cancel() and not call.cancelled():
            call.exception()  # Else asyncio reports it as never looked at, where the client has hung up before it.

    return Stream(events(), EVENT_STREAM, ended=end)


async def export_response(
    store: AsyncMemoryStore, arguments: dict[str, Any], kind: str, *, head_only: bool
) -> Response:
    """Send an export of the log as it is written. It ends with its trailer; one that breaks off has none.

    `kind` is its media type. No thread waits for a caller who reads slowly: each chunk is made when the one before was
    taken.
    """
    if head_only:
        return Response(media_type=kind)
    lines = await run_in("read", store, lambda of: exported_lines(of, **arguments))
    first = await run_in("read", store, lambda _: _chunk(lines))  # Now, so that what is refused is no stream.

    async def chunks() -> AsyncIterator[bytes]:
        chunk = first
        while chunk:
            yield chunk
            chunk = await run_in("read", store, lambda _: _chunk(lines))

    return Stream(chunks(), kind, ended=lambda: None)


def _chunk(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, about `CHUNK_BYTES`; none at the end."""
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            break
    return bytes(chunk)
