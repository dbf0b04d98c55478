"""The JSON API: each operation, each kind of answer and error, caches, a store that was opened read-only.

The OpenAPI document: it describes every operation, and what the server answers fits it. Invalid arguments: each is
refused with a status below 500.
"""

import inspect
import re
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, Session
from mnemolog import server as package
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain import errors
from mnemolog.domain.errors import MnemologError, StoreNotWritable
from mnemolog.domain.session import Original, original_of
from mnemolog.operation_table import OWNERS
from mnemolog.server.http import api
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import VARY, Authentication, Callers, Users
from mnemolog.server.http.connections import PEER
from mnemolog.server.http.live_events import TAIL
from mnemolog.server.http.openapi import document, in_words_of_http
from mnemolog.server.http.problems import error_of, hint_of, problem_of, problem_response, status_of
from mnemolog.server.http.routes import BY_NAME, LEFT_OUT, ROUTES
from mnemolog.server.http.serialization import Arguments, parameters
from tests.example_errors import EXAMPLES as ERRORS
from tests.example_errors import PATH
from tests.server.api.conftest import Requests, Server, Time
from tests.server.api.examples import EXAMPLES, TRIP
from tests.server.api.json_schema import misfits
from tests.support import nothing_written


def test_every_operation_has_an_example():
    """A new operation cannot be added without a request that is tested."""
    assert set(EXAMPLES) == {operation.name for operation in ROUTES}


def test_an_export_is_the_body_and_can_be_verified(server, known, store, tmp_path):
    """The same lines as those of the library, sent as they are written."""
    answer = server("GET", "/export", params=EXAMPLES["audit.export"].params)
    assert answer.headers["content-type"] == "application/jsonl"
    file = tmp_path / "log.jsonl"
    store.audit.export(file, upto=5)
    assert answer.content == file.read_bytes()
    # Where nothing was sent, the status says what is wrong.
    assert server("GET", "/export", params={"upto": 10_000}).json()["title"] == "InvalidInput"


STATUSES = {
    "no such path": ("GET", "/nowhere", None, 404, "NotFound"),
    "following an unknown session": ("GET", "/tail?session=nowhere", None, 404, "UnknownSession"),
    "following from past the head": ("GET", "/tail?after=100000", None, 400, "InvalidInput"),
    "following an invalid scope": ("GET", "/tail?scope=%2F", None, 400, "InvalidInput"),
    "another method": ("DELETE", "/head", None, 405, "MethodNotAllowed"),
    "an unknown argument in the query": ("GET", "/events?before=1", None, 400, "InvalidInput"),
    "an argument given twice": ("GET", "/events?after=1&after=2", None, 400, "InvalidInput"),
    "a text for a number": ("GET", "/events?limit=many", None, 400, "InvalidInput"),
    "a page that is too long": ("GET", "/events?limit=10001", None, 400, "InvalidInput"),
    "a page of nothing": ("GET", "/sessions?limit=0", None, 400, "InvalidInput"),
    "a word for a position": ("GET", "/events/first", None, 400, "InvalidInput"),
    "a position past the head": ("GET", "/events?after=100000", None, 400, "InvalidInput"),
    "a query for a body": ("POST", "/recall?query=train", {"query": "train"}, 400, "InvalidInput"),
    "a path that is not UTF-8": ("GET", "/sessions/%FF", None, 400, "InvalidInput"),
    "a missing argument": ("POST", "/recall", {}, 400, "InvalidInput"),
    "an unknown argument in the body": ("POST", "/recall", {"query": "train", "top_k": 3}, 400, "InvalidInput"),
    "an argument of another type": ("POST", "/recall", {"query": "train", "k": "3"}, 400, "InvalidInput"),
    "a body that is no object": ("POST", "/recall", [], 400, "InvalidInput"),
    "a session outside its life": ("GET", f"/sessions/{TRIP}/turns?at=0", None, 400, "OutsideSession"),
    "an unknown session": ("GET", "/sessions/nowhere", None, 404, "UnknownSession"),
    "turns of an unknown session": ("GET", "/sessions/nowhere/turns", None, 404, "UnknownSession"),
    "a turn in an unknown session": (
        *("POST", "/sessions/nowhere/turns", {"role": "user", "text": "x"}),
        *(404, "UnknownSession"),
    ),
    "an unknown checkpoint": ("POST", f"/sessions/{TRIP}/checkpoints/x/restore", {}, 404, "UnknownCheckpoint"),
    "an id that is taken": ("POST", "/sessions", {"id": "other"}, 409, "SessionExists"),
    "other content under a key": (
        *("POST", f"/sessions/{TRIP}/turns", {"role": "user", "text": "else", "key": "t0"}),
        *(409, "DuplicateKey"),
    ),
    "an unknown model": ("POST", "/models/unheard/activate", {}, 409, "ModelRefused"),
    "a model in a folder of the server": ("POST", "/models/%2Ftmp/activate", {}, 409, "ModelRefused"),
    "a long wait": (
        *("POST", f"/sessions/{TRIP}/prefetch/result", {"wait_s": 61}),
        *(400, "InvalidInput"),
    ),
    "a recall that waits for long": ("POST", "/recall", {"query": "x", "timeout_s": 1e9}, 400, "InvalidInput"),
    "a text that is too long": (
        *("POST", f"/sessions/{TRIP}/turns", {"role": "user", "text": "x" * (2**20 + 1)}),
        *(413, "LimitExceeded"),
    ),
}


