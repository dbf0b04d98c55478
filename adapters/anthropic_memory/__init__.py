"""Files for Anthropic's memory tool, each of them a fact of a scope (docs/adapters/anthropic-memory.md)."""

from mnemolog.adapters.extras import require

require("anthropic-memory", "anthropic")

from mnemolog.adapters.anthropic_memory.files import AsyncMemoryTool, MemoryTool  # noqa: E402

__all__ = ["AsyncMemoryTool", "MemoryTool"]
