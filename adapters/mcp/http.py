"""Streamable HTTP: any number of clients, who come in by a door (`mnemolog.adapters.mcp.listen`)."""

from __future__ import annotations

import hmac
import signal
import sys
from typing import Any, Final

from mnemolog.adapters.mcp.listen import (
    Door as Door,  # The package's stub can name modules of its own alone: it has these from here.
)
from mnemolog.adapters.mcp.listen import bracketed
from mnemolog.adapters.mcp.sdk import AccessToken, BearerAuthBackend, TransportSecuritySettings
from mnemolog.adapters.mcp.server import make_server
from mnemolog.adapters.support.agent_tools import Memory as Memory

PATH: Final = "/mcp"
CLOSE_TIMEOUT_S: Final = 2
"""How long the end of the server waits for answers that are being given."""


def make_app(memory: Memory, door: Door) -> Any:
    """Return the ASGI application. Raises `InvalidInput` for a door that would stand open."""
    door.check()
    security = TransportSecuritySettings(allowed_hosts=door.names(), allowed_origins=list(door.origins))
    checker = None if door.token is None else _TokenVerifier(door.token)
    app = make_server(memory).streamable_http_app(
        streamable_http_path=PATH, transport_security=security, token_verifier=checker
    )
    if checker is not None:
        from starlette.middleware.authentication import AuthenticationMiddleware

        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(checker))
    return app


async def serve_http(memory: Memory, door: Door) -> None:
    """Serve any number of clients until SIGINT or SIGTERM. Says where on stderr. Raises `InvalidInput`."""
    import uvicorn

    app = make_app(memory, door)
    with door.listen() as listening:
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=CLOSE_TIMEOUT_S)
        host, port = listening.getsockname()[:2]
        print(f"serving at http://{bracketed(host)}:{port}{PATH}", file=sys.stderr, flush=True)
        server = uvicorn.Server(config)
        # uvicorn ends in good order and then raises the signal again, which would keep the store from being closed.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        async with memory.loading():
            await server.serve(sockets=[listening])


class _TokenVerifier:
    """Knows one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> Any:
        """Return what the token grants, None for a wrong one. Takes as long for any."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="mnemolog", scopes=[])
