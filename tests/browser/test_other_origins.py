"""A web page of another site uses the API, where the server allows its origin."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mnemolog import MemoryStore
from tests.server.serving import server


class Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, *_):
        """Log nothing."""


@contextmanager
def site():
    """The origin of another site, for a browser: a name that is not the server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


CALLS = """async ([url, token]) => {
    const headers = {"authorization": `Bearer ${token}`, "content-type": "application/json", "idempotency-key": "k"};
    const call = async (method, path, more) => {
        const body = method === "GET" ? undefined : "{}";
        const answer = await fetch(url + path, {method, body, headers: {...headers, ...more}});
        return [answer.status, answer.headers.get("etag"), (await answer.text()).includes("acme")];
    };
    const made = await call("PUT", "/v1/sessions/acme%2Ftrip");
    const read = await call("GET", "/v1/sessions", {"mnemolog-scope": "acme", "last-event-id": "1"});
    return [
        made,
        read,
        await call("GET", "/v1/sessions", {"if-none-match": read[1]}),
        await call("DELETE", "/v1/sessions/acme%2Fnone/notes"),
        await call("GET", "/v1/sessions", {"authorization": "Bearer wrong"}),
    ];
}"""


@pytest.fixture
def page(browser):
    """A page of a browser that nothing is known of."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_a_page_of_an_allowed_origin_uses_the_api(folder, page):
    """With its token and all headers of the API; it can read answers, entity tags and refusals."""
    with MemoryStore.open(folder, model=None) as store:
        token = store.admin.create_token("app", scopes=["acme"])
    with site() as origin, server(folder, "--require-token", "--allow-origin", origin) as (url, _):
        page.goto(origin)
        made, read, unchanged, unknown, refused = page.evaluate(CALLS, [url, token.secret])
    assert made[0] == 201
    assert (read[0], read[2]) == (200, True)
    assert read[1]
    assert unchanged[0] in (200, 304)
    assert [unknown[0], refused[0]] == [404, 401]


def test_a_page_of_another_origin_does_not(folder, page):
    """Not even without a token, which this machine needs none of."""
    fetch = "url => fetch(url).then(answer => answer.status, error => error.name)"
    with site() as origin, server(folder, "--allow-origin", "https://app.example.org") as (url, _):
        page.goto(origin)
        assert page.evaluate(fetch, f"{url}/v1/head") == "TypeError"
        assert page.evaluate(fetch, f"{url}/healthz") == "TypeError"
