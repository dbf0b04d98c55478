"""Who calls, what that caller may do, and which part of the store answers.

A person may be known by a proxy, which has asked for a login and sends a name in a header.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import tokens
from mnemolog.domain.errors import InvalidInput, MnemologError
from mnemolog.domain.events import TokenCreated
from mnemolog.domain.scope import Scopes
from mnemolog.domain.tokens import Verb, new_token
from mnemolog.infra.runtime.regular_files import read_file
from mnemolog.server.http.connections import PEER
from mnemolog.server.http.problems import RequestRefused

VERBS: Final = frozenset[Verb](tokens.VERBS)
LOCAL: Final = "local"
"""The actor of requests without a token, which only a server that this machine alone can reach answers."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a request: `request.state.caller` of every request that was let through.

    A request is answered within all of its scopes, or those that the header `Mnemolog-Scope` names.
    """

    actor: str
    """The name that is recorded in each event this caller appends."""
    verbs: frozenset[Verb]
    scopes: Scopes = ()
    """What this caller may see. Empty: everything."""
    store: AsyncMemoryStore
    """The store as this caller may see it."""
    token: str = ""
    """The id of the token; empty for a request without one."""

    def may(self, verb: Verb) -> bool:
        """Return whether this caller may do what `verb` names."""
        return verb in self.verbs

    def require(self, verb: Verb, what: str) -> None:
        """Raise `RequestRefused` unless this caller may do what `verb` names, which `what` needs."""
        if verb not in self.verbs:
            why = f"this caller may not {verb}, which {what} needs"
            raise RequestRefused("Forbidden", 403, why, "use a token with that verb")

    def require_all(self, verbs: Iterable[Verb]) -> None:
        """Raise `RequestRefused` unless this caller may do all that a token is to allow."""
        for verb in verbs:
            self.require(verb, f"making a token that may {verb}")


def local_caller(store: AsyncMemoryStore) -> Caller:
    """Return the user of this machine, who may do everything."""
    return Caller(actor=LOCAL, verbs=VERBS, store=store)


class _User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verbs: tuple[str, ...]
    scopes: tuple[str, ...] = ()


class Users:
    """The people whom a proxy has authenticated: it names them in a header, and a file says what each may do."""

    def __init__(self, header: str, file: Path, proxies: Sequence[str]) -> None:
        """`proxies` are the addresses or networks that may send the header. Raises `InvalidInput`, as `read` does."""
        self._header, self._file = header.lower().encode(), file
        self._proxies = [ip_network(proxy) for proxy in proxies]
        self._users: Mapping[str, TokenCreated] = {}
        self.read()

    def read(self) -> None:
        """Read the file, TOML with a table for each user: `["ann@example.org"]`, `verbs = ["read"]`, `scopes = []`.

        Raises `InvalidInput`; then what was read before holds.
        """
        try:
            users = msgspec.convert(tomllib.loads(read_file(self._file, follow=True).decode()), dict[str, _User])
            checked = [
                new_token("", "", actor=name, verbs=user.verbs, scopes=user.scopes, expires_at=None)
                for name, user in users.items()
            ]
        except (OSError, ValueError, MnemologError) as error:
            raise InvalidInput("users", f"{self._file} cannot be used: {error}") from error
        self._users = {user.acts_as: user for user in checked}

    def name_in(self, scope: Any) -> str:
        """Return the name that a request carries, empty if none. Raises `RequestRefused` where it may not carry one."""
        sent: list[str] = [value.decode(errors="replace") for name, value in scope["headers"] if name == self._header]
        if not sent:
            return ""
        peer = scope["state"].get(PEER)
        if len(sent) > 1 or peer is None or not any(ip_address(peer) in proxy for proxy in self._proxies):
            why = f"only the proxy may send {self._header.decode()}, and once; this came from {peer or 'elsewhere'}"
            raise RequestRefused("HeaderNotTrusted", 403, why, "see --trust-header and --proxy-address")
        return sent[0].strip()

    def user(self, name: str) -> TokenCreated:
        """Return what a person may do, as a token says it. Raises `RequestRefused` for one who is not in the file."""
        if (user := self._users.get(name)) is None:
            why = f"the proxy knows {name!r}, but this server does not"
            raise RequestRefused("Forbidden", 403, why, "the file of --users says who may do what")
        return user
