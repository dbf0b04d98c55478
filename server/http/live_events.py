"""`GET /v1/tail`: events as they are recorded, as server-sent events.

One task of the process reads the log for all callers (`Followers`), also what other processes append. Each caller gets
what it may see and asked for. A caller that is behind, because it resumes or reads slowly, reads the log separately
until it has caught up: nothing is left out, and nothing is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import boundary_of, clock_of, events_of, tokens_of, visible_of, with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import run_in
from mnemolog.application.read_audit import reading
from mnemolog.domain import structured_log
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput, MnemologError, StoreClosed
from mnemolog.domain.events import RecordedEvent, TokenRevoked
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.moments import When, position_at
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.domain.scope import Scopes, covered, parse_scopes
from mnemolog.domain.session import SessionLike
from mnemolog.projections.history.timeline import Moment, timeline
from mnemolog.server.http.hints import as_plain
from mnemolog.server.http.operation_table import EVENT_STREAM, Operation
from mnemolog.server.http.serialization import Arguments
from mnemolog.server.http.streaming import Stream
from mnemolog.store import MemoryStore

HEARTBEAT_S: Final = 15.0
"""How often a caller hears something, in seconds: proxies cut connections that are silent."""
BATCH_MAX: Final = 500
UNREAD_MAX: Final = 1_000
"""Events that wait for a slow caller. With more, it reads the log separately."""
READ_MAX: Final = 10_000
"""Events of the log that are looked through at once for a caller that is behind."""
RETRY_S: Final = 1.0
TOKENS_S: Final = 1.0
"""How often the tokens of callers are looked at, in seconds, besides when one is revoked."""
LAST_COMMENT: Final = b": the server stops\n\n"


def _tail(
    self: MemoryStore,
    *,
    after: When | None = None,
    scope: str | Sequence[str] = "",
    session: SessionLike | None = None,
    topics: Sequence[str] = (),
) -> Moment:
    """Send each event after `after`, a position or a time, as it is recorded; by default those recorded from now on.

    The `id` of each server-sent event is its position: after a break, a caller resumes with `Last-Event-ID`. Only
    events of sessions at or below `scope`, one or several, of `session`, and of the given `topics` are sent. A message
    without data says every 15 seconds how far the caller has read.
    """
    raise NotImplementedError  # Never called: its signature and docstring describe the route.


TAIL: Final = Operation(http="GET", path="/tail", owner=MemoryStore, method=_tail, verb="read")


class _Entry(msgspec.Struct, frozen=True):
    """An event as it is sent."""

    position: Position
    session: str | None
    topic: str
    recorded: RecordedEvent
    message: bytes


Channel = tuple[Scopes, Scopes]
"""What several callers see: the boundary of their store, and the scopes that they asked for."""


class _Subscriber:
    """The events that wait for one caller."""

    def __init__(self, channel: Channel, store: AsyncMemoryStore, position: Position, token: str) -> None:
        self.channel, self.store, self.token = channel, store, token
        self.is_ended = False
        """Whether the server stops, or the token of the caller was revoked or has expired."""
        self.missed_upto = self.position = position
        """The log was read up to `position`; what is not after `missed_upto` does not wait here."""
        self.news = asyncio.Event()
        self._waiting: list[_Entry] = []

    def add(self, entries: Sequence[_Entry], position: Position) -> None:
        """Take those of some events that are new; `position` is that of the last one of the log, seen or not."""
        new = [item for item in entries if item.position > self.position]
        self._waiting += new
        self.position = position
        if len(self._waiting) > UNREAD_MAX:
            self._waiting.clear()
            self.missed_upto = position
        if new:
            self.news.set()

    def end(self) -> None:
        """Send nothing more."""
        self.is_ended = True
        self.news.set()

    def taken(self) -> list[_Entry]:
        """Return the events that wait, and keep none."""
        taken, self._waiting = self._waiting, []
        self.news.clear()
        return taken


class Followers:
    """Reads the log as it grows, for all callers of one server. It reads nothing while there are none."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        """`store` is the whole one; each caller sees what it may."""
        self._store = store
        self.is_stopped = False
        self._subscribers: dict[Channel, set[_Subscriber]] = {}
        self._position, self._checked_at = ORIGIN, 0.0
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many callers follow the log."""
        return sum(map(len, self._subscribers.values()))

    def stop(self) -> None:
        """End all streams, also those that are about to begin: the server stops."""
        self.is_stopped = True
        for channel in self._subscribers.values():
            for subscriber in channel:
                subscriber.end()

    async def subscribe(self, channel: Channel, store: AsyncMemoryStore, *, token: str = "") -> _Subscriber:
        """Return what gets all events that are read from now on. To be ended with `unsubscribe`."""
        async with self._starting:
            if self._reading is None or self._reading.done():
                self._position = (await self._store.head()).position
                self._reading = asyncio.create_task(self._read_on())
        subscriber = _Subscriber(channel, store, self._position, token)
        if self.is_stopped:
            subscriber.end()
        self._subscribers.setdefault(channel, set()).add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: _Subscriber) -> None:
        """Send no more events to a subscriber."""
        of_channel = self._subscribers[subscriber.channel]
        of_channel.discard(subscriber)
        if not of_channel:
            del self._subscribers[subscriber.channel]
        if not self._subscribers and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read_on(self) -> None:
        grown, loop = asyncio.Event(), asyncio.get_running_loop()
        listener = _Listener(grown, loop)
        poll_s = await run_in("read", self._store, lambda store: _listen(store, listener))
        try:
            while True:
                grown.clear()
                try:
                    entries = await run_in("read", self._store, self._new)
                    await self._end_invalid(entries)
                    await self._deliver(entries)
                except StoreClosed:
                    return
                except Exception as error:  # Such as a database that does not answer: callers keep their connection.
                    structured_log.warning("http.tail_waits", error=error)
                    await asyncio.sleep(RETRY_S)
                    continue
                if not entries:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(grown.wait(), poll_s)
        finally:
            with suppress(MnemologError):
                await asyncio.shield(
                    run_in("read", self._store, lambda store: events_of(store).followers.unlisten(listener))
                )

    def _new(self, store: MemoryStore) -> list[_Entry]:
        head = events_of(store).head().position
        if head <= self._position:
            return []
        return _entries(store, self._position, head)

    async def _end_invalid(self, entries: list[_Entry]) -> None:
        """Send nothing more to callers whose token was revoked or has expired."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < TOKENS_S and not any(item.topic == TokenRevoked.topic for item in entries):
            return
        with_tokens = [one for channel in self._subscribers.values() for one in channel if one.token]
        if with_tokens:
            valid = await run_in("read", self._store, _valid_tokens)
            for subscriber in with_tokens:
                if subscriber.token not in valid:
                    subscriber.end()
        self._checked_at = now

    async def _deliver(self, entries: list[_Entry]) -> None:
        """Give events to all callers. After an error it is called again, perhaps with more of them."""
        if not entries:
            return
        position = entries[-1].position
        for channel in list(self._subscribers):
            any_of_it = next(iter(self._subscribers.get(channel, ())), None)
            if any_of_it is None:
                continue
            seen = entries
            if channel != ((), ()):
                seen = await run_in("read", any_of_it.store, partial(_seen, scopes=channel[1], entries=entries))
            for subscriber in self._subscribers.get(channel, ()):
                if subscriber.position < position:
                    subscriber.add(seen, position)
        self._position = position


def _valid_tokens(store: MemoryStore) -> set[str]:
    now = to_datetime(clock_of(store).now())
    return {name for name, known in tokens_of(store).known().items() if known.token.is_valid(now)}


def _listen(store: MemoryStore, listener: _Listener) -> float:
    events_of(store).followers.listen(listener)
    return events_of(store).followers.poll_interval_s


class _Listener:
    """Wakes the task that reads the log, from any thread."""

    def __init__(self, grown: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self._grown, self._loop = grown, loop

    def set(self) -> None:
        """Take note of a commit."""
        if not self._grown.is_set():
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._grown.set)


class FollowEndpoint:
    """Answers `GET /v1/tail`."""

    operation = TAIL

    def __init__(self, followers: Followers) -> None:
        self._arguments, self._followers = Arguments(TAIL), followers

    async def respond(self, request: Request) -> Response:
        """Return a stream of events, which ends when the caller hangs up."""
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)
        given = self._arguments.read((), request.scope["query_string"], b"")
        if last := request.headers.get("last-event-id"):
            given["after"] = _position(last)
        caller = request.state.caller
        boundary, wanted = await run_in("read", caller.store, partial(_wanted, given=given))
        subscriber = await self._followers.subscribe((boundary, wanted.scopes), caller.store, token=caller.token)
        try:
            followed = _Followed(self._followers, subscriber, wanted)
            page = await followed.begin(given.get("after"))  # Before the answer begins: a session may be unknown.
        except BaseException:
            self._followers.unsubscribe(subscriber)
            raise
        return Stream(followed.parts(page), EVENT_STREAM, ended=lambda: self._followers.unsubscribe(subscriber))


class _TailFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asked for."""

    scopes: Scopes
    session: str | None
    topics: frozenset[str]

    def holds(self, entry: _Entry) -> bool:
        """Whether an event is of the session and the topics. Its scope is not looked at."""
        return (self.session is None or entry.session == self.session) and (
            not self.topics or entry.topic in self.topics
        )


