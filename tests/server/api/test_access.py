"""Who is let in, as whom, and what a refused caller is told.

What the verbs of proposals allow, and that nobody approves their own.
"""

import asyncio
import threading
from contextlib import contextmanager
from datetime import timedelta

import httpx2
import pytest
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain.errors import LogUnreachable
from mnemolog.server.http import authentication
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import AWAY_S, REFUSED_S, VERBS, Authentication, Callers, RequestBuckets, Users
from mnemolog.server.http.connections import PEER
from mnemolog.server.http.routes import ROUTES
from tests.server.api.conftest import HOST, Requests, Time
from tests.server.serving import server
from tests.support import nothing_written, wait_until

ALICE, BOB = "acme/alice", "acme/bob"


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def serve(bare, time):
    """Start a server over the store of this test, with options of its authentication."""
    made = []

    def serve(users=None, **options):
        shared = AsyncMemoryStore(bare, WorkerPools())
        pages = [Route(path, page, methods=["GET", "POST"]) for path in ("/", "/login", "/static/a.css")]
        middleware = [
            Middleware(
                Authentication,
                callers=Callers(shared, users),
                store=shared,
                **{"needs_token": True, "time": time, "sleep": time.sleep} | options,
            )
        ]
        app = make_app(shared, routes=pages, middleware=middleware)

        async def from_here(scope, receive, send):
            scope["state"] = {PEER: "127.0.0.1"}
            await app(scope, receive, send)

        made.append(Requests(from_here))
        return made[-1]

    async def page(request):
        caller = getattr(request.state, "caller", None)
        if request.url.path == "/login" and request.method == "POST":
            return PlainTextResponse(status_code=303 if await request.body() == b"valid" else 401)
        return PlainTextResponse("nobody" if caller is None else caller.actor)

    yield serve
    for one in made:
        one.close()


@pytest.fixture
def token(bare):
    """Create a token and return the header that sends it."""

    def token(actor="alice", **about):
        created = bare.admin.create_token(actor, **about)
        return {"authorization": f"Bearer {created.secret}"}

    return token


def test_a_request_without_a_valid_token_is_refused(serve):
    """The answer says how to send one. Unknown, of another kind, or no token at all: the same answer."""
    server = serve()
    answer = server("GET", "/sessions")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="mnemolog"'
    assert answer.headers["content-type"] == "application/problem+json"
    assert "`token create` makes one" in answer.json()["hint"]
    invalid = ("Bearer", "Bearer ", "Basic eDp5", "Bearer mnemolog_0_0", "bearer x", "x", "Bearer \xe4", "Token abc")
    for sent in invalid:
        answer = server("GET", "/sessions", headers={"authorization": sent.encode("latin-1")})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="mnemolog", error="invalid_token"'
        assert sent.partition(" ")[2].strip() not in answer.text or len(sent) < 10


def test_a_token_that_lacks_the_verb_is_refused(serve, bare, token):
    """403 names the verb; nothing is written."""
    bare.session("trip")
    server, reader = serve(), token(verbs=["read"])
    with nothing_written(bare):
        assert server("GET", "/sessions", headers=reader).status_code == 200
        for method, path, verb in (
            ("POST", "/sessions/trip/turns", "record"),
            ("POST", "/forget", "forget"),
            ("POST", "/rebuild", "admin"),
            ("GET", "/tokens", "admin"),
        ):
            answer = server(method, path, **({} if method == "GET" else {"json": {}}), headers=reader)
            assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
            assert verb in answer.json()["detail"]
        receipt = server("POST", "/recall", json={"query": "x", "receipt": True}, headers=reader)
        assert receipt.status_code == 403, "a receipt is an event"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_person_may_do_what_the_file_of_users_says_and_no_more(serve, bare, tmp_path, verb):
    """Each operation that needs another verb is refused, with the name of that verb; nothing is written."""
    file = tmp_path / "users.toml"
    file.write_text(f'[ann]\nverbs = ["{verb}"]\n')
    server, head = serve(Users("X-User", file, ["127.0.0.1"])), bare.head()
    allowed = []
    for operation in ROUTES:
        path = operation.path.replace("{", "").replace("}", "")
        if operation.verb == verb:
            allowed.append((operation.http, path))
            continue
        answer = server(operation.http, path, headers={"x-user": "ann"})
        assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden"), operation.name
        assert f"may not {operation.verb}," in answer.json()["detail"]
    assert bare.head() == head
    for method, path in allowed[:1]:
        assert server(method, path, headers={"x-user": "ann"}).status_code != 403


