"""Connections that say nothing, too little, or too slowly keep nobody out who has a token."""

from __future__ import annotations

import json
import resource
import socket
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import MemoryStore
from tests.server.serving import command, server
from tests.support import WAIT_S, wait_until

DESCRIPTORS = 64
IDLE_CLIENTS = 90
ANSWER_S = 5.0
UNDISTURBED = 20
"""Who is kept out waits for longer. On a busy machine an answer may take so many times what it takes undisturbed."""
LOG_CHARACTERS_MAX = 4_000
CONNECTIONS = 4
LONG_TURN = "tea in Porto. " * 60_000
STARTS = {
    "nothing": b"",
    "half-a-head": b"POST /v1/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half-a-body": b"POST /theme HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    "no-token": b"GET /v1/head HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "answers-unread": b"GET /v1/head HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 30_000,
}
SHORT_LIMITS = f"""
import asyncio, sys
from mnemolog.server.application import serve_store
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import Limits

def started(url):
    print(f"console {{url}}  API {{url}}v1", flush=True)

limits = Limits(head_s=1.0, body_s=1.0, answer_s=1.0, connections={CONNECTIONS})
config = ServerConfig(port=0, require_token=True, limits=limits)
asyncio.run(serve_store(sys.argv[1], config, started=started, model=None))
"""


@pytest.fixture
def bearer(folder):
    """The header with a token of a store that has two long turns."""
    with MemoryStore.open(folder, model=None) as store:
        for _ in range(2):
            store.session("trip").record("user", LONG_TURN)
        return {"authorization": f"Bearer {store.admin.create_token('alice').secret}"}


def ask(url, bearer, *, client=httpx2):
    """How many seconds the holder of the token waits until a turn is recorded."""
    began = time.monotonic()
    turn = {"role": "user", "text": "tea"}
    answer = client.post(f"{url}/v1/sessions/trip/turns", json=turn, headers=bearer, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def allowed_s(url, bearer):
    """How long an answer may take here."""
    return max(ANSWER_S, UNDISTURBED * min(ask(url, bearer) for _ in range(3)))


def few_descriptors(folder, *_):
    return ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command(folder, "--require-token")]


def short_limits(folder):
    return [sys.executable, "-c", SHORT_LIMITS, str(folder)]


def connection(url, says=b"", *, receives=None):
    """A client that has said something, with a small receive buffer if `receives` is given."""
    where = urlsplit(url)
    client = socket.socket()
    if receives is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    client.settimeout(WAIT_S)
    client.connect((where.hostname, where.port))
    client.settimeout(0.05)
    with suppress(TimeoutError, ConnectionError):  # The server stopped reading, or dropped it.
        client.sendall(says)
    return client


def raw(bearer, method, path, body=b""):
    headers = bearer | {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode(), body


def received_until_closed(client, *, trickle=b""):
    """What a client receives until the server closes the connection, while it sends `trickle` again and again."""
    received, end = b"", time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            client.sendall(trickle)
            piece = client.recv(65_536)
        except TimeoutError:
            continue
        except ConnectionError:
            return received
        if not piece:
            return received
        received += piece
    pytest.fail(f"the connection is open after {WAIT_S:g} s")


@pytest.mark.parametrize("says", STARTS.values(), ids=STARTS)
def test_ninety_idle_clients_do_not_keep_out_the_holder_of_a_token(folder, bearer, says):
    """With 64 descriptors, on a connection that it had and on new ones; and the server logs a few lines."""
    with server(folder, run=few_descriptors) as (url, process), ExitStack() as idle, httpx2.Client() as kept:
        limit_s = allowed_s(url, bearer)
        ask(url, bearer, client=kept)
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url, says)))
        assert ask(url, bearer, client=kept) < limit_s
        for _ in range(5):
            assert ask(url, bearer) < limit_s
        assert len(process.errors()) < LOG_CHARACTERS_MAX


@pytest.mark.parametrize("start", ["nothing", "half-a-head", "half-a-body", "no-token"])
def test_a_client_that_sends_too_slowly_is_disconnected(folder, bearer, start):
    """A byte now and then does not keep a connection open: not before the token, not in the headers, not after."""
    says = STARTS[start]
    with server(folder, run=short_limits) as (url, _), closing(connection(url, says)) as client:
        received_until_closed(client, trickle=b"x" if says else b"")


def test_a_body_that_comes_too_slowly_is_disconnected_with_a_token_too(folder, bearer):
    """Half a turn, then a byte now and then."""
    with server(folder, run=short_limits) as (url, _):
        head, body = raw(bearer, "POST", "/v1/sessions/trip/turns", json.dumps({"text": "slow" * 10_000}).encode())
        with closing(connection(url, head + body[:100])) as client:
            assert received_until_closed(client, trickle=b" ") == b""


def test_answers_that_are_not_read_do_not_keep_their_connections(folder, bearer):
    """Holders of a token that read nothing take all places; the next one is answered after the time for reading."""
    with server(folder, run=short_limits) as (url, _), ExitStack() as deaf:
        request = b"".join(raw(bearer, "GET", "/v1/sessions/trip/turns"))
        for _ in range(CONNECTIONS):
            client = deaf.enter_context(closing(connection(url, request, receives=4_096)))
            client.settimeout(WAIT_S)
            assert client.recv(16).startswith(b"HTTP/1.1 200")
        ask(url, bearer)


def test_a_slow_reader_that_continues_to_read_gets_all_of_its_answer(folder, bearer):
    """It may take longer than the time after which a connection that reads nothing is closed."""
    with server(folder, run=short_limits) as (url, _):
        request = b"".join(raw(bearer, "GET", "/v1/sessions/trip/turns"))
        with closing(connection(url, request, receives=4_096)) as client:
            client.settimeout(WAIT_S)
            began, pause, received = time.monotonic(), threading.Event(), b""
            while piece := client.recv(16_384):
                pause.wait(0.01)
                received += piece
                if received.endswith(b'"stale":null}'):
                    break
            assert time.monotonic() - began > 1.0
            assert received.count(b"tea in Porto") >= 2 * 60_000


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
    """300 requests that are no HTTP are one line; a header with control characters is shown as escapes."""
    with server(folder) as (url, process):
        for _ in range(300):
            with closing(connection(url, b"no HTTP\r\n\r\n")) as client:
                received_until_closed(client)
        with closing(connection(url, b"GET /v1/head HTTP/1.1\r\nHost: \x1b]0;evil\x07\r\n\r\n")) as client:
            client.settimeout(WAIT_S)
            assert client.recv(12).startswith(b"HTTP/1.1 4")
        assert process.errors().count("Invalid HTTP request") == 1
        assert "\x1b" not in process.errors()
        assert len(process.errors()) < LOG_CHARACTERS_MAX


def test_the_head_of_a_request_has_a_limit(folder):
    """A request that is too large is refused."""
    with server(folder) as (url, _):
        with closing(connection(url, b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 100_000)) as client:
            received_until_closed(client)
        assert httpx2.get(f"{url}/v1/head", timeout=WAIT_S).status_code == 200
