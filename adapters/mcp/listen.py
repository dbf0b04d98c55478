"""Where a server of a store listens, and whom it lets in: this machine alone, unless it was said otherwise."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import msgspec

from mnemolog.domain.errors import InvalidInput

TOKEN_CHARS_MIN: Final = 16
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine, as they stand in a Host header."""


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

    def names(self) -> list[str]:
        """Return the Host headers that are let in."""
        own = (*LOOPBACK, bracketed(self.host))
        return [*own, *(f"{name}:*" for name in own), *self.hosts]

    def listen(self) -> socket.socket:
        """Return a socket that listens. Raises `InvalidInput` for an address that cannot be had."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            return socket.create_server(found[4][:2], family=found[0])
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidInput("host", f"cannot listen at {self.host} port {self.port}: {error}") from error


def bracketed(host: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
