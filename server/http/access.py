"""Who calls, what that caller may do, and which part of the store answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from mnemolog.adapters.support.store_access import read, visible_of
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import tokens
from mnemolog.domain.errors import InvalidInput, OutsideScope
from mnemolog.domain.scope import Scope, covers, parse_scope
from mnemolog.domain.tokens import Token, Verb
from mnemolog.server.http.problems import RequestRefused
from mnemolog.store import MemoryStore

VERBS: Final = frozenset[Verb](tokens.VERBS)
LOCAL: Final = "local"
"""The actor of requests without a token, which only a server that this machine alone can reach answers."""
SCOPE_HEADER: Final = b"mnemolog-scope"
"""Names the scope of a request where none of its arguments does."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a request: `request.state.caller` of every request that was let through.

    A request is answered within one scope. A caller with several gives the header `Mnemolog-Scope`, an argument
    `scope`, or names a session.
    """

    actor: str
    """The name that is recorded in each event this caller appends."""
    verbs: frozenset[Verb]
    scopes: tuple[Scope, ...] = ()
    """What this caller may see. Empty: everything."""
    store: AsyncMemoryStore
    """The store as this caller may see it. With several scopes: within the first, until one of them is chosen."""
    token: str = ""
    """The id of the token; empty for a request without one."""
    parts: tuple[AsyncMemoryStore, ...] = ()
    """The store within each of `scopes`."""

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

    def require_within(self, scope: Scope) -> None:
        """Raise `OutsideScope` unless this caller may see all of a scope."""
        if self.scopes and not any(covers(own, scope) for own in self.scopes):
            raise OutsideScope(f"scope {scope!r} is outside of it", scope=", ".join(self.scopes))

    def with_part(self, scope: Scope, part: AsyncMemoryStore) -> Caller:
        """Return this caller for a request within one scope, which `part` is the store of."""
        return msgspec.structs.replace(self, store=part, scopes=(scope,), parts=(part,))

    async def for_call(self, arguments: Mapping[str, Any], sessions: Iterable[str] = ()) -> Caller:
        """Return this caller for a call with these arguments, which one scope answers. `sessions` are those they name.

        Raises `InvalidInput`, naming the scopes, where it could be any of them, and `OutsideScope`.
        """
        if len(self.scopes) < 2:
            return self
        return msgspec.structs.replace(self, store=await self._store_for(arguments, list(sessions)))

    async def _store_for(self, arguments: Mapping[str, Any], sessions: list[str]) -> AsyncMemoryStore:
        if (scope := _first(arguments.get("scope"))) is not None:
            return self._part_of(parse_scope(scope))
        own_parts = list(zip(self.scopes, self.parts, strict=True))
        found = dict[Scope, str]()
        for session in dict.fromkeys(sessions):
            for own, part in own_parts:
                if session.startswith(f"{own}/") or await read(part, partial(_has, session=session)):
                    found.setdefault(own, session)
                    break
        if len(found) > 1:
            which = " and ".join(f"{session!r} is in {own}" for own, session in found.items())
            raise InvalidInput("session", f"a request works within one scope: {which}; send one request for each scope")
        if sessions:  # Unknown to all of them: it does not matter which one says so.
            return next((part for own, part in own_parts if own in found), self.store)
        for name in (arguments.get("id"), arguments.get("agent")):  # Of a new session, and of an agent.
            for own, part in own_parts:
                if name is not None and name.startswith(f"{own}/"):
                    return part
        raise InvalidInput("scope", f"the token is for {', '.join(self.scopes)}; name one in the header Mnemolog-Scope")

    def _part_of(self, scope: Scope) -> AsyncMemoryStore:
        self.require_within(scope)
        return next(part for own, part in zip(self.scopes, self.parts, strict=True) if covers(own, scope))


def local_caller(store: AsyncMemoryStore) -> Caller:
    """Return the user of this machine, who may do everything."""
    return Caller(actor=LOCAL, verbs=VERBS, store=store)


def token_caller(store: AsyncMemoryStore, token: Token, parts: Sequence[AsyncMemoryStore]) -> Caller:
    """Return the holder of a token. `parts` are the store within each of its scopes."""
    return Caller(
        actor=token.actor,
        verbs=frozenset(token.verbs),
        scopes=token.scopes,
        store=parts[0] if parts else store,
        token=token.id,
        parts=tuple(parts),
    )


def _first(scopes: Any) -> str | None:
    """Return the first scope that an argument names; None for none."""
    found = scopes if isinstance(scopes, str) else next(iter(scopes or ()), None)
    return found or None


def _has(store: MemoryStore, session: str) -> bool:
    return visible_of(store).states.latest(session) is not None