def _wanted(store: MemoryStore, given: Mapping[str, Any]) -> tuple[Scopes, _TailFilter]:
    session = given.get("session")
    return boundary_of(store).scopes, _TailFilter(
        scopes=parse_scopes(given.get("scope", "")),
        session=None if session is None else visible_of(store).id_of(session),
        topics=frozenset(given.get("topics", ())),
    )


class _Followed:
    """The events of one caller."""

    def __init__(self, followers: Followers, subscriber: _Subscriber, wanted: _TailFilter) -> None:
        self._followers, self._subscriber, self._wanted = followers, subscriber, wanted
        self._position, self._visible = ORIGIN, visible_of(with_pools(subscriber.store)[0])

    async def begin(self, after: When | None) -> list[_Entry]:
        """Return the first events after a position or a time; none without."""
        if after is None:
            self._position = (await self._subscriber.store.head()).position
        else:
            self._position = await run_in(
                "read", self._subscriber.store, lambda store: position_at("after", after, events_of(store))
            )
        return await self._page()

    async def parts(self, page: list[_Entry]) -> AsyncIterator[bytes]:
        """Yield what follows `page` and it, as it is sent: what was missed, then what is recorded from now on."""
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        while True:
            if page:
                with reading(self._visible, "tail") as shown:
                    shown.collect([item.recorded for item in page])
                yield b"".join(item.message for item in page)
                sent_at = loop.time()
            elif loop.time() - sent_at >= HEARTBEAT_S:
                # An `id` without data moves where the caller resumes, and nothing else.
                yield b": \nid: %d\n\n" % self._position
                sent_at = loop.time()
            if self._subscriber.is_ended:
                break
            is_behind = self._position < self._subscriber.missed_upto
            page = await (self._page() if is_behind else self._news())
        if self._followers.is_stopped:
            yield LAST_COMMENT

    async def _page(self) -> list[_Entry]:
        """Return a page of the events that this caller missed, from the log."""
        upto = self._subscriber.missed_upto
        if upto <= self._position and self._wanted.session is None:
            return []
        return await run_in("read", self._subscriber.store, lambda store: self._read(store, upto))

    def _read(self, store: MemoryStore, upto: Position) -> list[_Entry]:
        after = min(self._position, upto)
        upto = min(upto, Position(after + READ_MAX))
        found = _entries(store, after, upto, self._wanted.session)
        if len(found) < BATCH_MAX:
            self._position = max(self._position, upto)
        else:
            self._position = found[-1].position
        return [entry for entry in _seen(store, self._wanted.scopes, found) if self._wanted.holds(entry)]

    async def _news(self) -> list[_Entry]:
        """Return the next events, none if there are none for a while."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._subscriber.news.wait(), HEARTBEAT_S)
        if self._subscriber.is_ended or self._position < self._subscriber.missed_upto:
            return []  # With too many events at once, they are read from the log.
        entries = [item for item in self._subscriber.taken() if item.position > self._position]
        self._position = max(self._position, self._subscriber.position)
        return [item for item in entries if self._wanted.holds(item)]


def _entries(store: MemoryStore, after: Position, upto: Position, session: str | None = None) -> list[_Entry]:
    """Return the next events, of all sessions or of one. The audit of reads has them when they are sent.

    Raises `UnknownSession`.
    """
    visible = visible_of(store)
    of = None if session is None else visible.state(session).session
    moments = timeline(events_of(store), visible.read, after=after, upto=upto, session=of)
    return [
        _Entry(
            moment.position,
            moment.session,
            moment.topic,
            RecordedEvent(
                position=moment.position,
                stream=moment.stream,
                version=moment.version,
                recorded_at=Micros(0),  # Whether an event may be seen does not depend on it.
                key=moment.key,
                event=moment.event,
            ),
            b"id: %d\ndata: %b\n\n" % (moment.position, to_printable_json(moment, enc_hook=as_plain)),
        )
        for moment in islice(moments, BATCH_MAX)
    ]


def _seen(store: MemoryStore, scopes: Scopes, entries: Sequence[_Entry]) -> list[_Entry]:
    """Return the events that may be seen through a store and are of sessions at or below any of some scopes."""
    shown = [item for item in entries if visible_of(store).shows(item.recorded)]
    return [item for item in shown if _is_within(store, scopes, item)] if scopes else shown


def _is_within(store: MemoryStore, scopes: Scopes, entry: _Entry) -> bool:
    state = None if entry.session is None else visible_of(store).states.latest(entry.session)
    return state is not None and covered(scopes, state.started.scope)


def _position(last: str) -> int:
    if not (last.isascii() and last.isdigit()) or len(last) > len(str(INTEGER_MAX)) or int(last) > INTEGER_MAX:
        raise InvalidInput("last-event-id", "is not a position; leave it out to follow from now on")
    return int(last)
