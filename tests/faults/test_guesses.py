"""What was forgotten cannot be guessed and confirmed: nothing that outlives its key is a digest of content."""

import hashlib
import itertools
import json
import re

import httpx2
import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.adapters.importers.transcripts import Transcripts
from tests.server.serving import server

pytestmark = pytest.mark.promise("P35")

PIN = "4711"
PATH = "/v1/sessions/caller"
WRITES = [
    ("POST", "/v1/sessions", {"id": "caller", "title": PIN, "scope": "acme/caller"}),
    ("POST", "/v1/sessions", {"title": PIN, "scope": "acme/caller"}),
    ("PUT", f"{PATH}/values/pin", {"value": PIN}),
    ("PUT", f"{PATH}/values/{PIN}", {"value": 1}),
    ("DELETE", f"{PATH}/values/{PIN}", None),
    ("PUT", f"{PATH}/task", {"description": PIN}),
    ("PATCH", f"{PATH}/task", {"status": PIN}),
    ("POST", f"{PATH}/notes", {"text": PIN}),
    ("POST", f"{PATH}/checkpoints", {"name": PIN}),
    ("POST", f"{PATH}/checkpoints/{PIN}/restore", {}),
    ("DELETE", f"{PATH}/checkpoints/{PIN}", None),
    ("POST", f"{PATH}/branch", {"to": "branch", "title": PIN}),
    ("POST", f"{PATH}/turns", {"role": "user", "text": PIN, "speaker": PIN, "metadata": {"pin": PIN}}),
    ("POST", "/v1/turns", {"messages": [{"session": "caller", "role": "user", "content": PIN}]}),
    ("POST", "/v1/facts", {"key": f"a/{PIN}", "value": PIN, "scope": "acme/caller", "maker": PIN}),
    ("POST", "/v1/switch", {"reason": "new", "title": PIN, "scope": "acme/caller"}),
]


def digests_of(guess):
    """Digests of a text in the usual ways, as the shortest hexadecimal text that would be kept of one."""
    for name in ("sha256", "sha1", "md5", "sha512", "blake2b", "blake2s"):
        yield hashlib.new(name, guess).hexdigest()[:12]
    for size in (8, 12, 16, 20, 32):
        yield hashlib.blake2b(guess, digest_size=size).hexdigest()[:12]


def test_no_digest_of_a_forgotten_request_is_left(folder):
    """Of every write over HTTP with an idempotency key: neither in the database nor in what is read of the log."""
    asked = []
    with MemoryStore.open(folder, model=None):
        pass
    with server(folder) as (url, _), httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
        for number, (method, path, body) in enumerate(WRITES):
            content = b"" if body is None else json.dumps(body).encode()
            headers = {"idempotency-key": f"k{number}"} | ({"content-type": "application/json"} if content else {})
            for _ in range(2):  # A retry writes nothing.
                answer = client.request(method, path, content=content, headers=headers)
                assert answer.status_code < 300, (method, path, answer.text)
            asked.append((method.encode(), path.encode(), b"", content))
    with MemoryStore.open(folder, model=None) as store:
        assert len([event for event in store.events() if event.key]) == len(WRITES)
        sessions = [session.session for session in store.sessions()]
        assert store.forget(scope="acme/caller").complete
        head = store.head()
        stored = "\n".join(
            str(value)
            for rows in store.parts.log.stored_rows(after=0, upto=head.position, batch_max=500)
            for row in rows
            for value in row
        )
        assert sorted(sessions) == sorted(session.session for session in store.sessions())
    files = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    left = set(re.findall(r"(?=([0-9a-f]{12}))", stored + files.decode("latin-1")))
    guesses = {
        joint.join(parts)
        for request in asked
        for count in range(1, 5)
        for parts in itertools.combinations(request, count)
        for joint in (b"", b"\n", b" ", b"\0", b"/")
    } | {PIN.encode()}
    assert not {digest for guess in guesses for digest in digests_of(guess)} & left
    for digest in {bytes.fromhex(digest) for guess in guesses for digest in digests_of(guess)}:
        assert digest not in files


def test_another_request_with_the_same_key_is_refused_and_a_retry_is_not(folder):
    """Where the event is encrypted the requests are compared; in the clear is the key of the caller alone."""
    MemoryStore.open(folder, model=None).close()
    with server(folder) as (url, _), httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:

        def put(path, body, key):
            return client.put(path, json=body, headers={"idempotency-key": key}).status_code

        assert client.put(PATH, json={}).status_code == 201
        assert [put(f"{PATH}/values/pin", {"value": 1}, "a") for _ in range(2)] == [204, 204]
        assert put(f"{PATH}/values/pin", {"value": 2}, "a") == 409
        assert put(f"{PATH}/values/pan", {"value": 1}, "a") == 409
        assert put(f"{PATH}/task", {"description": "book"}, "a") == 409
        assert client.get(f"{PATH}/values/pin").json() == {"value": 1}
        keys = [event["key"] for event in client.get("/v1/events").json()["items"]]
        assert keys == [None, "a"]
        started = [
            client.post("/v1/sessions", json={"title": title}, headers={"idempotency-key": "s"}) for title in "xxy"
        ]
        assert [answer.status_code for answer in started] == [201, 201, 409]
        assert started[0].json() == started[1].json()


