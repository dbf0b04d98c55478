"""What stands before the application: checks, limits, security headers, measurements, and the end of a server.

A refused request never reaches the application. Nothing of a request is logged but its method, the template of its
route, and the id of its token.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import ClientDisconnect

from mnemolog.domain import structured_log
from mnemolog.domain.errors import LimitExceeded
from mnemolog.server.http.authentication import is_program
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.listen import is_loopback
from mnemolog.server.http.metrics import Metrics
from mnemolog.server.http.problems import STOPPING, internal_error, problem, problem_of, send_problem

if TYPE_CHECKING:
    from mnemolog.server.http.tracing import Tracing

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

LAST_COMMENT: Final = b": the server stops\n\n"
HUNG_UP: Final = 499
"""The status in metrics and logs of a request whose client hung up before it was answered."""
SAFE: Final = frozenset(("GET", "HEAD"))
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SECURITY: Final[Mapping[bytes, bytes]] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
"""Added to each answer that does not have them."""
PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, "
        b"MCP-Protocol-Version, Mnemolog-Scope",
    ),
    (b"access-control-max-age", b"600"),
)
"""What a page of an allowed origin may send. Cookies are not allowed."""
READABLE: Final = ((b"access-control-expose-headers", b"ETag, Retry-After"), (b"vary", b"origin"))
"""Sent with each answer to such a page, which may read these headers besides the body."""
OVER_TLS: Final[Mapping[bytes, bytes]] = {b"strict-transport-security": b"max-age=31536000"}


class AnswerCut(Exception):
    """An answer failed after its beginning was sent. The connection is closed, so that the client notices."""


class Guard:
    """The outermost ASGI application of a server."""

    def __init__(
        self,
        app: App,
        config: ServerConfig,
        metrics: Metrics,
        *,
        probes: Mapping[str, App],
        tracing: Tracing | None = None,
    ) -> None:
        """`probes` answer by path, to anybody from any host name: they hold no content."""
        self.app, self.metrics, self.probes, self.tracing = app, metrics, probes, tracing
        self.body_max = config.body_max
        self.limits = config.limits
        self.followers_max = config.limits.connections // 2
        self._hosts = frozenset(config.names())
        self._origins = frozenset(config.origins)
        self._is_here = is_loopback(config.host) and not config.behind_proxy
        """Whether only this machine reaches the server, as far as it knows."""
        self._needs_token = config.needs_token
        self.running = 0
        """Requests that run. Those that follow the log are not counted: they wait for events, not for work."""
        self.running_of: Counter[str] = Counter()
        """How many of them each token has, and under an empty name callers without one."""
        self.streams: set[_GuardedRequest] = set()
        """Requests that follow the log."""
        self.streams_of: Counter[str] = Counter()
        metrics.gauge("mnemolog_http_running", "Requests that run.", lambda: self.running)
        metrics.gauge("mnemolog_http_followers", "Streams that follow the log.", lambda: len(self.streams))

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            await _GuardedRequest(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)

    def fit(self, places: int) -> None:
        """Fit the limits of tokens and followers to the connections that the process can have."""
        of_token = max(1, min(self.limits.requests_of_token, places // 4))
        self.limits = msgspec.structs.replace(self.limits, requests_of_token=of_token)
        self.followers_max = places // 2

    async def end_streams(self) -> None:
        """End all streams that follow the log, with a last comment. Other streams are the answers of calls."""
        await asyncio.gather(*(stream.end() for stream in list(self.streams)), return_exceptions=True)

    def refusal(self, scope: Any) -> dict[str, Any] | None:
        """Return why a request is refused before its body is read, as a problem. None if it is not."""
        if self.running > self.limits.requests:
            why = f"the server answers {self.limits.requests} requests already"
            return problem("TooBusy", 503, why, "send the request again later")
        headers = {name: value for name, value in scope["headers"] if name in _READ}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_allowed(host):
            return problem("HostNotAllowed", 421, "this server does not answer to that host", "see --allow-host")
        if (origin := headers.get(b"origin")) is not None:
            text = origin.decode("latin-1")
            if text != f"{scope['scheme']}://{host}" and text not in self._origins:
                return _other_origin()
        elif _is_of_other_site(scope["method"], headers):
            return _other_origin()
        if not self._needs_token and any(name.startswith(_FORWARDED) for name, _ in scope["headers"]):
            why = "a proxy or a tunnel passed the request on, and all of its users would be the local user"
            hint = "start the server with --behind-proxy: then every request needs a token"
            return problem("ForwardedNotAllowed", 403, why, hint)
        length = headers.get(b"content-length", b"0")
        return problem_of(self.too_large(int(length))) if length.isdigit() and int(length) > self.body_max else None

    def cross_origin(self, scope: Any) -> list[tuple[bytes, bytes]]:
        """Return the headers with which a browser lets a page of an allowed origin use the API; none for others."""
        if not self._origins or not is_program(scope["path"]):
            return []
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        if origin.decode("latin-1") not in self._origins:
            return []
        return [(b"access-control-allow-origin", origin), *READABLE]

    def too_large(self, size: int) -> LimitExceeded:
        """Return the error of a body that is larger than it may be."""
        return LimitExceeded("body", limit=self.body_max, actual=size, unit="bytes (see --body-max)")

    def _is_allowed(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        bare = name if port.isdigit() else host
        if bare in self._hosts or host in self._hosts or f"{bare}:*" in self._hosts:
            return True
        try:
            address = ip_address(bare.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or not self._is_here  # No name server can make a page whose name is an address.


def _too_many(why: str) -> dict[str, Any]:
    return problem("TooManyRequests", 429, why, "send the request again when one of them has ended")


def _uncount(counts: Counter[str], whose: str | None) -> None:
    if whose is not None:
        counts[whose] -= 1
        if not counts[whose]:
            del counts[whose]


def _other_origin() -> dict[str, Any]:
    return problem("OriginNotAllowed", 403, "pages of that origin may not use this server", "see --allow-origin")


def _is_of_other_site(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a page of another site made a request that has no origin. One may link to pages of this server."""
    site = headers.get(b"sec-fetch-site", b"none")
    if method not in ("GET", "HEAD"):
        return site not in (b"same-origin", b"none")
    is_link = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest", _PAGE) == _PAGE
    return site == b"cross-site" and not is_link


