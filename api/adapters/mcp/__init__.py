"""The store as an MCP server: its tools and resources for any agent that speaks the Model Context Protocol.

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.mcp import Memory, serve_stdio

async with AsyncMemoryStore.open("memory/") as store:
    await serve_stdio(Memory(store))
"""

from mnemolog.adapters.extras import require

require("mcp", "mcp", "uvicorn")

from mnemolog.adapters.mcp.http import serve_http  # noqa: E402
from mnemolog.adapters.mcp.server import make_server, serve_stdio  # noqa: E402
from mnemolog.door import Door  # noqa: E402
from mnemolog.tools import Memory  # noqa: E402

__all__ = ["Door", "Memory", "make_server", "serve_http", "serve_stdio"]
