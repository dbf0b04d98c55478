"""A server of a store on a socket of this machine, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.console.app import console_app
from tests.support import WAIT_S, wait_until


@contextmanager
def serving(folder: Path, *, model: Any, write: bool = False, app: Callable[..., Any] = console_app) -> Iterator[str]:
    """Serve the store in `folder`; yield the URL."""
    ready: list[uvicorn.Server] = []

    async def serve() -> None:
        async with AsyncMemoryStore.open(folder, model=model) as store:
            settings = uvicorn.Config(
                app(store, write=write), host="127.0.0.1", port=0, log_level="error", lifespan="on"
            )
            server = uvicorn.Server(settings)
            ready.append(server)
            await server.serve()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        wait_until(lambda: not thread.is_alive() or bool(ready and ready[0].started), what="the server to serve")
        (socket,) = ready[0].servers[0].sockets
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        for server in ready:
            server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server did not stop"
