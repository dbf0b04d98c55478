"""An MCP client that has a memory served to it over standard input and output: python examples/mcp_client.py

Needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from typing import Any

from mcp import Client, StdioServerParameters


async def main(folder: str) -> None:
    """Record, recall, and look back."""
    arguments = ["-m", "mnemolog", "mcp", folder, "--model", "none"]
    command = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Client(command) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            return result.structured_content or result.content[0].text

        said = await call("remember", text="I moved to Lisbon in March.", session="trip", scope="acme/alice", key="t1")
        await call("working_memory", session="trip", values={"budget": 900}, note="prefers trains")
        found = await call("recall", query="Where did she move to?", scope="acme")
        print("recalled:", [(hit["text"], hit["position"]) for hit in found["hits"]])
        print("before it was said:", (await call("recall", query="Lisbon", as_of=said["positions"][0] - 1))["note"])
        print(await call("context", query="Lisbon", session="trip"))
        print("refused:", await call("recall", query="Lisbon", limit=3))


with tempfile.TemporaryDirectory() as parent:
    asyncio.run(main(f"{parent}/memory"))
