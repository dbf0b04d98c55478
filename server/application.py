"""A server over one store, at one address: API, console, MCP and metrics, or MCP alone.

It accepts connections, answers until a signal comes, and finishes what runs then.
"""

import ctypes
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from time import time
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import structured_log
from mnemolog.domain.errors import InvalidInput, install_command
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import Authentication, Callers, Users
from mnemolog.server.http.config import ServerConfig, bracketed
from mnemolog.server.http.connections import Connections, descriptors_left, quieten
from mnemolog.server.http.guard import LARGE, Bodies, Guard, RequestLimit
from mnemolog.server.http.live_events import TAIL, Followers
from mnemolog.server.http.monitoring import Metrics, metrics_route, probes, watch_deadlines
from mnemolog.server.http.problems import RequestRefused, problem_response
from mnemolog.server.http.routes import KEY_HEADER, MCP_PATH, PREFIX, SCOPE_HEADER

M_MMAP_THRESHOLD: Final = -3


async def serve_store(path: Any, config: ServerConfig, *, started: Callable[[str], object], **how: Any) -> None:
    """Serve the store at `path` until SIGINT or SIGTERM. `how` as in `MemoryStore.open`.

    `started` is called with the URL of the server. Raises `InvalidInput`, and as `MemoryStore.open` does.
    """
    config.check()
    metrics = Metrics()
    async with AsyncMemoryStore.open(path, telemetry=metrics, **how) as store:
        followers = Followers(store)
        metrics.gauge("mnemolog_http_followers", "Streams that follow the log.", lambda: len(followers.following))
        memory = Memory(store, agent=config.agent, read_only=how.get("read_only", False))
        callers = Callers(store, config.known_users())
        watch_deadlines(metrics, callers, store.path)
        async with application(memory, callers, config, metrics, followers=followers) as app:
            answering = probes(memory, callers if config.needs_token else None)
            guard = Guard(app, config, metrics, probes=answering)
            await _serve(guard, config, callers.users, started=started, stop=followers.stop)


@asynccontextmanager
async def application(
    memory: Memory, callers: Callers, config: ServerConfig, metrics: Metrics, *, followers: Followers | None = None
) -> AsyncIterator[Starlette]:
    """Return what answers requests, while the model is loaded in the background."""
    store, bodies = memory.store, Bodies(config.body_max)
    routes = [metrics_route(metrics), _mcp_route(memory, config, bodies)]
    pages: dict[str, Any] = {}
    if not config.mcp_only:
        from mnemolog.server.console.routes import LOGIN, LOGIN_COOKIE, PUBLIC, Console

        log_in = callers.caller_of if config.needs_token else None
        routes += Console(name=store.path.name, write=config.write and not memory.read_only, log_in=log_in).routes()
        pages = {"cookie": LOGIN_COOKIE, "public": PUBLIC, "login": LOGIN}
    middleware = [
        Middleware(Authentication, callers=callers, store=store, needs_token=config.needs_token, **pages),
        Middleware(RequestLimit, requests=config.limits.requests, uncounted=PREFIX + TAIL.path),
    ]
    if config.origins:
        cors = Middleware(  # Without cookies.
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=(
                *("Authorization", "If-None-Match", "Last-Event-ID", "MCP-Protocol-Version"),
                *(KEY_HEADER, SCOPE_HEADER),
            ),
            expose_headers=("ETag", "Retry-After"),
        )
        middleware.insert(0, cors)
    async with memory.loading():
        yield make_app(
            store,
            folders=config.folders,
            followers=followers,
            bodies=bodies,
            routes=routes,
            middleware=middleware,
            with_api=not config.mcp_only,
            needs_token=config.needs_token,
        )


def _mcp_route(memory: Memory, config: ServerConfig, bodies: Bodies) -> BaseRoute:
    if find_spec("mcp") is None:
        return Route(MCP_PATH, _no_mcp, methods=["GET", "POST", "DELETE"])
    from mnemolog.server.mcp_route import mcp_route

    return mcp_route(memory, bodies, tools=config.tools)


async def _no_mcp(_: Any) -> Response:
    why = "this server has no MCP: mcp is not installed"
    return problem_response(RequestRefused("ExtraMissing", 501, why, install_command("mcp")))


async def _serve(
    guard: Guard,
    config: ServerConfig,
    users: Users | None,
    *,
    started: Callable[[str], object],
    stop: Callable[[], object],
) -> None:
    """Answer requests. At SIGHUP the certificate and the file of `users` are read again. At the other signals the
    server stops accepting connections, calls `stop`, and completes the requests that run, for `config.drain_s` at most.
    The caller closes the store: then all that was acknowledged is durable.
    """
    quieten()
    _prepare_process()
    tls, ends = config.tls(), config.certificate_ends()

    def read_again() -> None:
        nonlocal ends
        try:
            if tls is not None:
                config.read_certificate(tls)
                ends = config.certificate_ends()
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
        left = "Seconds until the certificate that is served ends; infinite without."
        guard.metrics.gauge("mnemolog_http_certificate_left_seconds", left, lambda: ends - time())
        host, port = bracketed(config.host) if config.host else "0.0.0.0", listening.getsockname()[1]
        scheme = "http" if tls is None else "https"
        await connections.serve(
            _Server(guard, config, connections, listening, stop),
            listening,
            started=lambda: started(f"{scheme}://{host}:{port}/"),
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
        self._guard = guard
        self._connections = connections
        self._listening = listening
        self._stop = stop

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop: no new connections, streams end, requests that run are completed."""
        self._connections.stop_accepting()
        self._listening.close()
        structured_log.info("http.stopping", running=self._guard.running)
        self._stop()
        await super().shutdown(sockets)
        structured_log.info("http.stopped", cancelled=self._guard.running)


def _prepare_process() -> None:
    """Let the process open as many files as it may: each connection is one. And let glibc give large blocks back.

    By default each thread comes to keep those of old requests. See mallopt(3): without a set `M_MMAP_THRESHOLD`, the
    size from which blocks are given back grows up to 32 MiB.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some systems refuse what they name as the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    with suppress(OSError, AttributeError):  # Another libc.
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
