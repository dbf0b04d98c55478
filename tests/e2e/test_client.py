"""A store on a server: the same calls, results and errors as with a local one.

Tokens of a server: created and revoked as events, checked against a digest, never stored.
"""

import getpass
import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace

import msgspec
import pytest

from mnemolog import (
    MISSING,
    DuplicateKey,
    InvalidInput,
    LimitExceeded,
    MemoryStore,
    acting_as,
    connect,
    connect_async,
    errors,
    import_log,
)
from mnemolog.domain.request import request_key
from mnemolog.domain.result import Results
from mnemolog.domain.scope import SCOPES_MAX
from mnemolog.domain.tokens import PREFIX, TOKENS_STREAM, ends_soon
from mnemolog.domain.values import to_datetime
from mnemolog.server.http.authentication import find_token
from mnemolog.server.http.routes import KEY_HEADER
from tests.children.forking import in_child
from tests.support import FakeClock, HashEncoder, nothing_written
from tests.through_http import Served


@pytest.fixture
def served(folder):
    """A store behind a server."""
    with closing(Served(MemoryStore.open(folder, model=HashEncoder(), clock=FakeClock(), background=False))) as served:
        yield served


@pytest.fixture
def remote(served):
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_long_lists_are_fetched_page_by_page(remote, monkeypatch):
    """Without a gap or a repetition, forwards and backwards."""
    session = remote.session("trip")
    session.record_many([{"role": "user", "content": f"turn {n}"} for n in range(57)])
    monkeypatch.setattr("mnemolog.server.client.operation.PAGE_MAX", 10)
    assert [turn.text for turn in session.turns(limit=45)] == [f"turn {n}" for n in range(45)]
    assert [turn.text for turn in session.turns(newest_first=True, limit=25)] == [f"turn {56 - n}" for n in range(25)]
    assert [turn.text for turn in session.turns(last=25)] == [f"turn {n}" for n in range(32, 57)]
    assert [event.position for event in remote.events()] == list(range(1, 59))
    assert len(remote.turns("trip")) == len(session.at(58).turns()) == len(remote.find("turn")) == 57
    for n in range(25):
        remote.session(f"s{n}")
    assert [item.session for item in remote.sessions()] == ["trip", *(f"s{n}" for n in range(25))]


@pytest.mark.local
def test_an_export_is_written_on_this_machine(remote, served, tmp_path):
    """The bytes and the report are those of the server's own export."""
    remote.session("trip").record("user", "tea")
    there = remote.audit.export(tmp_path / "there.jsonl")
    here = served.local.audit.export(tmp_path / "here.jsonl")
    assert there == here
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    with pytest.raises(errors.InvalidInput):
        remote.audit.export(tmp_path / "there.jsonl")


@pytest.mark.local
def test_a_time_without_a_zone_is_utc_for_a_client_too(remote):
    """Wherever it and the server are."""
    said = datetime(2026, 3, 16, 14, tzinfo=timezone(timedelta(hours=5)))
    assert remote.record(remote.session("trip"), "user", "x", said_at=said).said_at == said
    assert remote.record("trip", "user", "y", said_at="2026-03-16T14:00").said_at == said + timedelta(hours=5)


