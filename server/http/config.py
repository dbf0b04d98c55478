"""How a server is reached: its address, TLS, the proxy before it, and which requests are let in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.support.agent_tools import Toolset
from mnemolog.defaults import BODY_MAX, DEFAULT_AGENT, DEFAULT_PORT
from mnemolog.domain.errors import InvalidInput
from mnemolog.server.http.connections import Limits
from mnemolog.server.http.execution import Folders
from mnemolog.server.http.listen import LOOPBACK, bracketed, is_loopback, listen

LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")
CONNECTIONS: Final = 4096


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and which requests it lets in.

    The Host header of a request must be a loopback name, `host` or one of `hosts`: this stops web pages whose own name
    resolves to this machine (DNS rebinding). A request with an Origin header is refused unless it is the server's own
    or one of `origins`. An address that is not loopback requires TLS files or a proxy that terminates TLS.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 for any free port."""
    tls_cert: Path | None = None
    """A certificate with its chain, in PEM."""
    tls_key: Path | None = None
    behind_proxy: bool = False
    """A reverse proxy terminates TLS: what it says in `X-Forwarded-For` and `X-Forwarded-Proto` is believed."""
    proxies: Sequence[str] = LOOPBACK_ADDRESSES
    """Addresses or networks of that proxy."""
    require_token: bool = False
    """Whether requests from this machine need a token, too."""
    hosts: Sequence[str] = ()
    """As in the Host header: `memory.example.org`, with a port, or with any port `memory.example.org:*`."""
    origins: Sequence[str] = ()
    """As in the Origin header: `https://app.example.org`."""
    mcp_only: bool = False
    """Whether there is no API and no console, only MCP, the probes and the metrics."""
    agent: str = DEFAULT_AGENT
    """Agent whose sessions are used if a call of MCP names none."""
    tools: Toolset = "core"
    """Tools of MCP, where a client does not ask for all of them."""
    write: bool = False
    """Whether the console may change the store."""
    folders: Folders = Folders()
    """Where backups that callers ask for are made."""
    body_max: int = BODY_MAX
    """Bytes of the body of a request."""
    requests_per_minute: int | None = None
    """Requests that each token may make in a minute. None: any number."""
    drain_s: float = 10.0
    """How long a server that stops waits for requests that run; then it cancels them."""
    limits: Limits = Limits(connections=CONNECTIONS)

    @property
    def needs_token(self) -> bool:
        """Whether every request needs a token."""
        return self.require_token or self.behind_proxy or not is_loopback(self.host)

    @property
    def scheme(self) -> str:
        """The scheme of the server's own URL."""
        return "http" if self.tls_cert is None else "https"

    def check(self) -> None:
        """Raise `InvalidInput` for an address beyond loopback without TLS, or for files or proxies that are not."""
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise InvalidInput(missing, "TLS needs both: a certificate (--tls-cert) and its key (--tls-key)")
        if not is_loopback(self.host) and self.tls_cert is None and not self.behind_proxy:
            why = f"{self.host or 'this'} is not a loopback address, and tokens must not cross a network in the clear"
            raise InvalidInput(
                "host", f"{why}: pass --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS"
            )
        for proxy in self.proxies:
            _check_network(proxy)
        self.tls()

    def names(self) -> list[str]:
        """Return the Host headers that are let in, `:*` for any port."""
        own = (*LOOPBACK, *([bracketed(self.host)] if not _is_wildcard(self.host) else ()))
        return [*own, *(f"{name}:*" for name in own), *self.hosts]

    def tls(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with; None without TLS. Raises `InvalidInput`."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:
            why = f"cannot use {self.tls_cert} with the key {self.tls_key}: {error}"
            raise InvalidInput("tls_cert", why) from error
        return context

    def listen(self) -> socket.socket:
        """Return a listening socket. Raises `InvalidInput` for an address that is not available."""
        return listen(self.host, self.port)


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return not host


def _check_network(text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise InvalidInput(
            "proxy_address", f"{text!r} is neither an IP address nor a network such as 10.0.0.0/8"
        ) from error
