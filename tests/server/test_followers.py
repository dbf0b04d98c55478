"""What a follower of the log costs the server."""

import re
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from mnemolog import MemoryStore
from tests.server.serving import server
from tests.support import WAIT_S

FOLLOWERS = 100
EACH_MB = 0.3
"""A thousand of them took 0.1 MB each when this was written."""


def resident_mb(process):
    """The memory that a process has in use."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1_000


def follow(url):
    """A connection that follows the log, and has the headers of the answer."""
    where = urlsplit(url)
    follower = socket.create_connection((where.hostname, where.port), timeout=WAIT_S)
    follower.sendall(f"GET /v1/tail HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode())
    assert follower.recv(4_096).startswith(b"HTTP/1.1 200")
    return follower


def test_an_idle_follower_takes_little_memory(folder):
    """Far less than a thread would: a server has thousands of them."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "The train leaves at nine.")
    with server(folder) as (url, process), ExitStack() as open_:
        follow(url).close()  # What the first one loads is no cost of the others.
        httpx2.get(f"{url}/v1/sessions", timeout=WAIT_S).raise_for_status()
        before = resident_mb(process)
        followers = [open_.enter_context(closing(follow(url))) for _ in range(FOLLOWERS)]
        assert (resident_mb(process) - before) / FOLLOWERS < EACH_MB
        body = {"role": "user", "text": "It is late."}
        httpx2.post(f"{url}/v1/sessions/trip/turns", json=body, timeout=WAIT_S).raise_for_status()
        assert all(b"It is late." in follower.recv(4_096) for follower in followers), "all of them follow"
