"""Connections that say nothing, too little, or too slowly keep nobody out who has the token."""

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

from tests.adapters.mcp.serving import command, http_server
from tests.adapters.mcp.short_limits import CONNECTIONS, LIMITS
from tests.support import WAIT_S, wait_until

TOKEN = "correct horse battery staple"
DESCRIPTORS = 64
IDLE_CLIENTS = 90
ANSWER_S = 5.0
UNDISTURBED = 20
"""Who is kept out waits for longer. On a busy machine an answer may take so many times what it takes undisturbed."""
LOG_CHARACTERS_MAX = 4_000
LONG_TEXT = "tea in Porto. " * 60_000
STARTS = {
    "nothing": b"",
    "half-a-head": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half-a-body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    "no-token": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "answers-unread": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 30_000,
}


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("MNEMOLOG_MCP_TOKEN", TOKEN)


def call(tool, **arguments):
    """A request of the protocol of 2026, which needs no handshake: its headers and its body."""
    about = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "test", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return {
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }, body.encode()


def ask(url, tool="timeline", *, client=httpx2, **arguments):
    """How many seconds the holder of the token waits for an answer."""
    headers, body = call(tool, **arguments)
    began = time.monotonic()
    answer = client.post(url, content=body, headers=headers, timeout=WAIT_S)
    took = time.monotonic() - began
    assert answer.status_code == 200, answer.text
    assert '"isError":true' not in answer.text, answer.text
    return took


def allowed_s(url):
    """How long an answer may take here."""
    return max(ANSWER_S, UNDISTURBED * min(ask(url) for _ in range(3)))


def few_descriptors(folder, *options):
    return ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command(folder, *options)]


def short_limits(folder, *_):
    return [sys.executable, "-m", "tests.adapters.mcp.short_limits", str(folder)]


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


def raw(tool, **arguments):
    headers, body = call(tool, **arguments)
    lines = [f"{name}: {value}\r\n" for name, value in (headers | {"content-length": str(len(body))}).items()]
    return f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{''.join(lines)}\r\n".encode(), body


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
def test_ninety_idle_clients_do_not_keep_out_the_holder_of_the_token(folder, says):
    """With 64 descriptors, on a connection that it had and on new ones; and the server logs a few lines."""
    with http_server(folder, run=few_descriptors) as (url, process), ExitStack() as idle, httpx2.Client() as kept:
        limit_s = allowed_s(url)
        ask(url, client=kept)
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url, says)))
        assert ask(url, client=kept) < limit_s
        for _ in range(5):
            assert ask(url, "remember", session="trip", text="tea") < limit_s
        assert len(process.errors()) < LOG_CHARACTERS_MAX


@pytest.mark.parametrize("says", list(STARTS.values())[:4], ids=list(STARTS)[:4])
def test_a_client_that_sends_too_slowly_is_disconnected(folder, says):
    """A byte now and then does not keep a connection open: not before the token, not in the headers, not after."""
    with http_server(folder, run=short_limits) as (url, _), closing(connection(url, says)) as client:
        received_until_closed(client, trickle=b"x" if says else b"")


def test_a_body_that_comes_too_slowly_is_disconnected_with_the_token_too(folder):
    """Half a call, then a byte now and then."""
    with http_server(folder, run=short_limits) as (url, _):
        head, body = raw("remember", session="trip", text="slow" * 10_000)
        with closing(connection(url, head + body[:100])) as client:
            assert received_until_closed(client, trickle=b" ") == b""


def test_answers_that_are_not_read_do_not_keep_their_connections(folder):
    """Holders of the token that read nothing take all places; the next one is answered after the time for reading."""
    with http_server(folder, run=short_limits) as (url, _), ExitStack() as deaf:
        ask(url, "remember", session="trip", text=LONG_TEXT)
        ask(url, "remember", session="trip", text=LONG_TEXT)
        request = b"".join(raw("recall", query="Porto", full=True))
        for _ in range(CONNECTIONS):
            client = deaf.enter_context(closing(connection(url, request, receives=4_096)))
            client.settimeout(WAIT_S)
            assert client.recv(16).startswith(b"HTTP/1.1 200")
        ask(url)


def test_a_slow_reader_that_goes_on_reading_gets_all_of_its_answer(folder):
    """It may take longer than the time after which a connection that reads nothing is closed."""
    with http_server(folder, run=short_limits) as (url, _):
        ask(url, "remember", session="trip", text=LONG_TEXT)
        ask(url, "remember", session="trip", text=LONG_TEXT)
        with closing(connection(url, b"".join(raw("recall", query="Porto", full=True)), receives=4_096)) as client:
            client.settimeout(WAIT_S)
            began, pause, received = time.monotonic(), threading.Event(), b""
            while piece := client.recv(16_384):
                pause.wait(0.01)
                received += piece
                if received.endswith(b"]}}"):
                    break
            assert time.monotonic() - began > LIMITS.answer_s
            assert received.count(b"tea in Porto") >= 2 * 60_000


def test_a_shortage_of_descriptors_is_logged_once_a_minute_and_passes(folder):
    """Each failure to accept a connection used to be a traceback, thousands of them in a second."""
    with http_server(folder) as (url, process), ExitStack() as idle:
        ask(url)
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        open_now = max(int(item.name) for item in Path(f"/proc/{process.pid}/fd").iterdir()) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
        for _ in range(IDLE_CLIENTS):
            idle.enter_context(closing(connection(url)))
        wait_until(lambda: "cannot accept a connection" in process.errors(), what="the log to say it")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        ask(url)
        assert process.errors().count("cannot accept a connection") == 1
        assert len(process.errors()) < LOG_CHARACTERS_MAX


def test_what_strangers_send_fills_no_log_and_steers_no_terminal(folder):
    """300 requests that are no HTTP are one line; a header with control characters is shown as escapes."""
    with http_server(folder) as (url, process):
        for _ in range(300):
            with closing(connection(url, b"no HTTP\r\n\r\n")) as client:
                received_until_closed(client)
        head, body = raw("timeline")
        evil = head.replace(b"Host: 127.0.0.1", b"Host: \x1b]0;evil\x07")
        with closing(connection(url, evil + body)) as client:
            client.settimeout(WAIT_S)
            assert client.recv(12).startswith(b"HTTP/1.1 4")
        assert process.errors().count("Invalid HTTP request") == 1
        assert "\x1b" not in process.errors()
        assert len(process.errors()) < LOG_CHARACTERS_MAX


def test_headers_and_bodies_have_a_limit(folder):
    """A request that is too large is refused."""
    with http_server(folder) as (url, _):
        with closing(connection(url, b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 100_000)) as client:
            received_until_closed(client)
        headers, _ = call("remember")
        assert httpx2.post(url, content=b" " * 5_000_000, headers=headers, timeout=WAIT_S).status_code == 413
        ask(url)
