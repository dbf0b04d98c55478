"""Each adapter's tests run where its other side is installed: `make adapters`."""

from __future__ import annotations

import asyncio
import inspect
from importlib.util import find_spec

import pytest

OTHER_SIDES = {
    "hermes": "hermes_constants",
    "langgraph": "langgraph",
    "mcp": "mcp",
    "openai_agents": "agents",
    "watch": "watchfiles",
}
"""The folder of tests, and a module of what they are tested against."""

collect_ignore = [folder for folder, module in OTHER_SIDES.items() if find_spec(module) is None]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True
