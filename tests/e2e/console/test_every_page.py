"""Every page: in HTML and JSON, as of any moment, safe against stored text, reachable with a token only.

The console of a server that needs tokens: nothing is shown without one, or outside of its scopes.
"""

import hashlib
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.middleware import Middleware

from mnemolog import MemoryStore
from mnemolog.domain.values import to_datetime
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.reader import LogReader
from mnemolog.server.console import history_page
from mnemolog.server.console.rendering import STATIC
from mnemolog.server.console.routes import LOGIN, LOGIN_COOKIE, PAGES, PUBLIC, Console
from mnemolog.server.http import authentication
from mnemolog.server.http.authentication import Authentication, Caller, Callers
from tests.console import opened_server
from tests.e2e.console.test_upkeep import events_of
from tests.support import FakeClock

pytestmark = pytest.mark.local


TEMPLATES = sorted(Path(STATIC.parent, "templates").glob("*.html"))
PATHS = [page.path for page in PAGES if "{" not in page.path and page.path != "/session"]
URLS = [
    *PATHS,
    *("/session?id=bad", "/event/11", "/sessions?title=script", "/lineage?session=bad", "/live?topic=value.set.v1"),
    *("/recall?q=tea", "/recall?q=tea&then=5", "/recall?q=tea&mode=vector", "/recall/receipts/6"),
    *("/context?q=tea", "/context?q=tea&session=trip&tokens=50", "/diff?from=0", "/audit?topic=value.set.v1"),
    *("/forgetting?sessions=trip%0Abad", "/forgetting?scopes=acme&positions=3"),
]
"""Each page with something to see on it."""
PRIVATE = (*URLS, "/jobs/x", "/forgetting/x")


def at(url, **more):
    """A URL with more parameters."""
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in more.items())


def test_every_page_is_a_url_that_also_answers_json_and_has_nothing_inline(reader):
    """In HTML for people and JSON for programs. No script, style or frame of another host, nothing sent to others."""
    for url in URLS:
        page = reader.get(url)
        assert page.status_code == 200, url
        assert page.headers["content-type"].startswith("text/html")
        assert page.text.startswith("<!doctype html>")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son\w+=\"", page.text), url
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", page.text), url
        for answer in (reader.get(url, Accept="application/json"), reader.get(at(url, format="json"))):
            assert answer.headers["content-type"] == "application/json"
            assert isinstance(answer.json(), dict)


def test_every_page_shows_any_moment_and_says_which(reader):
    """`?at=` takes a position; the page says that it shows the past, and its links stay there."""
    for url in URLS:
        page = reader.get(at(url, at=7))
        assert page.status_code == 200, url
        for part in ("As of", "position 7 of 12", 'href="/?at=7"', "at=6", "at=8"):
            assert part in page.text, (url, part)


def test_hostile_text_is_shown_and_does_nothing(reader):
    """Stored text is never HTML, a template or a link, and characters that turn text around are escaped."""
    for url in URLS:
        page = reader.get(url).text
        assert not set("\u202e\u200b\ufeff\U000e0041") & set(page), url
        for markup in ("<script>alert", "<img src=x", "'\"></div>", 'href="javascript:'):
            assert markup not in page, (url, markup)
    assert "{{ 7*7 }}" in reader.get("/session?id=bad").text
    for url in ("/recall?q=<script>alert(1)", "/nowhere<script>alert(1)", "/?at=<script>alert(1)"):
        assert "<script>alert" not in reader.get(url).text, url


def test_every_page_shows_an_empty_store(opened, tmp_path):
    """A store without events is a page, not an error."""
    empty = opened(tmp_path / "empty")
    for path in PATHS:
        assert empty.get(path).status_code == 200, path


def test_each_row_of_a_table_has_a_cell_for_each_column(reader):
    """Numbers below the heading of numbers, and each but the first with the name of its column, for narrow screens."""
    rows = 0
    for url in URLS:
        for table in re.findall(r"<thead>.*?</tbody>", reader.get(url).text, re.DOTALL):
            heads = re.findall(r'<th scope="col"( class="number")?>(.*?)</th>', table)
            wanted = [(of, f' data-label="{name}"' if place else "") for place, (of, name) in enumerate(heads)]
            for row in re.findall(r"<tr><td.*?</tr>", table, re.DOTALL):
                assert re.findall(r'<td( class="number")?( data-label="[^"]*")?', row) == wanted, (url, row)
                rows += 1
    assert rows > 30


