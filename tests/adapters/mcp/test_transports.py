"""Over standard input and output, and over HTTP: several clients at once, and clients that die in the middle.

MCP in `mnemolog serve`: the official client over streamable HTTP, beside the API. A memory that is opened while its
client is greeted. Adding the server to a program, by that program's own command, and removing it. The page and the
example.
"""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import httpx2
import pytest
from mcp import Client
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from mnemolog import MemoryStore
from mnemolog.adapters.mcp import OpeningMemory, make_server
from mnemolog.adapters.support.agent_tools import TOOLS
from mnemolog.adapters.support.agent_tools.tool import opened
from mnemolog.adapters.support.mcp_hosts import NAME, McpHost
from mnemolog.cli.entry import run
from tests.adapters.mcp.serving import MODES, answer, command, first_call, http_server, over_http, over_stdio, refusal
from tests.children.first_calls import said
from tests.pages import ROOT, assert_example_prints
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


FOLDER = "a b/it's $HOME"
SERVER = [sys.executable, "-m", "mnemolog"]


@pytest.fixture
def mnemolog(tmp_path, monkeypatch, capfd):
    """Run `mnemolog mcp`; gives status, output and errors. Programs with a command print the words they are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    Path("bin").mkdir()
    for name in ("claude", "codex", "code"):
        Path("bin", name).write_text(
            f"#!{sys.executable} -IS\nimport json, sys; print(json.dumps(sys.argv)); sys.exit(3)"
        )
        Path("bin", name).chmod(0o755)
    return lambda *words: (run(["--key-file", "k", "mcp", FOLDER, *words]), *capfd.readouterr())


@pytest.mark.parametrize("host", get_args(McpHost))
def test_what_is_printed_is_what_is_run_and_keeps_each_word(mnemolog, host, tmp_path):
    """A path with a space, a quote and a dollar is one word; options go along, paths become whole; nothing opens."""
    options = ["--read-only", "--scope", "x y", "--scope", "z"]
    _, printed, _ = mnemolog(*options, "--install", host)
    ran = mnemolog(*options, "--install", host, "--run")
    if host in ("claude", "codex", "code"):
        assert [host, *shlex.split(printed)[1:]] == shlex.split(printed) == [host, *json.loads(ran[1])[1:]]
        assert ran[0] == 3, "its exit status is ours"
    else:
        assert ran[0] == 2, "there is nothing to run"
    if host in ("claude", "codex"):
        server = printed.partition(" -- ")[2]
        assert shlex.split(mnemolog("--uninstall", host)[1]) == [host, "mcp", "remove", NAME]
    else:
        entry = json.loads(shlex.split(printed)[2] if host == "code" else printed[printed.index("{") :])
        entry = entry if host == "code" else next(iter(entry.values()))[NAME]
        server = shlex.join([entry["command"], *entry["args"]])
        assert f'Remove "{NAME}" below ' in mnemolog("--uninstall", host)[1]
    assert shlex.split(server) == [*SERVER, "--key-file", str(tmp_path / "k"), "mcp", str(tmp_path / FOLDER), *options]
    assert not (tmp_path / FOLDER).exists()
    assert f"| `{host}` |" in (ROOT / "docs" / "adapters" / "mcp.md").read_text()


def test_what_cannot_be_done_says_what_to_do(mnemolog):
    for words in (["--install", "claude", "--http"], ["--install", "claude", "--uninstall", "claude"], ["--run"]):
        assert mnemolog(*words)[0] == 2
    Path("bin", "codex").unlink()
    status, printed, errors = mnemolog("--install", "codex", "--run")
    assert (status, printed) == (1, "")
    assert "codex cannot be run" in errors
    assert "leave out --run" in errors


def test_the_page_has_every_tool_and_whether_it_writes():
    """And none that is not there."""
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| .* \| (yes|no) \|$", page, re.MULTILINE)
    told = {name: writes == "yes" for names, writes in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tool.name: tool.effect != "reads" for tool in TOOLS.values()}


def test_the_example_of_a_client_runs(capfd):
    """It starts a server of its own and cleans up behind itself."""
    assert_example_prints(
        capfd,
        "mcp_client.py",
        "recalled: [('I moved to Lisbon in March.', 2)]",
        "before it was said: Nothing was found.",
        "  budget: 900",
        "refused: InvalidArguments: recall has no argument 'limit' (did you mean 'k'?)",
    )
