"""Access over the wire: tokens that other processes make and revoke, and people whom a proxy has authenticated.

What a server refuses before the store is asked, and what it says of requests: headers, logs, metrics, spans.
"""

import ast
import inspect
import json
import re
import signal
import socket
import subprocess
from contextlib import closing
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from mnemolog import InvalidInput, MemoryStore, connect
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


def ask_as(url, path, method="GET", *, user="", **headers):
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
        assert ask_as(url, "/v1/sessions/trip", "PUT", user="ann@example.org").json()["scope"] == "acme/ann"
        listed = ask_as(url, "/v1/sessions", user="ann@example.org").json()["items"]
        assert [item["session"] for item in listed] == ["acme/ann/trip"]
        assert ask_as(url, "/v1/status", user="ann@example.org").status_code == 403
        assert ask_as(url, "/", user="ann@example.org", accept="text/html").status_code == 200
        assert ask_as(url, "/v1/status", user="ann@example.org", authorization=bearer).status_code == 200
        stranger = ask_as(url, "/v1/head", user="eve")
        assert (stranger.status_code, "'eve'" in stranger.json()["detail"]) == (403, True)
        assert ask_as(url, "/v1/head").status_code == 401
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
            refused = ask_as(url, "/v1/head", user="ann@example.org", **headers)
            assert (refused.status_code, refused.json()["title"]) == (403, "HeaderNotTrusted")
        assert ask_as(url, "/v1/head", authorization=bearer).status_code == 200


def test_a_hangup_reads_the_users_again_and_ends_nothing(folder, users):
    """A file that cannot be used changes nothing."""
    with behind_proxy(folder, users, "127.0.0.1") as (url, process):
        assert ask_as(url, "/v1/head", user="ben").status_code == 403
        users.write_text(ANN + BEN)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask_as(url, "/v1/head", user="ben").status_code == 200, what="the new user")
        users.write_text("no TOML")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "http.not_reread" in process.errors(), what="the refusal of the file")
        assert ask_as(url, "/v1/head", user="ben").status_code == 200


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


