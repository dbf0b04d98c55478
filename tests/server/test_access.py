"""Access over the wire: tokens that other processes make and revoke, and people whom a proxy has authenticated."""

import ast
import inspect
import json
import re
import signal
import subprocess
from html import unescape

import httpx2
import pytest

from mnemolog import MemoryStore, connect
from mnemolog.domain.errors import InvalidInput
from mnemolog.server.http.authentication import Users
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.routes import ROUTES
from tests.server.serving import server
from tests.support import WAIT_S, wait_until


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
        assert client.post("/v1/sessions", json={}, headers=bearer).json()["id"].startswith("acme/alice/")
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


ANN = '["ann@example.org"]\nverbs = ["read", "record"]\nscopes = ["acme/ann"]\n'
BEN = '[ben]\nverbs = ["read"]\n'


@pytest.fixture
def users(tmp_path):
    """A file of users, with ann in it."""
    path = tmp_path / "users.toml"
    path.write_text(ANN)
    return path


def behind_proxy(folder, users, address):
    options = ("--behind-proxy", "--proxy-address", address, "--trust-header", "X-Forwarded-User", "--users", users)
    return server(folder, *map(str, options))


def ask(url, path, method="GET", *, user="", **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()} | (
        {"x-forwarded-user": user} if user else {}
    )
    body = {"json": {}} if method == "PUT" else {}
    return httpx2.request(method, f"{url}{path}", headers=sent, timeout=WAIT_S, **body)


def test_a_person_whom_the_proxy_names_may_do_what_the_file_says(folder, users):
    """Within the scopes, with the name in each event. A token that is sent counts more; a stranger is refused."""
    with MemoryStore.open(folder, model=None) as store:
        bearer = f"Bearer {store.admin.create_token('ops', verbs=['read', 'admin']).secret}"
        store.session("acme/ben/secret").record("user", "Ben's.")
    with behind_proxy(folder, users, "127.0.0.1") as (url, process):
        assert ask(url, "/v1/sessions/trip", "PUT", user="ann@example.org").json()["scope"] == "acme/ann"
        listed = ask(url, "/v1/sessions", user="ann@example.org").json()["items"]
        assert [item["session"] for item in listed] == ["acme/ann/trip"]
        assert ask(url, "/v1/status", user="ann@example.org").status_code == 403
        assert ask(url, "/", user="ann@example.org", accept="text/html").status_code == 200
        assert ask(url, "/v1/status", user="ann@example.org", authorization=bearer).status_code == 200
        stranger = ask(url, "/v1/head", user="eve")
        assert (stranger.status_code, "'eve'" in stranger.json()["detail"]) == (403, True)
        assert ask(url, "/v1/head").status_code == 401
        twice = httpx2.get(f"{url}/v1/head", headers=[("x-forwarded-user", "eve"), ("x-forwarded-user", "ben")])
        assert twice.json()["title"] == "HeaderNotTrusted"
        with httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.2")) as elsewhere:
            refused = elsewhere.get(f"{url}/v1/head", headers={"x-forwarded-user": "ben"}, timeout=WAIT_S)
            assert refused.json()["title"] == "HeaderNotTrusted"
        assert "Traceback" not in process.errors()
    with MemoryStore.open(folder, model=None) as store:
        assert next(iter(store.audit.timeline(session="acme/ann/trip"))).actor == "ann@example.org"


def test_the_header_from_any_other_address_is_refused(folder, users):
    """Also where the headers say that it came from the proxy, and beside a valid token."""
    with MemoryStore.open(folder, model=None) as store:
        bearer = f"Bearer {store.admin.create_token('ops', verbs=['read']).secret}"
    with behind_proxy(folder, users, "10.1.2.0/24") as (url, _):
        for headers in ({}, {"x_forwarded_for": "10.1.2.3"}, {"authorization": bearer}):
            refused = ask(url, "/v1/head", user="ann@example.org", **headers)
            assert (refused.status_code, refused.json()["title"]) == (403, "HeaderNotTrusted")
        assert ask(url, "/v1/head", authorization=bearer).status_code == 200


def test_a_hangup_reads_the_users_again_and_ends_nothing(folder, users):
    """A file that cannot be used changes nothing."""
    with behind_proxy(folder, users, "127.0.0.1") as (url, process):
        assert ask(url, "/v1/head", user="ben").status_code == 403
        users.write_text(ANN + BEN)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask(url, "/v1/head", user="ben").status_code == 200, what="the new user")
        users.write_text("no TOML")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "http.not_reread" in process.errors(), what="the refusal of the file")
        assert ask(url, "/v1/head", user="ben").status_code == 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", None),
        ('[ann]\nverbs = ["fly"]', "fly"),
        ("[ann]\nverbs = []", "expected a list with any of"),
        ('[ann]\nverbs = ["read"]\nscopes = [""]', "one is empty"),
        ('[ann]\nverbs = ["read"]\ngroup = "x"', "unknown field"),
        ('["a\\u0000"]\nverbs = ["read"]', "actor"),
    ],
)
def test_a_file_of_users_that_is_wrong_is_refused_at_the_start(users, text, why):
    """With the reason, and never half of it."""
    users.write_text(text)
    if why is None:
        Users("X-Forwarded-User", users, ["127.0.0.1"])
    else:
        with pytest.raises(InvalidInput, match=why):
            Users("X-Forwarded-User", users, ["127.0.0.1"])


def test_the_options_are_given_together(folder, users, run):
    """A header that anybody may send would be no login."""
    for options in ({"trust_header": "X-User"}, {"users": users}, {"trust_header": "X-User", "users": users}):
        with pytest.raises(InvalidInput, match="together"):
            ServerConfig(**options).check()
    refused = run("serve", folder, "--behind-proxy", "--trust-header", "X-User", "--users", users)
    assert "--proxy-address" in refused.stderr
