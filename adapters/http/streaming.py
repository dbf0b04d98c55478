"""Answers to calls that take long: the progress as server-sent events, and an export as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, BinaryIO, Final, cast

from mnemolog.adapters.http.exchange import EVENT_STREAM, JSON_LINES, Exchange, sent_event
from mnemolog.adapters.http.problems import to_body
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.infra.runtime import cancellation

PROGRESS_S: Final = 0.1
"""How often a long call reports its progress, in seconds."""
CHUNK_BYTES: Final = 65_536
CHUNKS_AHEAD: Final = 8
"""How many chunks of an export wait for the caller to read them."""
LOOK_S: Final = 0.5
"""How often an export whose caller reads nothing looks whether the caller is still there, in seconds."""


async def answer_with_progress(
    exchange: Exchange,
    made: Callable[[dict[str, Any]], Any],
    arguments: dict[str, Any],
    *,
    ended: Callable[[asyncio.Future[Any]], tuple[str, bytes]],
) -> None:
    """Make a call, and send `progress` events while it runs: `done` of `total`. `ended` returns the last event."""
    reached: tuple[int, int] | None = None

    def report(done: int, total: int) -> None:
        nonlocal reached
        reached = (done, total)

    call = asyncio.ensure_future(made(arguments | {"progress": stopping(report)}))
    gone = asyncio.ensure_future(exchange.gone())
    sent: tuple[int, int] | None = None
    try:
        await exchange.begin(EVENT_STREAM)
        while not gone.done():
            await asyncio.wait({call, gone}, timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
            if reached is not None and reached != sent:
                sent = reached
                await exchange.send(sent_event("progress", to_body({"done": sent[0], "total": sent[1]})))
            if call.done():
                await exchange.send(sent_event(*ended(call)), is_last=True)
                return
    finally:
        await _end(call, gone)


async def answer_with_export(exchange: Exchange, arguments: dict[str, Any]) -> None:
    """Send an export of the log as it is written. It ends with its trailer; one that breaks off has none."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)
    file = _Chunks(chunks, asyncio.get_running_loop())

    async def export() -> None:
        target = cast(BinaryIO, file)
        await run_in(
            "background",
            exchange.caller.store,
            lambda store: store.audit.export(target, progress=stopping(None), **arguments),
        )
        await chunks.put(file.rest())
        await chunks.put(b"")

    writing = asyncio.ensure_future(export())
    gone = asyncio.ensure_future(exchange.gone())
    try:
        while not gone.done():
            chunk = asyncio.ensure_future(chunks.get())
            await asyncio.wait({chunk, writing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not chunk.done() and writing.done():
                chunk.cancel()
                writing.result()  # Raises why it broke off; what was written was sent.
                chunk = asyncio.ensure_future(chunks.get())
            if gone.done():
                chunk.cancel()
                return
            part = await chunk
            if not exchange.is_begun:
                await exchange.begin(JSON_LINES)
            await exchange.send(part, is_last=not part)
            if not part:
                return
    finally:
        await _end(writing, gone)


class _Chunks:
    """A file to write to in another thread. What is written is read from a queue of the event loop."""

    def __init__(self, queue: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._queue, self._loop = queue, loop
        self._buffer = bytearray()

    def write(self, data: bytes) -> int:
        """Take bytes; wait while `CHUNKS_AHEAD` chunks are unread."""
        self._buffer += data
        if len(self._buffer) >= CHUNK_BYTES:
            self._put(asyncio.run_coroutine_threadsafe(self._queue.put(self.rest()), self._loop))
        return len(data)

    def rest(self) -> bytes:
        """Return what is not in the queue yet."""
        found = bytes(self._buffer)
        self._buffer.clear()
        return found

    def _put(self, waiting: Future[None]) -> None:
        while True:
            try:
                waiting.result(LOOK_S)
            except TimeoutError:
                cancellation.check()
            else:
                return


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
