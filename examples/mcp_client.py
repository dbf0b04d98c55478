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
            answer = await client.call_tool(tool, arguments)
            return answer.content[0].text if answer.is_error else answer.structured_content

        await call("session_start", id="trip", scope="acme/alice")
        said = await call("record", session="trip", role="user", text="I moved to Lisbon in March.", key="t1")
        await call("memory_set", session="trip", key="budget", value=900)
        await call("checkpoint_create", session="trip", name="asked")
        await call("memory_set", session="trip", key="budget", value=1_200)
        await call("checkpoint_restore", session="trip", checkpoint="asked")
        found = (await call("recall", query="Where did she move to?", scope="acme"))["result"]
        print("recalled:", [(hit["text"], hit["position"]) for hit in found["hits"]], found["legs"])
        early = (await call("recall", query="Lisbon", as_of=said["position"] - 1))["result"]
        print("before it was said:", early["hits"])
        print("budget:", (await call("memory_read", session="trip"))["result"]["values"]["budget"])
        print("refused:", await call("record", session="trap", role="user", text="hello"))


with tempfile.TemporaryDirectory() as parent:
    asyncio.run(main(f"{parent}/memory"))
