"""The console's shell: every page in HTML and JSON, as of any moment, safe against what is stored and who asks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore
from mnemolog.domain.clock import to_datetime
from mnemolog.server.console.all_pages import PAGES, console_routes
from mnemolog.server.console.assets import STATIC
from mnemolog.server.console.moment import BUCKETS, as_of, time_bar
from mnemolog.server.console.routes import LOGIN, PUBLIC
from mnemolog.server.console.security import LOGIN_COOKIE
from mnemolog.server.http.access import Caller
from mnemolog.server.http.authentication import Authentication
from mnemolog.store import MemoryStore
from tests.console import console_app
from tests.support import FakeClock

pytestmark = pytest.mark.local

LABEL = "<script>alert(1)</script> javascript:x {{ 7*7 }} '\"></div>"
HOSTILE = LABEL + " \u202egnp.exe \u200bseen\ufeff \U000e0041"
TEMPLATES = sorted(Path(STATIC.parent, "templates").glob("*.html"))


class Browser:
    """A browser without scripts: it keeps cookies, follows no redirect by itself, and posts the forms of a page."""

    def __init__(self, app):
        self.app, self.cookies = app, {}

    def get(self, url, **headers):
        return self._send("GET", url, headers=headers)

    def json(self, url):
        return self._send("GET", url, headers={"Accept": "application/json"}).json()

    def post(self, url, data, **headers):
        return self._send("POST", url, data=data, headers=headers)

    def token(self, url="/"):
        """The token that the forms of a page have."""
        return re.search(r'name="csrf" value="([^"]+)"', self.get(url).text)[1]

    def _send(self, method, url, **kwargs):
        async def send():
            transport = ASGITransport(app=self.app)
            async with AsyncClient(transport=transport, base_url="http://127.0.0.1", cookies=self.cookies) as client:
                response = await client.request(method, url, **kwargs)
                self.cookies = client.cookies
                return response

        return asyncio.run(send())


@pytest.fixture
def folder(tmp_path):
    """A store with two sessions, one of them full of hostile text."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        store.session("tea", scope="acme", title="Tea in Porto").record("user", "Where is tea from?")
        store.session("bad", scope="acme/bad", title=LABEL, agent=LABEL).record("user", HOSTILE, speaker=LABEL)
    return tmp_path / "store"


@pytest.fixture
def store(folder):
    opened = asyncio.run(_opened(folder))
    yield opened
    asyncio.run(opened.close())


async def _opened(folder):
    return await AsyncMemoryStore.open(folder, model=None)


@pytest.fixture
def browser(store):
    return Browser(console_app(store))


@pytest.fixture
def writer(store):
    return Browser(console_app(store, write=True))


EXAMPLES = {"/session": "/session?id=bad", "/event/{position}": "/event/4"}
PATHS = [EXAMPLES.get(page.path, page.path) for page in PAGES if page.path in EXAMPLES or "{" not in page.path]
"""Each page, with what it needs to be told; not those about something that a test has to make first."""


def at(path, **more):
    """A path with more parameters."""
    return path + ("&" if "?" in path else "?") + "&".join(f"{name}={value}" for name, value in more.items())


def test_every_page_is_a_url_that_also_answers_json(browser):
    """A page has one address, in HTML for people and in JSON for programs."""
    for path in PATHS:
        page = browser.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert page.text.startswith("<!doctype html>")
        for answer in (browser.get(path, Accept="application/json"), browser.get(at(path, format="json"))):
            assert answer.headers["content-type"] == "application/json"
            assert isinstance(answer.json(), dict)


def test_every_page_shows_any_moment_and_says_which(browser):
    """`?at=` takes a position; the page says that it shows the past, and its links stay there."""
    for path in PATHS:
        page = browser.get(at(path, at=2))
        assert page.status_code == 200
        assert "As of" in page.text
        assert "position 2 of 4" in page.text
        assert 'href="/?at=2"' in page.text
        assert "at=1" in page.text  # one event earlier
        assert "at=3" in page.text


