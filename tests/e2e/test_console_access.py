"""The console of a server that needs tokens: nobody sees a page without one, or anything outside of its scopes."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest
from httpx2 import ASGITransport, AsyncClient

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.audit.verification import verify_export
from mnemolog.domain.clock import to_datetime
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.sql_reader import SqlReader
from mnemolog.server.application import application
from mnemolog.server.console import event_search
from mnemolog.server.http import authentication
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.metrics import Metrics
from tests.e2e.test_console import PATHS, at
from tests.support import FakeClock

pytestmark = pytest.mark.local

OTHERS = "the secret of northwind"


@pytest.fixture
def secrets(tmp_path):
    """A store with two tenants, and the secrets of tokens for it."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        store.session("acme/tea", scope="acme", title="Tea").record("user", "Where is tea from?")
        other = store.session("northwind/order", scope="northwind", agent="northwind/agent", title=OTHERS)
        other.record("user", OTHERS, speaker=OTHERS)
        other.set("secret", OTHERS)
        other.checkpoint(OTHERS)
        other.branch("northwind/branch", title=OTHERS)
        store.switch("northwind/branch", reason="resume", agent="northwind/agent")
        store.session("acme/bad", scope="acme/deep").record("user", "x")

        def secret(*scopes, verbs=("read",)):
            return store.admin.create_token("ann", verbs=verbs, scopes=scopes).secret

        yield {
            "acme": secret("acme"),
            "both": secret("acme", "northwind"),
            "all": secret(verbs=("read", "admin")),
            "reader": secret(),
        }