def put(form, path, texts):
    """Write a file in which the turns of session `s` have no ids; return how to read it into a store."""
    rows = [{"session": "s", "role": "user", "text": text} for text in texts]
    times = [f"2026-01-05T10:00:0{number // 2}Z" for number in range(len(texts))]
    match form:
        case "times":
            rows = [row | {"time": time} for row, time in zip(rows, times, strict=True)]
        case "codex":
            said = [{"type": "message", "role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
            items = [("session_meta", {"id": "s"}), *(("response_item", item) for item in said)]
            stamps = [times[0], *times]
            rows = [
                {"timestamp": at, "type": of, "payload": item} for at, (of, item) in zip(stamps, items, strict=True)
            ]
        case "claude-code":
            said = [{"role": "user", "content": text} for text in texts]
            rows = [{"type": "user", "sessionId": "s", "timestamp": times[0], "message": message} for message in said]
    table = ["session,role,text", *(f"s,user,{text}" for text in texts)]
    path.write_text("\n".join(table if form == "csv" else map(json.dumps, rows)) + "\n")
    return form if form in ("codex", "claude-code", "csv") else "jsonl"


def read_again(store, path, form, *, watch):
    """Read a file from its beginning; return how many turns were recorded."""
    if not watch:
        return import_files(store, path, format=form).recorded
    for known in (store.path / "projections").glob("watch.db*"):
        known.unlink()
    with Transcripts(store, format=form) as transcripts:
        return transcripts.catch_up([path]).recorded


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("form", ["places", "times", "csv", "codex", "claude-code"])
def test_no_key_of_an_imported_turn_tells_of_its_text(tmp_path, form, watch):
    """Files that differ only in their texts give the same keys, and what was forgotten stays forgotten."""
    if watch and form == "csv":
        pytest.skip("no transcript")
    keys = []
    for texts in ([PIN, "yes", "yes", PIN], ["a", "b", "c", "d"]):
        how = put(form, path := tmp_path / f"rollout-{texts[0]}.jsonl", texts)
        with MemoryStore.open(tmp_path / texts[0], model=None) as store:
            for recorded in (4, 0):
                assert read_again(store, path, how, watch=watch) == recorded
            assert [turn.text for turn in store.turns("s")] == texts
            keys.append([event.key for event in store.events() if event.key])
            put(form, path, [texts[0], "changed", *texts[2:], "new"])
            for recorded in (2, 0):
                assert read_again(store, path, how, watch=watch) == recorded
            assert [turn.text for turn in store.turns("s")] == [*texts, "changed", "new"]
            assert not [item for item in store.forget(session="s").certificate.remains if item.kind == "digests"]
            assert read_again(store, path, how, watch=watch) == 0
            assert store.turns("s") == []
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 4


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize(("texts", "later"), [(["a", PIN, "b"], [PIN, "b"]), ([PIN, "a", "b"], ["new", PIN, "b"])])
def test_a_line_less_or_more_at_its_moment_brings_no_forgotten_turn_back(tmp_path, bare, texts, later, watch):
    """Its number among the turns of the moment is another one then."""
    how = put("times", path := tmp_path / "said.jsonl", texts)
    read_again(bare, path, how, watch=watch)
    bare.forget(positions=[turn.position for turn in bare.turns("s") if turn.text == PIN])
    put("times", path, later)
    read_again(bare, path, how, watch=watch)
    assert PIN not in [turn.text for turn in bare.turns("s")]


@pytest.mark.parametrize(
    ("keys", "counted", "named"),
    [(("a", "user/1", None), 0, 0), (("a#0123456789abcdef", "b"), 1, 1), (("0123" * 6, "0123" * 6 + "-2"), 0, 1)],
)
def test_keys_that_tell_of_content_are_counted(bare, keys, counted, named):
    """Servers and imports of an earlier form wrote them; they are in the chain, so they cannot be removed."""
    for key in keys:
        bare.session("trip").record("user", "hello", key=key)
    assert bare.verify().confirmable == counted
    certificate = bare.forget(session="trip").certificate
    assert sum(item.kind == "digests" for item in certificate.remains) == named
