"""A store that is served: in this process, over standard input and output, over HTTP."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.mcp import Memory, make_server
from tests.children.first_calls import SESSION
from tests.server.serving import server
from tests.support import WAIT_S, HashEncoder

MODES = ["legacy", "auto"]
"""With the handshake of 2025, and without it as of 2026."""


def command(folder, *options):
    return [sys.executable, "-m", "mnemolog", "mcp", str(folder), "--model", "none", *options]


def over_stdio(folder, *options, mode="auto"):
    """A client with a server process of its own."""
    program, *arguments = command(folder, *options)
    return Client(
        StdioServerParameters(command=program, args=arguments, env=dict(os.environ)),
        mode=mode,
        read_timeout_seconds=WAIT_S,
    )


@asynccontextmanager
async def in_process(
    folder, *, model=None, mode="auto", agent="agent", read_only=False, tools="full", asked=None, **how
):
    """A client with a server that has a store of its own, and the store. `asked` answers what its person is asked."""
    async with AsyncMemoryStore.open(folder, model=model or HashEncoder(), background=False, **how) as store:
        memory = Memory(store, agent=agent, read_only=read_only)
        async with (
            memory.loading(),
            Client(make_server(memory, tools=tools), mode=mode, elicitation_callback=asked) as client,
        ):
            yield client, store


def http_server(folder, *options):
    """A server process that several clients share: gives its URL and the process, whose `errors` returns its stderr."""
    return server(folder, "--http", "--port", "0", *options, run=command, says=r"serving at (http://\S+)\n")


@asynccontextmanager
async def over_http(url, *, mode="auto", **headers):
    """A client of a server over HTTP."""
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=WAIT_S) as client,
    ):
        yield client


async def answer(client, tool, /, **arguments):
    """What a tool answers, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    (only,) = result.content
    assert not result.is_error, only.text
    if result.structured_content is None:
        return only.text
    assert json.loads(only.text) == result.structured_content
    return result.structured_content


async def refusal(client, tool, /, **arguments):
    """The text of an error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return result.content[0].text


def first_call(place, agent):
    """Remember in the shared session, by a server process of its own."""

    async def call():
        async with over_stdio(place, "--agent", agent) as client:
            await answer(client, "remember", text=agent, session=SESSION)

    asyncio.run(call())
