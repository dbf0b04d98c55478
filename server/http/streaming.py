"""Answers to calls that take long: the progress as server-sent events, and an export as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from mnemolog.adapters.support.store_access import exported_lines
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.server.http.exchange import EVENT_STREAM, JSON_LINES, Exchange, sent_event
from mnemolog.server.http.problems import to_body

PROGRESS_S: Final = 0.1
"""How often a long call reports its progress, in seconds."""
CHUNK_BYTES: Final = 65_536


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
    """Send an export of the log as it is written. It ends with its trailer; one that breaks off has none.

    No thread waits for a caller who reads slowly: each chunk is made when the one before was taken.
    """
    store = exchange.caller.store
    lines = await run_in("read", store, lambda of: exported_lines(of, **arguments))
    while chunk := await run_in("read", store, lambda _: _chunk(lines)):
        if not exchange.is_begun:
            await exchange.begin(JSON_LINES)
        await exchange.send(chunk)
    await exchange.send(b"", is_last=True)


def _chunk(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, about `CHUNK_BYTES`; none at the end."""
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            break
    return bytes(chunk)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