def test_who_may_forget_and_not_administer_revokes_no_token_with_erasures(serve, bare, token):
    """A file of erasures also has revoked tokens."""
    server, may_forget, root = serve(), token(verbs=["forget"]), token(verbs=["forget", "admin"])
    revoked = bare.admin.create_token("bob").token.id
    erasure = {"request": "", "requested_at": "2026-03-16T09:30:00Z", "reason": "", "targets": [], "token": revoked}
    assert server("POST", "/erasures", json={"erasures": []}, headers=may_forget).json()["revoked"] == 0
    refused = server("POST", "/erasures", json={"erasures": [erasure]}, headers=may_forget)
    assert (refused.status_code, "admin" in refused.json()["detail"]) == (403, True)
    assert server("POST", "/erasures", json={"erasures": [erasure]}, headers=root).json()["revoked"] == 1


def test_a_revoked_or_expired_token_is_refused_from_the_next_request_on(serve, bare, clock):
    """Also one that was revoked by another process."""
    server = serve()
    revoked, short = bare.admin.create_token("a"), bare.admin.create_token("b", expires_in=timedelta(hours=1))
    send = [{"authorization": f"Bearer {item.secret}"} for item in (revoked, short)]
    assert [server("GET", "/head", headers=item).status_code for item in send] == [200, 200]
    bare.admin.revoke_token(revoked.token.id)
    clock.advance(seconds=3_700)
    assert [server("GET", "/head", headers=item).status_code for item in send] == [401, 401]


def test_on_loopback_a_request_without_a_token_is_the_local_user(serve, bare, token):
    """Who may do everything. A token that is sent counts, and must be valid; its actor is in every event."""
    server = serve(needs_token=False)
    assert server("PUT", "/sessions/trip", json={}).status_code == 201
    assert server("PUT", "/sessions/work", json={}, headers=token("alice")).status_code == 201
    turn = {"role": "user", "text": "hi"}
    assert server("POST", "/sessions/trip/turns", json=turn, headers=token("bob")).status_code == 200
    assert [event.event.actor for event in bare.events()] == ["local", "", "alice", "", "bob"]
    assert server("GET", "/head", headers={"authorization": "Bearer x"}).status_code == 401