@pytest.mark.local
def test_every_write_of_a_client_has_a_key_of_its_own(remote):
    """So that it can be sent again; one that the caller gives is kept."""
    session = remote.session("trip")
    keys = [session.record("user", "again").key for _ in range(2)] + [session.record("user", "x", key="mine").key]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"
    session.note("n")
    assert all(event.key for event in remote.events(after=1))


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_a_server_that_does_not_run_is_named():
    """With what is known: nothing was written."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with connect(url, tries=2) as store, pytest.raises(errors.LogUnreachable) as unreachable:
        store.record("trip", "user", "x")
    assert url in str(unreachable.value)
    assert "nothing was written" in str(unreachable.value)


@pytest.mark.local
def test_a_client_belongs_to_its_process_and_ends_with_close(remote):
    """As a local store does."""
    session = remote.session("trip")

    def use():
        for call in (remote.head, session.turns, lambda: session.record("user", "x")):
            with pytest.raises(errors.StoreForked):
                call()
        return True

    assert in_child(use)
    for item in (remote, session):
        with pytest.raises(errors.StoreError):
            pickle.dumps(item)
    remote.close()
    remote.close()
    for call in (remote.head, session.turns, remote.audit.erasures, lambda: list(remote.events())):
        with pytest.raises(errors.StoreClosed):
            call()


@pytest.mark.local
def test_what_needs_a_store_in_this_process_says_so(remote, tmp_path):
    """Its parts, a function that counts tokens, a path on the server, a callback."""
    session = remote.session("trip")
    for call in (
        lambda: remote.parts,
        lambda: session._parts,
        lambda: remote.within("acme"),
    ):
        with pytest.raises(errors.StoreError, match="server"):
            call()
    for call in (lambda: remote.context("tea", tokenizer=len), lambda: remote.backup(tmp_path / "b")):
        with pytest.raises(errors.InvalidInput, match="server"):
            call()
    assert remote.path == remote._connection.url


@pytest.mark.local
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


NOW = datetime(2024, 1, 2, tzinfo=UTC)


def holder(store, secret):
    """The token that a server finds for what a caller sends."""
    return find_token(store.parts.tokens.known(), secret, now=to_datetime(store.parts.clock.now()))


@pytest.mark.local
def test_a_token_is_created_shown_once_and_found_by_its_secret(store):
    """The list has everything but the secret."""
    with acting_as("root"):
        created = store.admin.create_token("alice", verbs=["record", "read"], scopes=["acme/alice"])
    assert created.secret.startswith(f"{PREFIX}{created.token.id}_")
    assert len(created.secret) > 60
    (token,) = store.admin.tokens()
    assert token == created.token == holder(store, created.secret)
    assert (token.actor, token.verbs, token.scopes) == ("alice", ("read", "record"), ("acme/alice",))
    assert (token.created_by, token.revoked_at, token.last_used_at) == ("root", None, None)
    assert timedelta(days=89) < token.expires_at - token.created_at <= timedelta(days=90)


def test_an_invalid_token_or_a_part_of_one_finds_no_holder(store):
    """Whatever is sent, no error and no caller. Two tokens for one actor have two ids and two secrets."""
    one, two = store.admin.create_token("alice"), store.admin.create_token("alice")
    assert one.secret != two.secret
    assert [token.id for token in store.admin.tokens()] == [one.token.id, two.token.id]
    mixed = two.secret.replace(two.token.id, one.token.id)
    parts = (one.token.id, one.secret[:-1], one.secret + "x", one.secret.upper(), mixed)
    for sent in (*parts, "", "mnemolog_", "mnemolog_0123_x", "x" * 100_000, "\udc80", "mnemolog_ä_ö", "_", " "):
        assert holder(store, sent) is None, sent[:50]


@pytest.mark.local
def test_a_revoked_token_is_refused_with_the_name_of_who_revoked_it(store):
    """Revoking it again changes nothing."""
    created = store.admin.create_token("alice")
    with acting_as("root"):
        revoked = store.admin.revoke_token(created.token.id)
    with nothing_written(store):
        assert store.admin.revoke_token(created.secret) == revoked
    assert (revoked.revoked_by, revoked.revoked_at is None) == ("root", False)
    assert holder(store, created.secret) is None


@pytest.mark.local
@pytest.mark.parametrize("lasts", [timedelta(days=30), None])
def test_a_rotated_token_has_a_successor_and_ends_after_a_time(store, clock, lasts):
    """With the same rights, for as long again. Until then both are valid, and the old one can still be revoked."""
    clock.step = 0
    old = store.admin.create_token("alice", verbs=["read"], scopes=["acme"], expires_in=lasts)
    clock.advance(seconds=20 * 86_400)
    with acting_as("root"):
        new = store.admin.rotate_token("alice", revoke_old_after=timedelta(hours=2))
    first, second = store.admin.tokens()
    assert (new.token, new.replaces) == (second, first)
    assert (second.actor, second.verbs, second.scopes) == ("alice", ("read",), ("acme",))
    assert second.expires_at == (lasts and second.created_at + lasts)
    assert (first.replaced_at, first.revoked_by) == (second.created_at, "root")
    assert (ends_soon(first, first.replaced_at), store.audit.erasures()[0].token) == (False, first.id)
    clock.advance(seconds=7_199)
    assert [holder(store, made.secret) for made in (old, new)] == [first, second]
    clock.advance(seconds=1)
    assert [holder(store, made.secret) for made in (old, new)] == [None, second]
    newest = store.admin.rotate_token(second, revoke_old_after=timedelta(0))
    assert (newest.replaces.revoked_at, holder(store, new.secret)) == (newest.token.created_at, None)
    last = store.admin.rotate_token(newest.secret)
    assert (last.replaces.expires_at, holder(store, newest.secret)) == (
        last.token.created_at + timedelta(hours=1),
        last.replaces,
    )
    assert store.admin.revoke_token(newest.token).revoked_at == last.token.created_at
    assert holder(store, newest.secret) is None
    assert "revoked from " in [*store.audit.timeline()][2].what


def test_of_two_rotations_at_once_one_is_refused(store, folder):
    """So there is one successor; what cannot have one is refused as well."""
    old = store.admin.create_token("alice", expires_in=None).token

    def rotate(_):
        with MemoryStore.open(folder, model=None) as other, suppress(InvalidInput):
            return other.admin.rotate_token(old.id)

    with ThreadPoolExecutor(4) as pool:
        assert len([made for made in pool.map(rotate, range(4)) if made]) == 1
    assert len(store.admin.tokens()) == 2
    store.admin.create_token("alice")
    gone = store.admin.revoke_token(store.admin.create_token("bob").token)
    for named, after, why in (
        (old, 1, "revoked or replaced"),
        ("alice", 1, "has 2 valid tokens"),
        ("bob", 1, "no token has the id 'bob'"),
        (gone, 1, "has expired, or was revoked"),
        (store.admin.create_token("carol").token, -1, "revoke_old_after: a token cannot end before now"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.admin.rotate_token(named, revoke_old_after=timedelta(hours=after))


def test_a_revocation_by_another_process_is_noticed_at_once(store, folder):
    """A store that has the tokens in memory asks whether there are new events of tokens."""
    created = store.admin.create_token("alice")
    assert holder(store, created.secret) is not None
    with MemoryStore.open(folder, model=None) as other:
        other.admin.revoke_token(created.token.id)
    assert holder(store, created.secret) is None


def test_a_token_expires_on_the_minute(store, clock):
    """It is valid until then, and not at that moment."""
    clock.step = 0
    created = store.admin.create_token("alice", expires_in=timedelta(days=30))
    clock.advance(seconds=30 * 86_400 - 1)
    assert holder(store, created.secret) is not None
    clock.advance(seconds=1)
    assert holder(store, created.secret) is None


def test_checking_a_token_asks_the_log_one_question(store, monkeypatch):
    """However many tokens there are, and whatever was recorded meanwhile."""
    secrets = [store.admin.create_token(f"user-{number}").secret for number in range(50)]
    store.session("trip").record("user", "hello")
    reading, asked = store.parts.log.engine.reading, []

    @contextmanager
    def counted():
        with reading() as reads:
            yield SimpleNamespace(version=lambda stream: asked.append(stream) or reads.version(stream))

    monkeypatch.setattr(store.parts.log.engine, "reading", counted)
    assert holder(store, secrets[-1]).actor == "user-49"
    assert asked == [TOKENS_STREAM]


def test_an_unknown_token_costs_the_same_work_as_a_wrong_one(store, monkeypatch):
    """Each is hashed and compared once, in constant time."""
    created = store.admin.create_token("alice")
    compared = []
    monkeypatch.setattr(
        "mnemolog.server.http.authentication.hmac.compare_digest",
        lambda one, two: compared.append((len(one), len(two))) or one == two,
    )
    for sent in (created.secret, created.secret[:-4] + "wxyz", "mnemolog_000000000000_abc", "anything"):
        holder(store, sent)
    assert compared == [(32, 32)] * 4


REFUSED = [
    ({"actor": ""}, "actor"),
    ({"actor": "a\nb"}, "actor"),
    ({"verbs": []}, "verbs"),
    ({"verbs": "read"}, "verbs"),
    ({"verbs": ["write"]}, "verbs"),
    ({"scopes": "acme"}, "scopes"),
    ({"scopes": [""]}, "scopes"),
    ({"scopes": ["acme", "/x"]}, "scope"),
    ({"expires_in": timedelta(0)}, "expires_in"),
    ({"expires_in": timedelta(days=10**8)}, "expires_in"),
]


@pytest.mark.local
def test_a_token_that_makes_no_sense_is_refused(store):
    """An empty scope too: an empty variable of a script must not mean everything."""
    for about, field in REFUSED:
        with pytest.raises(InvalidInput, match=field):
            store.admin.create_token(**{"actor": "alice"} | about)
    assert store.head().position == 0


def test_a_token_has_a_limited_number_of_scopes_and_none_within_another(store):
    """`acme` covers `acme/alice`."""
    created = store.admin.create_token("alice", scopes=["acme/alice", "acme", "other"])
    assert created.token.scopes == ("acme", "other")
    with pytest.raises(LimitExceeded, match="scopes"):
        store.admin.create_token("alice", scopes=[f"s{number}" for number in range(SCOPES_MAX + 1)])


def test_an_unknown_id_is_refused_without_repeating_what_was_pasted(store):
    """It may be a token of another store."""
    other = "mnemolog_0123456789ab_" + "s" * 43
    with pytest.raises(InvalidInput, match="no token") as refused:
        store.admin.revoke_token(other)
    assert "ssss" not in str(refused.value)
    with pytest.raises(InvalidInput, match="'0123'"):
        store.admin.revoke_token("0123")


@pytest.mark.local
def test_a_repeated_request_to_create_a_token_is_refused(store):
    """Its secret cannot be shown a second time, and a second token would be one too many."""
    with request_key("k1"):
        store.admin.create_token("alice")
        with pytest.raises(DuplicateKey):
            store.admin.create_token("alice")
    assert len(store.admin.tokens()) == 1


@pytest.mark.log_file
def test_the_secret_is_in_no_file_no_repr_no_export_and_no_event(store, folder, tmp_path):
    """The store has a digest of it; the copy of a log cannot be used to call a server."""
    created = store.admin.create_token("alice", scopes=["acme"])
    part = created.secret[-30:]
    store.audit.export(tmp_path / "log.jsonl")
    shown = [repr(created), str(created), repr(store.admin.tokens())]
    shown += [str(moment) for moment in store.audit.timeline()] + [repr(event) for event in store.events()]
    assert not [text for text in shown if part in text]
    assert "alice" in repr(created)
    assert part in created.to_json()
    store.close()
    for path in (*folder.rglob("*"), tmp_path / "log.jsonl"):
        assert not path.is_file() or part.encode() not in path.read_bytes(), path


@pytest.mark.log_file
def test_an_import_has_the_tokens_of_the_export(store, tmp_path):
    """Whoever had a token of the log has one of its copy."""
    created = store.admin.create_token("alice", expires_in=None)
    store.audit.export(tmp_path / "log.jsonl")
    import_log(tmp_path / "log.jsonl", tmp_path / "copy")
    with MemoryStore.open(tmp_path / "copy", model=None) as copy:
        assert holder(copy, created.secret) == created.token


@pytest.mark.local
def test_the_timeline_tells_of_tokens(store):
    """Who created one for whom, and who revoked it."""
    with acting_as("root"):
        created = store.admin.create_token("alice", scopes=["acme"], expires_in=timedelta(days=1)).token
        store.admin.revoke_token(created.id)
    made, gone = store.audit.timeline()
    until = created.expires_at.isoformat()
    assert made.what == f"token {created.id} created for alice: read, record in acme, until {until}"
    assert gone.what == f"token {created.id} revoked"
    assert {made.actor, gone.actor} == {"root"}


def test_tokens_in_other_streams_are_no_tokens(store):
    """The stream of tokens alone decides."""
    created = store.admin.create_token("alice")
    event = next(iter(store.events())).event
    log = store.parts.log
    log.appends.transact(
        lambda tx: tx.append("recalls", type(event)(**{"id": "x", "acts_as": "y", "verbs": [], "digest": event.digest}))
    )
    assert [token.id for token in store.admin.tokens()] == [created.token.id]
    assert find_token({}, created.secret, now=NOW) is None


def test_the_command_line_creates_lists_and_revokes_tokens(store, folder, run):
    """Standard output has the token alone, for a script; what it means is on standard error."""
    made = run(
        *("token", "create", folder, "--actor", "alice", "--scope", "acme/a", "--scope", "acme/b"),
        *("--verb", "read", "--expires", "30d"),
    )
    secret = made.stdout.strip()
    token = holder(store, secret)
    assert made.stderr == f"note: token {token.id} of alice; keep it now, because it cannot be shown again\n"
    assert (token.actor, token.scopes, token.verbs) == ("alice", ("acme/a", "acme/b"), ("read",))
    assert token.expires_at - token.created_at < timedelta(days=30, minutes=1)
    listed = run("token", "list", folder).stdout
    assert "alice" in listed
    assert secret not in listed
    assert run("token", "revoke", folder, token.id).stdout == f"token {token.id} of alice is revoked\n"
    assert "revoked" in run("token", "list", folder).stdout
    assert run("token", "list", folder, "--json").json[0]["revoked_at"]
    created = run("token", "create", folder, "--actor", "bob", "--json").json
    assert holder(store, created["secret"]).verbs == ("read", "record")
    rotated = run("token", "rotate", folder, "bob", "--revoke-old-after", "2d")
    assert holder(store, rotated.stdout.strip()).actor == "bob"
    assert f"the token {created['token']['id']}, which it replaces, ends " in rotated.stderr
    assert run("token", "rotate", folder, "bob", "--revoke-old-after", "0m", "--json").json["replaces"]["revoked_at"]


def unknown_user():
    raise KeyError("getpwuid(): uid not found: 4711")


@pytest.mark.parametrize("user", [lambda: "ada", lambda: "", lambda: "a\nb", lambda: "x" * 5_000, unknown_user])
def test_the_command_line_acts_as_the_user_of_this_machine(store, folder, run, monkeypatch, user):
    """A name that is no valid actor becomes `local`; so does none, as where the user id is in no password file."""
    actor = "ada" if user is not unknown_user and user() == "ada" else "local"
    monkeypatch.setattr(getpass, "getuser", user)
    created = run("token", "create", folder, "--actor", "bob", "--json").json["token"]
    revoked = run("token", "revoke", folder, created["id"], "--json").json
    assert (created["created_by"], revoked["revoked_by"]) == (actor, actor)
    assert [event.actor for event in store.audit.timeline()] == [actor, actor]


def test_the_command_line_refuses_what_makes_no_sense(store, folder, run):
    """Nothing is created."""
    for options, said in (
        (["--expires", "soon"], "is not a duration"),
        (["--verb", "write"], "none of read, record, propose, approve, forget, admin"),
        (["--scope", ""], "everywhere"),
    ):
        refused = run("token", "create", folder, "--actor", "alice", *options)
        assert refused.returncode in (1, 2)
        assert said in refused.stderr
    assert store.admin.tokens() == []
