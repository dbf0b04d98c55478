"""Following the log: in order, without gaps, from a position, also what other processes append."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain.errors import LogUnreachable
from mnemolog.server.http import api, authentication, live_events
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import Authentication, Callers, Users
from mnemolog.server.http.connections import PEER
from tests.server.api.examples import TRIP_ID


class Followed:
    """What a follower was sent so far."""

    def __init__(self) -> None:
        self.status = 0
        self.is_over = asyncio.Event()
        """Set when the server has ended the answer."""
        self.headers: dict[bytes, bytes] = {}
        self._parts: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""

    async def take(self, message: Any) -> None:
        """Take a message of the server."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        elif message["body"]:
            await self._parts.put(message["body"])
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.is_over.set()

    async def message(self) -> dict[str, Any]:
        """Return the next message, whose `id` may be all that it has."""
        while True:
            block, end, rest = self._rest.partition(b"\n\n")
            if end:
                self._rest = rest
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
                return {"id": int(fields[b"id"]), **msgspec.json.decode(fields.get(b"data", b"{}"))}
            self._rest += await asyncio.wait_for(self._parts.get(), 30)

    async def event(self) -> dict[str, Any]:
        """Return the next event."""
        while "event" not in (message := await self.message()):
            pass
        return message

    async def upto(self, position: int) -> list[dict[str, Any]]:
        """Return the events until the log was read up to a position."""
        found = [await self.message()]
        while found[-1]["id"] < position:
            found.append(await self.message())
        return [message for message in found if "event" in message]

    async def events(self, count: int) -> list[dict[str, Any]]:
        """Return the next events."""
        return [await self.event() for _ in range(count)]


@asynccontextmanager
async def following(server, query: str = "", *, headers=(), path="/v1/tail", followed=None):
    """Follow the log of a server, as one caller over one connection."""
    hung_up, followed = asyncio.Event(), followed or Followed()

    async def receive():
        await hung_up.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "state": {PEER: "127.0.0.1"},
        "headers": headers,
    }
    task = asyncio.create_task(server.app(scope, receive, followed.take))
    try:
        while not followed.status and not task.done():
            await asyncio.sleep(0)
        yield followed
    finally:
        hung_up.set()
        await asyncio.wait_for(task, 30)


def positions(events):
    """The positions of events, which are also their ids."""
    assert [event["id"] for event in events] == [event["position"] for event in events]
    return [event["id"] for event in events]


async def test_a_follower_resumes_after_the_last_event_that_it_has_seen(server, store):
    """`Last-Event-ID` counts, also before `after`: nothing is left out and nothing comes twice."""
    head = store.head().position
    async with following(server, "after=0", headers=[(b"last-event-id", b"3")]) as followed:
        assert positions(await followed.events(head - 3)) == list(range(4, head + 1))
        await asyncio.to_thread(store.record, TRIP_ID, "user", "and now")
        assert (await followed.event())["id"] == head + 1


