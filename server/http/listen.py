"""Listening sockets and loopback addresses."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

from mnemolog.domain.errors import InvalidInput

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine, as they stand in a Host header."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `InvalidInput` for an address that is not available."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0])
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidInput("host", f"cannot listen at {host} port {port}: {error}") from error


def bracketed(host: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address. A name other than `localhost` counts as public."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