def test_what_is_refused_is_a_problem_with_its_status(server, store):
    """With the name of the error, what happened, and what to do. No form of a web page reaches the store."""
    for case, (method, path, body, status, title) in STATUSES.items():
        answer = server(method, path, json=body)
        problem = answer.json()
        assert (answer.status_code, problem["status"], problem["title"]) == (status, status, title), case
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["detail"]
        assert status == 405 or problem["hint"], case
    for last in ("100000", "9" * 5_000):
        assert server("GET", "/tail", headers={"last-event-id": last}).json()["title"] == "InvalidInput"
    form = server("POST", "/recall", content=b'{"query": "x"}', headers={"content-type": "text/plain"})
    assert form.json()["field"] == "content-type"
    assert server("POST", "/recall", content=b"{", headers={"content-type": "application/json"}).status_code == 400


@pytest.mark.filterwarnings("error::mnemolog.errors.ScopeWarning")
def test_a_scope_that_no_session_has_is_an_empty_answer(server):
    """The process of the server gives no warning."""
    assert server("GET", "/sessions", params={"scope": "nowhere"}).json()["items"] == []
    assert server("POST", "/recall", json={"query": "train", "scope": "nowhere"}).json()["hits"] == []
    assert server("POST", "/forget", json={"scope": "nowhere", "dry_run": True}).json()["events"] == 0


def test_a_closed_store_is_a_503_with_retry_after(server, store):
    """A server that stops."""
    store.close()
    answer = server("GET", "/head")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_fault_of_the_server_reveals_no_content(server, store, monkeypatch, caplog):
    """A status of 500; the log has the place, and neither message nor arguments."""
    monkeypatch.setattr(store, "recall", lambda query, **_: [][len(query)])
    answer = server("POST", "/recall", json={"query": "heliotrope"})
    assert (answer.status_code, answer.json()["title"]) == (500, "InternalError")
    assert "heliotrope" not in answer.text + caplog.text
    (message,) = [item.getMessage() for item in caplog.records]
    assert message.startswith("http.failed route=/v1/recall error=IndexError file=")


