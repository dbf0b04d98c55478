"""Over standard input and output, and over HTTP: several clients at once, and clients that die in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version

import httpx2
import pytest

from mnemolog import AsyncMemoryStore, InvalidInput, MemoryStore
from mnemolog.adapters.mcp import Memory
from mnemolog.server.mcp_bind import BindConfig
from mnemolog.server.mcp_http import serve_http
from tests.adapters.mcp.serving import MODES, answer, command, http_server, over_http, over_stdio, refusal
from tests.support import WAIT_S

TOKEN = "correct horse battery staple"
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


TRANSPORTS = {"stdio": stdio, "http": http}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_conversation_over_a_transport(folder, transport, mode):
    """Answers, errors and resources come as they do without one."""

    async def main(connect):
        async with connect(mode) as client:
            said = await answer(client, "remember", session="trip", text="I moved to Lisbon. 🎒\u2028é")
            found = await answer(client, "recall", query="Lisbon")
            assert "there is no session" in await refusal(client, "working_memory", session="nobody")
            assert len((await client.list_resources()).resources) == 1
        assert found["hits"][0]["text"] == "I moved to Lisbon. 🎒\u2028é"
        assert [found["hits"][0]["position"]] == said["positions"]

    with TRANSPORTS[transport](folder) as connect:
        asyncio.run(main(connect))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_several_clients_at_once_lose_nothing_to_one_another(folder, transport):
    """Each with a process of its own, or all with one."""
    clients, turns = 3, 25

    async def one(connect, number):
        async with connect() as client:
            session = f"s{number}"
            texts = [f"{number}/{turn}" for turn in range(turns)]
            calls = (answer(client, "remember", session=session, text=text) for text in texts)
            *recorded, _ = await asyncio.gather(*calls, answer(client, "recall", query="anything"))
            return {item["positions"][0]: text for item, text in zip(recorded, texts, strict=True)}

    async def main(connect):
        return await asyncio.gather(*(one(connect, number) for number in range(clients)))

    with TRANSPORTS[transport](folder) as connect:
        told = {key: text for found in asyncio.run(main(connect)) for key, text in found.items()}
    with MemoryStore.open(folder, model=None, create=False) as store:
        kept = {turn.position: turn.text for number in range(clients) for turn in store.turns(f"s{number}")}
        assert kept == told
        assert len(kept) == clients * turns
        assert store.verify().sound


def recording_client(where, session, *, acknowledged):
    """A client that is killed when so many turns were acknowledged: what it was told, and the end of its stderr."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.mcp.recording_client", str(where), session],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    told = [child.stdout.readline() for _ in range(acknowledged)]
    child.kill()
    told += child.stdout.read().splitlines()
    # A server that the client had started has inherited its stderr: it ends when both are gone.
    errors = child.communicate(timeout=WAIT_S)[1]
    return {f"number {int(line)}" for line in told}, errors


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_client_that_is_killed_has_lost_nothing_that_it_was_told_and_hinders_nobody(folder, transport):
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
        told, errors, seen = asyncio.run(others(lambda: over_stdio(folder), folder))
    else:
        with http_server(folder) as (url, process):
            told, errors, seen = asyncio.run(others(lambda: over_http(url), url))
            assert process.poll() is None
    assert len(told) >= 20
    assert told <= seen
    assert "Traceback" not in errors
    with MemoryStore.open(folder, model=None, create=False) as store:
        kept = {turn.text for turn in store.turns("dying")}
        assert told <= kept
        assert len(kept) - 1 <= len(told) + 1, "at most one was on its way"
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


def test_http_lets_in_who_names_it_by_an_address_of_this_machine_and_no_web_page(folder):
    """A name that a foreign name server resolves to this machine is refused, and so is every origin."""
    with http_server(folder) as (url, _):
        port = url.rpartition(":")[2].partition("/")[0]
        assert post(url) == 200
        assert post(url, host=f"localhost:{port}") == 200
        assert post(url, host=f"evil.example.org:{port}") == 421
        assert post(url, host="evil.example.org") == 421
        assert post(url, origin="https://evil.example.org") == 403
        assert post(url, origin=f"http://localhost:{port}") == 403
        modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
        assert post(url, host="evil.example.org", **modern) == 421
        assert post(url, origin="https://evil.example.org", **modern) == 403


def test_http_with_a_token_answers_nobody_without_it(folder, monkeypatch):
    """Neither without, nor with another; names and origins that were allowed get in with it."""
    monkeypatch.setenv("MNEMOLOG_MCP_TOKEN", TOKEN)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    allowed = ("--allow-host", "memory.example.org:*", "--allow-origin", "https://app.example.org")

    async def main(url):
        async with over_http(url, **bearer) as client:
            await answer(client, "remember", session="trip", text="tea")

    with http_server(folder, "--host", "0.0.0.0", *allowed) as (url, _):
        url = url.replace("0.0.0.0", "127.0.0.1")
        asyncio.run(main(url))
        assert post(url) == 401
        assert post(url, authorization=f"Bearer {TOKEN}x") == 401
        assert post(url, authorization="Bearer é".encode("latin-1")) == 401
        assert post(url, **bearer) == 200
        assert post(url, **bearer, host="memory.example.org:80") == 200
        assert post(url, **bearer, host="evil.example.org:80") == 421
        assert post(url, **bearer, origin="https://app.example.org") == 200
        assert post(url, **bearer, origin="https://evil.example.org") == 403


def ran(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_http_beyond_this_machine_wants_a_token(folder):
    """Reported before anything is opened, as are a weak token and an address that is not available."""
    for options in (["--host", "0.0.0.0"], ["--token", "secret"]):
        refused = ran(*command(folder, "--http", *options))
        assert refused.returncode == 1
        assert refused.stderr.startswith("error: --token: ")
        assert "hint: " in refused.stderr
    assert not folder.exists()
    with http_server(folder) as (url, _):
        port = url.rpartition(":")[2].partition("/")[0]
        taken = ran(*command(folder, "--http", "--port", port))
        assert taken.returncode == 1
        assert taken.stderr.startswith(f"error: --host: cannot listen at 127.0.0.1 port {port}")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host):
    """By address or by name."""
    BindConfig(host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "", "localhost.example.org", "127.0.0.1.example.org"])
def test_any_other_address_needs_one(host):
    """A name that is not known to be loopback counts as public."""
    with pytest.raises(InvalidInput, match="so a token is needed"):
        BindConfig(host=host).check()
    BindConfig(host=host, token=TOKEN).check()


def test_a_program_that_served_has_its_own_handlers_of_signals_again(folder, capsys):
    """A signal that ends the server does not end the program, and the next one is the program's."""

    async def main():
        async with AsyncMemoryStore.open(folder, model=None) as store:
            before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
            serving = asyncio.create_task(serve_http(Memory(store), BindConfig(port=0)))
            while "serving at" not in capsys.readouterr().err:
                await asyncio.sleep(0)
            signal.raise_signal(signal.SIGTERM)
            await serving
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_store_that_is_not_there_is_not_read_only_but_an_error(folder):
    """Without --read-only it is created."""
    missing = ran(*command(folder, "--read-only"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no store" in missing.stderr
    assert not folder.exists()
