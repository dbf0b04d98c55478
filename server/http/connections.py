"""Accept connections; limit their number, duration and log volume.

Any client that reaches the port can open connections without a token. They must not take the places, the descriptors
or the disk of the holder of a token.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mnemolog.domain.display import visible

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""What stops a server. SIGHUP does so where a terminal may send it, which was closed; else files are read again."""
PLACES_MIN: Final = 4
RUNNING: Final = "running"
"""The name in the state of a scope of what learns that its client has hung up."""
PEER: Final = "peer"
"""The name in the state of a scope of the address that the connection came from, whatever its headers say."""
WATCH_S: Final = 0.5
RETRY_S: Final = 0.1
MINUTE_S: Final = 60.0
PART: Final = 65_536
"""Bytes of an answer that a client has to take within `Limits.answer_s`."""
PROVOKED: Final = (
    __name__,
    "asyncio",
    "uvicorn.error",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
)
"""Loggers of records that any request can cause."""

_log = logging.getLogger(__name__)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What connections and requests may take. Times are in seconds."""

    head_s: float = 10.0
    """Until the first request of a connection has come with all its headers."""
    body_s: float = 30.0
    """From the headers until the body of a request is complete."""
    answer_s: float = 60.0
    """Until a client has taken the next `PART` of its answer, and after an answer until the next request has come."""
    connections: int = 4096
    """At most so many at a time; fewer when the process may open few files."""
    requests: int = 256
    """At most so many of known callers are answered at a time. Those that follow the log are not counted."""


class Connections:
    """The open connections of a server.

    When all places are taken, a new connection takes the place of the oldest that waits for a request. Where every
    request needs a token, the oldest connection that has not shown one goes first, whatever it does.
    """

    def __init__(self, limits: Limits, *, descriptors: int, token: bool, tls: ssl.SSLContext | None = None) -> None:
        """`descriptors` are those the process may still open; the store keeps half of them."""
        self.limits: Final = limits
        self.places: Final = max(PLACES_MIN, min(limits.connections, descriptors // 2))
        """How many may be open at a time."""
        self._token, self._tls = token, tls
        self._open: dict[_Connection, None] = {}  # In the order in which they were opened.
        self._accepting: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(
        self,
        server: uvicorn.Server,
        listening: socket.socket,
        *,
        started: Callable[[], object],
        read_again: Callable[[], object] = lambda: None,
    ) -> None:
        """Run `server` until one of `SIGNALS`, with the connections of a listening socket.

        `started` is called once clients can connect, `read_again` at SIGHUP. Afterwards the program has its own
        handlers of signals again.
        """
        loop = asyncio.get_running_loop()

        def stop(*_: object) -> None:
            server.should_exit = True

        def hang_up(*_: object) -> None:
            loop.call_soon_threadsafe(read_again)

        # uvicorn takes signals once it runs. When it has stopped, it raises the signal again, which would keep the
        # store from being closed.
        heard = [number for number in (*SIGNALS, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stop) for number in heard}
        if signal.SIGHUP not in heard or sys.stdin is None or not sys.stdin.isatty():  # Not of a terminal, or `nohup`.
            before.setdefault(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, hang_up)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._accepting = tasks.create_task(self._accept(listening, server))
                watching = tasks.create_task(self._watch())
                started()
                await server.serve(sockets=[])  # None of its own: they are accepted here.
                self.stop_accepting()
                watching.cancel()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop_accepting(self) -> None:
        """Accept no more connections. Those that are open stay open."""
        if self._accepting is not None:
            self._accepting.cancel()

    async def _accept(self, listening: socket.socket, server: uvicorn.Server) -> None:
        """Accept connections for `server` from its start until it shuts down."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while not server.started:
            await asyncio.sleep(RETRY_S)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:  # No descriptor is free. asyncio's own loop logs thousands of tracebacks then.
                _log.warning("cannot accept a connection: %s", error)
                self._drop_one()
                await asyncio.sleep(RETRY_S)
                continue
            # asyncio sets it on sockets of its own. Without it, each event of a stream waits for an acknowledgement.
            with suppress(OSError):  # The client is gone.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while len(self._open) >= self.places and not self._drop_one():
                await asyncio.sleep(RETRY_S)
            if server.should_exit:
                accepted.close()
                continue
            connection = _Connection(server, self)
            self._open[connection] = None
            connection.starting = loop.create_task(self._start(connection, accepted))
            await asyncio.sleep(0)  # From here on, cancelling the task closes the socket.

    async def _start(self, connection: "_Connection", accepted: socket.socket) -> None:
        """Begin to read from a connection, once it has agreed on its encryption."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, ssl=self._tls)
        except OSError as error:  # Also what TLS does not accept.
            _log.warning("a connection could not be made: %s", error)
            self.closed(connection)

    def closed(self, connection: "_Connection") -> None:
        """Take note that a connection is closed."""
        self._open.pop(connection, None)

    async def _watch(self) -> None:
        """Drop connections that take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_S)
            for connection in [one for one in self._open if one.deadline < loop.time()]:
                self._drop(connection)

    def _drop_one(self) -> bool:
        """Drop the oldest connection that may go. False if there is none."""
        strangers = [connection for connection in self._open if self._token and not connection.known]
        may_go = strangers or [connection for connection in self._open if connection.waits]
        if not may_go:
            return False
        _log.warning("too many connections: dropped the oldest of %d that may go", len(may_go))
        self._drop(may_go[0])
        return True

    def _drop(self, connection: "_Connection") -> None:
        self.closed(connection)
        connection.drop()