def test_a_read_of_the_log_alone_is_answered_with_304_until_something_is_recorded(server, store, monkeypatch):
    """`ETag` changes with the log. What changes without an event, as values that expire, has none."""
    for path in (f"/sessions/{TRIP}/values/city", f"/sessions/{TRIP}/values", "/status", "/models"):
        answer = server("GET", path)
        assert "etag" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
    for item in ROUTES:
        path = EXAMPLES[item.name].path
        answer = server(item.http, path, params=EXAMPLES[item.name].params) if item.of_log_alone else None
        if answer is None:
            continue
        tag = answer.headers["etag"]
        assert answer.headers["cache-control"] == "private, no-cache"
        again = server(item.http, path, params=EXAMPLES[item.name].params, headers={"if-none-match": f"W/{tag}, x"})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), item.name
    tag = server("GET", "/sessions").headers["etag"]
    monkeypatch.setattr(type(store), "sessions", lambda *_, **__: pytest.fail("was made"))
    assert server("GET", "/sessions", headers={"if-none-match": tag}).status_code == 304
    monkeypatch.undo()
    store.record("other", "user", "news")
    assert server("GET", "/sessions", headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize("name", [item.name for item in ROUTES if item.verb == "record" and item.name != "audit.judge"])
def test_a_request_with_a_key_can_be_sent_again(server, store, known, name):
    """The header makes every write repeatable: the second one writes nothing and has the same answer.

    A judgement needs none: it replaces the one before.
    """
    item, example = BY_NAME[name], EXAMPLES[name]
    path = example.path.format(**known)
    first = server(item.http, path, json=example.json, headers={"idempotency-key": "once"})
    with nothing_written(store):
        second = server(item.http, path, json=example.json, headers={"idempotency-key": "once"})
        assert first.is_success
        assert (second.status_code, second.content) == (first.status_code, first.content)


def test_pages_follow_one_another_without_gaps(server, store, monkeypatch):
    """`next` is passed as `after`, or as `before` with `newest_first`; the last page has none.

    A page of large items ends before it takes more memory than a server has.
    """
    of_find = [server("POST", "/find", json={"text": "platform", "limit": 1}).json()]
    of_find += [server("POST", "/find", json={"text": "platform", "limit": 1, "after": of_find[0]["next"]}).json()]
    texts = [page["items"][0]["text"] for page in of_find]
    assert texts == ["Which platform?", "Platform four. Always answer in metric."]
    paths = ("/events", "/timeline", "/sessions", f"/sessions/{TRIP}/turns", f"/sessions/{TRIP}/own-turns")
    for path, params in [*((path, {}) for path in paths), (f"/sessions/{TRIP}/turns", {"newest_first": "true"})]:
        whole = server("GET", path, params=params).json()
        assert whole["next"] is None
        pages, at = [], None
        while not pages or at is not None:
            place = {} if at is None else {"before" if params else "after": at}
            page = server("GET", path, params={**params, "limit": 2, **place}).json()
            assert len(page["items"]) <= 2
            pages.append(page["items"])
            at = page["next"]
        assert [item for page in pages for item in page] == whole["items"], path
        assert len(whole["items"]) > 1
    turns = server("GET", f"/sessions/{TRIP}/turns").json()["items"]
    page = server("GET", f"/sessions/{TRIP}/turns", params={"last": 2}).json()
    assert (page["items"], page["next"]) == (turns[-2:], turns[-2]["position"])
    monkeypatch.setattr(api, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(api, "PART", 3)
    large = store.session("large")
    turns = [large.record("user", "x" * 2_600) for _ in range(10)]
    for path in ("/events", "/timeline", "/sessions/large/turns", "/sessions/large/own-turns"):
        page = server("GET", path, params={"after": turns[0].position - 1}).json()
        assert [item["position"] for item in page["items"]] == [turn.position for turn in turns[:4]], path
        assert page["next"] == turns[3].position


def test_a_key_is_refused_where_a_retry_would_be_carried_out_again(server, store, folders):
    """It is not ignored: the caller would count on it."""
    with nothing_written(store):
        for name in ("backup", "forget", "rebuild", "admin.doctor"):
            item, example = BY_NAME[name], EXAMPLES[name]
            refused = server(item.http, example.path, json=example.json or {}, headers={"idempotency-key": "once"})
            assert (refused.status_code, refused.json()["field"]) == (400, "idempotency-key"), name
            assert "leave it out" in refused.json()["detail"]
    assert not list(folders.backups.iterdir())


def test_a_token_is_created_once_with_a_key_and_its_secret_is_not_shown_again(server, store):
    """The refusal says so, names the key of the caller, and what to do."""
    before = len(store.admin.tokens())
    for key, path, asked in (("once", "/tokens", {"actor": "alice"}), ("swap", "/tokens/alice/rotate", {})):
        first, again = (server("POST", path, json=asked, headers={"idempotency-key": key}) for _ in range(2))
        assert (first.status_code, again.status_code) == (200, 409)
        problem = again.json()
        assert (problem["title"], problem["key"]) == ("DuplicateKey", key)
        assert f"'{key}'" in problem["detail"]
        assert "cannot be shown again" in problem["detail"]
        assert "new key" in problem["hint"]
    assert len(store.admin.tokens()) == before + 2


def test_ids_and_keys_may_hold_slashes_and_anything_else(server, store):
    """They are percent-encoded whole."""
    for name in ("a/b", "a//b", "..", "ä ö", "%2F", "a?b#c", "a+b"):
        path = "".join(f"%{byte:02X}" for byte in name.encode())
        assert server("PUT", f"/sessions/{path}", json={}).json()["id"] == name
        assert server("PUT", f"/sessions/{path}/values/{path}", json={"value": name}).status_code == 204
        assert server("GET", f"/sessions/{path}/values/{path}").json() == {"value": name}
        assert store.session(name).get(name) == name
    store.session("a").set("nothing", None)
    assert server("GET", "/sessions/a/values/nothing").json() == {"value": None}
    assert server("GET", "/sessions/a/values/unset").json() == {}, "without a value the answer has none"


def test_an_answer_to_head_has_no_body(server, store):
    """But the same headers as that to GET. One for a stream ends at once."""
    for path in ("/tail", "/export"):
        answer = server("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
    answer = server("HEAD", "/head")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers == server("GET", "/head").headers


def test_a_session_is_read_as_of_a_position_or_a_time(server, store):
    """`at` shows what it held then."""
    trip = store.session("trip")
    first = trip.record("user", "one")
    trip.set("city", "Porto")
    trip.record("user", "two")
    turns = server("GET", "/sessions/trip/turns", params={"at": first.position}).json()["items"]
    assert [turn["text"] for turn in turns] == ["one"]
    assert server("GET", "/sessions/trip/values/city", params={"at": first.position}).json() == {}
    assert server("GET", "/sessions/trip/turns", params={"at": "2999-01-01"}).json()["items"][-1]["text"] == "two"
    assert server("GET", "/sessions/trip/turns", params={"at": 2, "hidden": "true"}).status_code == 400


def test_a_backup_goes_into_the_folder_of_the_server(server, store, folders):
    """The caller names no path: each backup is a new folder, its keys apart from it. Without a folder none is made."""
    for _ in range(2):
        assert server("POST", "/backup", json={}).json()["head"] == store.head().position
    assert len(list(folders.backups.iterdir())) == 2
    assert list(folders.backup_keys.iterdir())
    assert server("POST", "/backup", json={"target": "/tmp/x"}).json()["title"] == "InvalidInput"
    without_folder = Server(store)
    assert without_folder("POST", "/backup", json={}).json()["title"] == "BackupRefused"
    without_folder.close()


def test_a_turn_in_a_format_of_its_own_is_kept_byte_for_byte(server, store):
    """`original` in base64, as everywhere in JSON."""
    store.session("a")
    message = {"session": "a", "role": "user", "text": "hi", "original": {"form": "my.form", "data": "AAEC/w=="}}
    position = server("POST", "/turns", json={"messages": [message]}).json()["items"][0]["position"]
    assert original_of(store.audit.event(position).event) == Original(form="my.form", data=b"\x00\x01\x02\xff")


def test_a_session_that_is_started_has_a_status_and_a_place_of_its_own(server):
    """201 and `Location`; a session that was there is 200."""
    for method, path, body in (("POST", "/sessions", {"id": "a/b"}), ("PUT", "/sessions/c%2Fd", {})):
        made = server(method, path, json=body)
        assert made.status_code == 201
        place = made.headers["location"]
        assert place == f"/v1/sessions/{made.json()['id'].replace('/', '%2F')}"
        found = server("PUT", place.removeprefix("/v1"), json={})
        assert (found.status_code, found.json(), "location" in found.headers) == (200, made.json(), False)


def test_every_class_of_error_has_an_example():
    """A new class cannot be added without saying what its answer is."""
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MnemologError)}
    assert {type(error) for error in ERRORS} == kinds


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_a_problem_of_rfc_9457_and_is_raised_again_with_the_same_fields(error):
    """No field hides a member. Its hint has requests in the problem, and calls for the caller; a 503 has a time."""
    members = problem_of(error)
    assert members["type"] == f"urn:mnemolog:problem:{type(error).__name__}"
    assert members["title"] == type(error).__name__
    assert 400 <= members["status"] == status_of(type(error)) < 600
    assert members["detail"] == str(error)
    assert bool(members["hint"]) == bool(error.hint)
    response = problem_response(error)
    assert ("retry-after" in response.headers) == (status_of(type(error)) == 503)
    assert {"content-type", "cache-control"} <= set(response.headers)
    again = error_of(response.body)
    assert type(again) is type(error)
    assert again.args == error.args
    fields = [{name: value for name, value in vars(one).items() if name != "_hint"} for one in (again, error)]
    assert fields[0] == fields[1]
    assert hint_of(again) == hint_of(error)
    assert again.hint == (hint_of(error) if "_hint" in vars(error) else error.hint)


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"title": "NotFound"}', b'{"title": "errors"}', b"{}"])
def test_a_body_that_is_no_store_error_is_not_read_as_one(body):
    """Answers of proxies, and problems of the server itself."""
    assert error_of(body) is None


