"""Pages about the whole memory are for callers who may see all of it."""

from __future__ import annotations

from typing import Final

from mnemolog.adapters.console.console import Problem, Refused
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.scope import ROOT


def sees_all(store: AsyncMemoryStore) -> bool:
    """Return whether nothing of the store is outside of what the caller may see."""
    return with_pools(store)[0].parts.boundary.scope == ROOT


def require_all(store: AsyncMemoryStore) -> None:
    """Raise `Refused` for a caller who may see a part of the memory only."""
    if not sees_all(store):
        raise Refused(_A_PART_ONLY)


_A_PART_ONLY: Final = Problem(
    status=403,
    title="This page is about the whole memory",
    detail="Your token is for a part of it, so it is not shown to you.",
    hint="Ask for a token that is bound to no scope.",
)
