"""Bodies of requests: how large, how much they hold, and what they take of the server's memory."""

import json
import re
import socket
import threading
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import MemoryStore
from mnemolog.server.http.guard import DENSE, PARTS_MAX, parts_in
from tests.server.serving import server

LARGEST = 15 << 20
MIB = 1 << 20
HEADERS = {"content-type": "application/json"}

pytestmark = pytest.mark.promise("P36")


def filled(pattern, size, before, after):
    """JSON of about `size` bytes: `before`, then `pattern` again and again, then `after`."""
    return (before + ",".join([pattern] * (size // (len(pattern) + 1))) + after).encode()


BODIES = {
    "a filter of a recall": ("/v1/recall", filled("{}", LARGEST, '{"query":"x","metadata":{"a":[', "]}}")),
    "a large filter that is let in": ("/v1/recall", filled("{}", MIB - 100, '{"query":"x","metadata":{"a":[', "]}}")),
    "names of speakers": ("/v1/recall", filled('"ab"', MIB - 100, '{"query":"x","speakers":[', "]}")),
    "metadata of a turn": (
        "/v1/sessions/s/turns",
        filled("{}", LARGEST, '{"role":"user","text":"x","metadata":{"a":[', "]}}"),
    ),
    "empty messages": ("/v1/turns", filled("{}", LARGEST, '{"messages":[', "]}")),
    "messages with metadata": (
        "/v1/turns",
        filled(
            '{"session":"s","role":"user","text":"x","metadata":{"a":{"b":{"c":1}}}}', LARGEST, '{"messages":[', "]}"
        ),
    ),
    "long messages": (
        "/v1/turns",
        filled(f'{{"session":"s","role":"user","text":"{"x, " * 300_000}"}}', LARGEST, '{"messages":[', "]}"),
    ),
    "positions to forget": ("/v1/forget", filled("1000", MIB - 100, '{"dry_run":true,"positions":[', "]}")),
}


def memory(process, field):
    """Bytes of memory of a process: `VmRSS` for now, `VmHWM` for the most so far."""
    return int(re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


@pytest.mark.promise("P36", "clients")
def test_clients_with_large_bodies_do_not_fill_the_memory(folder, tries):
    """At most twice of what the server takes at rest, and 64 MiB. Whoever is refused is told why."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("s")
    with server(folder) as (url, process), httpx2.Client(base_url=url, timeout=100, trust_env=False) as client:

        def send(path, body, answers):
            with httpx2.Client(base_url=url, timeout=100, trust_env=False) as one:
                answers.append(one.post(path, content=body, headers=HEADERS).status_code)

        assert client.post("/v1/recall", json={"query": "x", "mode": "text"}).status_code == 200
        idle = memory(process, "VmRSS")
        for kind, (path, body) in BODIES.items():
            answers = []
            threads = [threading.Thread(target=send, args=(path, body, answers)) for _ in range(tries)]
            for thread in threads:
                thread.start()
            began = perf_counter()
            assert client.get("/healthz").status_code == 200
            took = perf_counter() - began
            for thread in threads:
                thread.join()
            most = memory(process, "VmHWM")
            print(f"{kind}: {idle / MIB:.0f} to {most / MIB:.0f} MiB, /healthz took {took:.2f} s, {sorted(answers)}")
            assert len(answers) == tries
            assert set(answers) <= {200, 400, 413, 503}
            assert most <= 2 * idle + 64 * MIB, kind
        assert client.get("/v1/head").status_code == 200


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({}, 4),
        ([], 1),
        ([1, 2, 3], 3),
        ({"a": {"b": 1}, "c": [1, 2]}, 11),
        (['{"a": [1, 2]}, "b', "\\"], 2),
        ([{}] * (DENSE // 2), 5 * DENSE // 2),
        (['{[,"' * 10] * DENSE, DENSE),
    ],
)
def test_what_a_body_holds_is_counted_outside_of_texts(value, parts):
    body = json.dumps(value).encode()
    found = parts_in(body)
    assert found >= parts
    assert found == parts or found <= DENSE  # A rough count is enough where it is small.


@pytest.mark.parametrize("body", [b'"' + b'\\"' * (4 << 20), b"[" + b"{}," * (4 << 20), b'"' * (4 << 20)])
def test_counting_ends_soon_whatever_a_body_is(body):
    """It reads each byte once, also in a text that does not end."""
    assert parts_in(body) <= PARTS_MAX + 4


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 0",
        "Mnemolog-Scope: a\r\nMnemolog-Scope: b\r\nContent-Length: 0",
        "Host: localhost\r\nContent-Length: 0",
    ],
)
def test_a_request_that_a_proxy_may_read_differently_is_refused_and_its_connection_closed(folder, headers):
    MemoryStore.open(folder, model=None).close()
    with server(folder) as (url, _), socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=30) as client:
        second = "GET /v1/head HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.sendall(f"POST /v1/verify HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n0\r\n\r\n{second}".encode())
        answer = b""
        while part := client.recv(65_536):  # Until the server closes the connection.
            answer += part
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