_PAGE: Final = b"document"
_FORWARDED: Final = (b"forwarded", b"x-forwarded-")
_READ: Final = frozenset(
    (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"content-length")
)


class _GuardedRequest:
    """A request and its answer."""

    __slots__ = (
        "_began", "_complete", "_ended", "_guard", "_has_hung_up", "_is_stream", "_receive", "_send", "_size",
        "_status", "_task", "_whose", "can_stop", "scope",
    )  # fmt: skip

    def __init__(self, guard: Guard, scope: Any, receive: Receive, send: Send) -> None:
        self._guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self._began, self._size, self._status = perf_counter(), 0, 0
        self._complete = self._ended = self._has_hung_up = self._is_stream = False
        self._whose: str | None = None
        self._task: asyncio.Task[Any] | None = None
        self.can_stop = scope["method"] in SAFE
        """Whether the request is dropped when its client hangs up: it changes nothing, or ends at its next step."""

    async def run(self) -> None:
        guard, is_probe = self._guard, self.scope["path"] in self._guard.probes
        self._task = asyncio.current_task()
        self.scope.setdefault("state", {})[RUNNING] = self
        guard.running += not is_probe
        try:
            if not is_probe and (refused := guard.refusal(self.scope)) is not None:
                await self._refuse(refused)
            elif self.scope["method"] == "OPTIONS" and guard.cross_origin(self.scope):
                await self.send({"type": "http.response.start", "status": 204, "headers": PREFLIGHT})
                await self.send({"type": "http.response.body"})
            elif guard.tracing is None:
                await self._answer()
            else:
                with guard.tracing.request(self.scope) as span:
                    await self._answer()
                    span.answered(self.route, self._status)
        finally:
            if self._is_stream:
                guard.streams.discard(self)
                _uncount(guard.streams_of, self._whose)
            else:
                guard.running -= not is_probe
                _uncount(guard.running_of, self._whose)
            self._report()

    async def _answer(self) -> None:
        try:
            await self._guard.probes.get(self.scope["path"], self._guard.app)(self.scope, self.receive, self.send)
        except LimitExceeded as error:
            await self._refuse(problem_of(error))
        except ClientDisconnect:  # Starlette has made a 500 of it, which the client does not see.
            self._status = HUNG_UP
        except asyncio.CancelledError:
            if self._has_hung_up:
                self._status = self._status or HUNG_UP
            elif not self._ended:  # The server stops, and has waited for this request.
                why = "the server stops, and this call took too long; it may have been completed"
                await self._refuse(problem(STOPPING, 503, why, "send the request again, a write with its key"))
        except Exception as error:
            members = internal_error(error, self.route)
            if not self._status:
                await self._refuse(members)
            elif not self._complete:
                raise AnswerCut from None  # Without what the error says of the content.

    def enter(self) -> dict[str, Any] | None:
        """Count the request for its caller, who is known now. Return why it is refused, None if it is not."""
        guard, caller = self._guard, self.scope["state"].get("caller")
        if caller is not None and not caller.token:
            return None
        whose = "" if caller is None else caller.token
        most = guard.limits.requests_of_token if whose else guard.limits.requests_of_strangers
        if guard.running_of[whose] >= most:
            return _too_many(f"{most} requests {'of this token' if whose else 'without a token'} run already")
        guard.running_of[whose] += 1
        self._whose = whose
        return None

    def follow(self) -> dict[str, Any] | None:
        """Count the request as one that follows the log. Return why it is refused, None if it is not."""
        guard, most = self._guard, self._guard.limits.followers_of_token
        if len(guard.streams) >= guard.followers_max:
            return _too_many(f"{guard.followers_max:,} streams follow the log already")
        if self._whose and guard.streams_of[self._whose] >= most:
            return _too_many(f"{most} streams of this token follow the log already")
        guard.running -= 1
        _uncount(guard.running_of, self._whose)
        guard.streams.add(self)
        if self._whose:
            guard.streams_of[self._whose] += 1
        self._is_stream = True
        return None

    def hang_up(self) -> None:
        """Take note that the client has hung up."""
        if self.can_stop and not self._complete and self._task is not None:
            self._has_hung_up = True
            self._task.cancel()

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            if self._size > self._guard.body_max:
                raise self._guard.too_large(self._size)
        return message

    async def send(self, message: Any) -> None:
        if self._ended:
            return
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message["headers"] = list(message.get("headers", ()))
            names = {name.lower(): value for name, value in headers}
            headers.extend((name, value) for name, value in SECURITY.items() if name not in names)
            headers.extend(self._guard.cross_origin(self.scope))
            if self.scope["scheme"] == "https":
                headers.extend(OVER_TLS.items())
        elif not message.get("more_body", False):
            self._complete = True
        await self._send(message)

    async def end(self) -> None:
        """End a stream. One that has not begun is refused, because the server stops."""
        if self._complete or self._ended:
            return
        self._ended = self._status > 0
        if self._task is not None:
            self._task.cancel()
        if self._ended:
            await self._send({"type": "http.response.body", "body": LAST_COMMENT, "more_body": False})

    async def _refuse(self, members: dict[str, Any]) -> None:
        if self._status:
            raise AnswerCut
        await send_problem(self.send, members)

    @property
    def route(self) -> str:
        """The template of the route: `/v1/sessions/{session}`."""
        if self.scope["path"] in self._guard.probes:
            return str(self.scope["path"])
        found = self.scope.get("state", {}).get("route")
        return found or getattr(self.scope.get("route"), "path", "") or "unknown"

    def _report(self) -> None:
        guard, seconds = self._guard, perf_counter() - self._began
        method = self.scope["method"] if self.scope["method"] in METHODS else "other"
        guard.metrics.answered(method, self.route, self._status, seconds)
        caller = self.scope.get("state", {}).get("caller")
        structured_log.info(
            "http.answered",
            method=method,
            route=self.route,
            status=self._status,
            ms=round(seconds * 1_000, 1),
            token=getattr(caller, "token", ""),
        )