def test_templates_mark_no_stored_text_as_html():
    """No template turns escaping off."""
    for template in TEMPLATES:
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", template.read_text()), template


def test_an_impossible_moment_or_position_is_refused_in_words(reader):
    """The page says where the log ends; it is no failure of the server. What is unknown is a page with the menu."""
    for path, words in (("/nowhere", "no such page"), ("/session?id=none", "no such session")):
        page = reader.get(path)
        assert page.status_code == 404
        assert words in page.text
        assert 'href="/sessions"' in page.text
        for accept in ("application/json", "application/problem+json", "*/*"):  # The last one is that of `curl`.
            problem = reader.get(path, Accept=accept)
            assert problem.headers["content-type"] == "application/problem+json"
            assert problem.json()["status"] == 404
    assert reader.get("/v1").headers["content-type"] == "application/problem+json", "no page is below `/v1`"
    page = reader.get("/?at=99")
    assert page.status_code == 400
    assert "ends at 12" in page.text
    assert reader.get("/?at=nonsense").status_code == 400
    for position in ("99", "nonsense", "0", "-1", "9" * 5_000):
        for path in ("/event", "/recall/receipts"):
            assert reader.get(f"{path}/{position}").status_code in (400, 404), (path, position[:10])


def test_a_form_sets_the_theme_and_redirects_to_no_other_site(reader, writer):
    """In a cookie. Where to go after a form is a path of this server. Pages say whether the console may write."""
    assert "The console is read-only: start the server with" in reader.get("/").text
    assert "Changes are allowed in the console." in writer.get("/").text
    assert reader.submit("/theme", {"theme": "dark"}).status_code == 303
    assert 'data-theme="dark"' in reader.get("/").text
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "//[", "/\\["):
        assert reader.submit("/theme", {"theme": "dark", "next": target}).headers["location"] == "/", target


def test_the_vendored_files_are_those_of_their_releases():
    """Each vendored file is listed with its licence, its source and its SHA-256, and is that file."""
    vendor = STATIC / "vendor"
    listed = json.loads((vendor / "vendor.json").read_text())
    digests = {name: digest for item in listed for name, digest in item["files"].items()}
    assert {item["name"]: item["licence"] for item in listed} == {"htmx": "0BSD"}
    assert set(digests) == {path.name for path in vendor.iterdir()} - {"vendor.json"}
    for name, digest in digests.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def test_files_are_kept_by_browsers_until_they_change(reader):
    """A page links to files by their content, and there is no way to other files."""
    found = re.findall(r'(?:src|href)="(/static/[^"]+)"', reader.get("/").text)
    assert len(found) >= 4
    for address in found:
        file = reader.get(address)
        assert file.status_code == 200, address
        assert "immutable" in file.headers["cache-control"]
    assert reader.get("/static/../routes.py").status_code == 404
    assert reader.get("/static/%2e%2e/routes.py").status_code == 404


class Guests:
    """The holders of tokens: `sesame` is the only one."""

    users = None

    def __init__(self, store):
        self.caller = Caller(actor="ann", verbs=frozenset({"read"}), store=store)

    async def caller_of(self, token):
        return self.caller if token == "sesame" else None


@pytest.fixture
def stranger(reader):
    """A browser without a token, at a console that needs one."""
    callers = Guests(reader.store)
    names = {"cookie": LOGIN_COOKIE, "public": PUBLIC, "login": LOGIN}
    admits = Middleware(Authentication, callers=callers, store=reader.store, needs_token=True, **names)
    return reader.of(Starlette(routes=Console(name="store", log_in=callers.caller_of).routes(), middleware=[admits]))


def test_no_page_is_shown_without_a_token(stranger):
    """A browser is sent to the login page, which shows nothing either, and a program gets 401."""
    login = stranger.get("/login")
    assert login.status_code == 200
    assert not [part for part in ("Porto", "trip", 'class="histogram"') if part in login.text]
    for url in PRIVATE:
        sent = stranger.get(url, Accept="text/html")
        assert (sent.status_code, sent.headers["location"][:7]) == (303, "/login?"), url
        assert stranger.get(url, Accept="application/json").status_code == 401, url
    stranger.cookies.set(LOGIN_COOKIE, "wrong")
    assert all(stranger.get(url, Accept="text/html").status_code == 303 for url in PRIVATE)


