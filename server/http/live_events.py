"""`GET /v1/tail`: events as they are recorded, as server-sent events.

One task of the process reads the log for all callers (`Followers`), also what other processes append, and keeps the
last events. Each caller takes from these what it may see and asked for. One that is further behind, because it resumes
or reads slowly, reads the log itself until it has caught up: nothing is left out. So it does up to where the log ended
when it asked: what is kept of that may be forgotten by now.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import run_in
from mnemolog.application.visible_events import reading
from mnemolog.domain import structured_log
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import AWAY, InvalidInput, MnemologError, StoreClosed
from mnemolog.domain.events import ForgetRequested, RecordedEvent
from mnemolog.domain.head import position_at
from mnemolog.domain.scope import Scopes, covered, parse_scopes
from mnemolog.domain.session import SessionLike, session_of
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position, When, to_micros
from mnemolog.projections.history.timeline import Moment, timeline
from mnemolog.server.http.authentication import Caller
from mnemolog.server.http.problems import as_plain
from mnemolog.server.http.routes import EVENT_STREAM, HttpOperation
from mnemolog.server.http.serialization import Arguments
from mnemolog.store import MemoryStore

HEARTBEAT_S: Final = 15.0
"""How often a caller hears something, in seconds: proxies cut connections that are silent."""
BATCH_MAX: Final = 500
KEPT_MAX: Final = 100
KEPT_BYTES_MAX: Final = 4 << 20
"""Events, and bytes of them, that are kept for all callers. One that is further behind reads the log itself."""
READ_MAX: Final = 10_000
"""Events of the log that are looked through at once for a caller that is behind."""
RETRY_S: Final = 1.0
LAST_COMMENT: Final = b": the server stops\n\n"


def _tail(
    self: MemoryStore,
    *,
    after: When | None = None,
    scope: str | Sequence[str] = "",
    session: SessionLike | None = None,
    topics: Sequence[str] = (),
    cloud_events: bool = False,
) -> Moment:
    """Send each event after `after`, a position or a time, as it is recorded; by default those recorded from now on.

    The `id` of each server-sent event is its position: after a break, a caller resumes with `Last-Event-ID`. Only
    events of sessions at or below `scope`, one or several, of `session`, and of the given `topics` are sent. With
    `cloud_events` each is a CloudEvent 1.0, whose `data` is what is sent otherwise. A message without data says every
    15 seconds how far the caller has read.
    """
    raise NotImplementedError  # Never called: its signature and docstring describe the route.


TAIL: Final = HttpOperation(http="GET", path="/tail", owner=MemoryStore, method=_tail, verb="read")


Parts = AsyncIterator[Callable[[], bytes]]
"""Each part is made when it is sent: the caller may have lost its access while the stream waited."""


class Stream(StreamingResponse):
    """An answer that is sent part by part, until it ends, the client hangs up, or the caller loses rights.

    Then `ended` is called.
    """

    def __init__(self, parts: Parts, kind: str, caller: Caller, *, ended: Callable[[], object] = lambda: None) -> None:
        headers = {"content-type": kind, "cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(_permitted(parts, caller), headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _permitted(parts: Parts, caller: Caller) -> AsyncIterator[bytes]:
    """Yield parts as long as the caller has its access. While that is unknown, wait."""
    async for make in parts:
        while True:
            try:
                if not await caller.keeps_access():
                    return
                break
            except MnemologError:  # Such as a database that does not answer.
                await asyncio.sleep(RETRY_S)
        yield make()


class _Entry(msgspec.Struct, frozen=True):
    """An event, and the JSON that it is sent as."""

    recorded: RecordedEvent
    text: bytes


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asked for."""

    after: Position
    head: Position
    """Where the log ended when it asked."""
    scopes: Scopes
    session: str | None
    topics: frozenset[str]
    source: str | None
    """Of CloudEvents; None for a caller that wants none."""

    def message(self, item: _Entry) -> bytes:
        """Return an event as a server-sent event."""
        text = item.text
        if self.source is not None:
            text = to_printable_json(item.recorded.to_cloud_event(self.source, msgspec.Raw(text)))
        return b"id: %d\ndata: %b\n\n" % (item.recorded.position, text)

    def of(self, store: MemoryStore, entries: Sequence[_Entry]) -> list[_Entry]:
        """Return the events that a store may show and that were asked for."""
        visible = store.parts.visible

        def is_within(session: str | None) -> bool:
            state = None if session is None else visible.states.latest(session)
            return state is not None and covered(self.scopes, state.started.scope)

        found = [
            item
            for item in entries
            if (not self.topics or item.recorded.event.topic in self.topics)
            and (self.session is None or session_of(item.recorded.stream) == self.session)
            and visible.shows(item.recorded)
            and (not self.scopes or is_within(session_of(item.recorded.stream)))
        ]
        shown = visible.admitted([item.recorded for item in found])
        return [
            item if item.recorded == now else _entries(store, Position(now.position - 1), now.position)[0]
            for item, now in zip(found, shown, strict=True)
        ]


