"""The store as Hermes' memory: a `MemoryProvider` for hermes-agent. `mnemolog hermes install` makes it known there."""

from mnemolog.adapters.extras import require

require("hermes", "hermes_constants")

from mnemolog.adapters.hermes.provider import MnemologProvider  # noqa: E402

__all__ = ["MnemologProvider"]
