"""Connections that say nothing, too little, or too slowly keep nobody out who has a token."""

import asyncio
import resource
import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import MemoryStore
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import Limits
from tests.server.serving import command, in_process, server, until
from tests.support import WAIT_S, wait_until

DESCRIPTORS = 64
IDLE_CLIENTS = 90
ANSWER_S = 5.0
UNDISTURBED = 20
"""Who is kept out waits for longer. On a busy machine an answer may take so many times what it takes undisturbed."""
LOG_CHARACTERS_MAX = 4_000
STARTS = {
    "nothing": b"",
    "half-a-head": b"POST /v1/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half-a-body": b"POST /theme HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n{",
    "a-request": b"GET /v1/head HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
UNREAD = STARTS["a-request"] * 30_000


@pytest.fixture
def bearer(folder):
    """The header with a token of a store."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip")
        return {"authorization": f"Bearer {store.admin.create_token('alice').secret}"}


def ask(url, bearer, *, client=httpx2):
    """How many seconds the holder of the token waits until a turn is recorded."""
    began = time.monotonic()
    turn = {"role": "user", "text": "tea"}
    answer = client.post(f"{url}/v1/sessions/trip/turns", json=turn, headers=bearer, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def connection(url, says=b""):
    """A client that has said something."""
    where = urlsplit(url)
    client = socket.create_connection((where.hostname, where.port), timeout=WAIT_S)
    client.settimeout(0.05)
    with suppress(TimeoutError, ConnectionError):  # The server stopped reading, or dropped it.
        client.sendall(says)
    return client


@pytest.mark.parametrize("says", [*STARTS.values(), UNREAD], ids=[*STARTS, "unread-answers"])
def test_ninety_idle_clients_do_not_keep_out_the_holder_of_a_token(folder, bearer, says):
    """With 64 descriptors, on a connection that it had and on new ones; and the server logs a few lines."""

    def few_descriptors(folder, *_):
        return ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command(folder, "--require-token")]

    with server(folder, run=few_descriptors) as (url, process), ExitStack() as idle, httpx2.Client() as kept:
        limit_s = max(ANSWER_S, UNDISTURBED * min(ask(url, bearer) for _ in range(3)))
        ask(url, bearer, client=kept)
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url, says)))
        assert ask(url, bearer, client=kept) < limit_s
        for _ in range(5):
            assert ask(url, bearer) < limit_s
        assert len(process.errors()) < LOG_CHARACTERS_MAX


async def reading(scope, receive, send):
    """An application that answers when it has the whole body, and after a while at `/slow`."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/slow":
            await asyncio.sleep(3.0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"at last"})


SHORT = ServerConfig(port=0, limits=Limits(head_s=1.0, body_s=1.0, answer_s=1.0))


async def test_a_client_that_sends_too_slowly_is_disconnected():
    """A byte now and then does not keep a connection open: not in the headers, not in a body, not after an answer."""

    async def until_disconnected(port, says):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(says)
        received = asyncio.ensure_future(reader.read())
        while not received.done():
            writer.write(b"x" if says else b"")
            await asyncio.wait({received}, timeout=0.05)
        writer.transport.abort()

    async with in_process(reading, SHORT) as (port, _), asyncio.timeout(WAIT_S):
        await asyncio.gather(*(until_disconnected(port, says) for says in STARTS.values()))


async def test_a_call_may_take_longer_than_its_request():
    """The times for a request are over when all of it has come."""
    async with in_process(reading, SHORT) as (port, _), httpx2.AsyncClient(timeout=WAIT_S) as client:
        assert (await client.post(f"http://localhost:{port}/slow", content=b"now")).text == "at last"


async def test_an_unread_answer_is_cut_off_and_one_that_is_read_steadily_is_not():
    """However long it takes: what counts is that the client takes the next part in time."""

    async def endless(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
                await asyncio.sleep(0)

    async with in_process(endless, ServerConfig(port=0, limits=Limits(answer_s=2.0))) as (port, guard):
        loop = asyncio.get_running_loop()
        steady, idle = [socket.socket() for _ in range(2)]
        with closing(steady), closing(idle):
            for client in (steady, idle):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, STARTS["a-request"])
            await until(lambda: guard.running == 2)
            idle_since = loop.time()
            while guard.running == 2 or loop.time() < idle_since + 4.0:  # The idle one is cut off.
                assert await loop.sock_recv(steady, 65_536)
                await asyncio.sleep(0.02)
                assert guard.running > 0


def test_a_shortage_of_descriptors_is_logged_once_a_minute_and_passes(folder, bearer):
    """Each failure to accept a connection used to be a traceback, thousands of them in a second."""
    with server(folder, "--require-token") as (url, process), ExitStack() as idle:
        ask(url, bearer)
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        open_now = max(int(item.name) for item in Path(f"/proc/{process.pid}/fd").iterdir()) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url)))
        wait_until(lambda: "cannot accept a connection" in process.errors(), what="the log to say it")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        ask(url, bearer)
        assert process.errors().count("cannot accept a connection") == 1
        assert len(process.errors()) < LOG_CHARACTERS_MAX


def test_what_strangers_send_fills_no_log_and_steers_no_terminal(folder):
    """300 requests that are no HTTP are one line. Control characters and a head that is too long are refused."""
    bad = [b"no HTTP\r\n\r\n"] * 300
    bad += b"GET / HTTP/1.1\r\nHost: \x1b]0;evil\x07\r\n\r\n", b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 100_000
    with server(folder) as (url, process):
        for says in bad:
            with closing(connection(url, says)) as client:
                client.settimeout(WAIT_S)
                with suppress(ConnectionError):  # It is closed while the client still sends.
                    assert client.recv(12).startswith(b"HTTP/1.1 4")
        assert process.errors().count("Invalid HTTP request") == 1
        assert "\x1b" not in process.errors()
        assert len(process.errors()) < LOG_CHARACTERS_MAX
        assert httpx2.get(f"{url}/v1/head", timeout=WAIT_S).status_code == 200