def test_notes_of_an_error_come_with_its_hint():
    """They say how much was done before it."""
    error = errors.StorageFull(PATH)
    error.add_note("3 turns were recorded")
    assert problem_of(error)["hint"] == "3 turns were recorded; free some space and try again"


@pytest.mark.parametrize("kind", OWNERS)
def test_every_public_method_is_offered_or_left_out_with_a_reason(kind):
    """A new method cannot be added without saying how it is reached over HTTP."""
    offered = {item.method.__name__ for item in ROUTES if item.owner is kind}
    if kind is Session:
        offered |= {item.same_as.__name__ for item in ROUTES if item.same_as is not None}
    left_out = {method.__name__ for method in LEFT_OUT if method == getattr(kind, method.__name__, None)}
    public = {name for name, _ in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}
    assert public == offered | left_out
    assert not offered & left_out


def test_no_route_and_no_name_is_given_twice():
    """So a request means one method, and a method has one request."""
    routes = [(item.http, "/".join("{}" if "{" in part else part for part in item.path.split("/"))) for item in ROUTES]
    assert len(set(routes)) == len(routes)
    assert len({item.name for item in ROUTES}) == len(ROUTES)


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


@pytest.fixture
def read_only(store, encoder, folders):
    """A server that may only read the store of this test."""
    with MemoryStore.open(store.path, model=encoder, read_only=True) as opened:
        found = Server(opened, folders)
        yield found
        found.close()


