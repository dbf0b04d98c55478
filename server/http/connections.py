"""Accept connections, and bound their number, their time and what the log says of them.

Any client that reaches the port can open connections without a token. They must not take the places, the descriptors
or the disk of the holder of the token.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import ssl
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Literal, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mnemolog.domain.display import visible

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
PLACES_MIN: Final = 4
RUNNING: Final = "running"
"""The name in the state of a scope of what learns that its client has hung up."""
WATCH_S: Final = 1.0
RATE_MIN: Final = 4096
"""Bytes of an answer that a client reads in a second, else it counts as not reading in it."""
RETRY_S: Final = 0.1
MINUTE_S: Final = 60.0
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
    """What a connection may take. Times are in seconds."""

    head_s: float = 10.0
    """Until a request has come with all its headers, counted from the connection or the answer before."""
    body_s: float = 30.0
    """From the headers until the body of a request is complete."""
    strangers_body_s: float = 5.0
    """The same for a request without the token, where there is one."""
    answer_s: float = 60.0
    """How long a client may leave an answer unread."""
    connections: int = 256
    """At most so many at a time; fewer when the process may open few files. Half of them for those without a token."""
    requests: int = 256
    """At most so many are answered at a time; those that follow the log are not counted."""
    requests_of_token: int = 64
    """At most so many of each token, and in a server with few places a quarter of them."""
    requests_of_strangers: int = 16
    """At most so many without a token, where every request needs one."""
    followers_of_token: int = 64
    """At most so many streams of each token follow the log; of all callers, as many as half of the places."""


DEFAULT_LIMITS: Final = Limits()


class Connections:
    """The open connections of a server.

    When all places are taken, a new connection takes the place of one that waits for a request: of the oldest that has
    not shown the token, else of the oldest. With a token, connections that have not shown it get half of the places.
    """

    def __init__(self, limits: Limits, *, descriptors: int, token: bool, tls: ssl.SSLContext | None = None) -> None:
        """`descriptors` are those the process may still open; the store keeps half of them."""
        self._limits = limits
        self._tls = tls
        self.places: Final = max(PLACES_MIN, min(limits.connections, descriptors // 2))
        """How many may be open at a time."""
        self._token = token
        self._strangers = self.places // 2 if token else self.places
        self._limits_of_strangers = limits
        if token:
            shorter_s = min(limits.body_s, limits.strangers_body_s)
            self._limits_of_strangers = msgspec.structs.replace(limits, body_s=shorter_s)
        self._open: dict[_Connection | _Handshake, None] = {}  # In the order in which they were opened.
        self._accepting: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(self, server: uvicorn.Server, listening: socket.socket, *, started: Callable[[], object]) -> None:
        """Run `server` until SIGINT or SIGTERM, with the connections of a listening socket.

        `started` is called once clients can connect. Afterwards the program has its own handlers of signals again.
        """

        def stop(*_: object) -> None:
            server.should_exit = True

        # uvicorn takes signals once it runs. When it has stopped, it raises the signal again, which would keep the
        # store from being closed.
        before = {number: signal.signal(number, stop) for number in SIGNALS}
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
                self._drop_one(self._open)
                await asyncio.sleep(RETRY_S)
                continue
            # asyncio sets it on sockets of its own. Without it, each event of a stream waits for an acknowledgement.
            with suppress(OSError):  # The client is gone.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._has_place():
                await asyncio.sleep(RETRY_S)
            if server.should_exit:
                accepted.close()
            elif self._tls is None:
                await loop.connect_accepted_socket(lambda: _Connection(server, self._open), accepted)
            else:
                _Handshake(server, self._open, accepted, self._tls)

    async def _watch(self) -> None:
        """Drop connections that take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_S)
            for connection in list(self._open):
                limits = self._limits if connection.known else self._limits_of_strangers
                if connection.too_slow(limits, loop.time()):
                    self._drop(connection)

    def _has_place(self) -> bool:
        """Make room for one more connection. False when all of them wait for their answers."""
        strangers = [connection for connection in self._open if not connection.known]
        if len(self._open) >= self.places:
            return self._drop_one(self._open)
        return len(strangers) < self._strangers or self._drop_one(strangers)

    def _drop_one(self, among: Iterable[_Connection | _Handshake]) -> bool:
        """Drop the oldest connection that may go, one without a token first. False if there is none.

        A connection may go while it waits for a request. When there is a token, those without it may always go.
        """
        may_go = [connection for connection in among if connection.waits or (self._token and not connection.known)]
        if not may_go:
            return False
        _log.warning("too many connections: dropped the oldest of %d that may go", len(may_go))
        self._drop(min(may_go, key=lambda connection: connection.known))
        return True

    def _drop(self, connection: _Connection | _Handshake) -> None:
        del self._open[connection]
        connection.drop()