def _wanted(store: MemoryStore, given: Mapping[str, Any]) -> _Wanted:
    """Return what a caller asked for. Raises `UnknownSession`, `InvalidInput`."""
    log = store.parts.log
    after = given.get("after")
    session = given.get("session")
    head, scopes = log.head().position, parse_scopes(given.get("scope", ""))
    return _Wanted(
        after=head if after is None else position_at("after", after, log),
        head=head,
        scopes=scopes and store.parts.boundary.narrow(scopes),
        session=None if session is None else store.parts.visible.state(session).session,
        topics=frozenset(given.get("topics", ())),
        source=f"mnemolog:{log.log_id}" if given.get("cloud_events") else None,
    )


class Followers:
    """Reads the log as it grows, for all callers of one server. It reads nothing while there are none."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        """`store` is the whole one; each caller sees what it may."""
        self._store = store
        self.is_stopped = False
        self.following: set[Follower] = set()
        self.kept_after = ORIGIN
        """The log was read up to `_position`; of that, the events after `kept_after` are kept, and none from before a
        request to forget.
        """
        self._position, self._kept = ORIGIN, list[_Entry]()
        self._news = asyncio.Event()
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End all streams, also those that are about to begin: the server stops."""
        self.is_stopped = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def add(self, follower: "Follower") -> None:
        """Read the log for a caller from now on, until `remove`."""
        async with self._starting:
            if self._reading is None or self._reading.done():
                self._position = self.kept_after = (await self._store.head()).position
                self._kept = []
                self._reading = asyncio.create_task(self._read_on())
            self.following.add(follower)

    def remove(self, follower: "Follower") -> None:
        """Undo `add`."""
        self.following.discard(follower)
        if not self.following and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def after(self, position: Position) -> list[_Entry]:
        """Return the kept events after a position that is not before `kept_after`."""
        return list(takewhile(lambda item: item.recorded.position > position, reversed(self._kept)))[::-1]

    async def wait(self, most_s: float) -> None:
        """Wait for more events, or an end, for `most_s` seconds at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), most_s)

    async def _read_on(self) -> None:
        grown, loop = asyncio.Event(), asyncio.get_running_loop()
        listener = _Listener(grown, loop)
        poll_s = await run_in("read", self._store, lambda store: _listen(store, listener))
        try:
            while True:
                grown.clear()
                try:
                    entries = await run_in("read", self._store, self._look)
                except StoreClosed:
                    return
                except Exception as error:  # Such as a database that does not answer: callers keep their connection.
                    structured_log.warning("http.tail_waits", error=error)
                    await asyncio.sleep(RETRY_S)
                    continue
                if entries:
                    known = self._kept + entries
                    self._kept = _to_keep(known)
                    if gone := known[: len(known) - len(self._kept)]:
                        self.kept_after = gone[-1].recorded.position
                    self._position = entries[-1].recorded.position
                    self._wake()
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(grown.wait(), poll_s)
        finally:
            with suppress(MnemologError):
                await asyncio.shield(
                    run_in("read", self._store, lambda store: store.parts.log.followers.unlisten(listener))
                )

    def _look(self, store: MemoryStore) -> list[_Entry]:
        """Return the next events."""
        head = store.parts.log.head().position
        return [] if head <= self._position else _entries(store, self._position, head)


def _to_keep(known: list[_Entry]) -> list[_Entry]:
    """Return the last events: none from before a request to forget, and no more than a server has memory for."""
    size = 0
    for kept, item in enumerate(reversed(known)):
        size += len(item.text)
        forgets = kept > 0 and isinstance(known[-kept].recorded.event, ForgetRequested)
        if forgets or kept == KEPT_MAX or size > KEPT_BYTES_MAX:
            return known[len(known) - kept :]
    return known


def _listen(store: MemoryStore, listener: "_Listener") -> float:
    store.parts.log.followers.listen(listener)
    return store.parts.log.followers.poll_interval_s


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
            if not (last.isascii() and last.isdigit()) or len(last) > len(str(INTEGER_MAX)) or int(last) > INTEGER_MAX:
                raise InvalidInput("last-event-id", "is not a position; leave it out to follow from now on")
            given["after"] = int(last)
        caller: Caller = request.state.caller
        follower = Follower(self._followers, caller, await run_in("read", caller.store, partial(_wanted, given=given)))
        await self._followers.add(follower)
        return Stream(follower.parts(), EVENT_STREAM, caller, ended=lambda: self._followers.remove(follower))


class Follower:
    """One caller, and how far it has read the log."""

    def __init__(self, followers: Followers, caller: Caller, wanted: _Wanted) -> None:
        self.caller = caller
        self._followers = followers
        self._wanted = wanted
        self._store, self._position = with_pools(caller.store)[0], wanted.after

    async def parts(self) -> Parts:
        """Yield events as they are sent: what the caller has missed, then what is recorded from now on."""
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        while not self._followers.is_stopped:
            try:
                page = await self._next(sent_at + HEARTBEAT_S - loop.time())
            except StoreClosed:
                return
            except AWAY:  # It is read again.
                await asyncio.sleep(RETRY_S)
                continue
            if page:
                yield partial(self._shown, page)
                sent_at = loop.time()
            elif loop.time() - sent_at >= HEARTBEAT_S:
                # An `id` without data moves where the caller resumes, and nothing else.
                yield partial(b": \nid: %d\n\n".__mod__, self._position)
                sent_at = loop.time()
        if self._followers.is_stopped:
            yield lambda: LAST_COMMENT

    def _shown(self, page: list[_Entry]) -> bytes:
        with reading(self._store.parts.visible, "tail") as shown:
            shown.collect([item.recorded for item in page])
        return b"".join(map(self._wanted.message, page))

    async def _next(self, wait_s: float) -> list[_Entry]:
        """Return the next events; none if there are none for `wait_s` seconds, or among many others."""
        if self._position < (upto := max(self._followers.kept_after, self._wanted.head)):
            self._position, page = await run_in("read", self.caller.store, partial(self._missed, upto))
            return page
        if not (found := self._followers.after(self._position)):
            await self._followers.wait(wait_s)
            return []
        of = partial(self._wanted.of, entries=found)
        is_limited = self.caller.scopes or self._wanted.scopes
        page = await run_in("read", self.caller.store, of) if is_limited else of(self._store)
        self._position = found[-1].recorded.position
        return page

    def _missed(self, upto: Position, store: MemoryStore) -> tuple[Position, list[_Entry]]:
        """Return events that are not kept any more, from the log, and how far it was read."""
        upto = min(upto, Position(self._position + READ_MAX))
        found = _entries(store, self._position, upto, self._wanted.session)
        return found[-1].recorded.position if len(found) == BATCH_MAX else upto, self._wanted.of(store, found)


def _entries(store: MemoryStore, after: Position, upto: Position, session: str | None = None) -> list[_Entry]:
    """Return the next events, of all sessions or of one. The audit of reads has them when they are sent."""
    return [
        _Entry(
            RecordedEvent(
                position=moment.position,
                stream=moment.stream,
                version=moment.version,
                recorded_at=to_micros("at", moment.at),
                key=moment.key,
                event=moment.event,
            ),
            to_printable_json(moment, enc_hook=as_plain),
        )
        for moment in islice(
            timeline(store.parts.log, store.parts.visible.read, after=after, upto=upto, session=session), BATCH_MAX
        )
    ]
