"""Streamable HTTP, and who is let in: this machine alone, unless it was said otherwise and there is a token."""

from __future__ import annotations

import hmac
import signal
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from mnemolog.adapters.mcp.memory import Memory
from mnemolog.adapters.mcp.sdk import AccessToken, BearerAuthBackend, TransportSecuritySettings
from mnemolog.adapters.mcp.server import make_server
from mnemolog.domain.errors import InvalidInput

PATH: Final = "/mcp"
TOKEN_CHARS_MIN: Final = 16
CLOSE_TIMEOUT_S: Final = 2
"""How long the end of the server waits for answers that are being given."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and whom it lets in.

    Requests must name it by an address of this machine's own, by `host` or by one of `hosts`, else they are refused:
    a web page that has its own name resolved to this machine does not get in. A request from a web page is refused
    unless its origin is one of `origins`. Where there is a `token`, every request must bear it; beyond this machine
    there must be one.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    """0 for any that is free."""
    token: str | None = None
    hosts: Sequence[str] = ()
    """As in the Host header: `memory.example.org:8765`, or with any port `memory.example.org:*`."""
    origins: Sequence[str] = ()
    """As in the Origin header: `https://app.example.org`."""

    def check(self) -> None:
        """Raise `InvalidInput` for a door that would stand open."""
        if self.token is not None and (len(self.token) < TOKEN_CHARS_MIN or not self.token.isascii()):
            raise InvalidInput("token", f"too easy to guess: at least {TOKEN_CHARS_MIN} ASCII characters, please")
        if self.token is None and not _is_loopback(self.host):
            raise InvalidInput("token", f"{self.host} is reached from other machines: a token is needed")

    def listen(self) -> socket.socket:
        """Return a socket that listens. Raises `InvalidInput` for an address that cannot be had."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            return socket.create_server(found[4][:2], family=found[0])
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidInput("host", f"cannot listen at {self.host} port {self.port}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_app(memory: Memory, door: Door) -> Any:
    """Return the ASGI application. Raises `InvalidInput` for a door that would stand open."""
    door.check()
    names = (*LOOPBACK, f"[{door.host}]" if ":" in door.host else door.host)
    security = TransportSecuritySettings(
        allowed_hosts=[*names, *(f"{name}:*" for name in names), *door.hosts], allowed_origins=list(door.origins)
    )
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
        print(f"serving at http://{f'[{host}]' if ':' in host else host}:{port}{PATH}", file=sys.stderr, flush=True)
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