@pytest.mark.parametrize("operation", [item for item in ROUTES if item.verb != "read"], ids=lambda item: item.name)
def test_what_would_be_recorded_is_refused(server, read_only, store, known, operation):
    """The same request to another server over the store shows whether it records something."""
    example = EXAMPLES[operation.name]
    request = (operation.http, example.path.format(**known))
    how = {"json": example.json, "params": example.params}
    before = store.head()
    refused = read_only(*request, **how)
    assert store.head() == before
    allowed = server(*request, **how)
    assert allowed.status_code == example.status
    if store.head() != before:
        assert refused.status_code == 403
        error = error_of(refused.content)
        assert isinstance(error, StoreNotWritable)
        assert "opened read-only" in str(error)
        assert "nothing was written" in refused.json()["hint"]
        assert "--read-only" in refused.json()["hint"]


@pytest.fixture(scope="module")
def described():
    """The document."""
    return document()


def test_every_operation_is_described_with_its_verb(server, described):
    """By its own name, with the first line of its documentation. The document is served at /v1/openapi.json."""
    answer = server("GET", "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["openapi"], answer.json()["security"]) == ("3.1.0", [])
    assert answer.json()["paths"].keys() == described["paths"].keys()
    found = {
        item["operationId"]: item["x-mnemolog-verb"] for path in described["paths"].values() for item in path.values()
    }
    assert found == {item.name.replace(".", "_").lstrip("_"): item.verb for item in (*ROUTES, TAIL)}
    assert all(item["summary"] for path in described["paths"].values() for item in path.values())


def test_every_reference_resolves_and_every_schema_is_used(server):
    """Nothing dangles."""
    text = server("GET", "/openapi.json").text
    schemas = server("GET", "/openapi.json").json()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) == set(schemas)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in schemas)


