"""Every page: in HTML and JSON, as of any moment, safe against stored text, reachable with a token only."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.middleware import Middleware

from mnemolog.server.console.rendering import STATIC
from mnemolog.server.console.routes import LOGIN, LOGIN_COOKIE, PAGES, PUBLIC, Console
from mnemolog.server.http.authentication import Authentication, Caller

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


class Callers:
    """The holders of tokens: `sesame` is the only one."""

    users = None

    def __init__(self, store):
        self.caller = Caller(actor="ann", verbs=frozenset({"read"}), store=store)

    async def caller_of(self, token):
        return self.caller if token == "sesame" else None


@pytest.fixture
def stranger(reader):
    """A browser without a token, at a console that needs one."""
    callers = Callers(reader.store)
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
    app = Starlette(routes=Console(log_in=Callers(reader.store).caller_of).routes())

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
