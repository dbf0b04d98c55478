"""Access over the wire: a real server, tokens made and revoked by other processes."""

import ast
import inspect
import json
import re
import subprocess
from html import unescape

import httpx2
import pytest

from mnemolog import MemoryStore, connect
from mnemolog.server.http.routes import ROUTES
from tests.server.serving import server


@pytest.fixture
def tokens(folder):
    """Create a token, as `mnemolog token create` does: beside the server, in the same folder."""

    def create(actor, **about):
        with MemoryStore.open(folder, model=None) as store:
            return store.admin.create_token(actor, **about)

    return create


def test_a_server_refuses_requests_without_a_token_and_with_a_revoked_one(folder, tokens):
    """API, MCP, metrics and pages; the revocation comes from another process."""
    created = tokens("alice", scopes=["acme/alice"])
    with server(folder, "--require-token") as (url, _), httpx2.Client(base_url=url) as client:
        for path in ("/v1/sessions", "/v1/tail", "/mcp", "/metrics", "/", "/sessions", "/tokens"):
            assert client.get(path).status_code == 401, path
        for path, kind in (("/v1/openapi.json", "application/json"), ("/docs", "text/html; charset=utf-8")):
            shown = client.get(path, headers={"accept": "text/html"})
            assert (shown.status_code, shown.headers["content-type"]) == (200, kind)
        assert client.get("/v1/openapi.json").json()["security"] == [{"token": []}]
        page = client.get("/sessions", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Fsessions")
        assert client.get("/login", headers={"accept": "text/html"}).status_code == 200
        bearer = {"authorization": f"Bearer {created.secret}"}
        started = client.post("/v1/sessions", json={}, headers=bearer).json()
        assert started["id"].startswith("acme/alice/")
        assert client.get("/sessions", headers=bearer | {"accept": "application/json"}).status_code == 200
        assert client.get("/metrics", headers=bearer).status_code == 403
        with MemoryStore.open(folder, model=None) as store:
            store.admin.revoke_token(created.token.id)
            assert {event.event.actor for event in store.events() if event.stream.startswith("session/")} == {"alice"}
        assert client.get("/v1/sessions", headers=bearer).status_code == 401


def test_the_page_of_the_api_has_groups_a_filter_and_requests_that_can_be_copied(folder):
    """The one for Python calls a method that takes these arguments; that for curl is answered."""
    with server(folder) as (url, _), httpx2.Client(base_url=url) as client:
        page = client.get("/docs").text
        some = client.get("/docs", params={"words": "Quarantine/purge"}).text
        requests = [unescape(text) for text in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)]
        called = [text.partition("\n")[2] for text in requests if text.startswith("memory = ")]
        with connect(url) as memory:
            for text in called:
                call = ast.parse(text, mode="eval").body
                method = eval(ast.unparse(call.func), {"memory": memory})
                inspect.signature(method).bind(**{item.arg: ast.literal_eval(item.value) for item in call.keywords})
        command = next(text for text in requests if "/v1/find'" in text).replace("http://localhost:8900", url)
        found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert "items" in json.loads(found)
    assert len(called) == len(ROUTES) - 2  # An export and the data of a person are streams.
    assert re.findall(r"<h2 id=\"(\w+)\">", page) == ["store", "session", "audit", "models", "admin"]
    assert re.findall(r"class=\"operation\" id=\"(\w+)\"", some) == ["admin_quarantine_purge"]