def test_every_answer_has_a_strict_policy_without_anything_inline(browser):
    """No script, style or frame of another place, nothing inline, nothing guessed, nothing sent to others."""
    for path in PATHS:
        page = browser.get(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son\w+=", page.text)
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", page.text)


def test_hostile_text_is_shown_harmlessly(browser):
    """Stored text is never HTML, a template or a link, and what turns text around is made visible."""
    for path in PATHS:
        page = browser.get(path).text
        assert "<script>alert" not in page
        assert not set("\u202e\u200b\ufeff\U000e0041") & set(page)
        assert "'\"></div>" not in page


def test_every_page_shows_an_empty_store(tmp_path):
    """Nothing recorded yet is a page, not an error."""
    empty = asyncio.run(_opened(tmp_path / "empty"))
    try:
        for path in PATHS:
            if path not in EXAMPLES.values():
                assert Browser(console_app(empty)).get(path).status_code == 200, path
    finally:
        asyncio.run(empty.close())


def test_numbers_stand_right_in_a_table_and_so_do_their_headings():
    """Of every column of every table, whether there is something in it now or not."""
    for template in TEMPLATES:
        for table in re.findall(r"<thead>.*?</tbody>", template.read_text(), re.DOTALL):
            headings = re.findall(r"<th\b([^>]*)>", table.partition("<tbody>")[0])
            cells = re.findall(r"<td\b([^>]*)>", table.partition("<tbody>")[2])[: len(headings)]
            right = [['class="number"' in cell for cell in row] for row in (headings, cells)]
            assert right[0] == right[1], (template.name, table[:200])


def test_a_time_names_the_last_event_before_it(store, folder):
    """`?at=` takes a time as well."""
    with MemoryStore.open(folder, model=None) as opened:
        recorded = opened.audit.event(3).at
        assert as_of(opened, recorded.isoformat()).position == 3
        assert as_of(opened, "2001-01-01").position == 0
        assert as_of(opened, "").is_now


def test_a_moment_outside_of_the_log_is_refused_with_what_to_do(browser):
    """An impossible moment is an error page that says where the log ends, not a server error."""
    page = browser.get("/?at=99")
    assert page.status_code == 400
    assert "ends at 4" in page.text
    assert browser.get("/?at=nonsense").status_code == 400
    for position in ("99", "nonsense", "0", "-1", "9" * 5_000):
        for path in ("/event", "/recall/receipts"):
            assert browser.get(f"{path}/{position}").status_code in (400, 404), (path, position[:10])


def test_what_is_not_there_is_said_in_words(browser):
    """An unknown address or session is a page with the menu; as JSON it is a problem."""
    for path, words in (("/nowhere", "no such page"), ("/session?id=none", "no such session")):
        page = browser.get(path)
        assert page.status_code == 404
        assert words in page.text
        assert 'href="/sessions"' in page.text
        problem = browser.get(path, Accept="application/json")
        assert problem.headers["content-type"] == "application/problem+json"
        assert problem.json()["status"] == 404


def test_the_histogram_covers_the_whole_log_without_reading_it(tmp_path, monkeypatch):
    """A hundred spans of time; their events add up to the log, and each moment lies in its span."""
    clock = FakeClock()
    with MemoryStore.open(tmp_path / "store", model=None, clock=clock) as opened:
        for number in range(300):
            opened.session("a").record("user", f"turn {number}")
            clock.advance(seconds=3_600 if number % 7 else 60)
        monkeypatch.setattr(opened.parts.log, "read", None)
        times = [opened.parts.log.recorded_at(position) for position in range(1, 302)]
        for position in (1, 2, 150, 300, 301):
            bar = time_bar(opened, as_of(opened, str(position)))
            assert (len(bar.buckets), bar.by_time) == (BUCKETS, True)
            assert sum(bucket.events for bucket in bar.buckets) == 301
            in_last = position > bar.buckets[-2].position
            assert in_last or bar.buckets[bar.step - 1].position >= position
            assert bar.step == BUCKETS or not in_last or position < 301
            assert all(bucket.position < position for bucket in bar.buckets[: bar.step - 1])
        for bucket in bar.buckets[:-1]:
            recorded = sum(to_datetime(time) <= bucket.until for time in times)
            assert bucket.position == recorded


@pytest.mark.parametrize("seconds", [86_400 * 30, 1_000, 10, 0.001], ids=["days", "minutes", "seconds", "instants"])
def test_each_step_of_the_slider_stays_where_it_is_put(tmp_path, seconds):
    """The moment of a step is on that step again, before and after a long time in which nothing was recorded."""
    clock = FakeClock(step=1)
    with MemoryStore.open(tmp_path / "store", model=None, clock=clock) as opened:
        for part in (0.1, 0.9):
            for number in range(10):
                opened.session("a").record("user", f"turn {number}")
                clock.advance(seconds=seconds * part / 10)
        bar = time_bar(opened, as_of(opened, ""))
        assert (bar.by_time, bar.step) == (True, BUCKETS)
        assert [time_bar(opened, as_of(opened, at)).step for at, _, _ in bar.steps] == list(range(BUCKETS + 1))
        texts = [time for _, time, _ in bar.steps]
        assert len(set(texts)) == len(texts)
        longest = max(len(at) for at, _, _ in bar.steps)
        assert longest == len("2024-01-01T00:00Z") or seconds < 10_000
        times = {at: text for at, text, _ in bar.steps[1:-1]}
        assert all(datetime.fromisoformat(at) == datetime.fromisoformat(times[at]).astimezone() for at in times)


def test_the_slider_reaches_now_from_every_earlier_moment(tmp_path):
    """A moment among the last events is not on the last step, which is now; one after all events is."""
    clock = FakeClock(step=1_000_000)
    with MemoryStore.open(tmp_path / "store", model=None, clock=clock) as opened:
        opened.session("a").record("user", "early")
        clock.advance(seconds=10_000)
        opened.session("b").record("user", "late")
        asked = {"2001-01-01": 0, "0": 0, "1": 1, "3": BUCKETS - 1, "4": BUCKETS, "2030-01-01": BUCKETS, "": BUCKETS}
        assert {at: time_bar(opened, as_of(opened, at)).step for at in asked} == asked


def test_a_moment_keeps_the_time_that_was_asked_for(store, folder):
    """With the position and the time of the last event until then; a position is no time."""
    with MemoryStore.open(folder, model=None) as opened:
        recorded = opened.audit.event(3).at
        later = as_of(opened, (recorded + timedelta(days=3, microseconds=5)).isoformat())
        assert (later.position, later.time) == (4, recorded + timedelta(days=3, microseconds=5))
        assert as_of(opened, recorded.isoformat()).time == recorded
        assert [as_of(opened, asked).time for asked in ("", "3", "0")] == [None] * 3


def test_a_page_says_the_day_that_was_asked_for_and_the_event_before(tmp_path):
    """A day without events is not shown as that of the last event, nor before the first event as nothing."""
    clock = FakeClock(round(datetime(2026, 3, 5, 13, 17, 51, tzinfo=UTC).timestamp() * 1_000_000))
    with MemoryStore.open(tmp_path / "store", model=None, clock=clock) as opened:
        opened.session("a").record("user", "x")
    again = asyncio.run(_opened(tmp_path / "store"))
    try:
        shown = Browser(console_app(again))

        def said(moment):
            (found,) = re.findall(r'<p class="as-of" role="status">(.*?)</p>', shown.get(f"/?at={moment}").text, re.S)
            return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", found)).partition(". Nothing")[0].strip()

        there = datetime(2026, 3, 5, 13, 17, 51, tzinfo=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        assert said("2026-03-16") == f"As of 2026-03-16 00:00:00 · position 2 of 2, recorded {there}"
        assert said("2026-03-16T10:00:00.25") == f"As of 2026-03-16 10:00:00.250000 · position 2 of 2, recorded {there}"
        assert said("2") == f"As of {there} · position 2 of 2"
        assert said("2026-03-01") == "As of 2026-03-01 00:00:00, before the first event"
        assert said("0") == "As of the beginning, before the first event"
    finally:
        asyncio.run(again.close())


def test_where_most_was_recorded_at_once_the_slider_goes_event_by_event(tmp_path):
    """After an import, a slider over time would have only two ends."""
    clock = FakeClock(step=0)
    with MemoryStore.open(tmp_path / "store", model=None, clock=clock) as opened:
        opened.session("a").record_many([{"role": "user", "text": f"turn {number}"} for number in range(8)])
        clock.advance(seconds=3_600)
        opened.session("b")
        bar = time_bar(opened, as_of(opened, "2"))
        assert not bar.by_time
        assert [bucket.position for bucket in bar.buckets] == list(range(1, 11))
        assert bar.step == 2
        opened.session("a").record_many([{"role": "user", "text": f"turn {number}"} for number in range(990)])
        bar = time_bar(opened, as_of(opened, "500"))
        assert [bucket.events for bucket in bar.buckets] == [10] * 100
        assert bar.step == 50


def test_every_page_says_that_it_is_the_console_that_is_read_only(browser, writer):
    """The server also has an API, which takes what a token allows."""
    assert "The console is read-only: start the server with" in browser.get("/").text
    assert "Changes are allowed in the console." in writer.get("/").text


def test_a_forged_form_changes_nothing(browser):
    """A form needs the token of its login, and must not come from another site."""
    assert browser.post("/theme", {"theme": "dark"}).status_code == 403
    assert browser.post("/theme", {"theme": "dark", "csrf": "0" * 64}).status_code == 403
    token = browser.token()
    refused = browser.post("/theme", {"theme": "dark", "csrf": token}, **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status_code == 403
    assert "mnemolog_theme" not in browser.cookies
    assert browser.post("/theme", {"theme": "dark", "csrf": token}).status_code == 303
    assert 'data-theme="dark"' in browser.get("/").text


def test_a_form_sends_nobody_to_another_site(browser):
    """Where to go after a form is a path of this server."""
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "//[", "/\\["):
        sent = browser.post("/theme", {"theme": "dark", "csrf": browser.token(), "next": target})
        assert sent.headers["location"] == "/", target


def test_the_vendored_files_are_those_of_their_releases():
    """Each vendored file is listed with its licence, its source and its SHA-256, and is that file."""
    vendor = STATIC / "vendor"
    listed = json.loads((vendor / "vendor.json").read_text())
    digests = {name: digest for item in listed for name, digest in item["files"].items()}
    assert {item["name"]: item["licence"] for item in listed} == {"htmx": "0BSD", "uPlot": "MIT"}
    assert set(digests) == {path.name for path in vendor.iterdir()} - {"vendor.json"}
    for name, digest in digests.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def test_files_are_kept_by_browsers_until_they_change(browser):
    """A page links to files by their content, and there is no way to other files."""
    page = browser.get("/").text
    found = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert len(found) >= 5
    for address in found:
        file = browser.get(address)
        assert file.status_code == 200, address
        assert "immutable" in file.headers["cache-control"]
    assert browser.get("/static/../app.py").status_code == 404
    assert browser.get("/static/%2e%2e/app.py").status_code == 404


class Door:
    """A server beyond loopback: it lets in those with the token `sesame`."""

    def __init__(self, store):
        self.caller = Caller(actor="ann", verbs=frozenset({"read"}), store=store)

    async def caller_of(self, token):
        return self.caller if token == "sesame" else None


@pytest.fixture
def stranger(store):
    door = Door(store)
    lets_in = Middleware(
        Authentication, callers=door, store=store, needs_token=True, cookie=LOGIN_COOKIE, public=PUBLIC, login=LOGIN
    )
    return Browser(Starlette(routes=console_routes(name="store", log_in=door.caller_of), middleware=[lets_in]))


def test_no_page_is_reachable_without_a_token(stranger):
    """Without a token a browser is sent to the login page, and a program gets 401."""
    for path in PATHS:
        sent = stranger.get(path, Accept="text/html")
        assert sent.status_code == 303
        assert sent.headers["location"].startswith("/login")
        assert stranger.get(path, Accept="application/json").status_code == 401
        stranger.cookies = {LOGIN_COOKIE: "wrong"}
        assert stranger.get(path, Accept="text/html").status_code == 303


def test_a_token_logs_in_and_out(stranger):
    """The cookie that a login leaves is out of reach of scripts and of other sites."""
    assert stranger.post("/login", {"token": "sesame", "next": "/?at=2"}).status_code == 403
    form = {"csrf": stranger.token("/login"), "next": "/?at=2"}
    refused = stranger.post("/login", {**form, "token": "wrong"})
    assert refused.status_code == 401
    assert "not valid" in refused.text
    let_in = stranger.post("/login", {**form, "token": "sesame"})
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/?at=2")
    cookie = let_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "ann" in stranger.get("/").text
    assert stranger.post("/logout", {"csrf": form["csrf"]}).status_code == 403  # the token of another login
    assert stranger.post("/logout", {"csrf": stranger.token()}).status_code == 303
    assert stranger.get("/", Accept="text/html").status_code == 303


def test_a_console_without_authentication_shows_nothing():
    """Who mounts the routes and forgets who may see them gets an error on every page."""
    browser = Browser(Starlette(routes=console_routes(name="store", write=True)))
    for path in PATHS:
        with pytest.raises(AttributeError, match="caller"):
            browser.get(path)
    token = browser.token("/nowhere")
    with pytest.raises(AttributeError, match="caller"):
        browser.post("/tokens", {"csrf": token, "actor": "eve", "verb": "admin"})


def test_a_server_without_tokens_forgets_the_cookie_of_another_one(browser):
    """Servers of one machine share their cookies: one that is not valid here must not lock anybody out."""
    browser.cookies = {LOGIN_COOKIE: "of another server"}
    sent = browser.get("/login?next=/sessions")
    assert (sent.status_code, sent.headers["location"]) == (303, "/sessions")
    assert f'{LOGIN_COOKIE}=""; ' in sent.headers["set-cookie"]
    assert "max-age=0" in sent.headers["set-cookie"].lower()
    assert browser.get("/login?next=//[").headers["location"] == "/"


def test_no_form_takes_a_file(stranger):
    """Nothing that somebody uploads is kept on the disk: only fields are read."""
    fields = {"csrf": stranger.token("/login"), "token": "sesame"}
    for path in ("/login", "/logout", "/theme"):
        refused = stranger._send("POST", path, data=fields, files={"file": ("a", b"x")})
        assert refused.status_code == 403, path


def test_the_login_cookie_is_only_sent_over_tls_behind_it(store):
    """Behind TLS the cookie is Secure."""
    app = Starlette(routes=console_routes(log_in=Door(store).caller_of))

    async def send():
        async with AsyncClient(transport=ASGITransport(app=app), base_url="https://memory.example") as client:
            form = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/login")).text)[1]
            return await client.post("/login", data={"token": "sesame", "csrf": form})

    assert "secure" in asyncio.run(send()).headers["set-cookie"].lower()


def test_templates_mark_no_stored_text_as_html():
    """No template turns escaping off."""
    for template in TEMPLATES:
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", template.read_text()), template