def test_each_operation_has_an_example_that_fits_and_schemas_for_all_that_it_answers(described):
    """Each required argument has one. Arrays have one schema for their items, and times a format.

    What may be left out has no `default`: generators of clients would make it required.
    """
    components = described["components"]["schemas"]
    for path in described["paths"].values():
        for item in path.values():
            for part in item["parameters"]:
                if part.get("required"):
                    assert not list(misfits(part["example"], part["schema"], components)), item["operationId"]
            for content in item.get("requestBody", {}).get("content", {}).values():
                assert not list(misfits(content["example"], content["schema"], components)), item["operationId"]
            for answer in item["responses"].values():
                assert all("schema" in content for content in answer.get("content", {}).values())
    for name, schema in components.items():
        for field, kind in schema.get("properties", {}).items():
            if field.endswith("_at") and "integer" not in str(kind) and not name.endswith("Arguments"):
                assert "date-time" in str(kind), (name, field)
            assert "default" not in kind or not name.endswith(("Arguments", "Problem", "Recorded")), (name, field)
    for schema in parts_of(described):
        assert schema.get("type") != "array" or isinstance(schema["items"], dict)
        assert "prefixItems" not in schema


def test_the_document_speaks_of_http(described):
    """Not of Python: no exceptions that are raised, no None, no pages of the sources. Problems have their status."""
    texts = [part for path in described["paths"].values() for item in path.values() for part in prose_of(item)]
    for text in texts:
        assert not re.search(r"\bRaises\b|\bNone\b|\bTrue\b|\bFalse\b|docs/|\bYield|\bhandle\b|`datetime`", text), text
    record = described["paths"]["/v1/sessions/{session}/turns"]["post"]
    assert "`SessionAlreadyEnded` (409)" in record["description"]
    assert in_words_of_http("See `Session.branch`; None (docs/a.md).") == (
        "See `POST /v1/sessions/{session}/branch`; null."
    )


def parts_of(value):
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(part)


def prose_of(item):
    """What the description of an operation says in words."""
    yield from (item["summary"], item["description"])
    yield from (part.get("description", "") for part in item["parameters"])


