"""A store on a server: the same calls, results and errors as with a local one."""

import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace

import msgspec
import pytest

from mnemolog import MISSING, MemoryStore, acting_as, connect, connect_async, errors
from mnemolog.domain.result import Results
from mnemolog.server.http.routes import KEY_HEADER
from tests.children.forking import in_child
from tests.support import FakeClock, HashEncoder
from tests.through_http import Served

pytestmark = pytest.mark.local


@pytest.fixture
def served(folder):
    """A store behind a server."""
    with closing(Served(MemoryStore.open(folder, model=HashEncoder(), clock=FakeClock(), background=False))) as served:
        yield served


@pytest.fixture
def store(served):
    """The store of a client of that server."""
    with connect(served.url) as store:
        yield store


CALLS = {
    "start": lambda store: store.start_session("trip/a b?", agent="guide", scope="acme/alice", title="Trip").scope,
    "get": lambda store: store.session("trip/a b?").title,
    "other": lambda store: store.session("other", agent="guide", parent="trip/a b?").id,
    "record": lambda store: store.record("trip/a b?", "user", "tea in Porto", key="t1", said_at="2026-03-16T14:00Z"),
    "again": lambda store: store.record(
        "trip/a b?",
        {"role": "user", "content": "tea in Porto"},
        key="t1",
        said_at=datetime(2026, 3, 16, 14, tzinfo=UTC),
    ),
    "record_many": lambda store: store.session("trip/a b?").record_many(
        [{"role": "assistant", "content": "noted", "key": "t2"}, {"role": "user", "content": "more tea", "id": "t3"}]
    ),
    "recall": lambda store: store.recall("tea", k=2, scope="acme", roles=["user"], since="2020-01-01"),
    "recall in it": lambda store: store.session("trip/a b?").recall("tea", exchange=True, context_turns=1),
    "context": lambda store: str(store.session("trip/a b?").context("tea", 200)),
    "standing": lambda store: store.standing("tea", scope="acme"),
    "find": lambda store: store.find("TEA"),
    "set": lambda store: store.session("trip/a b?").set(
        "city/one", {"name": "Porto", "x": None}, ttl=timedelta(days=1)
    ),
    "set null": lambda store: store.session("trip/a b?").set("nothing", None),
    "values": lambda store: [
        store.session("trip/a b?").get(*given) for given in (["city/one"], ["nothing"], ["no", 7], ["no", MISSING])
    ],
    "all": lambda store: store.session("trip/a b?").all(),
    "keys": lambda store: store.session("trip/a b?").keys("c*"),
    "delete": lambda store: store.session("trip/a b?").delete("nothing"),
    "task": lambda store: store.session("trip/a b?").set_task("book", step=1, total=3),
    "step": lambda store: store.session("trip/a b?").update_task(step=2),
    "note": lambda store: store.session("trip/a b?").note("window seat"),
    "checkpoint": lambda store: store.session("trip/a b?").checkpoint("booked"),
    "rewind": lambda store: store.session("trip/a b?").rewind(turns=1),
    "restore": lambda store: store.session("trip/a b?").restore("booked"),
    "notes": lambda store: store.session("trip/a b?").notes(with_times=True),
    "branch": lambda store: store.session("trip/a b?").branch("twig", at="booked").lineage(),
    "then": lambda store: (store.session("trip/a b?").at(4).turns(), store.session("trip/a b?").at(4).ended),
    "switch": lambda store: store.switch("next", reason="new", agent="guide", scope="acme").agent,
    "preview": lambda store: store.preview_switch("trip/a b?", reason="resume", agent="guide"),
    "current": lambda store: (store.current("guide").id, store.current("nobody")),
    "turns": lambda store: (store.turns("trip/a b?"), store.session("trip/a b?").turns(newest_first=True, limit=2)),
    "messages": lambda store: store.session("trip/a b?").messages(limit=2),
    "find session": lambda store: (store.find_session("twig").id, store.find_session("none")),
    "sessions": lambda store: store.sessions(agent="guide"),
    "scopes": lambda store: store.scopes(),
    "agents": lambda store: store.agents(),
    "position": lambda store: (store.position_at("2023-01-01"), store.position_at(date(2030, 1, 1))),
    "events": lambda store: [without_key(event) for event in store.events(after=2)],
    "timeline": lambda store: [without_key(moment) for moment in store.audit.timeline(session="trip/a b?")],
    "event": lambda store: store.audit.event(3).event,
    "replay": lambda store: (store.replay(to=6).sessions, str(store.replay(to=6)).partition("held at")[0]),
    "diff": lambda store: store.audit.diff(2).sessions,
    "verify": lambda store: store.verify().sound,
    "status": lambda store: store.status().sessions,
    "forget": lambda store: store.forget(session="other", reason="asked to").counts,
    "erasures": lambda store: [erasure.reason for erasure in store.audit.erasures()],
    "end": lambda store: store.end_session("twig"),
    "language": lambda store: (store.admin.set_language("de"), store.admin.language()),
    "redaction": lambda store: (store.admin.set_redaction(True), store.admin.redaction()),
    "secrets": lambda store: store.audit.scan_secrets(),
    "models": lambda store: store.models.list(),
    "doctor": lambda store: store.admin.doctor().healthy,
    "quarantine": lambda store: store.admin.quarantine().items(),
}