async def test_a_follower_gets_what_is_recorded_from_now_on_also_by_other_processes(server, folder, store, encoder):
    """In order, with the position as the id. Another store over the folder is what another process is to the log."""
    async with following(server) as followed:
        assert followed.headers[b"content-type"] == b"text/event-stream"
        begin = store.head().position
        for number in range(4):
            await asyncio.to_thread(store.record, TRIP_ID, "user", f"turn {number}")
        with MemoryStore.open(folder, model=None, background=False) as other:
            await asyncio.to_thread(other.record, TRIP_ID, "user", "turn 4")
        events = await followed.events(5)
        assert positions(events) == list(range(begin + 1, begin + 6))
        assert [event["event"]["text"] for event in events] == [f"turn {number}" for number in range(5)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("session=b3", {"b"}),
        ("scope=acme", {"a", "b"}),
        ("scope=acme/alice&session=b3", set()),
        ("topics=session.started.v1&scope=acme", {"a", "b"}),
    ],
)
@pytest.mark.parametrize("after", ["", "&after=0"], ids=["live", "from the beginning"])
async def test_a_follower_gets_only_the_events_that_match_its_filters(
    server, store, monkeypatch, query, expected, after
):
    """Filters hold for events that are there and for those that come."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 0.05)

    def record():
        for name, scope in (("a", "acme/alice"), ("b", "acme/bob"), ("c", "globex")):
            store.start_session(f"{name}{len(store.sessions())}", scope=scope).record("user", "hello")
        store.record("b3", "user", "again")

    await asyncio.to_thread(record)
    async with following(server, query + after) as followed:
        begin = store.head().position
        await asyncio.to_thread(record)
        events = await followed.upto(store.head().position)
        assert {event["session"][0] for event in events} == expected
        assert all(event["position"] > begin for event in events) is not bool(after and expected)
        assert "topics" not in query or {event["topic"] for event in events} == {"session.started.v1"}


async def test_what_was_forgotten_is_sent_to_nobody_any_more(server, store):
    """Neither to who asks from now on nor to who reads slowly, also where the server has sent it to another one."""
    head = store.head().position
    async with following(server) as first, following(server) as slow:
        slow._parts = asyncio.Queue(1)
        for text in ("one", "two", "heliotrope"):
            await asyncio.to_thread(store.record, TRIP_ID, "user", text)
            assert (await first.event())["event"]["text"] == text
            while text == "two" and not slow._parts._putters:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(store.forget, positions=[head + 3])
        end = store.head().position
        async with following(server, f"after={head}") as second:
            for followed in (second, first, slow):
                assert "heliotrope" not in repr(await followed.upto(end))


ANN = '[ann]\nverbs = ["read", "record"]\nscopes = ["acme", "globex"]\n'
FEWER = {
    "the person is removed": ANN.replace("ann", "ben"),
    "one scope of the person is removed": ANN.replace(', "globex"', ""),
    "a scope of the person is narrowed": ANN.replace("globex", "globex/ann"),
    "one verb of the person is removed": ANN.replace(', "record"', ""),
    "the verb to read is removed": ANN.replace('"read", ', ""),
}
AS_MANY = {
    "nothing changes": ANN,
    "the order changes": ANN.replace('"acme", "globex"', '"globex", "acme"').replace(
        '"read", "record"', '"record", "read"'
    ),
    "another verb and scope are added": ANN.replace('"record"', '"record", "forget"').replace(
        "acme", 'acme", "initech'
    ),
    "all scopes are allowed": ANN.partition("scopes")[0],
}
"""What the file of users may become while a person follows the log."""


class Access:
    """A server with tokens and with people whom a proxy names."""

    def __init__(self, store, path):
        self._path = path
        path.write_text(ANN)
        self._users, self._whole = Users("X-User", path, ["127.0.0.1"]), AsyncMemoryStore(store, WorkerPools())
        callers = Callers(self._whole, self._users)
        middleware = [Middleware(Authentication, callers=callers, store=self._whole, needs_token=True)]
        self.app = make_app(self._whole, middleware=middleware)

    def change(self, text):
        """Change the file of users, and read it again."""
        self._path.write_text(text)
        self._users.read()


@pytest.fixture
def access(store, folder, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 0.02)
    store.start_session("inside", scope="acme/ann")
    reads = tmp_path / "reads.jsonl"
    with MemoryStore.open(folder, model=None, clock=clock, background=False, audit_reads=reads) as served:
        yield Access(served, tmp_path / "users.toml")


PERSON = [(b"x-user", b"ann")]


def bearer(created):
    return [(b"authorization", f"Bearer {created.secret}".encode())]


@pytest.mark.parametrize(
    ("is_idle", "narrowed"),
    [(True, []), (False, [(b"mnemolog-scope", b"acme/ann")])],
    ids=["while nothing is recorded", "before the next event of one scope"],
)
@pytest.mark.parametrize("why", ["the token is revoked", "the token expires", *FEWER])
async def test_a_stream_ends_when_its_caller_loses_a_right(
    access, server, store, clock, tmp_path, why, is_idle, narrowed
):
    """The answer ends before anything that was recorded later, and the audit of reads has no line for that."""
    created = store.admin.create_token("ann", scopes=["acme", "globex"], expires_in=timedelta(hours=1))
    headers = bearer(created) if "token" in why else PERSON
    async with following(access, headers=headers + narrowed) as followed:
        await asyncio.to_thread(store.record, "inside", "user", "seen")
        assert (await followed.event())["event"]["text"] == "seen"
        if why == "the token is revoked":
            await asyncio.to_thread(store.admin.revoke_token, created.token.id)
        elif why == "the token expires":
            clock.advance(seconds=3_600)
        else:
            access.change(FEWER[why])
        seen = store.head().position
        if not is_idle:
            await asyncio.to_thread(store.record, "inside", "user", "heliotrope")
        await asyncio.wait_for(followed.is_over.wait(), 30)
        assert not any(b"heliotrope" in followed._parts.get_nowait() for _ in range(followed._parts.qsize()))
        read = (tmp_path / "reads.jsonl").read_text().splitlines()
        assert [msgspec.json.decode(line)["positions"][-1][-1] <= seen for line in read] == [True]


@pytest.mark.parametrize("why", AS_MANY)
async def test_a_stream_goes_on_while_its_caller_loses_no_right(access, server, store, why):
    """Reading the file of users again ends nothing by itself."""
    async with following(access, headers=PERSON) as followed:
        access.change(AS_MANY[why])
        for text in ("one", "two"):
            await asyncio.to_thread(store.record, "inside", "user", text)
            assert (await followed.event())["event"]["text"] == text
        assert not followed.is_over.is_set()


async def test_an_export_ends_without_its_trailer_when_its_caller_loses_a_right(access, server, store, monkeypatch):
    """Each chunk is sent to who may have it at that time."""
    monkeypatch.setattr(api, "CHUNK_BYTES", 1)
    created, followed = store.admin.create_token("ops"), Followed()
    take = followed.take

    async def taken(message):
        await take(message)
        if followed._parts.qsize() == 3:
            await asyncio.to_thread(store.admin.revoke_token, created.token.id)

    followed.take = taken
    async with following(access, headers=bearer(created), path="/v1/export", followed=followed):
        await asyncio.wait_for(followed.is_over.wait(), 30)
    assert followed._parts.qsize() == 3


@pytest.mark.parametrize(("kept", "most"), [("KEPT_MAX", 3), ("KEPT_BYTES_MAX", 2_000), ("KEPT_BYTES_MAX", 0)])
async def test_a_slow_follower_misses_nothing(server, store, monkeypatch, kept, most):
    """With too many unread events, or too large ones, it reads the log itself."""
    monkeypatch.setattr(live_events, kept, most)
    monkeypatch.setattr(live_events, "BATCH_MAX", 4)
    head = store.head().position
    async with following(server) as followed:
        for number in range(40):
            await asyncio.to_thread(store.record, TRIP_ID, "user", f"turn {number}")
        assert positions(await followed.events(40)) == list(range(head + 1, head + 41))


def test_large_events_are_not_kept(store):
    """However many a holder of a token records: they would fill the memory of the server."""
    for _ in range(7):
        store.record(TRIP_ID, "user", "x" * 900_000)
    known = live_events._entries(store, store.head().position - 7, store.head().position)
    assert live_events._to_keep(known) == known[-4:]


def failing_once(work, *, before):
    """`work`, but its first call raises as a database that cannot be reached does, after `before` was called."""
    calls = []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == 1:
            before()
            raise LogUnreachable("the database does not answer")
        return work(*args, **kwargs)

    return call


@pytest.mark.parametrize(("module", "step"), [(live_events, "_entries"), (authentication, "_known")])
async def test_an_outage_at_any_step_leaves_nothing_out_and_sends_nothing_twice(
    access, server, store, monkeypatch, module, step
):
    """The same followers get the events after it; also where some of them had the first ones already."""
    monkeypatch.setattr(live_events, "RETRY_S", 0.01)
    headers = bearer(store.admin.create_token("alice"))
    first, second = following(access, headers=headers), following(access, "scope=acme", headers=headers)
    async with first as first, second as second, asyncio.timeout(30):
        begin = store.head().position
        more = partial(store.record, TRIP_ID, "user", "during the outage")
        monkeypatch.setattr(authentication, "AWAY_S", -1)
        monkeypatch.setattr(module, step, failing_once(getattr(module, step), before=more))
        await asyncio.to_thread(store.record, TRIP_ID, "user", "before it")
        for followed in (first, second):
            assert positions(await followed.events(2)) == [begin + 1, begin + 2]
        await asyncio.to_thread(store.record, TRIP_ID, "user", "after it")
        for followed in (first, second):
            assert positions(await followed.events(1)) == [begin + 3]


async def test_a_follower_without_events_gets_its_position(server, store, monkeypatch):
    """A comment keeps proxies from cutting the connection, and its id moves where the follower resumes."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 0.01)
    async with following(server) as followed:
        assert await asyncio.wait_for(followed._parts.get(), 30) == b": \nid: %d\n\n" % store.head().position


async def test_what_a_follower_does_not_get_delays_no_message(server, store, monkeypatch):
    """That says how far it has read."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 2.0)
    async with following(server, "topics=fact.asserted.v1") as followed:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.8)
        await asyncio.to_thread(store.record, TRIP_ID, "user", "one more")
        await followed.message()
        assert asyncio.get_running_loop().time() - began < 3.5


async def test_the_log_is_read_once_for_all_followers_and_not_without_any(server, store):
    """One task reads it, however many follow; with the last one it ends."""
    async with following(server) as first, following(server) as second, following(server, "session=other"):
        reading = server.followers._reading
        await asyncio.to_thread(store.record, TRIP_ID, "user", "for both")
        assert (await first.event())["id"] == (await second.event())["id"]
        assert server.followers._reading is reading
    assert server.followers._reading is None
    await asyncio.gather(reading, return_exceptions=True)
    assert not any(isinstance(listener, live_events._Listener) for listener in store.parts.log.followers._listeners)