class Visit:
    """A browser without scripts, in one event loop."""

    def __init__(self, client):
        self.client = client

    async def get(self, path):
        return await self.client.get(path, headers={"Accept": "text/html"})

    async def json(self, path):
        return await self.client.get(path, headers={"Accept": "application/json"})

    async def log_in(self, secret):
        form = re.search(r'name="csrf" value="([^"]+)"', (await self.get("/login")).text)[1]
        sent = await self.client.post("/login", data={"token": secret, "csrf": form, "next": "/sessions"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/sessions")


def visit(folder, journey):
    """Take a journey through the console of a server that needs tokens."""

    async def run():
        async with (
            AsyncMemoryStore.open(folder, model=None) as store,
            application(store, ServerConfig(require_token=True, write=True), Metrics(), read_only=False) as app,
            AsyncClient(transport=ASGITransport(app=app), base_url="http://127.0.0.1") as client,
        ):
            await journey(Visit(client), store)

    asyncio.run(run())


def test_without_a_token_every_page_leads_to_the_login(tmp_path, secrets):
    """A browser is sent there and back, a program is refused; neither sees anything."""

    async def journey(browser, store):
        for path in PATHS:
            page = await browser.get(path)
            assert page.status_code == 303, path
            assert page.headers["location"].startswith("/login?next=")
            assert (await browser.json(path)).status_code == 401
        login = await browser.get("/login")
        assert login.status_code == 200
        assert "Tea" not in login.text
        assert 'class="histogram"' not in login.text
        wrong = {"token": "mnemolog_x_y", "csrf": re.search(r'name="csrf" value="([^"]+)"', login.text)[1]}
        assert (await browser.client.post("/login", data=wrong)).status_code == 401

    visit(tmp_path / "store", journey)


def test_a_token_of_one_scope_sees_nothing_of_others_on_any_page(tmp_path, secrets, monkeypatch):
    """On no page, in HTML or JSON, now or then; and what exists outside looks like what does not."""
    monkeypatch.setattr(authentication, "REFUSED_S", 1e-6)  # When a refusal is sent is not looked at here.

    async def journey(browser, store):
        await browser.log_in(secrets["acme"])
        head = (await store.head()).position
        paths = ["/", "/sessions", "/session?id=acme/tea", "/lineage", "/lineage?session=acme/tea", "/live", "/event/2"]
        for path in paths:
            for moment in ("", 2, head - 1):
                page = await browser.get(at(path, at=moment))
                assert page.status_code == 200, (path, moment)
        for path in [*PATHS, *paths, *(f"/event/{position}" for position in range(1, head + 1))]:
            for moment in ("", 2, head - 1):
                for answer in (await browser.get(at(path, at=moment)), await browser.json(at(path, at=moment))):
                    assert answer.status_code < 500, path
                    assert OTHERS not in answer.text, path
                    assert "northwind" not in answer.text, path
        page = (await browser.get("/")).text
        recorded = (await store.audit.event(head)).at
        assert recorded.isoformat() not in page  # Others did something at that time.
        assert 'href="/tokens"' not in page
        for outside, unknown in (
            ("/session?id=northwind/order", "/session?id=northwind/none"),
            ("/lineage?session=northwind/order", "/lineage?session=northwind/none"),
            ("/live?session=northwind/order", "/live?session=northwind/none"),
            ("/sessions?scope=northwind", "/sessions?scope=nowhere"),
        ):
            seen, missing = await browser.json(outside), await browser.json(unknown)
            assert seen.status_code == missing.status_code in (403, 404)
            last = unknown.rpartition("=")[2]
            assert seen.text.replace(outside.rpartition("=")[2], "X") == missing.text.replace(last, "X")

    visit(tmp_path / "store", journey)


def test_the_audit_reads_as_much_for_what_others_have_as_for_what_nobody_has(tmp_path, secrets, monkeypatch):
    """A session outside is refused like an unknown one, and how many events others have of a kind is not counted."""
    monkeypatch.setattr(authentication, "REFUSED_S", 1e-6)
    monkeypatch.setattr(event_search, "LOOKED_MAX", 20)
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        other = store.session("northwind/order")
        for number in range(30):
            other.record("user", f"{OTHERS} {number}")
    rows, stored, decode = [], SqlReader.selected, EventCodec.recorded_event

    async def journey(browser, store):
        await browser.log_in(secrets["acme"])
        await browser.json("/audit?session=northwind/none")  # From now on it is known where sessions are.

        def counted_rows(self, *arguments, **options):
            rows.append(arguments)
            return stored(self, *arguments, **options)

        def counted_events(self, *row):
            rows.append(row[1])
            return decode(self, *row)

        monkeypatch.setattr(SqlReader, "selected", counted_rows)
        monkeypatch.setattr(EventCodec, "recorded_event", counted_events)

        async def read_for(path):
            rows.clear()
            answer = await browser.json(path)
            return answer, len(rows)

        (foreign, of_foreign), (unknown, of_unknown) = (
            await read_for("/audit?session=northwind/order"),
            await read_for("/audit?session=northwind/nobody"),
        )
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.json()["title"] == unknown.json()["title"]
        assert of_foreign == of_unknown
        await browser.json("/audit")
        for kind in ("turn.recorded.v1", "session.started.v1", "value.set.v1", ""):
            page, count = await read_for(f"/audit?topic={kind}")
            assert page.json()["looked_to"] - page.json()["looked_from"] == 20, kind
            assert count == 0, kind
        page = (await read_for(f"/audit?topic=turn.recorded.v1&before={page.json()['older']}"))[0].json()
        assert [event["session"] for event in page["events"]] == ["acme/bad"]

    visit(tmp_path / "store", journey)


def bars_of_a_scope(folder, *, others):
    """What a token of `acme` sees of the bar and of growth, at several moments, with and without turns of others."""
    clock = FakeClock(step=0)

    def others_record(store, hours):
        for number in range(40 * others):
            clock.advance(seconds=hours * 90)
            store.session("northwind/order", scope="northwind").record("user", f"number {number}")
        clock.advance(seconds=hours * 3_600 * (not others))

    with MemoryStore.open(folder, model=None, clock=clock) as store:
        others_record(store, 100)
        begin = to_datetime(clock.now())
        for number in range(4):
            store.session("acme/tea", scope="acme/deep").record("user", f"cup {number}")
            others_record(store, 25)
        secret = store.admin.create_token("ann", verbs=["read"], scopes=["acme"]).secret
    times = [f"{begin + timedelta(hours=hours):%Y-%m-%dT%H:%MZ}" for hours in (-1, 0, 24, 74, 75)]
    seen = []

    async def journey(browser, store):
        await browser.log_in(secret)
        for moment in ("", *times, "0"):
            page = (await browser.get(f"/?at={moment}")).text
            bar = re.search(r'<div class="timeline">.*?<div class="controls">', page, re.S)[0]
            seen.append((bar, (await browser.json(f"/?at={moment}")).json()["growth"]))
        now, then = (await browser.get("/")).text, (await browser.get(f"/?at={times[2]}")).text
        (earlier,) = re.findall(r'rel="prev" href="/\?at=(\d+)" title="One turn earlier"', now)
        assert (await store.audit.event(int(earlier))).event.text == "cup 2"
        assert "One turn later" not in now
        (later,) = re.findall(r'rel="next" href="/\?at=(\d+)" title="One turn later"', then)
        assert (await store.audit.event(int(later))).event.text == "cup 1"

    visit(folder, journey)
    return seen


def test_the_bar_of_a_scope_is_that_of_its_own_turns(tmp_path):
    """It begins and ends with them, and is the same, however much others recorded before, between and after."""
    seen = bars_of_a_scope(tmp_path / "alone", others=False)
    assert bars_of_a_scope(tmp_path / "shared", others=True) == seen
    bars = [bar for bar, _ in seen]
    assert [re.search(r' value="(\d+)"', bar)[1] for bar in bars] == ["100", "0", "1", "32", "99", "100", "0"]
    assert [bar.count('<rect class="bar') for bar in bars] == [4] * 7
    assert [bar.count('class="bar later"') for bar in bars] == [0, 4, 3, 3, 1, 0, 4]
    assert "position " not in bars[0]
    assert [max((item["events"] for item in growth), default=0) for _, growth in seen] == [4, 0, 1, 1, 3, 4, 0]


def test_a_scope_without_turns_has_no_bar(tmp_path):
    """Only somebody else has recorded something. The page is that of an empty memory."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        store.session("northwind/order", scope="northwind").record("user", OTHERS)
        secret = store.admin.create_token("ann", verbs=["read"], scopes=["acme"]).secret

    async def journey(browser, store):
        await browser.log_in(secret)
        page = (await browser.get("/?at=1")).text
        assert 'class="histogram"' not in page
        assert "One turn" not in page
        assert "One event" not in page

    visit(tmp_path / "store", journey)


def test_a_token_of_several_scopes_looks_at_one_at_a_time(tmp_path, secrets):
    """The scope of the URL says which; links keep it."""

    async def journey(browser, store):
        await browser.log_in(secrets["both"])
        sessions = (await browser.json("/sessions?scope=northwind")).json()["sessions"]
        assert {item["scope"] for item in sessions} == {"northwind"}
        sessions = (await browser.json("/sessions?scope=acme")).json()["sessions"]
        assert {item["scope"] for item in sessions} == {"acme", "acme/deep"}
        page = (await browser.get("/sessions?scope=northwind")).text
        assert "/session?scope=northwind&amp;id=northwind%2Forder" in page

    visit(tmp_path / "store", journey)


def test_what_a_token_does_not_allow_is_refused_in_the_console(tmp_path, secrets):
    """A token that may only read makes no tokens and sees none."""

    async def journey(browser, store):
        await browser.log_in(secrets["reader"])
        page = await browser.get("/tokens")
        assert page.status_code == 403
        assert "admin" in page.text
        form = re.search(r'name="csrf" value="([^"]+)"', (await browser.get("/")).text)[1]
        made = await browser.client.post("/tokens", data={"actor": "eve", "verb": "admin", "csrf": form})
        assert made.status_code == 403
        assert [token.actor for token in await store.admin.tokens()] == ["ann"] * 4

    visit(tmp_path / "store", journey)


def test_who_makes_a_token_in_the_console_is_recorded(tmp_path, secrets):
    """Creation and revocation are events with the name of whoever was logged in."""

    async def journey(browser, store):
        await browser.log_in(secrets["all"])
        form = re.search(r'name="csrf" value="([^"]+)"', (await browser.get("/tokens")).text)[1]
        made = await browser.client.post("/tokens", data={"actor": "bob", "verb": "read", "csrf": form})
        assert made.status_code == 200
        token = (await store.admin.tokens())[-1]
        assert (token.actor, token.created_by) == ("bob", "ann")

    visit(tmp_path / "store", journey)


def test_a_revoked_token_ends_at_once(tmp_path, secrets):
    """The next page leads to the login again."""

    async def journey(browser, store):
        await browser.log_in(secrets["all"])
        assert (await browser.get("/")).status_code == 200
        for token in await store.admin.tokens():
            await store.admin.revoke_token(token.id)
        assert (await browser.get("/")).status_code == 303

    visit(tmp_path / "store", journey)


def test_the_audit_page_links_to_an_export_that_its_head_verifies(tmp_path, secrets):
    """The login lets a browser fetch it: the events up to the moment of the page."""

    async def journey(browser, store):
        await browser.log_in(secrets["all"])
        head = (await browser.json("/audit?at=3")).json()["head"]
        (link,) = re.findall(
            r'href="(/v1/export[^"]*)" download="[0-9a-f]{8}-3.jsonl"', (await browser.get("/audit?at=3")).text
        )
        (tmp_path / "export.jsonl").write_bytes((await browser.get(link)).content)
        assert verify_export(tmp_path / "export.jsonl", expect_head=f"3:{head['digest']}").sound

    visit(tmp_path / "store", journey)


def test_the_login_of_the_console_is_that_of_the_api(tmp_path, secrets):
    """The live page reads it."""

    async def journey(browser, store):
        await browser.log_in(secrets["all"])
        assert (await browser.json("/v1/head")).status_code == 200

    visit(tmp_path / "store", journey)
