"""Following the log: in order, without gaps, from a position, also what other processes append."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from mnemolog import MemoryStore
from mnemolog.domain.errors import LogUnreachable
from mnemolog.server.http import live_events
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
async def following(server, query: str = "", *, headers=()):
    """Follow the log of a server, as one caller over one connection."""
    hung_up, followed = asyncio.Event(), Followed()

    async def receive():
        await hung_up.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/tail",
        "raw_path": b"/v1/tail",
        "query_string": query.encode(),
        "scheme": "http",
        "client": ("127.0.0.1", 1),
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


def test_a_follower_resumes_after_the_last_event_that_it_has_seen(server, store):
    """`Last-Event-ID` counts, also before `after`: nothing is left out and nothing comes twice."""
    head = store.head().position

    async def follow():
        async with following(server, "after=0", headers=[(b"last-event-id", b"3")]) as followed:
            assert positions(await followed.events(head - 3)) == list(range(4, head + 1))
            await asyncio.to_thread(store.record, TRIP_ID, "user", "and now")
            assert (await followed.event())["id"] == head + 1

    server.run(follow())


def test_a_follower_gets_what_is_recorded_from_now_on_also_by_other_processes(server, folder, store, encoder):
    """In order, with the position as the id. Another store over the folder is what another process is to the log."""

    async def follow():
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

    server.run(follow())


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
def test_a_follower_gets_only_the_events_that_match_its_filters(server, store, monkeypatch, query, expected, after):
    """Filters hold for events that are there and for those that come."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 0.05)

    def record():
        for name, scope in (("a", "acme/alice"), ("b", "acme/bob"), ("c", "globex")):
            store.start_session(f"{name}{len(store.sessions())}", scope=scope).record("user", "hello")
        store.record("b3", "user", "again")

    async def follow():
        await asyncio.to_thread(record)
        async with following(server, query + after) as followed:
            begin = store.head().position
            await asyncio.to_thread(record)
            events = await followed.upto(store.head().position)
            assert {event["session"][0] for event in events} == expected
            assert all(event["position"] > begin for event in events) is not bool(after and expected)
            assert "topics" not in query or {event["topic"] for event in events} == {"session.started.v1"}

    server.run(follow())


def test_what_was_forgotten_is_sent_to_nobody_any_more(server, store):
    """Neither to who asks from now on nor to who reads slowly, also where the server has sent it to another one."""

    async def follow():
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

    server.run(follow())


@pytest.mark.parametrize("why", ["revoked", "expired"])
def test_a_stream_ends_when_its_token_is_revoked_or_expires(server, store, clock, why):
    """The answer ends, before anything that was recorded after it."""
    created = store.admin.create_token("alice", expires_in=timedelta(hours=1))
    server.app = server.as_caller(token=created.token.id)

    async def follow():
        async with following(server) as followed:
            await asyncio.to_thread(store.record, TRIP_ID, "user", "seen")
            assert (await followed.event())["event"]["text"] == "seen"
            if why == "revoked":
                await asyncio.to_thread(store.admin.revoke_token, created.token.id)
            else:
                clock.advance(seconds=7_200)
            await asyncio.wait_for(followed.is_over.wait(), 30)
            assert followed._parts.empty()

    server.run(follow())


@pytest.mark.parametrize(("kept", "most"), [("KEPT_MAX", 3), ("KEPT_BYTES_MAX", 2_000), ("KEPT_BYTES_MAX", 0)])
def test_a_slow_follower_misses_nothing(server, store, monkeypatch, kept, most):
    """With too many unread events, or too large ones, it reads the log itself."""
    monkeypatch.setattr(live_events, kept, most)
    monkeypatch.setattr(live_events, "BATCH_MAX", 4)
    head = store.head().position

    async def follow():
        async with following(server) as followed:
            for number in range(40):
                await asyncio.to_thread(store.record, TRIP_ID, "user", f"turn {number}")
            assert positions(await followed.events(40)) == list(range(head + 1, head + 41))

    server.run(follow())


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


@pytest.mark.parametrize("step", ["_entries", "_valid_tokens"])
def test_an_outage_at_any_step_leaves_nothing_out_and_sends_nothing_twice(server, store, monkeypatch, step):
    """The same followers get the events after it; also where some of them had the first ones already."""
    monkeypatch.setattr(live_events, "RETRY_S", 0.01)
    created = store.admin.create_token("alice")
    server.app = server.as_caller(token=created.token.id)

    async def follow():
        async with following(server) as first, following(server, "scope=acme") as second, asyncio.timeout(30):
            begin = store.head().position
            more = partial(store.record, TRIP_ID, "user", "during the outage")
            monkeypatch.setattr(live_events, step, failing_once(getattr(live_events, step), before=more))
            await asyncio.to_thread(store.record, TRIP_ID, "user", "before it")
            for followed in (first, second):
                assert positions(await followed.events(2)) == [begin + 1, begin + 2]
            await asyncio.to_thread(store.record, TRIP_ID, "user", "after it")
            for followed in (first, second):
                assert positions(await followed.events(1)) == [begin + 3]

    server.run(follow())


def test_a_follower_without_events_gets_its_position(server, store, monkeypatch):
    """A comment keeps proxies from cutting the connection, and its id moves where the follower resumes."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 0.01)

    async def follow():
        async with following(server) as followed:
            assert await asyncio.wait_for(followed._parts.get(), 30) == b": \nid: %d\n\n" % store.head().position

    server.run(follow())


def test_what_a_follower_does_not_get_delays_no_message(server, store, monkeypatch):
    """That says how far it has read."""
    monkeypatch.setattr(live_events, "HEARTBEAT_S", 2.0)

    async def follow():
        async with following(server, "topics=fact.asserted.v1") as followed:
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(1.8)
            await asyncio.to_thread(store.record, TRIP_ID, "user", "one more")
            await followed.message()
            assert asyncio.get_running_loop().time() - began < 3.5

    server.run(follow())


def test_the_log_is_read_once_for_all_followers_and_not_without_any(server, store):
    """One task reads it, however many follow; with the last one it ends."""

    async def follow():
        async with following(server) as first, following(server) as second, following(server, "session=other"):
            reading = server.followers._reading
            await asyncio.to_thread(store.record, TRIP_ID, "user", "for both")
            assert (await first.event())["id"] == (await second.event())["id"]
            assert server.followers._reading is reading
        assert server.followers._reading is None
        await asyncio.gather(reading, return_exceptions=True)
        assert not any(isinstance(listener, live_events._Listener) for listener in store.parts.log.followers._listeners)

    server.run(follow())