def test_a_token_logs_in_and_out(stranger):
    """The cookie that a login leaves is out of reach of scripts and of other sites."""
    fields = {"token": "sesame", "next": "/?at=2"}
    refused = stranger.submit("/login", {**fields, "token": "wrong"})
    assert refused.status_code == 401
    assert "not valid" in refused.text
    upload = stranger.send("POST", "/login", data={"token": "sesame"}, files={"file": ("a", b"x")})
    assert upload.status_code == 401, "uploads are never kept on the disk: only fields are read"
    let_in = stranger.submit("/login", fields)
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/?at=2")
    cookie = let_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "ann" in stranger.get("/").text
    assert stranger.submit("/logout", {}).status_code == 303
    assert stranger.get("/", Accept="text/html").status_code == 303


def test_the_login_cookie_is_only_sent_over_tls_behind_it(reader):
    """Behind TLS the cookie is Secure."""
    app = Starlette(routes=Console(log_in=Guests(reader.store).caller_of).routes())

    async def send():
        async with AsyncClient(transport=ASGITransport(app=app), base_url="https://memory.example") as client:
            return await client.post("/login", data={"token": "sesame"})

    assert "secure" in reader.run(send()).headers["set-cookie"].lower()


def test_a_console_without_authentication_shows_nothing(reader):
    """Without the middleware that names the caller, every page and form fails."""
    bare = reader.of(Starlette(routes=Console(name="store", write=True).routes()))
    for url in PRIVATE:
        with pytest.raises(AttributeError, match="caller"):
            bare.get(url)
    with pytest.raises(AttributeError, match="caller"):
        bare.submit("/tokens", {"actor": "eve", "verb": "admin"})


def test_a_server_without_tokens_forgets_the_cookie_of_another_one(reader):
    """Servers of one machine share their cookies: one that is not valid here must not lock anybody out."""
    reader.cookies.set(LOGIN_COOKIE, "of another server")
    sent = reader.get("/login?next=/sessions")
    assert (sent.status_code, sent.headers["location"]) == (303, "/sessions")
    assert f'{LOGIN_COOKIE}=""; ' in sent.headers["set-cookie"]
    assert "max-age=0" in sent.headers["set-cookie"].lower()
    assert reader.get("/login?next=//[").headers["location"] == "/"


OTHERS = "the secret of northwind"


