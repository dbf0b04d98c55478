"""Access over the wire: a real server, tokens made and revoked by other processes."""

import httpx2
import pytest

from mnemolog import MemoryStore
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
