"""MCP in `mnemolog serve`: the official client over streamable HTTP, beside the API."""

import httpx2
import pytest

from mnemolog import MemoryStore
from tests.adapters.mcp.serving import answer, over_http, refusal
from tests.server.serving import server
from tests.support import WAIT_S


async def tools(url, **headers):
    async with over_http(url, **headers) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


async def test_a_client_asks_for_all_tools_in_the_url(folder):
    """By default the seven that a model needs; of a read-only server those that read. No key stands twice."""
    with server(folder) as (url, _):
        stream = httpx2.get(f"{url}/mcp", headers={"accept": "text/event-stream"}, timeout=WAIT_S)
        assert stream.status_code == 405, "it would hold a connection for as long as its client likes"
        twice = '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"query": "a", "query": "b"}}'
        accepted = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        refused = httpx2.post(f"{url}/mcp", content=twice, headers=accepted, timeout=WAIT_S)
        assert (refused.status_code, refused.json()["field"]) == (400, "query")
        core, full = await tools(f"{url}/mcp"), await tools(f"{url}/mcp?tools=full")
        assert core == {"remember", "recall", "context", "facts", "timeline", "working_memory", "switch"}
        assert core < full
    with server(folder, "--read-only") as (url, _):
        assert await tools(f"{url}/mcp") == {"recall", "context", "facts", "timeline", "working_memory"}


@pytest.fixture
def tokens(folder):
    """Tokens by what they are for, of a store with a session of somebody else."""
    bound = {"scopes": ["acme/alice"]}
    wanted = {
        "alice": bound,
        "reader": bound | {"verbs": ["read"]},
        "recorder": bound | {"verbs": ["record"]},
        "both": {"scopes": ["acme/alice", "acme/bob"]},
    }
    with MemoryStore.open(folder, model=None) as store:
        store.session("acme/bob/secret", scope="acme/bob", agent="bob").record("user", "the vault code is 4711")
        return {name: store.admin.create_token(name, **how).secret for name, how in wanted.items()}


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


async def test_a_token_bounds_the_memory_and_its_actor_is_recorded(folder, tokens):
    """Nothing outside of its scope is found, listed or named; what it records has its actor."""
    with server(folder, "--require-token") as (url, _):
        async with over_http(f"{url}/mcp", **bearer(tokens["alice"])) as client:
            said = await answer(client, "remember", text="I moved to Lisbon.")
            assert said["session"].startswith("acme/alice/") or "session" not in said
            await answer(client, "remember", session="acme/alice/trip", text="By ferry.")
            assert "vault" not in str(await answer(client, "recall", query="vault code", k=50))
            assert "bob" not in str(await answer(client, "timeline", limit=50))
            unknown = await refusal(client, "working_memory", session="acme/bob/none")
            forbidden = await refusal(client, "working_memory", session="acme/bob/secret")
            assert forbidden == unknown.replace("none", "secret")
            named = await answer(client, "remember", session="theirs", text="A name within the scope.")
            assert named["session"] == "acme/alice/theirs"
    with MemoryStore.open(folder, model=None) as store:
        told = [moment for moment in store.audit.timeline() if moment.actor == "alice"]
        assert {"acme/alice/trip"} <= {moment.session for moment in told}
        assert "By ferry." in str(told)


async def test_the_verbs_of_a_token_decide_which_tools_it_gets(folder, tokens):
    """Reading alone: no tool that writes. Recording alone, no token or a wrong one: nothing."""

    def status(url, **headers):
        return httpx2.post(url, json={}, headers=headers, timeout=WAIT_S)

    with server(folder, "--require-token") as (url, _):
        url = f"{url}/mcp"
        assert "remember" in await tools(url, **bearer(tokens["alice"]))
        assert await tools(url, **bearer(tokens["reader"])) == {
            "recall",
            "context",
            "facts",
            "timeline",
            "working_memory",
        }
        assert status(url, **bearer(tokens["recorder"])).status_code == 403
        assert status(url).status_code == 401
        assert status(url, **bearer("wrong")).status_code == 401


async def test_a_token_for_several_scopes_searches_them_all_and_names_one_to_write(folder, tokens):
    """In the URL; a refused write names the choices."""
    with server(folder, "--require-token") as (url, _):
        for within, is_found in (("", True), ("?scope=acme/bob", True), ("?scope=acme/alice", False)):
            async with over_http(f"{url}/mcp{within}", **bearer(tokens["both"])) as client:
                assert ("4711" in str(await answer(client, "recall", query="vault code"))) is is_found
                if not within:
                    refused = await refusal(client, "remember", text="By ferry.")
                    assert "choose among 'acme/alice', 'acme/bob'" in str(refused)
