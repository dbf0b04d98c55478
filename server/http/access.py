"""Who calls, what that caller may do, and which part of the store answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import tokens
from mnemolog.domain.scope import Scopes
from mnemolog.domain.tokens import Token, Verb
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


def token_caller(store: AsyncMemoryStore, token: Token) -> Caller:
    """Return the holder of a token. `store` is the store within its scopes."""
    return Caller(
        actor=token.actor,
        verbs=frozenset(token.verbs),
        scopes=token.scopes,
        store=store,
        token=token.id,
    )
