"""The overview, the live page without a script, and tokens."""

from __future__ import annotations

import asyncio
import re

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.server.console.live_page import EVENTS_MAX
from tests.console import console_app
from tests.e2e.test_console import LABEL, Browser, browser, folder, store, writer  # noqa: F401
from tests.support import HashEncoder

pytestmark = pytest.mark.local


def test_the_overview_says_what_a_memory_holds(browser):  # noqa: F811
    """Numbers of now, by scope and agent, in words that need no explanation."""
    shown = browser.json("/")
    assert (shown["position"], shown["sessions"], shown["turns"]) == (4, 2, 2)
    assert [(item["name"], item["sessions"], item["turns"]) for item in shown["scopes"]] == [
        ("acme", 1, 1),
        ("acme/bad", 1, 1),
    ]
    assert {item["name"] for item in shown["agents"]} == {
        "agent",
        "<script>alert(1)</script> javascript:x {{ 7*7 }} '\"></div>",
    }
    assert [item["position"] for item in shown["latest"]] == [4, 3, 2, 1]
    assert shown["growth"][-1]["events"] == 4
    assert shown["health"]["warnings"] == []
    page = browser.get("/").text
    assert "never changed" in page
    assert "Is it well?" in page


def test_the_overview_is_that_of_the_moment(browser):  # noqa: F811
    """As of an earlier position the numbers are those of then, and the health is said to be that of now."""
    shown = browser.json("/?at=2")
    assert (shown["position"], shown["sessions"], shown["turns"]) == (2, 1, 1)
    assert [item["position"] for item in shown["latest"]] == [2, 1]
    assert max(item["events"] for item in shown["growth"]) <= 2
    assert "Is it well now?" in browser.get("/?at=2").text
    assert browser.json("/?at=0")["sessions"] == 0


def test_the_overview_names_what_is_stale_and_the_request_that_mends_it(tmp_path):
    """Vectors with a damaged manifest are named with the request that mends them."""
    encoder = HashEncoder()
    with MemoryStore.open(tmp_path / "store", model=encoder) as filled:
        filled.session("a").record("user", "x")
        filled.rebuild("vectors")
    for manifest in (tmp_path / "store").rglob("manifest.json"):
        manifest.write_bytes(b"damaged")

    async def opened():
        return await AsyncMemoryStore.open(tmp_path / "store", model=encoder, background=False)

    damaged = asyncio.run(opened())
    try:
        browser = Browser(console_app(damaged))
        (stale,) = browser.json("/")["health"]["stale"]
        assert "vectors" in stale["name"]
        assert "`POST /v1/doctor`" in stale["action"]
        assert "To mend it" in browser.get("/").text
    finally:
        asyncio.run(damaged.close())


def test_a_caller_of_one_scope_sees_an_overview_of_it(folder):  # noqa: F811
    """Numbers, events and health of anything else are left out."""

    async def opened():
        return await AsyncMemoryStore.open(folder, model=None, scope="acme/bad")

    bound = asyncio.run(opened())
    try:
        shown = Browser(console_app(bound)).json("/")
        assert (shown["sessions"], shown["turns"], shown["health"]) == (1, 1, None)
        assert {item["session"] for item in shown["latest"]} == {"bad"}
        assert "Tea in Porto" not in Browser(console_app(bound)).get("/").text
    finally:
        asyncio.run(bound.close())


def test_the_live_page_has_the_newest_events_without_a_script(browser):  # noqa: F811
    """A hundred of them, newest first, with filters and a way to reload; as of then, those of then."""
    shown = browser.json("/live")
    assert [item["position"] for item in shown["events"]] == [4, 3, 2, 1]
    assert shown["tail"] == "/v1/tail?after=4"
    assert [item["position"] for item in browser.json("/live?at=2")["events"]] == [2, 1]
    assert browser.json("/live?at=2")["tail"] == ""
    assert "Reload" in browser.get("/live").text
    assert [item["position"] for item in browser.json("/live?scope=acme/bad")["events"]] == [4, 3]
    assert [item["position"] for item in browser.json("/live?session=tea")["events"]] == [2, 1]
    found = browser.json("/live?topic=turn.recorded.v1")
    assert [item["position"] for item in found["events"]] == [4, 2]
    assert found["tail"] == "/v1/tail?after=4&topics=turn.recorded.v1"
    assert browser.get("/live?session=unknown").status_code == 404


