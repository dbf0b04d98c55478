"""The address of an MCP server over HTTP, and which requests it accepts: by default only those of this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.server.http.listen import LOOPBACK, bracketed, is_loopback, listen

TOKEN_CHARS_MIN: Final = 16


class BindConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and which requests it accepts.

    The Host header of a request must be a loopback name, `host` or one of `hosts`: this stops web pages whose own name
    resolves to this machine (DNS rebinding). A request with an Origin header is refused unless it is one of `origins`.
    With a `token`, every request must carry it; an address that is not loopback requires one.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    """0 for any free port."""
    token: str | None = None
    hosts: Sequence[str] = ()
    """As in the Host header: `memory.example.org:8765`, or with any port `memory.example.org:*`."""
    origins: Sequence[str] = ()
    """As in the Origin header: `https://app.example.org`."""

    def check(self) -> None:
        """Raise `InvalidInput` for a weak token, or for a non-loopback address without a token."""
        if self.token is not None and (len(self.token) < TOKEN_CHARS_MIN or not self.token.isascii()):
            raise InvalidInput("token", f"too easy to guess: use at least {TOKEN_CHARS_MIN} ASCII characters")
        if self.token is None and not is_loopback(self.host):
            raise InvalidInput(
                "token",
                f"{self.host} is not a loopback address, so a token is needed: pass --token or set MNEMOLOG_MCP_TOKEN",
            )

    def names(self) -> list[str]:
        """Return the Host headers that are accepted."""
        own = (*LOOPBACK, bracketed(self.host))
        return [*own, *(f"{name}:*" for name in own), *self.hosts]

    def listen(self) -> socket.socket:
        """Return a listening socket. Raises `InvalidInput` for an address that is not available."""
        return listen(self.host, self.port)