def test_many_invalid_tokens_from_one_address_are_answered_with_429(serve, bare, token):
    """With the time until the next try; a valid token of the same address is still let in."""
    server, alice = serve(failures_per_minute=5), token()
    invalid = {"authorization": "Bearer mnemolog_0_0"}
    answers = [server("GET", "/head", headers=invalid) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    assert server("GET", "/head", headers=alice).status_code == 200


def test_what_an_address_may_try_comes_back_within_a_minute(monkeypatch):
    """One try after the time that the answer names, and never more than those of a minute."""
    moment = 1_000.0
    monkeypatch.setattr(authentication, "monotonic", lambda: moment)
    tries = RequestBuckets(5)
    assert [tries.wait_s("a") for _ in range(7)] == [0] * 5 + [12] * 2
    assert tries.wait_s("b") == 0
    moment += 12
    assert [tries.wait_s("a") for _ in range(2)] == [0, 12]
    moment += 3_600
    assert [tries.wait_s("a") for _ in range(6)] == [0] * 5 + [12]


def test_a_page_without_a_token_leads_to_the_login(serve, bare):
    """With the page to return to. A program is told 401."""
    server = serve(login="/login", public=("/login", "/static/"))

    def get(path, accept="text/html"):
        return server("GET", f"{HOST}{path}", headers={"accept": accept})

    page = get("/?at=5")
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2F%3Fat%3D5")
    posted = server("POST", f"{HOST}/?at=5", headers={"accept": "text/html"})
    assert posted.headers["location"] == "/login?next=%2F", "after the login the browser would only read there"
    assert get("/", "application/json").status_code == 401
    assert get("/v1/head").status_code == 401
    assert get("/login").text == "nobody"
    assert get("/static/a.css", "text/css").text == "nobody"
    invalid = {"authorization": "Bearer mnemolog_0_0"}
    assert server("GET", f"{HOST}/static/a.css", headers=invalid).status_code == 401, "who sends a token is told"


def test_a_cookie_with_a_token_is_as_good_as_the_header(serve, bare, token):
    """For pages and for the API, which scripts of the console call. Requests of other sites do not come this far."""
    server = serve(cookie="mnemolog_token", login="/login", public=("/login",))
    secret = token("alice")["authorization"].removeprefix("Bearer ")
    cookie = {"cookie": f'other={{"a": 1}}; mnemolog_token={secret}'}

    assert server("GET", f"{HOST}/", headers=cookie).text == "alice"
    assert server("POST", f"{HOST}/", headers=cookie).text == "alice"
    assert server("GET", "/head", headers=cookie).status_code == 200
    assert server("PUT", "/sessions/trip", json={}, headers=cookie).status_code == 201
    wrong = {"cookie": "mnemolog_token=x", "accept": "text/html"}
    assert server("GET", f"{HOST}/", headers=wrong).status_code == 303
    assert server("GET", f"{HOST}/login", headers=wrong).text == "nobody"


def test_tries_to_log_in_are_limited(serve, bare):
    """As requests with an invalid token are."""
    server = serve(login="/login", public=("/login",), failures_per_minute=3)

    def log_in(secret="wrong"):
        return server("POST", f"{HOST}/login", content=secret).status_code

    assert [log_in() for _ in range(4)] == [401, 401, 401, 429]
    assert log_in("valid") == 303, "a valid token, as for requests that carry one"
    assert log_in() == 429


def test_a_token_for_one_scope_works_within_it(serve, bare, token):
    """Without naming it; new sessions and agents are named below it."""
    server, alice = serve(), token(scopes=[ALICE])
    made = server("POST", "/sessions", json={}, headers=alice).json()
    assert (made["scope"], made["agent"]) == (ALICE, f"{ALICE}/agent")
    assert made["id"].startswith(f"{ALICE}/")
    assert server("PUT", "/sessions/fresh", json={"scope": ALICE}, headers=alice).json()["id"] == f"{ALICE}/fresh"
    assert server("GET", "/sessions/fresh", headers=alice).json()["id"] == f"{ALICE}/fresh"
    assert server("PUT", "/sessions/fresh", json={"scope": BOB}, headers=alice).status_code == 403
    assert server("GET", "/status", headers=alice).status_code == 403


def test_a_token_for_several_scopes_works_within_all_of_them(serve, bare, token):
    """A call may concern several. What is written needs one. The header limits a request to some of them."""
    bare.session("hers", scope=ALICE).record("user", "the sentinel is hers")
    bare.session("his", scope=BOB).record("user", "the sentinel is his")
    server, both = serve(), token(scopes=[ALICE, BOB])

    def recalled(body, **headers):
        answer = server("POST", "/recall", json={"query": "sentinel", "mode": "text"} | body, headers=both | headers)
        return {hit["session"] for hit in answer.json()["hits"]}

    assert recalled({}) == recalled({"scope": [ALICE, BOB]}) == recalled({}, **{"mnemolog-scope": f"{ALICE}, {BOB}"})
    assert recalled({}) == {"hers", "his"}
    assert recalled({"scope": ALICE}) == {"hers"}
    assert recalled({"session": "his"}) == {"his"}
    assert recalled({}, **{"mnemolog-scope": "acme%2Fbob"}) == {"his"}
    listed = server("GET", "/sessions", params={"scope": [ALICE, BOB]}, headers=both).json()["items"]
    assert [item["session"] for item in listed] == ["hers", "his"]
    assert server("PUT", "/sessions/acme%2Fbob%2Fnew", json={"scope": BOB}, headers=both).json()["scope"] == BOB
    of_both = [{"session": session, "role": "user", "text": "x"} for session in ("his", "hers")]
    assert len(server("POST", "/turns", json={"messages": of_both}, headers=both).json()["items"]) == 2
    refused = server("POST", "/sessions", json={"id": "new"}, headers=both)
    assert (refused.status_code, refused.json()["field"]) == (400, "scope")
    assert f"'{ALICE}', '{BOB}'" in refused.json()["detail"]
    for narrowed in (both, token()):  # The header is never ignored.
        listed = server("GET", "/sessions", headers=narrowed | {"mnemolog-scope": BOB}).json()["items"]
        assert {item["scope"] for item in listed} == {BOB}
        assert len(listed) == 2
    assert server("GET", "/sessions", headers=both | {"mnemolog-scope": "globex"}).status_code == 403
    for method, path, status in (
        ("GET", "/sessions/none/turns", 404),
        ("POST", f"{HOST}/mcp?scope=globex", 403),
        ("POST", f"{HOST}/mcp?scope=acme/bob", 404),  # There is no MCP in this test.
    ):
        assert server(method, path, headers=both).status_code == status, path


def prefetched(server, name, **headers):
    """What a prefetch of a session finds."""
    path = f"/sessions/{name}/prefetch"
    server("POST", path, json={"query": "train", "mode": "text"}, headers=headers).raise_for_status()
    return server("POST", f"{path}/result", json={"wait_s": 30}, headers=headers).json()


def test_a_prefetch_within_the_scope_of_a_header_is_found_again(serve, bare, token):
    """Requests of a token within one scope share a part of the store, which has the prefetches."""
    bare.session("hers", scope=ALICE).record("user", "The train leaves at nine.")
    server = serve()
    for scopes in ([], [ALICE], [ALICE, BOB], ["acme"]):
        found = prefetched(server, "hers", **token(scopes=scopes), **{"mnemolog-scope": ALICE})
        assert found["reason"] is None, scopes
        assert [hit["session"] for hit in found["recall"]["hits"]] == ["hers"]


def test_parts_of_the_store_that_are_dropped_leave_no_thread(serve, bare, token, monkeypatch):
    """Those of a token, and those for a scope that a header names."""
    monkeypatch.setattr(authentication, "PARTS_MAX", 2)
    for number in range(6):
        bare.session(f"s{number}", scope=f"acme/{number}").record("user", "The train leaves at nine.")
    server, reading = serve(), token(verbs=["read"])

    def threads():
        return sum(thread.name == "mnemolog-prefetch" for thread in threading.enumerate())

    before = threads()
    for number in range(6):
        prefetched(server, f"s{number}", **reading, **{"mnemolog-scope": f"acme/{number}"})
        prefetched(server, f"s{number}", **token(scopes=[f"acme/{number}"]))
    wait_until(lambda: threads() <= before + 2, what="the threads to end")


def test_a_refusal_for_a_caller_with_scopes_is_sent_at_a_fixed_time(serve, bare, token, time):
    """After its request came, or a multiple of it, however long the work took.

    Only a refusal, and only of a caller who may not see everything.
    """
    bare.session("his", scope=BOB)
    bare.session("hers", scope=ALICE)
    server, alice, root = serve(), token(scopes=[ALICE]), token(verbs=sorted(VERBS))
    assert server("GET", "/sessions/hers/turns", headers=alice).status_code == 200
    assert server("GET", "/sessions/none/turns", headers=root).status_code == 404
    assert server("GET", "/head").status_code == 401
    assert time.slept == []
    for sent, status in (({"scope": BOB}, 403), ({"scope": 1}, 400), ({"session": "his"}, 404)):
        assert server("POST", "/find", json={"text": "x"} | sent, headers=alice).status_code == status
        assert time.slept.pop() == pytest.approx(REFUSED_S)
        assert not time.slept
    run = bare.parts.log.first_event
    for took in (0.0, 0.001, 0.049, 0.051, 0.3):

        def slow(stream, took=took):
            time.now += took
            return run(stream)

        bare.parts.log.first_event = slow
        for name in ("his", "none"):
            began = time.now
            assert server("GET", f"/sessions/{name}/turns", headers=alice).status_code == 404
            passed = (time.now - began) / REFUSED_S
            assert passed == pytest.approx(round(passed))
            assert round(passed) >= 1


@pytest.mark.parametrize(("later_s", "status"), [(AWAY_S, 200), (AWAY_S + 0.001, 503)])
def test_known_tokens_count_for_an_hour_while_the_log_is_away_and_no_longer(
    serve, bare, token, monkeypatch, later_s, status
):
    """From the last answer of the log on. Then nobody is let in, until it answers again."""
    moment = 1_000.0
    monkeypatch.setattr(authentication, "monotonic", lambda: moment)
    server, alice = serve(), token()
    assert server("GET", "/head", headers=alice).status_code == 200
    known = authentication._known

    def away(_):
        raise LogUnreachable("the database does not answer")

    monkeypatch.setattr(authentication, "_known", away)
    moment += later_s
    assert server("GET", "/head", headers=alice).status_code == status
    assert server("GET", "/head", headers={"authorization": "Bearer mnemolog_0_0"}).status_code in (401, 503)
    monkeypatch.setattr(authentication, "_known", known)
    assert server("GET", "/head", headers=alice).status_code == 200
    monkeypatch.setattr(authentication, "_known", away)
    moment += AWAY_S
    assert server("GET", "/head", headers=alice).status_code == 200, "it answered a moment ago"


async def test_concurrent_requests_share_one_read_of_the_tokens(bare, monkeypatch):
    """Each gets what was read after it came."""
    created = bare.admin.create_token("alice")
    asked, version = [], bare.parts.log.version
    monkeypatch.setattr(bare.parts.log, "version", lambda stream: asked.append(stream) or version(stream))
    callers = Callers(AsyncMemoryStore(bare, WorkerPools()))
    found = await asyncio.gather(*(callers.caller_of(created.secret) for _ in range(50)))
    assert {caller.actor for caller in found} == {"alice"}
    bare.admin.revoke_token(created.token.id)
    asked.clear()
    assert await callers.caller_of(created.secret) is None
    assert len(asked) == 1


SECRET = "Ottilie"
ACT = {"do": "assert_fact", "key": "user/name", "value": SECRET}


@pytest.fixture
def tokens(folder):
    """Secrets of tokens by their verbs."""
    with MemoryStore.open(folder, model=None) as store:
        verbs = ("propose", "approve", "record", "read approve", "propose approve")
        return {name: store.admin.create_token(f"may {name}", verbs=name.split()).secret for name in verbs}


@contextmanager
def asking(folder, tokens, *options):
    """Give a function that makes a request with the token of some verbs."""
    with (
        server(folder, "--require-token", *options) as (url, _),
        httpx2.Client(base_url=url, trust_env=False) as client,
    ):

        def ask(verbs, path, body):
            return client.post(f"/v1{path}", json=body, headers={"authorization": f"Bearer {tokens[verbs]}"})

        yield ask


def test_who_may_propose_changes_nothing_and_who_may_approve_does_it(folder, tokens):
    with asking(folder, tokens) as ask:
        made = ask("propose", "/proposals", {"act": ACT})
        assert made.status_code == 200
        position = made.json()["position"]
        for verbs, path, body in (
            ("propose", "/facts", {"key": "k", "value": 1}),
            ("propose", "/proposals/approve", {"positions": position}),
            ("record", "/proposals/approve", {"positions": position}),
            ("record", "/proposals", {"act": ACT}),
            ("approve", "/proposals/approve", {"positions": position, "dry_run": True}),
            ("read approve", "/forget", {"positions": position}),
        ):
            assert ask(verbs, path, body).status_code == 403, (verbs, path)
        done = ask("approve", "/proposals/approve", {"positions": position})
        assert (done.status_code, done.json()["items"][0]["state"], SECRET in done.text) == (200, "approved", False)
    with MemoryStore.open(folder, model=None) as store:
        fact = store.fact("user/name")
        assert (fact.value, fact.proposed_by, fact.actor) == (SECRET, "may propose", "may approve")


@pytest.mark.parametrize(("options", "status"), [([], 400), (["--own-proposals"], 200)])
def test_nobody_approves_what_they_proposed_unless_the_server_allows_it(folder, tokens, options, status):
    with asking(folder, tokens, *options) as ask:
        made = ask("propose approve", "/proposals", {"act": ACT})
        own = ask("propose approve", "/proposals/approve", {"positions": made.json()["position"]})
        assert (own.status_code, "your own" in own.text) == (status, status == 400)
