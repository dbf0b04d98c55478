"""Two servers over one log in PostgreSQL, as a load balancer sees them."""

import re
from contextlib import ExitStack

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
