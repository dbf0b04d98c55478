"""MCP in `mnemolog serve`: the official client over streamable HTTP, beside the API."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.adapters.mcp.serving import MODES, answer, over_http, refusal
from tests.server.serving import server
from tests.support import WAIT_S


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_with_a_served_store(folder, mode):
    """Tools and resources as over any other transport; the API sees the same turns."""

    async def main(url):
        async with over_http(f"{url}/mcp", mode=mode) as client:
            said = await answer(client, "remember", session="trip", text="I moved to Lisbon. 🎒\u2028é")
            found = await answer(client, "recall", query="Lisbon")
            assert "there is no session" in await refusal(client, "working_memory", session="nobody")
            assert len((await client.list_resources()).resources) == 1
            assert str(folder) not in str(client.instructions if hasattr(client, "instructions") else "")
        assert found["hits"][0]["text"] == "I moved to Lisbon. 🎒\u2028é"
        return said["positions"]

    with server(folder) as (url, process):
        positions = asyncio.run(main(url))
        turns = httpx2.get(f"{url}/v1/sessions/trip/turns", timeout=WAIT_S).json()["items"]
        assert [turn["position"] for turn in turns] == positions
        assert "Traceback" not in process.errors()


def test_several_clients_at_once_lose_nothing_to_one_another(folder):
    """All with one server, which keeps no session of MCP."""

    async def one(url, number):
        async with over_http(f"{url}/mcp") as client:
            texts = [f"{number}/{turn}" for turn in range(20)]
            await asyncio.gather(*(answer(client, "remember", session=f"s{number}", text=text) for text in texts))
            return texts

    async def main(url):
        return await asyncio.gather(*(one(url, number) for number in range(3)))

    with server(folder) as (url, _):
        for number, texts in enumerate(asyncio.run(main(url))):
            turns = httpx2.get(f"{url}/v1/sessions/s{number}/turns", timeout=WAIT_S).json()["items"]
            assert sorted(turn["text"] for turn in turns) == sorted(texts)


def test_a_client_asks_for_all_tools_in_the_url(folder):
    """By default the six that a model needs; of a read-only server those that read."""

    async def tools(url):
        async with over_http(url) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    with server(folder) as (url, _):
        core, full = asyncio.run(tools(f"{url}/mcp")), asyncio.run(tools(f"{url}/mcp?tools=full"))
        assert core == {"remember", "recall", "context", "timeline", "working_memory", "switch"}
        assert core < full
    with server(folder, "--read-only") as (url, _):
        assert asyncio.run(tools(f"{url}/mcp")) == {"recall", "context", "timeline", "working_memory"}
