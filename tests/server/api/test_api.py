"""The JSON API: each operation, each kind of answer."""

import pytest

from mnemolog.domain.session import Original, original_of
from mnemolog.server.http import execution
from mnemolog.server.http.routes import BY_NAME, ROUTES
from tests.server.api.conftest import Server
from tests.server.api.examples import EXAMPLES, TRIP
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
    monkeypatch.setattr(execution, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(execution, "PART", 3)
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
