"""A memory that is opened while its client is greeted."""

import asyncio
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from mnemolog import MemoryStore
from mnemolog.adapters.mcp import OpeningMemory, make_server
from mnemolog.adapters.support.agent_tools.tool import opened
from tests.adapters.mcp.serving import MODES, answer, command, over_stdio, refusal
from tests.support import WAIT_S


@asynccontextmanager
async def client_of(prepare, mode="auto"):
    async with (
        OpeningMemory(Path("memory"), prepare, read_only=False) as opening,
        Client(make_server(opening, tools="full"), mode=mode) as client,
    ):
        yield client


def ready(folder):
    return opened(folder, agent="agent", read_only=False, model=None)


@pytest.mark.parametrize("mode", MODES)
async def test_tools_are_listed_before_the_store_is_open_and_calls_wait_for_it(folder, mode):
    """Several that wait are answered by one store."""
    asked = []

    @asynccontextmanager
    async def prepare():
        asked.append(True)
        await opens.wait()
        async with ready(folder) as memory:
            yield memory

    opens = asyncio.Event()
    async with client_of(prepare, mode) as client:
        assert "recall" in {tool.name for tool in (await client.list_tools()).tools}
        calls = [asyncio.ensure_future(answer(client, "session_list")) for _ in range(3)]
        assert not (await asyncio.wait(calls, timeout=0))[0]
        assert not folder.exists()
        opens.set()
        assert [await call for call in calls] == [{"position": 0}] * 3
    assert len(asked) == 1


async def test_every_call_returns_why_the_store_cannot_be_opened_and_tries_again(folder):
    """With a hint, and when it is over."""
    folder.mkdir()
    (folder / "log.db").write_text("this is no log")
    async with client_of(lambda: ready(folder)) as client:
        assert (await client.list_tools()).tools
        for _ in range(2):
            assert (await refusal(client, "status")).startswith("NotAStore: ")
        assert "\nhint: " in await refusal(client, "status")
        (folder / "log.db").unlink()
        await answer(client, "remember", session="trip", text="tea")
    with MemoryStore.open(folder, model=None, create=False) as store:
        assert [item.session for item in store.sessions()] == ["trip"]


async def test_a_server_without_a_store_exits_with_an_error_when_its_client_leaves(folder):
    """It says why at once, and again by its exit code."""
    folder.mkdir()
    (folder / "log.db").write_text("this is no log")
    async with over_stdio(folder) as client:
        assert "NotAStore" in await refusal(client, "recall", query="tea")
    gone = subprocess.run(
        command(folder), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "error: " in gone.stderr
    assert "Traceback" not in gone.stderr