@pytest.fixture
def tenants(tmp_path):
    """The folder of a store with two tenants."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        store.session("acme/tea", scope="acme", title="Tea").record("user", "Where is tea from?")
        other = store.session("northwind/order", scope="northwind", agent="northwind/agent", title=OTHERS)
        other.record("user", OTHERS, speaker=OTHERS)
        other.set("secret", OTHERS)
        other.checkpoint(OTHERS)
        other.branch("northwind/branch", title=OTHERS)
        store.switch("northwind/branch", reason="resume", agent="northwind/agent")
        store.session("acme/bad", scope="acme/deep").record("user", "x")
    return tmp_path / "store"


def token_for(folder, *scopes, verbs=("read",)):
    """Make a token of `ann`, and return its secret."""
    with MemoryStore.open(folder, model=None) as store:
        return store.admin.create_token("ann", verbs=verbs, scopes=scopes).secret


@pytest.fixture
def logged_in(tenants, monkeypatch):
    """Log in to the server of the tenants with a new token."""
    monkeypatch.setattr(authentication, "REFUSED_S", 1e-6)  # The time of a refusal is tested elsewhere.
    tokens = {name: token_for(tenants, *scopes) for name, scopes in SCOPES.items()}
    tokens["admin"] = token_for(tenants, verbs=("read", "admin"))
    with opened_server(tenants) as browser:

        def log_in(name):
            browser.log_in(tokens[name])
            return browser

        yield log_in


SCOPES = {"acme": ("acme",), "both": ("acme", "northwind"), "reader": ()}


def test_a_token_of_one_scope_sees_nothing_of_others_on_any_page(logged_in):
    """On no page, in HTML or JSON, now or then; and what exists outside looks like what does not."""
    browser = logged_in("acme")
    head = browser.run(browser.store.head()).position
    own = ["/", "/sessions", "/session?id=acme/tea", "/lineage", "/lineage?session=acme/tea", "/live", "/event/2"]
    for path in [*own, *PATHS, *(f"/event/{position}" for position in range(1, head + 1))]:
        for moment in ("", 2, head - 1):
            page, data = browser.get(at(path, at=moment)), browser.get(at(path, at=moment), Accept="application/json")
            assert page.status_code == 200 or path not in own, (path, moment)
            for answer in (page, data):
                assert answer.status_code < 500, path
                assert OTHERS not in answer.text, path
                assert "northwind" not in answer.text, path
    page = browser.get("/").text
    assert browser.run(browser.store.audit.event(head)).at.isoformat() not in page  # Others did something then.
    assert 'href="/tokens"' not in page
    for path, name in (
        ("/session?id=", "northwind/order"),
        ("/lineage?session=", "northwind/order"),
        ("/live?session=", "northwind/order"),
        ("/sessions?scope=", "northwind"),
    ):
        outside, unknown = (browser.get(path + of, Accept="application/json") for of in (name, "nowhere"))
        assert (outside.status_code, unknown.status_code) == (404, 404), path
        assert outside.text == unknown.text.replace("nowhere", name)


def test_the_audit_reads_as_much_for_what_others_have_as_for_what_does_not_exist(logged_in, monkeypatch):
    """A session outside is refused like an unknown one, and how many events others have of a kind is not counted."""
    monkeypatch.setattr(history_page, "LOOKED_MAX", 20)
    browser = logged_in("acme")
    for number in range(30):
        browser.run(browser.store.record("northwind/order", "user", f"{OTHERS} {number}"))
    browser.json("/audit?session=northwind/none")  # From now on it is known where sessions are.
    rows, stored, decode = [], LogReader.selected, EventCodec.recorded_event

    def counted_rows(self, *arguments, **options):
        rows.append(arguments)
        return stored(self, *arguments, **options)

    def counted_events(self, *row):
        rows.append(row[1])
        return decode(self, *row)

    monkeypatch.setattr(LogReader, "selected", counted_rows)
    monkeypatch.setattr(EventCodec, "recorded_event", counted_events)

    def read_for(path):
        rows.clear()
        return browser.json(path), len(rows)

    (foreign, of_foreign), (unknown, of_unknown) = (
        read_for(f"/audit?session=northwind/{name}") for name in ("order", "nobody")
    )
    assert (foreign["status"], unknown["status"]) == (404, 404)
    assert (foreign["title"], of_foreign) == (unknown["title"], of_unknown)
    browser.json("/audit")
    for topic in ("turn.recorded.v1", "session.started.v1", "value.set.v1", ""):
        page, count = read_for(f"/audit?topic={topic}")
        assert (page["looked_to"] - page["looked_from"], count) == (20, 0), topic
    page, _ = read_for(f"/audit?topic=turn.recorded.v1&before={page['earlier']}")
    assert [event["session"] for event in page["events"]] == ["acme/bad"]


def bars_of_a_scope(folder, *, others):
    """What a token of `acme` sees of the bar at several moments, with and without turns of others."""
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
    times = [f"{begin + timedelta(hours=hours):%Y-%m-%dT%H:%MZ}" for hours in (-1, 0, 24, 74, 75)]
    token, seen = token_for(folder, "acme"), []
    with opened_server(folder) as browser:
        browser.log_in(token)
        for moment in ("", *times, "0"):
            page = browser.get(f"/?at={moment}").text
            bar = re.search(r'<div class="timeline">.*?<div class="controls">', page, re.S)[0]
            seen.append(bar)
        for moment, link, text in (("", "prev", "cup 2"), (times[2], "next", "cup 1")):
            page = browser.get(f"/?at={moment}").text
            (step,) = re.findall(rf'rel="{link}" href="/\?at=(\d+)" title="One turn', page)
            assert browser.run(browser.store.audit.event(int(step))).event.text == text
        assert "One turn later" not in browser.get("/").text
    return seen


def test_the_bar_of_a_scope_is_that_of_its_own_turns(tmp_path):
    """It begins and ends with them, and is the same, however much others recorded. Without turns there is none."""
    seen = bars_of_a_scope(tmp_path / "alone", others=False)
    assert bars_of_a_scope(tmp_path / "shared", others=True) == seen
    bars = seen
    assert [re.search(r' value="(\d+)"', bar)[1] for bar in bars] == ["100", "0", "1", "32", "99", "100", "0"]
    assert [bar.count('<rect class="bar') for bar in bars] == [4] * 7
    assert [bar.count('class="bar later"') for bar in bars] == [0, 4, 3, 3, 1, 0, 4]
    assert "position " not in bars[0]
    token = token_for(tmp_path / "shared", "globex")
    with opened_server(tmp_path / "shared") as browser:
        browser.log_in(token)
        page = browser.get("/?at=1").text
    assert not any(part in page for part in ('class="histogram"', "One turn", "One event"))


def test_a_token_of_several_scopes_sees_one_at_a_time(logged_in):
    """The scope of the URL says which; links keep it."""
    browser = logged_in("both")
    for scope, scopes in (("northwind", {"northwind"}), ("acme", {"acme", "acme/deep"})):
        assert {item["scope"] for item in browser.json(f"/sessions?scope={scope}")["sessions"]} == scopes
    assert "/session?scope=northwind&amp;id=northwind%2Forder" in browser.get("/sessions?scope=northwind").text


def test_a_token_without_the_right_makes_no_tokens_and_sees_none(logged_in):
    """A token that may only read."""
    browser = logged_in("reader")
    page = browser.get("/tokens")
    assert page.status_code == 403
    assert "admin" in page.text
    assert browser.submit("/tokens", {"actor": "eve", "verb": "admin"}).status_code == 403
    assert [token.actor for token in browser.run(browser.store.admin.tokens())] == ["ann"] * 4


def test_who_makes_a_token_is_recorded_and_a_revoked_token_ends_at_once(logged_in):
    """The actor is the one who is logged in; the next page after a revocation leads to the login again."""
    browser = logged_in("admin")
    assert browser.submit("/tokens", {"actor": "bob", "verb": "read"}).status_code == 200
    tokens = browser.run(browser.store.admin.tokens())
    assert (tokens[-1].actor, tokens[-1].created_by) == ("bob", "ann")
    for token in tokens:
        browser.run(browser.store.admin.revoke_token(token.id))
    assert browser.get("/", Accept="text/html").status_code == 303


def test_the_login_is_also_that_of_the_api(logged_in):
    """The live page follows the log, and the audit page links to an export up to its head."""
    browser = logged_in("admin")
    assert browser.get("/v1/head").status_code == 200
    head = browser.json("/audit?at=3")["head"]
    (link,) = re.findall(r'href="(/v1/export[^"]*)" download="\w{8}-3.jsonl"', browser.get("/audit?at=3").text)
    end = json.loads(browser.get(link).text.splitlines()[-1])
    assert (end["position"], end["digest"]) == (3, head["digest"])


def test_a_caller_of_a_scope_sees_its_part_and_is_refused_where_a_page_is_about_everything(reader):
    """Recall, context, difference, timeline and forgetting show the part; the other pages say what they are about."""
    alice = reader.as_caller("read", "record", "forget", "admin", scope="acme/alice")
    last = reader.json("/recall?q=tea")["at"].rstrip("Z")  # The last event is one of Bob's.
    for url in ("/recall?q=tea", "/recall?q=tea&then=11", "/context?q=tea", "/diff?from=0", "/audit"):
        assert last not in alice.get(url).text, url
        assert last not in json.dumps(alice.json(url)), url
    assert {hit["hit"]["session"] for hit in alice.json("/recall?q=tea")["hits"]} == {"trip"}
    assert [item["session"] for item in alice.json("/diff?from=0")["sessions"]] == ["trip"]
    audit = alice.json("/audit")
    assert {event["session"] for event in audit["events"]} == {"trip"}
    assert (audit["head"], audit["witnesses"]) == (None, [])
    assert "script" not in alice.json("/context?q=tea")["context"]["text"]
    outside = (
        "/recall?q=tea&session=bad",
        "/context?q=tea&session=bad",
        "/audit?session=bad",
        "/forgetting?sessions=bad",
    )
    for url in (*outside, "/forgetting?positions=12"):
        assert alice.get(url).status_code == 404, url
    for url, linked_on in (("/health", "/"), ("/tokens", "/")):
        page = alice.get(url)
        assert page.status_code == 403, url
        assert "about the whole memory" in page.text
        assert not any(f'href="{url}"' in alice.get(shown).text for shown in ("/", "/recall", "/audit")), url
        assert f'href="{url}"' in reader.get(linked_on).text
    for url in ("/audit/verify", "/health/check", "/health/fix"):
        assert alice.submit(url, {}).status_code == 403, url
    count = events_of(alice, "sessions=trip")
    erasure = alice.follow(alice.submit("/forgetting", {"sessions": "trip", "events": count, "confirm": "trip"}))[
        "erasure"
    ]
    assert str(erasure["events"]) == count
    assert alice.json("/forgetting")["erasures"] == [erasure]
    bob = reader.as_caller("read", scope="acme/bob")
    assert bob.json("/forgetting")["erasures"] == []
    assert bob.get(f"/forgetting/{erasure['request']}").status_code == 404


def test_receipts_are_shown_to_a_token_of_the_scope_that_was_asked(store, console):
    """A list, a page or an event. One that was asked in a scope above, or beside, is as if it were not."""
    for name in ("alice", "bob"):
        session = store.session(f"acme/{name}/trip", scope=f"acme/{name}")
        session.record("user", f"tea of {name}")
        session.recall("tea", receipt=True)
        session.context("tea", receipt=True)
    for scope in ("acme", "", "acme/alice"):
        store.recall("tea", scope=scope, receipt=True)
    alice = console.as_caller("read", scope="acme/alice")
    own = [item["position"] for item in alice.json("/recall/receipts")["receipts"]]
    assert own == [11, 4, 3]
    assert len(console.json("/recall/receipts")["receipts"]) == 7
    assert len(console.json("/recall/receipts?scope=acme/bob")["receipts"]) == 2
    for position in range(1, 12):
        seen = {alice.get(f"{page}/{position}").status_code for page in ("/recall/receipts", "/event")}
        assert seen == ({200} if position in own else {200, 400} if position < 3 else {400, 404}), position
    audited = console.run(console.store.within("acme/alice").audit.receipts()).receipts
    assert [item.position for item in audited] == sorted(own)
    assert "bob" not in alice.get("/recall/receipts/11").text


def test_a_token_of_several_scopes_works_within_all_of_them(reader):
    """In pages, forms, jobs and certificates, which no token of another scope is shown. The URL limits a page."""
    tokens = [
        reader.run(reader.store.admin.create_token("ada", verbs=("read", "forget"), scopes=scopes)).secret
        for scopes in (("acme/alice", "acme/bob"), ("acme/alice",))
    ]
    admits = Middleware(Authentication, callers=Callers(reader.store), store=reader.store, needs_token=True)
    app = Starlette(routes=Console(write=True).routes(), middleware=[admits])
    ada, twin = (reader.of(app, token=token) for token in tokens)
    for scope, session in (("acme/alice", "trip"), ("acme/bob", "bad")):
        assert {hit["hit"]["session"] for hit in ada.json(f"/recall?q=tea&scope={scope}")["hits"]} == {session}
        assert [item["session"] for item in ada.json(f"/diff?from=0&scope={scope}")["sessions"]] == [session]
    assert ada.get("/recall?q=tea&scope=acme/carol").status_code in (403, 404)
    assert {hit["hit"]["session"] for hit in ada.json("/recall?q=tea")["hits"]} == {"trip", "bad"}
    here = "scope=acme%2Fbob"
    assert f'action="/forgetting?{here}"' in ada.get(f"/forgetting?sessions=bad&{here}").text
    fields = {"sessions": "bad", "events": events_of(ada, f"sessions=bad&{here}"), "confirm": "bad"}
    done = ada.submit(f"/forgetting?{here}", fields, seen_at=f"/diff?{here}")
    assert done.headers["location"].endswith(f"?{here}")
    erasure = ada.follow(done)["erasure"]
    assert erasure["actor"] == "ada"
    assert twin.get(f"/forgetting/{erasure['request']}").status_code == 404
