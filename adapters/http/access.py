"""Who calls, and what that caller may do."""

from __future__ import annotations

from typing import Final

import msgspec

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import tokens
from mnemolog.domain.scope import Scope
from mnemolog.domain.tokens import Verb as Verb

VERBS: Final = frozenset[Verb](tokens.VERBS)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a request: `request.state.caller` of every request that was let through."""

    actor: str
    """The name that is recorded in each event this caller appends."""
    verbs: frozenset[Verb]
    scopes: tuple[Scope, ...] = ()
    """What this caller may see. Empty: everything."""
    store: AsyncMemoryStore
    """The store as this caller may see it."""

    def may(self, verb: Verb) -> bool:
        """Return whether this caller may do what `verb` names."""
        return verb in self.verbs