def without_key(event):
    """An event or a moment without key and digest of its request: a client gives each write a key."""
    written = getattr(event, "event", None)
    if hasattr(written, "request"):
        event = msgspec.structs.replace(event, event=msgspec.structs.replace(written, request=""))
    return msgspec.structs.replace(event, key=None)


def test_the_same_calls_return_the_same_over_http(tmp_path, monkeypatch):
    """Values, types and times, call by call."""
    monkeypatch.setattr("mnemolog.session.secrets", SimpleNamespace(token_hex=lambda _: "c0ffee"))
    opened = [
        MemoryStore.open(tmp_path / name, model=HashEncoder(), clock=FakeClock(step=0), background=False)
        for name in ("local", "served")
    ]
    with opened[0] as local, closing(Served(opened[1])) as served, connect(served.url) as remote:
        for name, call in CALLS.items():
            with acting_as("local"):  # As a server on this machine records who acts without a token.
                here = call(local)
            there = call(remote)
            assert there == here, name
            assert type(there) is type(here), name
            if isinstance(here, Results):
                assert [type(item) for item in there] == [type(item) for item in here], name


ERRORS = [
    lambda store: store.record("trp", "user", "x"),
    lambda store: store.start_session("trip"),
    lambda store: store.session("trip", agent="other"),
    lambda store: store.session("trip").update_task(step=1),
    lambda store: store.session("trip").restore("none"),
    lambda store: store.session("trip").set("mnemolog.x", 1),
    lambda store: store.session("trip").set("k", float("nan")),
    lambda store: store.session("trip").set("k", object()),
    lambda store: store.session("trip").set("k", "x" * 300_000),
    lambda store: store.record("trip", "user", "other words", key="t1"),
    lambda store: store.record("trip", "user", ""),
    lambda store: store.record("trip", "user", "\ud800"),
    lambda store: store.record("trip", "nobody", "x"),
    lambda store: store.record_many([{"role": "user", "content": "x"}]),
    lambda store: store.session("trip").record_many([{"role": "user", "content": "x"}, {"role": "user"}]),
    lambda store: store.end_session("gone"),
    lambda store: store.session("ended").record("user", "x"),
    lambda store: store.session("trip").at(1_000),
    lambda store: store.session("late").at(1),
    lambda store: store.switch("trip", reason="new"),
    lambda store: store.recall("tea", k=0),
    lambda store: store.recall("tea", as_of="soon"),
    lambda store: store.recall("tea", as_of=datetime(2026, 1, 1)),
    lambda store: store.session("trip").turns(after="1"),
    lambda store: store.audit.event(4_711),
    lambda store: store.forget(session="gone"),
    lambda store: store.session(""),
    lambda store: store.session(7),
]


def test_an_error_over_http_is_that_of_the_library(tmp_path):
    """The same class, message, hint and attributes."""
    stores = [
        MemoryStore.open(tmp_path / name, model=HashEncoder(), clock=FakeClock(), background=False)
        for name in ("local", "served")
    ]
    for store in stores:
        store.session("trip").record("user", "tea", key="t1")
        store.session("ended").end()
        store.session("late")
    local, served = stores[0], Served(stores[1])
    with connect(served.url) as remote:
        for number, call in enumerate(ERRORS):
            with pytest.raises(errors.MnemologError) as here:
                call(local)
            with pytest.raises(errors.MnemologError) as there:
                call(remote)
            assert describe(there.value) == describe(here.value), number
    served.close()
    local.close()


def describe(error):
    """All that a caller can see of an error."""
    return type(error), str(error), error.hint, {name: value for name, value in vars(error).items() if name != "hint"}


