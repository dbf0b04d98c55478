"""The store as an MCP server: its tools and resources for any agent that speaks the Model Context Protocol.

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.mcp import Memory, serve_stdio

async with AsyncMemoryStore.open("memory/") as store:
    await serve_stdio(Memory(store))
"""

from lazy_loader import attach_stub

from mnemolog.adapters.extras import require

require("mcp", "mcp", "uvicorn")

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
