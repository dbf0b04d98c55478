"""A store as LangGraph's memory: a saver for checkpoints, and a store for items (docs/adapters/langgraph.md)."""

from mnemolog.adapters.extras import require

require("langgraph", "langgraph", "langchain_core")

from mnemolog.adapters.langgraph.saver import MnemologSaver, MnemologStore  # noqa: E402

__all__ = ["MnemologSaver", "MnemologStore"]
