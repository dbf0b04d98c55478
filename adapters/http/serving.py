"""Run a server: accept connections, answer until a signal comes, finish what runs, close the store."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mnemolog.adapters.http.config import ServerConfig
from mnemolog.adapters.http.connections import Connections, descriptors_left, quieten
from mnemolog.adapters.http.listen import bracketed
from mnemolog.aio.store import AsyncMemoryStore

DRAIN_S: Final = 10
"""How long a server that stops waits for requests that run; then it cancels them."""


async def serve(store: AsyncMemoryStore, config: ServerConfig, *, started: Callable[[str], object]) -> None:
    """Serve a store until SIGINT or SIGTERM. `started` is called with the URL. Raises `InvalidInput`.

    Requests that run at the signal are completed, for `DRAIN_S` at most. The caller closes the store.
    """
    config.check()
    quieten()
    _open_more_files()
    with config.listen() as listening:
        port = listening.getsockname()[1]
        server = _server(_app(store), config)
        # uvicorn shuts down and then raises the signal again, which would keep the store from being closed.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        await _run(server, listening, config, lambda: started(f"{config.scheme}://{_shown(config.host)}:{port}/"))


async def _run(
    server: uvicorn.Server, listening: socket.socket, config: ServerConfig, started: Callable[[], object]
) -> None:
    connections = Connections(
        config.limits,
        descriptors=descriptors_left(listening.fileno()),
        token=config.needs_token,
        tls=config.tls(),
    )
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(connections.accept(listening, server)), tasks.create_task(connections.watch())]
        started()
        await server.serve(sockets=[])  # None of its own: `Connections` accepts.
        for task in running:
            task.cancel()


def _server(app: Any, config: ServerConfig) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=config.behind_proxy,
            forwarded_allow_ips=list(config.proxies),
            timeout_graceful_shutdown=DRAIN_S,
        )
    )


def _shown(host: str) -> str:
    return bracketed(host) if host else "0.0.0.0"


def _open_more_files() -> None:
    """Let the process open as many files as it may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some systems refuse what they name as the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


def _app(store: AsyncMemoryStore) -> Any:
    async def head(request: Any) -> Any:
        return JSONResponse({"position": (await store.head()).position})

    return Starlette(routes=[Route("/v1/head", head)])