class _Handshake:
    """A connection that has not agreed on its encryption yet. It takes a place as any other."""

    known, waits = False, True

    def __init__(
        self,
        server: uvicorn.Server,
        open_: dict[_Connection | _Handshake, None],
        accepted: socket.socket,
        tls: ssl.SSLContext,
    ) -> None:
        self._open, self._accepted = open_, accepted
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        open_[self] = None
        self._task = self._loop.create_task(self._agree(server, tls))

    def too_slow(self, limits: Limits, now: float) -> bool:
        """Whether it takes longer than it may."""
        return now - self._since > limits.head_s

    def drop(self) -> None:
        """Close the connection."""
        self._task.cancel()

    async def _agree(self, server: uvicorn.Server, tls: ssl.SSLContext) -> None:
        def made() -> _Connection:
            return _Connection(server, self._open)

        try:
            await self._loop.connect_accepted_socket(made, self._accepted, ssl=tls)
        except OSError as error:  # Also what TLS does not accept.
            _log.warning("no TLS connection was made: %s", error)
        finally:
            self._open.pop(self, None)


class _Connection(H11Protocol):
    """One connection, which knows what it waits for since when, and whether it has shown the token."""

    def __init__(self, server: uvicorn.Server, open_: dict[_Connection | _Handshake, None]) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._answered: Any = server.config.loaded_app
        self.app = self._answer
        self._open = open_
        self.known = False
        self.phase: Literal["head", "body", "answer"] = "head"
        self._since: float = self.loop.time()
        self._read_at = self._since
        self._read = 0
        self._scope: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(cast(asyncio.Transport, _OneWrite(transport, self.loop)))
        self._open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        super().connection_lost(exc)
        if self._scope is not None and (running := self._scope["state"].get(RUNNING)) is not None:
            running.hang_up()

    def drop(self) -> None:
        """Close the connection."""
        self.transport.abort()

    @property
    def waits(self) -> bool:
        """Whether it waits for a request: it has no answer to give."""
        return self.phase != "answer" and not self.transport.get_write_buffer_size()

    def too_slow(self, limits: Limits, now: float) -> bool:
        """Whether the client takes longer than it may. To be called once in `WATCH_S`."""
        transport = cast(_OneWrite, self.transport)
        unread, read = transport.get_write_buffer_size(), transport.read()
        if unread == 0 or read >= self._read + RATE_MIN * WATCH_S:
            self._read_at = now
        self._read = read
        if unread:
            self._since = now
            return bool(now - self._read_at > limits.answer_s)
        allowed_s = {"head": limits.head_s, "body": limits.body_s, "answer": float("inf")}
        return bool(now - self._since > allowed_s[self.phase])

    async def _answer(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._enter("body" if _has_body(scope["headers"]) else "answer")
        self._scope = scope

        async def received() -> Any:  # Called when the token has been verified.
            self.known = self.known or _has_shown_token(scope)
            message = await receive()
            if not message.get("more_body", False):
                self._enter("answer")
            return message

        async def sent(message: Any) -> None:
            self.known = self.known or _has_shown_token(scope)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._enter("head")
                self._scope = None

        await self._answered(scope, received, sent)

    def _enter(self, phase: Literal["head", "body", "answer"]) -> None:
        self.phase, self._since = phase, self.loop.time()


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


class _OneWrite:
    """A transport that sends what is written at a time at once: a whole answer, not its head, body and end.

    Each send is a system call that gives up the interpreter's lock, and waits for it again while other threads work.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data after what runs now."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._written += len(data)

    def close(self) -> None:
        """Close the connection when everything was sent."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

    def read(self) -> int:
        """Return how many bytes the client has taken, of all that were written.

        Without what the operating system still has to send: its buffer hides a client that reads slowly.
        """
        return self._written - self.get_write_buffer_size() - _unsent(self._transport.get_extra_info("socket"))

    def _send(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


def _unsent(connected: socket.socket) -> int:
    """Return how many bytes the client has not acknowledged; 0 where the operating system does not say so."""
    try:
        return int.from_bytes(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _has_shown_token(scope: Any) -> bool:
    return "caller" in scope["state"] or getattr(scope.get("user"), "is_authenticated", False)


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
