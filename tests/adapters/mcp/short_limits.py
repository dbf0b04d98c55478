"""Serve a folder over HTTP as `mnemolog mcp --http` does, with limits of a second and few connections."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from mnemolog.adapters.support.agent_tools.memory import opened
from mnemolog.server.http.connections import Limits
from mnemolog.server.mcp_bind import BindConfig
from mnemolog.server.mcp_http import serve_http

CONNECTIONS = 4
LIMITS = Limits(head_s=1.0, body_s=1.0, answer_s=1.0, connections=CONNECTIONS)


async def main(folder: Path) -> None:
    bind = BindConfig(port=0, token=os.environ["MNEMOLOG_MCP_TOKEN"])
    async with opened(folder, agent="agent", read_only=False, model=None) as memory:
        await serve_http(memory, bind, limits=LIMITS)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1])))
