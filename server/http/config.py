"""How a server is reached: its address, TLS, the proxy before it, and which requests are let in."""

import socket
import ssl
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from math import inf
from pathlib import Path
from typing import Final

import msgspec
from cryptography.x509 import load_pem_x509_certificates

from mnemolog.adapters.support.agent_tools import Toolset
from mnemolog.defaults import BODY_MAX, DEFAULT_AGENT, DEFAULT_PORT
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.values import checked_whole
from mnemolog.infra.runtime.files import read_file
from mnemolog.server.http.authentication import Users
from mnemolog.server.http.connections import Limits

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine, as they stand in a Host header."""
LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server puts files that callers ask for. No caller names a path."""

    backups: Path | None = None
    """Each backup is a new folder in here. None: the server makes no backups."""
    backup_keys: Path | None = None
    """The folder that the keys of the content are copied to, apart from the backups."""
    without_keys: bool = False
    """Whether backups may be made without a copy of the keys, which are kept in another way."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and which requests it lets in.

    The Host header of a request must be a loopback name, `host` or one of `hosts`: this stops web pages whose own name
    resolves to this machine (DNS rebinding). A request of a page of another origin is refused, unless it is one of
    `origins` or carries a token. An address that is not loopback requires TLS files or a proxy that terminates TLS.
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
    trust_header: str = ""
    """The header in which that proxy names the person whom it has authenticated; empty: none."""
    users: Path | None = None
    """The file that says what each of these people may do."""
    require_token: bool = False
    """Whether requests from this machine need a token, too."""
    hosts: Sequence[str] = ()
    """As in the Host header: `memory.example.org`. A port is not looked at."""
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
    drain_s: float = 10.0
    """How long a server that stops waits for requests that run; then it cancels them."""
    limits: Limits = Limits()

    @property
    def needs_token(self) -> bool:
        """Whether every request needs a token."""
        return self.require_token or self.behind_proxy or not is_loopback(self.host)

    def check(self) -> None:
        """Raise `InvalidInput` for numbers, addresses, folders or files that no server can use.

        So it does for an address beyond loopback without TLS, and for backups without keys.
        """
        checked_whole("port", self.port, most=65_535)
        checked_whole("body_max", self.body_max, least=1024)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise InvalidInput(missing, "TLS needs both: a certificate (--tls-cert) and its key (--tls-key)")
        if not is_loopback(self.host) and self.tls_cert is None and not self.behind_proxy:
            why = f"{self.host or 'this'} is not a loopback address, and tokens must not cross a network in the clear"
            raise InvalidInput(
                "host", f"{why}: pass --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS"
            )
        if self.folders.backups is not None and self.folders.backup_keys is None and not self.folders.without_keys:
            why = "nobody can read backups without a copy of the content keys"
            raise InvalidInput(
                "backups", f"{why}: pass --backup-keys FOLDER, or --no-keys if you copy the keys yourself"
            )
        for proxy in self.proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                why = f"{proxy!r} is neither an IP address nor a network such as 10.0.0.0/8"
                raise InvalidInput("proxy_address", why) from error
        if bool(self.trust_header) != (self.users is not None) or (self.trust_header and not self.behind_proxy):
            why = "a proxy that authenticates people needs --behind-proxy, --trust-header and --users together"
            raise InvalidInput("trust_header", why)
        self.known_users()
        self.tls()

    def known_users(self) -> Users | None:
        """Return who may come without a token, None without such a proxy. Raises `InvalidInput`."""
        return None if self.users is None else Users(self.trust_header, self.users, self.proxies)

    def names(self) -> frozenset[str]:
        """Return the names of hosts that are let in, without ports."""
        return frozenset(
            (*LOOPBACK, bracketed(self.host).lower(), *(without_port(host.lower()) for host in self.hosts))
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with; None without TLS. Raises `InvalidInput`."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        self.read_certificate(context)
        return context

    def certificate_ends(self) -> float:
        """Return when the certificate in the file ends, in seconds since 1970; infinite without one."""
        if self.tls_cert is None:
            return inf
        served, *_ = load_pem_x509_certificates(read_file(self.tls_cert, follow=True))
        return served.not_valid_after_utc.timestamp()

    def read_certificate(self, context: ssl.SSLContext) -> None:
        """Read the files of the certificate, which new connections use from then on. Raises `InvalidInput`."""
        assert self.tls_cert is not None
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:
            why = f"cannot use {self.tls_cert} with the key {self.tls_key}: {error}"
            raise InvalidInput("tls_cert", why) from error

    def listen(self) -> socket.socket:
        """Return a listening socket. Raises `InvalidInput` for an address that is not available."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            return socket.create_server(found[4][:2], family=found[0])
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidInput("host", f"cannot listen at {self.host} port {self.port}: {error}") from error


def bracketed(host: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def without_port(host: str) -> str:
    """Return the name or address of a Host header."""
    name, _, port = host.rpartition(":")
    return name if port.isdigit() or port == "*" else host


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address. A name other than `localhost` counts as public."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
