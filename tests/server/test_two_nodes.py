"""Two servers over one log in PostgreSQL, as a load balancer sees them, and what a follower costs a server."""

import re
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import MemoryStore
from mnemolog.infra.log.open import prepare_database
from tests.postgres import stoppable_server
from tests.server.serving import server
from tests.support import WAIT_S, wait_until


@pytest.fixture
def nodes(tmp_path):
    """The database server, and a client with a token and one without for each of two nodes, by name."""
    with stoppable_server() as database, ExitStack() as stack:
        prepare_database(database.url)
        with MemoryStore.open(database.url, log="team", local=tmp_path / "a", model=None) as store:
            secret = store.admin.create_token("ops", verbs=["read", "record", "metrics"]).secret
        clients = {}
        for name in "ab":
            where = ("--log", "team", "--local", str(tmp_path / name), "--require-token")
            url, _ = stack.enter_context(server(database.url, *where))
            bearer = {"authorization": f"Bearer {secret}"}
            clients[name] = stack.enter_context(httpx2.Client(base_url=url, headers=bearer, timeout=WAIT_S))
        yield database, clients


def test_nodes_are_ready_while_they_answer_recalls(nodes, tmp_path):
    """While PostgreSQL is away they say what is degraded, and tokens that were valid read; after it all is as before.

    A node that starts meanwhile cannot know the tokens: it is not ready until PostgreSQL is back.
    """
    database, clients = nodes
    clients["a"].put("/v1/sessions/trip", json={}).raise_for_status()
    clients["a"].post("/v1/sessions/trip/turns", json={"role": "user", "text": "The ferry leaves at noon."})
    question = {"query": "When does the ferry leave?", "mode": "text"}
    for client in clients.values():
        assert client.post("/v1/recall", json=question).json()["hits"][0]["text"] == "The ferry leaves at noon."
        assert client.get("/readyz").text == "ready\n"
        assert re.search(r'^mnemolog_projection_lag\{.*"views"\} 0.0$', client.get("/metrics").text, re.MULTILINE)
    database.stop()
    for client in clients.values():
        wait_until(lambda client=client: "degraded" in client.get("/readyz").text, what="the node to notice")
        assert client.get("/readyz").status_code == 200
        answer = client.post("/v1/recall", json=question)
        assert (answer.status_code, answer.json()["stale"]["position"]) == (200, 3)
        assert answer.json()["hits"][0]["text"] == "The ferry leaves at noon."
        assert client.put("/v1/sessions/other", json={}).status_code == 503
        assert client.get("/v1/head", headers={"authorization": "Bearer wrong"}).status_code == 401
    where = ("--log", "team", "--local", str(tmp_path / "b"), "--require-token")
    with server(str(tmp_path / "b"), *where[4:]) as (late, _):
        assert httpx2.get(f"{late}/readyz", timeout=WAIT_S).json()["detail"] == "LogUnreachable"
        database.start()
        wait_until(lambda: httpx2.get(f"{late}/readyz", timeout=WAIT_S).text == "ready\n", what="PostgreSQL")
    for client in clients.values():
        wait_until(lambda client=client: client.get("/readyz").text == "ready\n", what="the node to be ready")
        client.put("/v1/sessions/other", json={}).raise_for_status()


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
