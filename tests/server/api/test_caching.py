"""What a cache may answer: nothing of another caller, of another scope, or that its caller may not see."""

import re
from itertools import product
from pathlib import Path

import pytest
from starlette.middleware import Middleware

from mnemolog import server as package
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import VARY, Authentication, Callers, Users
from mnemolog.server.http.connections import PEER
from mnemolog.server.http.routes import ROUTES
from tests.server.api.conftest import Requests, Time
from tests.server.api.examples import EXAMPLES

USERS = '[ann]\nverbs = ["read"]\n[ben]\nverbs = ["read"]\n[cem]\nverbs = ["read"]\nscopes = ["acme"]\n'
OTHERS = {"if-none-match", "last-event-id", "content-type", "content-length", "host", "idempotency-key"} | {
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
}
"""Headers that no kept answer depends on: a condition, a place in a stream, what a request with a body says of it, and
why a request is refused.
"""


@pytest.fixture
def ask(store, tmp_path):
    """Make requests to a server that knows tokens, cookies with tokens, and people whom a proxy names."""
    (tmp_path / "users.toml").write_text(USERS)
    time, whole = Time(), AsyncMemoryStore(store, WorkerPools())
    callers = Callers(whole, Users("X-User", tmp_path / "users.toml", ["127.0.0.1"]))
    middleware = Middleware(Authentication, callers=callers, store=whole, cookie="login", time=time, sleep=time.sleep)
    app = make_app(whole, middleware=[middleware])

    async def through_proxy(scope, receive, send):
        scope["state"] = {PEER: "127.0.0.1"}
        await app(scope, receive, send)

    found = Requests(through_proxy)
    yield found
    found.close()


def test_no_caller_is_answered_with_what_a_cache_keeps_for_another_one(ask, store):
    """No two have the same entity tag, and `*` shows no more than a request without a condition.

    Each answer names the headers that it depends on.
    """
    tokens = [store.admin.create_token("ann", verbs=["read"], scopes=scopes).secret for scopes in ((), (), ["acme"])]
    sent_apart = (
        [{"authorization": f"Bearer {token}"} for token in tokens],
        [{"cookie": f"login={token}"} for token in tokens[:2]],
        [{"x-user": name} for name in ("ann", "ben", "cem")],
        [{}, {"mnemolog-scope": "acme"}, {"mnemolog-scope": "globex"}],
    )
    for operation, headers in product((item for item in ROUTES if item.of_log_alone), sent_apart):
        example, tags = EXAMPLES[operation.name], list[str]()
        for sent in headers:
            conditions = {}, {"if-none-match": ", ".join(tags)}, {"if-none-match": "*"}
            first, known, any_ = (
                ask("GET", example.path, params=example.params, headers=sent | condition) for condition in conditions
            )
            assert known.status_code == first.status_code, (operation.name, sent)
            assert any_.status_code == (304 if first.status_code == 200 else first.status_code), (operation.name, sent)
            if first.status_code == 200:
                assert [set(answer.headers["vary"].split(", ")) for answer in (first, any_)] == [{*VARY, "x-user"}] * 2
                tags.append(first.headers["etag"])
        assert len(set(tags)) == len(tags) > ("mnemolog-scope" not in headers[1]), operation.name


def test_an_entity_tag_says_nothing_of_the_log_and_is_of_one_url(ask, store):
    """Neither its position nor its digest; and what a caller was given for one URL is no answer to another."""
    first = ask("GET", "/sessions").headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', first)
    assert store.head().digest[:8] not in first
    for other in ("/sessions?limit=1", "/scopes", "/sessions/none", "/sessions/none/turns"):
        assert ask("GET", other, headers={"if-none-match": first}).status_code != 304
    assert ask("HEAD", "/sessions", headers={"if-none-match": first}).status_code == 304


def test_every_header_that_the_server_reads_is_in_vary_or_decided_to_change_no_kept_answer():
    """So a new one cannot be forgotten."""
    source = "\n".join(
        path.read_text() for path in Path(package.__path__[0]).rglob("*.py") if "client" not in path.parts
    )
    names = re.findall(r"headers\.get\(\s*b?\"([a-z-]+)\"|b?\"([a-z-]+)\" (?:not )?in (?:request\.)?headers", source)
    assert len(names) > 12
    assert {a or b for a, b in names} - OTHERS - {"transfer-encoding"} == set(VARY) - {"mnemolog-scope"}
