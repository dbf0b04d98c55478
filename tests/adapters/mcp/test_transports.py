"""Over standard input and output, and over HTTP: several clients at once, and clients that die in the middle."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version

import httpx2
import pytest
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from mnemolog import MemoryStore
from tests.adapters.mcp.serving import (
    answer,
    command,
    first_call,
    http_server,
    over_http,
    over_stdio,
    refusal,
)
from tests.children.first_calls import said
from tests.pages import ROOT
from tests.server.serving import server
from tests.support import WAIT_S

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@contextmanager
def stdio(folder):
    yield lambda mode="auto": over_stdio(folder, mode=mode)


@contextmanager
def http(folder):
    with http_server(folder) as (url, _):
        yield lambda mode="auto": over_http(url, mode=mode)


@contextmanager
def served(folder):
    """`mnemolog serve`, beside its API."""
    with server(folder) as (url, process):
        yield lambda mode="auto": over_http(f"{url}/mcp", mode=mode)
        turns = httpx2.get(f"{url}/v1/sessions/trip/turns", timeout=WAIT_S).json()["items"]
        assert [turn["text"] for turn in turns] == [MOVED], "the API sees the same turns"
        assert "Traceback" not in process.errors()


TRANSPORTS = {"stdio": stdio, "http": http}
STATELESS = "2026-07-28"
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", STATELESS]
MOVED = "I moved to Lisbon. 🎒\u2028é"


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("transport", [stdio, http, served])
async def test_a_conversation_over_a_transport(folder, transport, revision, monkeypatch):
    """Answers and errors come as they do without one, in each revision of the protocol that the page names."""
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)
    with transport(folder) as connect:
        async with connect("legacy" if revision < STATELESS else revision) as client:
            assert client.session.protocol_version == revision
            said = await answer(client, "remember", session="trip", text=MOVED)
            found = await answer(client, "recall", query="Lisbon")
            assert "there is no session" in await refusal(client, "working_memory", session="nobody")
            assert transport is not served or str(folder) not in str(client.instructions)
        assert found["hits"][0]["text"] == MOVED
        assert [found["hits"][0]["position"]] == said["positions"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_several_clients_at_once_lose_nothing_to_one_another(folder, transport):
    """Each with a process of its own, or all with one."""
    clients, turns = 3, 25

    async def one(connect, number):
        async with connect() as client:
            session = f"s{number}"
            texts = [f"{number}/{turn}" for turn in range(turns)]
            calls = (answer(client, "remember", session=session, text=text) for text in texts)
            *recorded, _ = await asyncio.gather(*calls, answer(client, "recall", query="anything"))
            return {item["positions"][0]: text for item, text in zip(recorded, texts, strict=True)}

    with TRANSPORTS[transport](folder) as connect:
        answers = await asyncio.gather(*(one(connect, number) for number in range(clients)))
        told = {key: text for found in answers for key, text in found.items()}
    with MemoryStore.open(folder, model=None, create=False) as store:
        kept = {turn.position: turn.text for number in range(clients) for turn in store.turns(f"s{number}")}
        assert kept == told
        assert len(kept) == clients * turns
        assert store.verify().sound


def start_recording(where, session):
    command = [sys.executable, "-m", "tests.adapters.mcp.recording_client", str(where), session]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recording_client(where, session, *, acknowledged):
    """A client that is killed when so many turns were acknowledged: what it was told, and the end of its stderr."""
    child = start_recording(where, session)
    told = [child.stdout.readline() for _ in range(acknowledged)]
    child.kill()
    told += child.stdout.read().splitlines()
    # A server that the client had started has inherited its stderr: it ends when both are gone.
    errors = child.communicate(timeout=WAIT_S)[1]
    return {f"number {int(line)}" for line in told}, errors


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_killed_client_loses_no_acknowledged_turn_and_hinders_no_other(folder, transport):
    """One dies in the middle while another continues; then a third continues the session of the dead one."""

    async def others(connect, where):
        async with connect() as client:
            dying = asyncio.create_task(asyncio.to_thread(recording_client, where, "dying", acknowledged=20))
            while not dying.done():
                await answer(client, "remember", session="other", text="still here")
            told, errors = await dying
        async with connect() as client:
            seen = await answer(client, "recall", query="number", session="dying", k=100)
            await answer(client, "remember", session="dying", text="gone on")
        return told, errors, {hit["text"] for hit in seen["hits"]}

    if transport == "stdio":
        told, errors, seen = await others(lambda: over_stdio(folder), folder)
    else:
        with http_server(folder) as (url, process):
            told, errors, seen = await others(lambda: over_http(url), url)
            assert process.poll() is None
    assert len(told) >= 20
    assert told <= seen
    assert "Traceback" not in errors
    with MemoryStore.open(folder, model=None, create=False) as store:
        kept = {turn.text for turn in store.turns("dying")}
        assert told <= kept
        assert len(kept) - 1 <= len(told) + 1, "at most one was on its way"
        assert store.verify().sound


async def test_a_killed_server_keeps_every_acknowledged_turn_and_restarts(folder):
    """A turn whose answer is missing is there once or not at all."""
    with http_server(folder) as (url, process):
        client = start_recording(url, "trip")
        told = [client.stdout.readline() for _ in range(30)]
        process.kill()
        told = {f"number {int(line)}" for line in [*told, *client.communicate(timeout=WAIT_S)[0].splitlines()]}
    async with over_stdio(folder) as client:
        said = await answer(client, "remember", session="trip", text="gone on after all")
        found = await answer(client, "recall", query="gone on after it all", k=1)
    assert said["positions"] == [hit["position"] for hit in found["hits"]]
    with MemoryStore.open(folder, model=None, create=False) as store:
        *kept, _ = [turn.text for turn in store.turns("trip")]
        assert len(told) >= 30
        assert told <= set(kept)
        assert len(set(kept)) == len(kept) <= len(told) + 1, "at most one was on its way"
        assert store.verify().sound


def test_standard_output_carries_the_protocol_and_nothing_else(folder):
    """Whatever comes in, and whatever the server has to say besides."""
    lines = [
        json.dumps(INITIALIZE),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        "this is no JSON",
        json.dumps(
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "timeline", "arguments": {}}}
        ),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "no/such/method"}),
    ]
    process = subprocess.Popen(
        command(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()
    answered = {}
    while len(answered) < 3:
        message = json.loads(process.stdout.readline())
        if "id" in message:
            answered[message["id"]] = message
    rest, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert rest == ""
    assert answered[1]["result"]["serverInfo"]["name"] == "mnemolog"
    assert answered[1]["result"]["serverInfo"]["version"] == version("mnemolog")
    assert answered[2]["result"]["content"][0]["text"] == "Nothing was found."
    assert "error" in answered[3]


def post(url, **headers):
    return httpx2.post(url, json=INITIALIZE, headers=JSON | headers, timeout=WAIT_S).status_code


def test_http_serves_mcp_alone_to_programs_of_this_machine(folder):
    """No API and no console. A foreign host and pages of other origins are refused; allowed ones are not."""
    allowed = ("--allow-host", "memory.example.org", "--allow-origin", "https://app.example.org")
    with http_server(folder, *allowed) as (url, _):
        assert post(url) == 200
        assert post(url, host="memory.example.org:80") == 200
        assert post(url, origin="https://app.example.org") == 200
        assert post(url, host="evil.example.org") == 421
        assert post(url, origin="https://evil.example.org") == 403
        assert post(url, authorization="Bearer wrong") == 401
        for path in ("/v1/head", "/", "/sessions", "/login"):
            assert httpx2.get(url.replace("/mcp", path), timeout=WAIT_S).status_code == 404, path
        assert httpx2.get(url.replace("/mcp", "/healthz"), timeout=WAIT_S).text == "ok\n"


def ran(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_every_revision_that_the_sdk_supports_is_tested_and_on_the_page():
    assert list(SUPPORTED_PROTOCOL_VERSIONS) == REVISIONS
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    assert all(f"`{revision}`" in page for revision in REVISIONS)


def test_http_is_for_this_machine(folder):
    """Another address is refused before anything is opened, and so is one that is not available."""
    refused = ran(*command(folder, "--http", "--host", "0.0.0.0"))
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --host: 0.0.0.0 is not a loopback address")
    assert "mnemolog serve" in refused.stderr
    assert not folder.exists()
    with http_server(folder) as (url, _):
        port = url.rpartition(":")[2].partition("/")[0]
        taken = ran(*command(folder, "--http", "--port", port))
        assert taken.returncode == 2
        assert taken.stderr.startswith(f"error: --host: cannot listen at 127.0.0.1 port {port}")


def test_read_only_does_not_create_a_store(folder):
    """Without --read-only it is created."""
    missing = ran(*command(folder, "--read-only"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no store" in missing.stderr
    assert not folder.exists()


def test_first_calls_that_meet_are_all_recorded(race):
    """Those of several servers on one store: the session is started once, whoever comes first."""
    race(first_call, kept=said)