async def test_the_asyncio_store_of_a_client_has_the_same_methods(served):
    """Sessions, recalls, pages of events and prefetched answers."""
    async with connect_async(served.url) as store:
        session = await store.session("trip")
        await session.record("user", "tea in Porto", key="t1")
        assert (await store.recall("tea")).hits[0].text == "tea in Porto"
        await session.prefetch("tea")
        assert (await session.prefetch_result(wait_s=30)).recall.hits[0].text == "tea in Porto"
        assert (await session.prefetch_result()).reason == "none-asked", "it is handed out once"
        assert [event.position async for event in store.events()] == [1, 2]
        assert repr(store) == f"AsyncMemoryStore({served.url!r})"


def test_long_lists_are_fetched_page_by_page(store, monkeypatch):
    """Without a gap or a repetition, forwards and backwards."""
    session = store.session("trip")
    session.record_many([{"role": "user", "content": f"turn {n}"} for n in range(57)])
    monkeypatch.setattr("mnemolog.server.client.operation.PAGE_MAX", 10)
    assert [turn.text for turn in session.turns(limit=45)] == [f"turn {n}" for n in range(45)]
    assert [turn.text for turn in session.turns(newest_first=True, limit=25)] == [f"turn {56 - n}" for n in range(25)]
    assert [turn.text for turn in session.turns(last=25)] == [f"turn {n}" for n in range(32, 57)]
    assert [event.position for event in store.events()] == list(range(1, 59))
    assert len(store.turns("trip")) == len(session.at(58).turns()) == len(store.find("turn")) == 57
    for n in range(25):
        store.session(f"s{n}")
    assert [item.session for item in store.sessions()] == ["trip", *(f"s{n}" for n in range(25))]


def test_an_export_is_written_on_this_machine(store, served, tmp_path):
    """The bytes and the report are those of the server's own export."""
    store.session("trip").record("user", "tea")
    there = store.audit.export(tmp_path / "there.jsonl")
    here = served.local.audit.export(tmp_path / "here.jsonl")
    assert there == here
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    with pytest.raises(errors.InvalidInput):
        store.audit.export(tmp_path / "there.jsonl")


def test_a_time_without_a_zone_is_utc_for_a_client_too(store):
    """Wherever it and the server are."""
    said = datetime(2026, 3, 16, 14, tzinfo=timezone(timedelta(hours=5)))
    assert store.record(store.session("trip"), "user", "x", said_at=said).said_at == said
    assert store.record("trip", "user", "y", said_at="2026-03-16T14:00").said_at == said + timedelta(hours=5)


def test_every_write_of_a_client_has_a_key_of_its_own(store):
    """So that it can be sent again; one that the caller gives is kept."""
    session = store.session("trip")
    keys = [session.record("user", "again").key for _ in range(2)] + [session.record("user", "x", key="mine").key]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"
    session.note("n")
    assert all(event.key for event in store.events(after=1))


def test_what_cannot_be_repeated_is_not():
    """The error says that the outcome is unknown."""
    calls = []

    def answer(request):
        calls.append(request)

    with Answering(answer) as url, connect(url) as store:
        with pytest.raises(errors.LogUnreachable, match="unknown"):
            store.forget(session="trip")
        assert len(calls) == 1
        with pytest.raises(errors.LogUnreachable, match="in 3 tries"):
            connect(url, tries=3).head()
        assert len(calls) == 4


def test_what_a_stop_of_the_server_cut_off_is_repeated_only_if_that_doubles_nothing():
    """After `Retry-After`, with the same key, as it may have been completed. An erasure has no key."""
    calls = []
    stopping = {"title": "Stopping", "status": 503, "detail": "the server stops"}

    def answer(request):
        calls.append(request.partition(KEY_HEADER + ": ")[2].partition("\r\n")[0])
        if len(calls) == 2:
            return "204 No Content", {}, b""
        headers = {"retry-after": "0", "content-type": "application/problem+json"}
        return "503 Service Unavailable", headers, json.dumps(stopping).encode()

    with Answering(answer) as url, connect(url) as store:
        store.end_session("trip")
        assert len(calls) == 2
        assert calls[0] == calls[1] != ""
        with pytest.raises(errors.StoreError, match="the server stops"):
            store.forget(session="trip")
        assert len(calls) == 3


