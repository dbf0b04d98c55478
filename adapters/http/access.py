"""Who calls, and what that caller may do."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.scope import Scope

Verb = Literal["read", "record", "forget", "admin"]
"""What a token may do: read; also append turns, values and sessions; erase; all that concerns the whole store."""
VERBS: Final = frozenset[Verb](get_args(Verb))


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
