"""Streamable HTTP for any number of clients, at the address of a `BindConfig`."""

from __future__ import annotations

import hmac
import socket
import sys
from typing import Any, Final

import uvicorn
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.authentication import AuthenticationMiddleware

from mnemolog.adapters.mcp.server import make_server
from mnemolog.adapters.support.agent_tools import Memory, Toolset
from mnemolog.server.http.connections import DEFAULT_LIMITS, Connections, Limits, descriptors_left, quieten
from mnemolog.server.http.listen import bracketed
from mnemolog.server.mcp_bind import BindConfig

PATH: Final = "/mcp"
CLOSE_TIMEOUT_S: Final = 2
"""How long a server that shuts down waits for answers in progress."""


def make_app(memory: Memory, bind: BindConfig, *, tools: Toolset = "core") -> Any:
    """Return the ASGI application. Raises `InvalidInput` for a non-loopback address without a token."""
    bind.check()
    security = TransportSecuritySettings(allowed_hosts=bind.names(), allowed_origins=list(bind.origins))
    checker = None if bind.token is None else _TokenVerifier(bind.token)
    app = make_server(memory, tools=tools).streamable_http_app(
        streamable_http_path=PATH, transport_security=security, token_verifier=checker
    )
    if checker is not None:
        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(checker))
    return app


async def serve_http(
    memory: Memory, bind: BindConfig, *, tools: Toolset = "core", limits: Limits = DEFAULT_LIMITS
) -> None:
    """Serve any number of clients until SIGINT or SIGTERM. Prints the URL to stderr. Raises `InvalidInput`."""
    app = make_app(memory, bind, tools=tools)
    quieten()
    with bind.listen() as listening:
        config = uvicorn.Config(
            app, http="h11", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=CLOSE_TIMEOUT_S
        )
        connections = Connections(
            limits, descriptors=descriptors_left(listening.fileno()), token=bind.token is not None
        )
        async with memory.loading():
            await connections.serve(uvicorn.Server(config), listening, started=lambda: _announce(listening))


def _announce(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    print(f"serving at http://{bracketed(host)}:{port}{PATH}", file=sys.stderr, flush=True)


class _TokenVerifier:
    """Verifies one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> Any:
        """Return what the token grants, None for a wrong one, in constant time."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="mnemolog", scopes=[])
