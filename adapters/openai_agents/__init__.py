"""A store as the memory of the OpenAI Agents SDK: sessions and tools (docs/adapters/openai-agents.md)."""

from mnemolog.adapters.extras import require

require("openai-agents", "agents", "openai")

from mnemolog.adapters.openai_agents.session import MnemologSession, memory_tools, recall_tool  # noqa: E402

__all__ = ["MnemologSession", "memory_tools", "recall_tool"]