class _Connection(H11Protocol):
    """One connection, with the time until which its client has to do something."""

    starting: asyncio.Task[None]

    def __init__(self, server: uvicorn.Server, connections: Connections) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._app: Any = server.config.loaded_app
        self.app = self._answer
        self._connections, self._limits = connections, connections.limits
        self.known = False
        """Whether it has shown a valid token."""
        self.waits = True
        """Whether it has no answer to give."""
        self.deadline = self.loop.time() + self._limits.head_s
        self._scope: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        # A write is over when the operating system has all of it, so that an unread answer is not kept in memory.
        transport.set_write_buffer_limits(high=1, low=0)
        super().connection_made(cast(asyncio.Transport, _OneWrite(transport, self.loop)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        super().connection_lost(exc)
        if self._scope is not None and (running := self._scope["state"].get(RUNNING)) is not None:
            running.hang_up()

    def drop(self) -> None:
        """Close the connection."""
        self.starting.cancel()
        if self.transport is not None:
            self.transport.abort()

    async def _answer(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._scope = scope
        scope["state"][PEER] = (scope["client"] or (None,))[0]  # Before `X-Forwarded-For` takes its place.
        self.waits, self.deadline = False, inf
        if any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in scope["headers"]
        ):
            self.waits, self.deadline = True, self.loop.time() + self._limits.body_s

        async def received() -> Any:  # Called when the token has been verified.
            self.known = self.known or "caller" in scope["state"]
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                self.waits, self.deadline = False, inf
            return message

        async def sent(message: Any) -> None:
            self.known = self.known or "caller" in scope["state"]
            self.waits, self.deadline = False, self.loop.time() + self._limits.answer_s
            if message["type"] != "http.response.body":
                await send(message)
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            for start in range(0, max(len(body), 1), PART):
                self.deadline = self.loop.time() + self._limits.answer_s
                end = start + PART
                await send(message | {"body": body[start:end], "more_body": more or end < len(body)})
                cast(_OneWrite, self.transport).flush()
                await self.flow.drain()
            if self._scope is scope:  # Else the next request has begun.
                self.waits, self.deadline = not more, inf if more else self.loop.time() + self._limits.answer_s

        await self._app(scope, received, sent)


class _OneWrite:
    """A transport that sends what is written at a time at once: a whole answer, not its head, body and end.

    Each send is a system call that gives up the interpreter's lock, and waits for it again while other threads work.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data after what runs now."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def close(self) -> None:
        """Close the connection when everything was sent."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send what was written."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


class OncePerMinute(logging.Filter):
    """Passes one record a minute of each line of code, and says then how many it has held back."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log it. What it holds of a request is shown as escapes where it would steer a terminal."""
        place, now = (record.pathname, record.lineno), time.monotonic()
        since, held = self._last.get(place, (now - MINUTE_S, 0))
        if now - since < MINUTE_S:
            self._last[place] = since, held + 1
            return False
        self._last[place] = now, 0
        more = f" (and {held:,} more since the last one)" if held else ""
        record.msg, record.args = visible(record.getMessage().strip()) + more, ()
        return True


def descriptors_left(newest: int) -> int:
    """Return about how many files the process may still open. `newest` is the descriptor that it opened last."""
    most = os.sysconf("SC_OPEN_MAX")  # Negative: no limit. The lowest free number is given out, so `newest` are open.
    return most - newest if most >= 0 else sys.maxsize


_once = OncePerMinute()


def quieten() -> None:
    """Let the loggers in `PROVOKED` log each of their lines once a minute."""
    for name in PROVOKED:
        logging.getLogger(name).addFilter(_once)
