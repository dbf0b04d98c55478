"""Each adapter's tests run where its other side is installed: `make adapters`."""

from __future__ import annotations

from importlib.util import find_spec

OTHER_SIDES = {
    "hermes": "hermes_constants",
    "langgraph": "langgraph",
    "mcp": "mcp",
    "openai_agents": "agents",
    "watch": "watchfiles",
}
"""The folder of tests, and a module of what they are tested against."""

collect_ignore = [folder for folder, module in OTHER_SIDES.items() if find_spec(module) is None]
