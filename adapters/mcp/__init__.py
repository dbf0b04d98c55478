"""The store as an MCP server: its tools for any agent that speaks the Model Context Protocol.

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.mcp import Memory, serve_stdio

async with AsyncMemoryStore.open("memory/") as store:
    await serve_stdio(Memory(store))
"""

from mnemolog.adapters.extras import require

require("mcp", "mcp")

from mnemolog.adapters.mcp.server import OpeningMemory, make_server, serve_stdio  # noqa: E402
from mnemolog.adapters.support.agent_tools import Memory  # noqa: E402

__all__ = ["Memory", "OpeningMemory", "make_server", "serve_stdio"]
