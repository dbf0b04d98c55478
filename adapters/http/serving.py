"""Run a server: accept connections, answer until a signal comes, and finish what runs then."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import uvicorn

from mnemolog.adapters.http.config import ServerConfig
from mnemolog.adapters.http.connections import Connections, descriptors_left, quieten
from mnemolog.adapters.http.guard import Guard
from mnemolog.adapters.http.listen import bracketed
from mnemolog.domain import structured_log

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def serve(guard: Guard, config: ServerConfig, *, started: Callable[[str], object]) -> None:
    """Answer requests until SIGINT or SIGTERM. `started` is called with the URL. Raises `InvalidInput`.

    At the signal the server stops accepting connections, ends streams of events, and completes the requests that run,
    for `config.drain_s` at most. The caller closes the store: then all that was acknowledged is durable.
    """
    config.check()
    quieten()
    _open_more_files()
    with config.listen() as listening:
        server = _Server(guard, config, listening)
        # uvicorn takes signals once it runs. When it has stopped, it raises the signal again, which would keep the
        # store from being closed.
        before = {number: signal.signal(number, server.handle_early) for number in SIGNALS}
        try:
            port = listening.getsockname()[1]
            host = bracketed(config.host) if config.host else "0.0.0.0"
            await _run(server, config, listening, lambda: started(f"{config.scheme}://{host}:{port}/"))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _run(server: _Server, config: ServerConfig, listening: socket.socket, started: Callable[[], object]) -> None:
    connections = Connections(
        config.limits, descriptors=descriptors_left(listening.fileno()), token=config.needs_token, tls=config.tls()
    )
    server.guard.metrics.gauge("mnemolog_http_connections", "Connections that are open.", lambda: connections.count)
    async with asyncio.TaskGroup() as tasks:
        server.accepting = tasks.create_task(connections.accept(listening, server))
        watching = tasks.create_task(connections.watch())
        started()
        await server.serve(sockets=[])  # None of its own: `Connections` accepts.
        server.accepting.cancel()
        watching.cancel()


class _Server(uvicorn.Server):
    """A server that ends streams of events when it stops."""

    accepting: asyncio.Task[None]

    def __init__(self, guard: Guard, config: ServerConfig, listening: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                guard,
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=config.behind_proxy,
                forwarded_allow_ips=list(config.proxies),
                timeout_graceful_shutdown=config.drain_s,
            )
        )
        self.guard, self._listening = guard, listening

    def handle_early(self, *_: object) -> None:
        """Stop as soon as the server runs."""
        self.should_exit = True

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop: no new connections, streams end, requests that run are completed."""
        self.accepting.cancel()
        self._listening.close()
        structured_log.info("http.stopping", running=self.guard.running, streams=len(self.guard.streams))
        await self.guard.end_streams()
        await super().shutdown(sockets)
        structured_log.info("http.stopped", cancelled=self.guard.running)


def _open_more_files() -> None:
    """Let the process open as many files as it may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some systems refuse what they name as the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
