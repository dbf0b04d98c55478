"""A server over one store, at one address: API, console, MCP and metrics, or MCP alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.extras import install_command
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import Authentication, Callers
from mnemolog.server.http.bodies import Bodies
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.guard import Guard, RequestLimit
from mnemolog.server.http.live_events import TAIL, Followers
from mnemolog.server.http.metrics import Metrics
from mnemolog.server.http.operation_table import KEY_HEADER, MCP_PATH, PREFIX, SCOPE_HEADER
from mnemolog.server.http.probes import metrics_route, probes
from mnemolog.server.http.problems import problem, problem_response
from mnemolog.server.http.serving import serve


async def serve_store(path: Any, config: ServerConfig, *, started: Callable[[str], object], **how: Any) -> None:
    """Serve the store at `path` until SIGINT or SIGTERM. `how` as in `MemoryStore.open`.

    `started` is called with the URL of the server. Raises `InvalidInput`, and as `MemoryStore.open` does.
    """
    config.check()
    metrics = Metrics()
    async with AsyncMemoryStore.open(path, telemetry=metrics, **how) as store:
        followers = Followers(store)
        metrics.gauge("mnemolog_http_followers", "Streams that follow the log.", lambda: followers.count)
        memory = Memory(store, agent=config.agent, read_only=how.get("read_only", False))
        callers = Callers(store, config.known_users())
        async with application(memory, callers, config, metrics, followers=followers) as app:
            answering = probes(memory, callers if config.needs_token else None)
            guard = Guard(app, config, metrics, probes=answering)
            await serve(guard, config, started=started, stop=followers.stop, users=callers.users)


@asynccontextmanager
async def application(
    memory: Memory, callers: Callers, config: ServerConfig, metrics: Metrics, *, followers: Followers | None = None
) -> AsyncIterator[Starlette]:
    """Return what answers requests, while the model is loaded in the background."""
    store, bodies = memory.store, Bodies(config.body_max)
    routes = [metrics_route(metrics), _mcp_route(memory, config, bodies)]
    pages: dict[str, Any] = {}
    if not config.mcp_only:
        console, pages = _console(store, config, callers, read_only=memory.read_only)
        routes += console
    middleware = [
        Middleware(Authentication, callers=callers, store=store, needs_token=config.needs_token, **pages),
        Middleware(RequestLimit, requests=config.limits.requests, uncounted=PREFIX + TAIL.path),
    ]
    if config.origins:
        middleware.insert(0, _cors(config))
    async with memory.loading():
        yield make_app(
            store,
            folders=config.folders,
            followers=followers,
            bodies=bodies,
            routes=routes,
            middleware=middleware,
            with_api=not config.mcp_only,
        )


def _cors(config: ServerConfig) -> Middleware:
    """Return what lets pages of allowed origins use the server, without cookies."""
    return Middleware(
        CORSMiddleware,
        allow_origins=config.origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=(
            *("Authorization", "If-None-Match", "Last-Event-ID", "MCP-Protocol-Version"),
            *(KEY_HEADER, SCOPE_HEADER),
        ),
        expose_headers=("ETag", "Retry-After"),
    )


def _console(
    store: AsyncMemoryStore, config: ServerConfig, callers: Callers, *, read_only: bool
) -> tuple[list[BaseRoute], dict[str, Any]]:
    """Return the routes of the console, and what the authentication has to know of its pages."""
    from mnemolog.server.console.routes import LOGIN, LOGIN_COOKIE, PUBLIC, Console

    console = Console(
        name=store.path.name,
        write=config.write and not read_only,
        log_in=callers.caller_of if config.needs_token else None,
    )
    return console.routes(), {"cookie": LOGIN_COOKIE, "public": PUBLIC, "login": LOGIN}


def _mcp_route(memory: Memory, config: ServerConfig, bodies: Bodies) -> BaseRoute:
    if find_spec("mcp") is None:
        return Route(MCP_PATH, _no_mcp, methods=["GET", "POST", "DELETE"])
    from mnemolog.server.mcp_route import mcp_route

    return mcp_route(memory, bodies, tools=config.tools)


async def _no_mcp(_: Any) -> Response:
    why = "this server has no MCP: mcp is not installed"
    return problem_response(problem("ExtraMissing", 501, why, install_command("mcp")))
