"""Run a server: accept connections, answer until a signal comes, and finish what runs then."""

from __future__ import annotations

import ctypes
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import uvicorn

from mnemolog.domain import structured_log
from mnemolog.domain.errors import InvalidInput
from mnemolog.server.http.access import Users
from mnemolog.server.http.bodies import LARGE
from mnemolog.server.http.config import ServerConfig, bracketed
from mnemolog.server.http.connections import Connections, descriptors_left, quieten
from mnemolog.server.http.guard import Guard

M_MMAP_THRESHOLD: Final = -3


async def serve(
    guard: Guard,
    config: ServerConfig,
    *,
    started: Callable[[str], object],
    stop: Callable[[], object] = lambda: None,
    users: Users | None = None,
) -> None:
    """Answer requests until SIGINT or SIGTERM. `started` is called with the URL. Raises `InvalidInput`.

    `config` was checked. At SIGHUP the certificate and the file of `users` are read again. At the other signals the
    server stops accepting connections, calls `stop`, and completes the requests that run, for `config.drain_s` at most.
    The caller closes the store: then all that was acknowledged is durable.
    """
    quieten()
    _open_more_files()
    _return_memory()
    tls = config.tls()

    def read_again() -> None:
        try:
            if tls is not None:
                config.read_certificate(tls)
            if users is not None:
                users.read()
        except InvalidInput as error:
            structured_log.error("http.not_reread", error=error)
        else:
            structured_log.info("http.reread")

    with config.listen() as listening:
        connections = Connections(
            config.limits, descriptors=descriptors_left(listening.fileno()), token=config.needs_token, tls=tls
        )
        guard.metrics.gauge("mnemolog_http_connections", "Connections that are open.", lambda: connections.count)
        host, port = bracketed(config.host) if config.host else "0.0.0.0", listening.getsockname()[1]
        await connections.serve(
            _Server(guard, config, connections, listening, stop),
            listening,
            started=lambda: started(f"{config.scheme}://{host}:{port}/"),
            read_again=read_again,
        )


class _Server(uvicorn.Server):
    """A server that calls a function when it stops."""

    def __init__(
        self,
        guard: Guard,
        config: ServerConfig,
        connections: Connections,
        listening: socket.socket,
        stop: Callable[[], object],
    ) -> None:
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
        self._guard, self._connections, self._listening, self._stop = guard, connections, listening, stop

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop: no new connections, streams end, requests that run are completed."""
        self._connections.stop_accepting()
        self._listening.close()
        structured_log.info("http.stopping", running=self._guard.running)
        self._stop()
        await super().shutdown(sockets)
        structured_log.info("http.stopped", cancelled=self._guard.running)


def _open_more_files() -> None:
    """Let the process open as many files as it may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some systems refuse what they name as the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


def _return_memory() -> None:
    """Let glibc give large blocks back to the system. By default each thread comes to keep those of old requests.

    See mallopt(3): without a set `M_MMAP_THRESHOLD`, the size from which blocks are given back grows up to 32 MiB.
    """
    with suppress(OSError, AttributeError):  # Another libc.
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