SECRET = "the vault code is 4711"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with small limits, which logs each request as JSON."""
    folder = tmp_path_factory.mktemp("guard") / "memory"
    options = ("--body-max", "4096", "--allow-host", "memory.example.org", "--allow-origin", "https://app.example.org")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MNEMOLOG_LOG", "info:json")
        with server(folder, *options) as (url, process):
            yield url, process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server that needs tokens, and two of them: one that may do everything, one that may read."""
    folder = tmp_path_factory.mktemp("guarded") / "memory"
    with MemoryStore.open(folder, model=None) as store:
        everything = store.admin.create_token("ops", verbs=["read", "record", "forget", "admin", "metrics"])
        tokens = {"ops": everything, "ann": store.admin.create_token("ann", verbs=["read"])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MNEMOLOG_LOG", "debug:json")
        with server(folder, "--require-token", "--allow-host", "memory.example.org") as (url, process):
            yield url, process, tokens


def ask(url, path="/v1/head", method="GET", **how):
    return httpx2.request(method, f"{url}{path}", timeout=WAIT_S, **how)


def raw(url, request):
    """What a server answers to bytes."""
    where = urlsplit(url)
    with closing(socket.create_connection((where.hostname, where.port), timeout=WAIT_S)) as client:
        client.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received and (piece := client.recv(65_536)):
            received += piece
    return received


def test_a_body_over_the_limit_is_refused_with_413(served):
    """As soon as too much has come, whether its length is announced or not."""
    url, _ = served
    for body in (b" " * 5_000, (b" " * 1_000 for _ in range(5))):
        refused = ask(url, "/v1/sessions", "POST", content=body, headers={"content-type": "application/json"})
        assert refused.status_code == 413
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["title"] == "LimitExceeded"
        assert "--body-max" in refused.json()["detail"]
    assert ask(url).status_code == 200


def test_a_foreign_host_is_refused(served):
    """A name that a foreign name server resolves to this machine (DNS rebinding), or an address of another one.

    Its own names and addresses and allowed hosts are accepted, with any port: an address cannot be rebound.
    """
    foreign = ("evil.example.org", "evil.example.org:8900", "localhost.evil.org", "", "a:b:c", "10.0.0.7:8900")
    foreign += ("0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "192.168.1.2")
    own = ("localhost", "localhost:1", "[::1]:80", "127.0.0.7", "memory.example.org:443")
    for host in (*foreign, *own):
        answer = raw(served[0], f"GET /v1/head HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200 " if host in own else b"HTTP/1.1 421 "), host


def test_a_body_without_a_token_is_limited_to_16_kib(guarded):
    """So that bodies of strangers take no memory."""
    for size, status in ((16 * 1024, 401), (16 * 1024 + 1, 413)):
        assert ask(guarded[0], "/login", "POST", content=b"x" * size).status_code == status


def test_a_header_that_a_proxy_might_read_differently_is_refused(guarded):
    """Who asks, within which scope, and where the body ends: said once, and in one way."""
    url, _, tokens = guarded
    bearer = f"Authorization: Bearer {tokens['ann'].secret}\r\n"
    scopes, lengths = (
        "Mnemolog-Scope: a\r\nMnemolog-Scope: b\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    )
    for method, more, is_refused in (
        ("GET", bearer, False),
        ("GET", bearer + bearer, True),
        ("GET", bearer + scopes, True),
        ("POST", bearer + lengths, True),
        ("POST", lengths, True),
    ):
        answer = raw(url, f"{method} /v1/head HTTP/1.1\r\nHost: localhost\r\n{more}\r\n0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 " if is_refused else b"HTTP/1.1 200 "), more
        assert (b"content-type: application/problem+json\r\n" in answer) is is_refused


def test_a_body_that_no_operation_may_have_is_limited_to_a_mebibyte(guarded):
    """Such as a form of the console, whatever `--body-max` allows for turns."""
    headers = {
        "authorization": f"Bearer {guarded[2]['ann'].secret}",
        "content-type": "application/x-www-form-urlencoded",
    }
    for size, is_refused in ((1 << 20, False), ((1 << 20) + 1, True)):
        answer = ask(guarded[0], "/theme", "POST", content=b"x" * size, headers=headers)
        assert (answer.status_code == 413) is is_refused


OTHER, APP = "https://evil.example.org", "https://app.example.org"
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
FROM_PAGES = (
    ("GET", {"origin": OTHER}, 403),
    ("GET", {"origin": "null"}, 403),
    ("GET", {"origin": "https://{own}"}, 403),
    ("GET", {"origin": "http://{own}"}, 200),
    ("GET", {"origin": APP}, 200),
    ("PUT", {"origin": APP, "sec-fetch-site": "cross-site"}, 200),
    ("PUT", {"origin": OTHER, "sec-fetch-site": "cross-site"}, 403),
    ("PUT", {"origin": "http://{own}", "sec-fetch-site": "same-origin"}, 200),
    ("PUT", {"sec-fetch-site": "none"}, 200),
    ("PUT", {"sec-fetch-site": "same-site"}, 403),
    ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, 403),
    ("GET", {"sec-fetch-site": "cross-site"} | LINK, 200),
    ("GET", {"sec-fetch-site": "cross-site"} | LINK | {"sec-fetch-dest": "iframe"}, 403),
    ("PUT", {"sec-fetch-site": "cross-site"} | LINK, 403),
)
"""What a browser sends for a page, and the answer."""


def test_pages_of_other_origins_are_refused(served):
    """The server's own pages and those of allowed origins are let in; a link to the console from elsewhere works."""
    url, _ = served
    for method, headers, status in FROM_PAGES:
        sent = {name: value.format(own=urlsplit(url).netloc) for name, value in headers.items()}
        how = {"json": {}} if method == "PUT" else {}
        answer = ask(url, "/v1/sessions/trip" if method == "PUT" else "/v1/head", method, headers=sent, **how)
        assert (200 if answer.status_code == 201 else answer.status_code) == status, (method, headers)
        assert status == 200 or answer.json()["title"] == "OriginNotAllowed"


def test_a_page_of_another_origin_that_sends_a_token_needs_it_to_be_valid(guarded):
    """No browser sends one for a page without asking the server first, which lets pages of allowed origins only."""
    url, _, tokens = guarded
    for bearer, status in ((tokens["ops"].secret, 200), ("wrong", 401)):
        sent = {"authorization": f"Bearer {bearer}", "origin": OTHER, "sec-fetch-site": "cross-site"}
        assert ask(url, headers=sent).status_code == status
    asking = {"origin": OTHER, "access-control-request-method": "GET", "sec-fetch-site": "cross-site"}
    assert ask(url, method="OPTIONS", headers=asking).status_code == 403
    form = {"origin": OTHER, "cookie": f"mnemolog_token={tokens['ops'].secret}"}
    for path in ("/v1/sessions", "/forgetting", "/tokens", "/login", "/logout", "/theme"):
        assert ask(url, path, "POST", data={"token": "x"}, headers=form).status_code == 403, path


def test_a_forwarded_request_is_not_of_the_local_user(served, guarded):
    """Else a tunnel on this machine would let everybody in as that user."""
    for name in ("forwarded", "x-forwarded-for", "x-forwarded-host", "X-Forwarded-Proto"):
        forwarded = {name: "for=203.0.113.9"}
        refused = ask(served[0], headers=forwarded)
        assert (refused.status_code, refused.json()["title"]) == (403, "ForwardedNotAllowed"), name
        assert "--behind-proxy" in refused.json()["hint"]
        assert ask(served[0], "/healthz", headers=forwarded).status_code == 200
        assert ask(guarded[0], headers=forwarded).status_code == 401


def preflight(url, path, **headers):
    """What a browser is told that asks whether a page may send a request."""
    asking = {"origin": "https://app.example.org", "access-control-request-method": "PUT"}
    return ask(url, path, "OPTIONS", headers=asking | headers)


def test_pages_of_an_allowed_origin_may_use_the_server_without_cookies(served):
    """Never with cookies, and also of a refusal."""
    url, _ = served
    allowed = preflight(url, "/v1/sessions/trip")
    assert allowed.status_code == 200
    assert "PUT" in allowed.headers["access-control-allow-methods"]
    for name in ("authorization", "idempotency-key", "if-none-match", "last-event-id", "mnemolog-scope"):
        assert name in allowed.headers["access-control-allow-headers"].lower()
    assert "ETag" in ask(url, headers={"origin": APP}).headers["access-control-expose-headers"]
    too_large = {"origin": APP, "content-type": "application/json"}
    for answer in (
        allowed,
        ask(url, "/v1/none", headers=too_large),
        ask(url, "/v1/sessions", "POST", content=b" " * 5_000, headers=too_large),
    ):
        assert answer.headers["access-control-allow-origin"] == APP
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers
    for answer in (preflight(url, "/v1/head", origin=OTHER), preflight(url, "/v1/head", origin=url), ask(url)):
        assert "access-control-allow-origin" not in answer.headers


def test_every_answer_has_security_headers(served):
    """Whatever answers it."""
    for path in ("/v1/head", "/", "/healthz", "/v1/none", "/none", "/metrics"):
        headers = ask(served[0], path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "cache-control" in headers
        assert "server" not in headers


def test_probes_answer_without_a_token_and_from_any_host(guarded):
    """Where every other request needs a token."""
    for path, text in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
        for host in ("10.1.2.3", "pod.cluster.local"):
            answer = ask(guarded[0], path, headers={"host": host})
            assert (answer.status_code, answer.text) == (200, text)


def test_a_store_that_cannot_answer_is_not_ready(folder):
    """With the class of the error, and nothing of the content; the process is alive."""
    with server(folder) as (url, _):
        assert ask(url, "/readyz").status_code == 200
        (folder / "log.db").rename(folder / "gone.db")
        (folder / "log.db").write_bytes(b"no database")
        wait_until(lambda: ask(url, "/readyz").status_code == 503, what="the server to notice")
        found = ask(url, "/readyz").json()
        assert found["title"] == "NotReady"
        assert re.fullmatch(r"\w+", found["detail"])
        assert ask(url, "/healthz").status_code == 200


def test_metrics_count_requests_appends_and_the_log(served):
    """By route, method and status; labels hold no ids."""
    url, _ = served
    session = f"{SECRET}/trip"
    ask(url, "/v1/sessions", "POST", json={"id": session}).raise_for_status()
    ask(url, "/v1/none")
    found = ask(url, "/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=")
    text = found.text
    assert 'mnemolog_http_requests_total{method="POST",route="/v1/sessions",status="201"}' in text
    assert 'route="unknown",status="404"' in text or 'route="/v1",status="404"' in text
    assert re.search(r'^mnemolog_appends_total\{outcome="ok"\} [1-9]', text, re.MULTILINE)
    assert re.search(r"^mnemolog_log_head\{.*\} [1-9]", text, re.MULTILINE)
    assert "mnemolog_projection_lag" in text
    for name in ("mnemolog_http_connections", "mnemolog_http_running", "mnemolog_http_followers"):
        assert re.search(rf"^{name} \d", text, re.MULTILINE), name
    assert "mnemolog_http_request_duration_seconds_bucket" in text
    assert "vault" not in text
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    names = {re.sub("_created$", "", name) for name in re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)}
    assert {name for name in names if not re.search(f"`{name}(_total)?`", page)} == set()


def test_logs_hold_route_and_status_of_a_request_but_no_content(served):
    """No text, query, title, id, token; at the level info."""
    url, process = served
    ask(url, "/v1/sessions", "POST", json={"id": f"{SECRET}/logged", "title": SECRET}).raise_for_status()
    ask(url, "/v1/recall", "POST", json={"query": SECRET})
    ask(url, "/v1/recall", params={"query": SECRET})
    ask(url, f"/v1/sessions/{SECRET.replace(' ', '%20')}")
    ask(url, "/v1/head", headers={"authorization": f"Bearer {SECRET}"})
    ask(url, f"/{SECRET.replace(' ', '%20')}")
    raw(url, f"VAULT /v1/head HTTP/1.1\r\nHost: {SECRET}\r\n\r\n".encode())
    wait_until(lambda: '"method":"other"' in process.errors(), what="the last request to be logged")
    lines = [json.loads(line) for line in process.errors().splitlines() if line.startswith("{")]
    answered = [line for line in lines if line["event"] == "http.answered"]
    assert {"method", "route", "status", "ms", "token"} <= answered[0].keys()
    assert {("POST", "/v1/sessions", 201)} <= {(line["method"], line["route"], line["status"]) for line in answered}
    assert not re.search("vault|4711", process.errors(), re.IGNORECASE)


def test_log_lines_and_receipts_have_the_trace_context_of_their_request(served):
    """A malformed one, one with an invalid version or id, or two at once are ignored; so is the rest of a later one."""
    url, process = served
    ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
    malformed = ["", "x", f"00-{ids}", f"00-{ids}-01-", f"00-{ids.upper()}-01", f"ff-{ids}-01", f"01-{ids}-01x"]
    malformed += [f"00-{'0' * 32}{ids[32:]}-01", f"00-{ids[:32]}-{'0' * 16}-01", "VAULT".ljust(55, "-")]
    sent = [("traceparent", value) for value in (f"00-{ids}-01", *malformed, f"01-{ids}-00-more", f"00-{ids}-00")]
    for header in sent:
        ask(url, "/v1/recall", "POST", json={"query": "train", "receipt": True}, headers=[header]).raise_for_status()
    ask(url, "/v1/recall", "POST", json={"query": "train", "receipt": True}, headers=sent[-2:]).raise_for_status()
    ask(url, "/v1/context", "POST", json={"query": "train", "receipt": True}, headers=sent[:1]).raise_for_status()
    expected = [f"00-{ids}-01", *[""] * len(malformed), f"01-{ids}-00", f"00-{ids}-00", "", f"00-{ids}-01"]
    answer = ask(url, "/v1/receipts", params={"limit": 100}).json()["receipts"]
    assert [item["traceparent"] for item in answer[-len(expected) :]] == expected
    lines = [json.loads(line) for line in process.errors().splitlines() if '"http.answered"' in line]
    asked = [line.get("traceparent", "") for line in lines if line["route"] in ("/v1/recall", "/v1/context")]
    assert asked[-len(expected) :] == expected


def test_forwarded_headers_are_trusted_from_a_known_proxy_only(folder, guarded):
    """Behind a proxy that terminates TLS the server's own origin is https."""
    forwarded = {"host": "memory.example.org", "x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
    own = {"origin": "https://memory.example.org"}
    name = ("--allow-host", "memory.example.org")
    with server(folder, "--behind-proxy", *name) as (url, _):
        assert ask(url, headers={"host": "192.168.1.2"}).status_code == 401, "an address cannot be rebound"
        assert "strict-transport-security" in ask(url, headers=forwarded).headers
        assert ask(url, headers=forwarded | own).json().get("title") != "OriginNotAllowed"
    with server(folder, "--behind-proxy", "--proxy-address", "10.0.0.0/8", *name) as (url, _):
        assert ask(url, headers=forwarded | own).json()["title"] == "OriginNotAllowed"
    assert ask(guarded[0], headers=forwarded | own).json()["title"] == "OriginNotAllowed"


def test_the_log_names_the_token_of_a_request_by_its_id_and_metrics_need_one_that_may_read_them(guarded):
    """Never by its secret; also not that of a wrong one. Without a token 401, with one that may not 403."""
    url, process, tokens = guarded
    secrets = ("4711", tokens["ann"].secret, tokens["ops"].secret)
    statuses = [ask(url, "/metrics", headers={"authorization": f"Bearer {secret}"}).status_code for secret in secrets]
    assert statuses == [401, 403, 200]
    wait_until(lambda: process.errors().count('"route":"/metrics"') == 3, what="three lines")
    lines = [json.loads(line) for line in process.errors().splitlines() if "http.answered" in line]
    known = [(line["status"], line["token"]) for line in lines if line["route"] == "/metrics"]
    assert known == [(401, ""), (403, tokens["ann"].token.id), (200, tokens["ops"].token.id)]
    assert {line["token"] for line in lines if line["status"] == 401} == {""}
    assert not [secret for secret in secrets if secret in process.errors()]


@pytest.mark.skipif(find_spec("mcp") is not None, reason="the extra 'mcp' is installed")
def test_without_the_extra_mcp_its_path_says_so(served):
    """501, and how to install it."""
    answer = ask(served[0], "/mcp", "POST", json={})
    assert answer.status_code == 501
    assert "mcp is not installed" in answer.json()["detail"]
    assert answer.json()["hint"].startswith("pip install")


def test_refused_requests_are_counted_by_their_route(guarded):
    """Without a token, from a foreign host and with a wrong method; never by what a client has made up."""
    url, _, tokens = guarded
    refused = [
        ask(url, "/v1/sessions/a%2Fb/turns"),
        ask(url, "/v1/recall", "POST", json={}),
        ask(url, "/v1/recall", "POST", json={}, headers={"host": "evil.example.org"}),
        ask(url, "/metrics"),
        ask(url, "/made/up"),
        ask(url, "/v1/made/up"),
    ]
    assert [answer.status_code for answer in refused] == [401, 401, 421, 401, 401, 401]
    found = ask(url, "/metrics", headers={"authorization": f"Bearer {tokens['ops'].secret}"}).text
    counted = set(re.findall(r'requests_total\{method="\w+",route="([^"]+)",status="4', found))
    assert counted >= {"/v1/sessions/{session}/turns", "/v1/recall", "/metrics"}
    assert not [route for route in counted if "made" in route]
    assert "_created" not in found


def test_the_alert_rules_and_the_dashboard_ask_for_metrics_that_exist(guarded):
    """With labels that they have, or that Prometheus adds."""
    url, _, tokens = guarded
    headers = {"authorization": f"Bearer {tokens['ops'].secret}"}
    ask(url, "/v1/sessions", headers=headers)
    ask(url, "/v1/sessions", "POST", json={"id": "rules"}, headers=headers).raise_for_status()
    ask(url, "/v1/recall", "POST", json={"query": "anything"}, headers=headers).raise_for_status()
    found = ask(url, "/metrics", headers=headers).text
    labels = {name: set(re.findall(r'(\w+)="', held)) for name, held in re.findall(r"^(\w+)(\{.*\})? ", found, re.M)}
    deploy = Path(__file__).parents[2] / "examples" / "deploy"
    rules = re.findall(r"^ +expr: (.*)$", (deploy / "alerts.yaml").read_text(), re.M)
    panels = json.loads((deploy / "dashboard.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    assert min(len(rules), len(shown)) > 12
    asked = rules + shown
    for expression in asked:
        for name, matched in re.findall(r"(mnemolog_\w+)(\{.*?\})?", expression):
            assert name in labels, expression
            grouped = ",".join(re.findall(r"by \((.*?)\)", expression))
            used = set(re.findall(r'(\w+)(?:=|!=|=~)"', matched)) | set(re.findall(r"\w+", grouped))
            assert used <= labels[name] | {"instance", "job"}, expression