def test_the_token_is_sent_to_no_other_address():
    """A redirect is refused, and names where to connect to."""
    others = []

    def other(request):
        others.append(request)

    with Answering(other) as elsewhere:

        def answer(request):
            assert "authorization: Bearer mnl_secret" in request.lower().replace("bearer", "Bearer")
            return "307 Temporary Redirect", {"location": f"{elsewhere}/v1/head"}, b""

        with (
            Answering(answer) as url,
            connect(url, token="mnl_secret") as store,
            pytest.raises(errors.StoreError, match=elsewhere),
        ):
            store.head()
    assert others == []


def test_the_token_is_in_no_text_and_no_log(served, caplog):
    """Neither in a `repr` nor in an error nor in what is logged."""
    caplog.set_level(logging.DEBUG)
    token = served.local.admin.create_token("alice").secret
    with connect(served.url, token=token) as store:
        store.head()
        shown = [repr(store), str(vars(store)), repr(store.session("a"))]
    with pytest.raises(errors.StoreClosed) as closed:
        store.head()
    with connect(served.url, token=f"{token}x") as other, pytest.raises(errors.StoreError) as unknown:
        other.head()
    assert token not in " ".join([*shown, caplog.text, repr(closed.value), repr(unknown.value)])
    with pytest.raises(errors.InvalidInput) as refused:
        connect(served.url, token="two words")
    assert "two words" not in str(refused.value)


def test_an_address_that_cannot_be_used_is_refused():
    """Nothing is sent; a token is not sent in clear text beyond this machine, unless that is allowed."""
    for url, options, field in (
        ("memory.example.org", {}, "url"),
        ("ftp://memory.example.org", {}, "url"),
        ("https://name:secret@memory.example.org", {}, "url"),
        ("https://memory.example.org?x=1", {}, "url"),
        ("http://memory.example.org", {"token": "token"}, "url"),
        ("http://127.0.0.1:9", {"tries": 0}, "tries"),
    ):
        with pytest.raises(errors.InvalidInput) as refused:
            connect(url, **options)
        assert refused.value.field == field
        assert "secret" not in str(refused.value)
    connect("http://memory.example.org", token="token", allow_http=True).close()
    with pytest.raises(errors.InvalidInput, match=r"mnemolog\.connect"):
        MemoryStore.open("https://memory.example.org")


def test_a_server_that_does_not_run_is_named():
    """With what is known: nothing was written."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with connect(url, tries=2) as store, pytest.raises(errors.LogUnreachable) as unreachable:
        store.record("trip", "user", "x")
    assert url in str(unreachable.value)
    assert "nothing was written" in str(unreachable.value)


def test_a_client_belongs_to_its_process_and_ends_with_close(store):
    """As a local store does."""
    session = store.session("trip")

    def use():
        for call in (store.head, session.turns, lambda: session.record("user", "x")):
            with pytest.raises(errors.StoreForked):
                call()
        return True

    assert in_child(use)
    for item in (store, session):
        with pytest.raises(errors.StoreError):
            pickle.dumps(item)
    store.close()
    store.close()
    for call in (store.head, session.turns, store.audit.erasures, lambda: list(store.events())):
        with pytest.raises(errors.StoreClosed):
            call()


def test_what_needs_a_store_in_this_process_says_so(store, tmp_path):
    """Its parts, a function that counts tokens, a path on the server, a callback."""
    session = store.session("trip")
    for call in (
        lambda: store.parts,
        lambda: session._parts,
        lambda: store.within("acme"),
    ):
        with pytest.raises(errors.StoreError, match="server"):
            call()
    for call in (lambda: store.context("tea", tokenizer=len), lambda: store.backup(tmp_path / "b")):
        with pytest.raises(errors.InvalidInput, match="server"):
            call()
    assert store.path == store._connection.url


def test_without_its_package_a_client_names_the_extra():
    """And the command that installs it."""
    script = (
        "import sys; sys.modules['httpx2'] = None\n"
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'httpx2' else find(name, *rest)\n"
        "import mnemolog\n"
        "try: mnemolog.connect('http://127.0.0.1:1')\n"
        "except mnemolog.errors.ExtraMissing as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install" in ran.stdout


class Answering:
    """A server that answers each request with what a function returns, and hangs up where that is None."""

    def __init__(self, answer):
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)  # `accept` does not notice `close`.
        self._listening.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                data = b""
                while b"\r\n\r\n" not in data and (part := connection.recv(65_536)):
                    data += part
                head, _, body = data.partition(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                while len(body) < int(length or 0) and (part := connection.recv(65_536)):
                    body += part
                if (answer := self._answer(data.decode())) is not None:
                    status, headers, body = answer
                    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
                    if not status.startswith("204"):
                        lines.append(f"content-length: {len(body)}")
                    connection.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode() + body)