READS = [name for name in EXAMPLES if BY_NAME[name].verb == "read" and name not in ("audit.export", "audit.subject")]


def test_each_example_of_a_read_fits_its_schemas_and_needs_its_verb_alone(server, known, described):
    """So does a problem, with the attributes of the error besides."""
    for name in READS:
        require_that_it_fits(server, known, described, name)
    answer = server("GET", "/sessions/nowhere/turns")
    problem = described["components"]["responses"]["Problem"]["content"]["application/problem+json"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert not list(misfits(answer.json(), problem["schema"], described["components"]["schemas"]))


@pytest.mark.parametrize("name", [name for name in EXAMPLES if BY_NAME[name].verb != "read"])
def test_each_example_of_a_write_fits_its_schemas_and_needs_its_verb_alone(server, known, described, name):
    """The request, and the answer of the server to a caller who may do nothing else."""
    require_that_it_fits(server, known, described, name)


def require_that_it_fits(server, known, described, name):
    """Fail if the example of an operation, or its answer, does not fit the document."""
    operation, example = BY_NAME[name], EXAMPLES[name]
    components = described["components"]["schemas"]
    item = described["paths"][f"/v1{operation.path}"][operation.http.lower()]
    if example.json is not None:
        assert not list(misfits(example.json, item["requestBody"]["content"]["application/json"]["schema"], components))
    assert set(example.params or ()) <= {part["name"] for part in item["parameters"]}
    path = example.path.format(**known)
    answer = server.with_verb(operation.verb, operation.http, path, json=example.json, params=example.params)
    assert answer.status_code == example.status, answer.text
    content = item["responses"][str(answer.status_code)].get("content")
    if answer.status_code == 204:
        assert content is None
    else:
        assert not list(misfits(answer.json(), content["application/json"]["schema"], components))


NASTY: dict[type, tuple[Any, ...]] = {
    int: (-1, 0, 2**31, 2**63, 10**30),
    float: (-1.0, 0.0, 1e308, 10**400, 10**30),
    str: ("", " ", "\x00", "../..", "a" * 5_000, "²", "%00", "9999-12-31T23:59:59+00:00", "0001-01-01", "NaN", "∞"),
    bool: (True, False),
    list: ([], ["\x00"], [10**30], ["a"] * 2_000, [[[]]], [None]),
    dict: ({}, {"\x00": "\x00"}, {"a": 10**30}, {"a": {"b": [{}] * 100}}),
}


def values_of(kind: Any) -> list[Any]:
    """Nasty values of a type, and of those it is made of."""
    found = [value for values in NASTY.values() for value in values[:2]]
    for part in get_args(kind) or (kind,):
        found += NASTY.get(get_origin(part) or part, ())
    return [*found, None]


READING = [item.name for item in ROUTES if item.verb == "read"]
WRITES = [item.name for item in ROUTES if item.verb != "read" and item.name != "models.activate"]


@pytest.mark.parametrize("names", [READING, *([name] for name in WRITES)], ids=lambda names: names[0])
def test_no_argument_makes_the_server_fail(server, known, names):
    """Each argument of each operation, with values that are too large, empty, of another type or no text at all."""
    for item in (item for item in ROUTES if item.name in names):
        example = EXAMPLES[item.name]
        for parameter in (parameter for parameter in parameters(item) if not parameter.in_path):
            for value in values_of(parameter.type):
                how: dict[str, Any] = {}
                if item.http in ("GET", "DELETE"):
                    sent = value if isinstance(value, list) else str(value)
                    how["params"] = {**(example.params or {}), parameter.name: sent}
                else:
                    how["json"] = {**(example.json or {}), parameter.name: value}
                    if item.name in ("recall", "session.recall"):
                        how["json"].setdefault("timeout_s", 0.01)
                answer = server(item.http, example.path.format(**known), **how)
                assert answer.status_code < 500, (item.name, parameter.name, value, answer.text)


def test_no_field_of_a_message_makes_the_server_fail(server, known):
    """With values that are nasty themselves, or hold such."""
    nasty = [value for values in NASTY.values() for value in values]
    nasty += [*({"form": inner, "data": inner} for inner in nasty), {"form": "a", "bad": 1}, {"bad": 1}]
    for field in NewTurn.__struct_fields__:
        for value in nasty:
            message = {"session": "other", "role": "user", "text": "a", field: value}
            both = [{"role": "user", "text": "b", "session": "other"}, message]
            answer = server("POST", "/turns", json={"messages": both})
            assert answer.status_code < 500, (field, value, answer.text)
        if field == "original":
            assert (answer.status_code, answer.json()["field"]) == (400, "messages[1].original")


def test_no_path_makes_the_server_fail(server, known):
    """In place of each argument of a path."""
    for part in ("%00", "%FF", "..", "%2E%2E", "-1", "1e3", "9" * 40, "a" * 5_000, "%F0%9F%92%A9", "²"):
        for item in ROUTES:
            if "{" in item.path:
                path = "/".join(part if place.startswith("{") else place for place in item.path.split("/"))
                answer = server(item.http, path, json=EXAMPLES[item.name].json)
                assert answer.status_code < 500, (part, item.name, answer.text)


def test_no_body_makes_the_server_fail(server):
    """Broken JSON, other encodings, nesting without end."""
    headers = {"content-type": "application/json"}
    for body in (
        *(b"", b"null", b"1", b"[", b'"\xff"', b"[" * 100_000),
        b'{"role": "\\ud800", "text": "\\ud800"}',
        b'{"role": "user", "text": "\\ud800"}',
        b'{"role": "user", "text": "a", "role": "b"}',
        b'{"role": "user", "text": "a", "metadata": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"role": "user", "text": NaN}',
        b'{"role": "user", "text": "a", "metadata": {"a": 1e999}}',
        b'\xef\xbb\xbf{"role": "user", "text": "a"}',
    ):
        answer = server("POST", "/sessions/other/turns", content=body, headers=headers)
        assert answer.status_code < 500, body[:80]


@pytest.mark.parametrize("item", [item for item in ROUTES if Arguments(item).in_body], ids=lambda item: item.name)
def test_a_key_that_stands_twice_in_one_object_is_refused_with_its_name(server, store, known, item):
    """At any depth, also where it is written in two ways; readers would not agree which of them counts."""
    head, path = store.head(), EXAMPLES[item.name].path.format(**known)
    names = [parameter.name for parameter in parameters(item) if not parameter.in_path]
    inner = '[{"a": {"caf\u00e9": 1, "b": [{}], "caf\\u00e9": 1}, "b": {"a": 2}}]'
    doubled = [f'{{"{name}": null, "other": 1, "{name}": null}}' for name in names]
    for body, name in [*zip(doubled, names, strict=True), *((f'{{"{name}": {inner}}}', "caf\u00e9") for name in names)]:
        answer = server(item.http, path, content=body.encode(), headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["field"]) == (400, name), body
    assert store.head() == head


def test_a_key_may_stand_once_in_each_of_several_objects(server, store):
    """Nor is a text a key that looks like one, or a number too long for the check."""
    metadata = '{"a": {"b": 1, "c": {"b": 1}}, "b": [{"b": "\\"b\\": 1, \\"b\\": 1"}, {"b": %s}]}' % ("9" * 5_000)
    body = f'{{"role": "user", "text": "{{\\"a\\": 1, \\"a\\": 2}}", "metadata": {metadata}}}'
    kept = body.replace("9" * 5_000, "9")
    for sent, status in ((kept, 200), (body, 400)):
        headers = {"content-type": "application/json"}
        answer = server("POST", f"/sessions/{TRIP}/turns", content=sent.encode(), headers=headers)
        assert answer.status_code == status
        assert "twice" not in answer.text
