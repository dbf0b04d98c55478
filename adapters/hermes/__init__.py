"""The store as Hermes' memory: a `MemoryProvider` for hermes-agent. the command `hermes install` registers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemolog.adapters.hermes.provider import MnemologProvider

__all__ = ["MnemologProvider"]


def __getattr__(name: str) -> Any:
    # Imported lazily: the command `hermes install` works without Hermes' packages, the provider does not.
    if name != "MnemologProvider":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mnemolog.adapters.hermes.provider import MnemologProvider

    return MnemologProvider