def test_the_live_page_is_no_longer_than_a_hundred_events(tmp_path):
    """Also of a log with more."""
    with MemoryStore.open(tmp_path / "store", model=None) as filled:
        filled.session("a").record_many([{"role": "user", "text": f"turn {number}"} for number in range(1_200)])

    async def opened():
        return await AsyncMemoryStore.open(tmp_path / "store", model=None)

    long = asyncio.run(opened())
    try:
        shown = Browser(console_app(long)).json("/live")
        assert [item["position"] for item in shown["events"]] == list(range(1_201, 1_201 - EVENTS_MAX, -1))
        started = Browser(console_app(long)).json("/live?topic=session.started.v1")
        assert ([item["position"] for item in started["events"]], started["complete"]) == ([1], True)
    finally:
        asyncio.run(long.close())


def made(writer, **fields):  # noqa: F811
    """Make a token with a form, and return its secret."""
    form = {"csrf": writer.token("/tokens"), "actor": "ann", "verb": "read", **fields}
    page = writer.post("/tokens", form)
    assert page.status_code == 200, page.text
    return re.search(r'<pre class="secret"[^>]*>([^<]+)</pre>', page.text)[1]


def test_a_token_is_made_shown_once_and_revoked(writer):  # noqa: F811
    """Its secret is on the page that answers the form, and on no other one."""
    secret = made(writer, scopes="acme\nnorthwind", days="30")
    (item,) = writer.json("/tokens")["tokens"]
    token = item["token"]
    assert (token["actor"], token["verbs"], token["scopes"]) == ("ann", ["read"], ["acme", "northwind"])
    assert item["state"] == "valid"
    assert token["expires_at"] is not None
    assert secret not in writer.get("/tokens").text
    assert secret not in writer.get("/live").text
    revoked = writer.post("/tokens/revoke", {"csrf": writer.token("/tokens"), "id": token["id"]})
    assert (revoked.status_code, revoked.headers["location"]) == (303, "/tokens")
    assert [item["state"] for item in writer.json("/tokens")["tokens"]] == ["revoked"]


@pytest.mark.parametrize("path", ["/tokens", "/tokens/revoke"])
def test_tokens_are_made_and_revoked_only_where_the_console_may_write(browser, writer, path):  # noqa: F811
    """Otherwise the form is not there, and what is posted all the same is refused with the way to allow it."""
    made(writer)
    (item,) = writer.json("/tokens")["tokens"]
    refused = browser.post(
        path, {"csrf": browser.token("/tokens"), "actor": "eve", "verb": "admin", "id": item["token"]["id"]}
    )
    assert refused.status_code == 403
    assert "--write" in refused.text
    assert writer.post(path, {"actor": "eve", "verb": "admin", "id": item["token"]["id"]}).status_code == 403
    assert [item["state"] for item in writer.json("/tokens")["tokens"]] == ["valid"]
    page = browser.get("/tokens").text
    assert 'action="/tokens" method="post"' not in page
    assert 'action="/tokens/revoke"' not in page
    assert "--write" in page


def test_an_invalid_token_form_says_what_is_wrong(writer):  # noqa: F811
    """A missing name or right is an error page, and nothing is made."""
    for fields in ({"actor": ""}, {"verb": "everything"}, {"days": "-1"}, {"scopes": "/x"}):
        form = {"csrf": writer.token("/tokens"), "actor": "ann", "verb": "read", **fields}
        assert writer.post("/tokens", form).status_code == 400, fields
    assert writer.json("/tokens")["tokens"] == []
