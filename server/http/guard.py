"""What stands before the application: who may reach it, limits, bodies of requests, security headers, measurements.

Nothing of a request is logged but its method, the template of its route, the id of its token, and its trace context.

No caller fills the memory with bodies. One becomes up to sixty times its size when it is decoded: `[{},{},…]`. So what
it holds is counted before, and bodies that hold much are worked on one after another, to the end of their calls.
"""

import asyncio
import json
import re
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from ipaddress import ip_address
from time import perf_counter
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Receive, Send

from mnemolog.defaults import BODY_MAX
from mnemolog.domain import structured_log
from mnemolog.domain.errors import InvalidInput, LimitExceeded
from mnemolog.server.http.authentication import SAFE, Caller
from mnemolog.server.http.config import ServerConfig, is_loopback, without_port
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.monitoring import Metrics
from mnemolog.server.http.problems import STOPPING, RequestRefused, problem_response

HUNG_UP: Final = 499
"""The status in metrics and logs of a request whose client hung up before it was answered."""
SMALL_BODY_MAX: Final = 1 << 20
"""Bytes of the body of a request, where what reads it allows no more."""
BYTES: Final = "bytes (see --body-max)"
ONCE: Final = frozenset((b"authorization", b"content-length", b"host", b"mnemolog-scope", b"transfer-encoding"))
"""Headers of which a proxy might read another one than the server does, if there are two."""
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
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
OVER_TLS: Final[Mapping[bytes, bytes]] = {b"strict-transport-security": b"max-age=31536000"}


class AnswerCut(Exception):
    """An answer failed after its beginning was sent. The connection is closed, so that the client notices."""


class Guard:
    """The outermost ASGI application of a server."""

    def __init__(self, app: ASGIApp, config: ServerConfig, metrics: Metrics, *, probes: Mapping[str, ASGIApp]) -> None:
        """`probes` answer by path, to anybody from any host name: they hold no content."""
        self.app = app
        self.metrics = metrics
        self.probes = probes
        self.body_max = config.body_max
        self._hosts, self._origins = config.names(), frozenset(config.origins)
        self._is_here = is_loopback(config.host) and not config.behind_proxy
        """Whether only this machine reaches the server, as far as it knows."""
        self._needs_token = config.needs_token
        self.running = 0
        metrics.gauge("mnemolog_http_running", "Requests that run.", lambda: self.running)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            await _GuardedRequest(self, scope, receive, send).answer()
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Any) -> RequestRefused | None:
        """Return why a request is refused. None if it is not."""
        names, headers = [name for name, _ in scope["headers"]], dict(scope["headers"])
        twice = {name for name in names if name in ONCE and names.count(name) > 1}
        if twice or (b"content-length" in headers and b"transfer-encoding" in headers):
            named = ", ".join(sorted(name.decode() for name in twice)) or "both content-length and transfer-encoding"
            return RequestRefused("InvalidHeaders", 400, f"the request has {named}: send each header once", "")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_own(host):
            return RequestRefused("HostNotAllowed", 421, "this server does not answer to that host", "see --allow-host")
        if self._is_of_other_site(scope, headers, host):
            why = "pages of that origin may not use this server"
            return RequestRefused("OriginNotAllowed", 403, why, "see --allow-origin")
        if not self._needs_token and any(name.startswith((b"forwarded", b"x-forwarded-")) for name in headers):
            why = "a proxy or a tunnel passed the request on, and all of its users would be the local user"
            hint = "start the server with --behind-proxy: then every request needs a token"
            return RequestRefused("ForwardedNotAllowed", 403, why, hint)
        return None

    def _is_own(self, host: str) -> bool:
        name = without_port(host)
        if name in self._hosts:
            return True
        try:
            address = ip_address(name.strip("[]"))
        except ValueError:
            return False
        # No name server can make a page whose name is an address. Python 3.13 takes ::ffff:127.0.0.1 for a local one.
        return (address.is_loopback and not getattr(address, "ipv4_mapped", None)) or not self._is_here

    def _is_of_other_site(self, scope: Any, headers: Mapping[bytes, bytes], host: str) -> bool:
        """Whether a page of another site made a request. It may send a token where CORS lets it, and link to pages."""
        if b"authorization" in headers or headers.get(b"origin", b"").decode("latin-1") in self._origins:
            return False
        site = headers.get(b"sec-fetch-site")
        if site is None:  # Of no browser, or of an old one, which names the origin at least.
            origin = headers.get(b"origin")
            return origin is not None and origin.decode("latin-1") != f"{scope['scheme']}://{host}"
        is_link = (
            scope["method"] in SAFE
            and headers.get(b"sec-fetch-mode") == b"navigate"
            and headers.get(b"sec-fetch-dest", b"document") == b"document"
        )
        return site not in (b"same-origin", b"none") and not is_link


class RequestLimit:
    """Answers so many requests at a time, but for `uncounted` paths, which wait for events and not for work."""

    def __init__(self, app: ASGIApp, *, requests: int, uncounted: str) -> None:
        self._app = app
        self._free = requests
        self._uncounted = uncounted
        self._requests = requests

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or scope["path"] == self._uncounted or "caller" not in scope.get("state", ()):
            await self._app(scope, receive, send)
            return
        if not self._free:
            why = f"the server answers {self._requests} requests already"
            refused = problem_response(RequestRefused("TooBusy", 503, why, "send the request again later"))
            await refused(scope, receive, send)
            return
        self._free -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._free += 1


def _template(routes: Sequence[BaseRoute], scope: dict[str, Any]) -> str:
    """Return the template of the route that a request is for, empty if there is none."""
    for route in routes:
        match, inside = route.matches(scope)
        if match is not Match.NONE:
            below = _template(route.routes or (), scope | inside) if isinstance(route, Mount) else ""
            return str(getattr(route, "path", "")) + below
    return ""


def _traceparent(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the W3C trace context of a request, as version 00 has it; empty without one, and for a malformed one."""
    found = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    if len(found) != 1 or not _TRACEPARENT.fullmatch(context := found[0][:55]):
        return ""
    # A later version may have more.
    return context if found[0] == context or (found[0][55] == "-" and not context.startswith("00")) else ""


class _GuardedRequest:
    """A request and its answer."""

    def __init__(self, guard: Guard, scope: Any, receive: Receive, send: Send) -> None:
        self._guard = guard
        self.scope = scope
        self._receive = receive
        self._send = send
        self._began = perf_counter()
        self._size = 0
        self._status = 0
        self._complete = self._has_hung_up = False
        self._task = asyncio.current_task()
        self.can_stop = scope["method"] in SAFE
        """Whether the request is dropped when its client hangs up: it changes nothing, or ends at its next step."""
        self.body_max = min(SMALL_BODY_MAX, guard.body_max)
        """Bytes of its body; what reads the body may allow more."""

    async def answer(self) -> None:
        guard = self._guard
        self.scope.setdefault("state", {})[RUNNING] = self
        # Also to nothing: the task may have answered another request before.
        structured_log.TRACEPARENT.set(_traceparent(self.scope["headers"]))
        guard.running += 1
        try:
            if (probe := guard.probes.get(self.scope["path"])) is not None:
                await probe(self.scope, self.receive, self.send)
            elif (refused := guard.refusal(self.scope)) is not None:
                # What follows on the connection may be what a proxy has taken for the body of this request.
                await problem_response(refused, connection="close")(self.scope, self.receive, self.send)
            else:
                await guard.app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            if self._has_hung_up:
                self._status = self._status or HUNG_UP
                return
            if self._status:
                raise AnswerCut from None
            # The server stops, and has waited for this request.
            why = "the server stops, and this call took too long; it may have been completed"
            stopping = RequestRefused(STOPPING, 503, why, "send the request again, a write with its key")
            await problem_response(stopping)(self.scope, self.receive, self.send)
        except Exception:  # The application has logged it, without what it says of the content.
            if not self._complete:
                raise AnswerCut from None
        finally:
            guard.running -= 1
            self._report()

    def hang_up(self) -> None:
        """Take note that the client has hung up."""
        if self.can_stop and not self._complete and self._task is not None:
            self._has_hung_up = True
            self._task.cancel()

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            if self._size > self.body_max:
                raise LimitExceeded("body", limit=self.body_max, actual=self._size, unit=BYTES)
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message["headers"] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            headers.extend((name, value) for name, value in SECURITY.items() if name not in names)
            if self.scope["scheme"] == "https":
                headers.extend(OVER_TLS.items())
        elif not message.get("more_body", False):
            self._complete = True
        await self._send(message)

    @property
    def route(self) -> str:
        """The template of the route: `/v1/sessions/{session}`."""
        if self.scope["path"] in self._guard.probes:
            return str(self.scope["path"])
        found = self.scope["state"].get("route") or getattr(self.scope.get("route"), "path", "")
        if found:
            return str(found)
        # It was refused before a route was looked for. As the API does, look for it in the path as it was sent.
        path = self.scope["raw_path"].partition(b"?")[0].decode("latin-1")
        return _template(getattr(self._guard.app, "routes", ()), self.scope | {"path": path}) or "unknown"

    def _report(self) -> None:
        seconds = perf_counter() - self._began
        method = self.scope["method"] if self.scope["method"] in METHODS else "other"
        self._guard.metrics.answered(method, self.route, self._status, seconds)
        structured_log.info(
            "http.answered",
            method=method,
            route=self.route,
            status=self._status,
            ms=round(seconds * 1_000, 1),
            token=getattr(self.scope["state"].get("caller"), "token", ""),
        )


TAKEN: Final = 64 << 10
"""A body of up to so many bytes takes no room of others."""
BESIDE: Final = 8 << 20
"""Bytes for other callers beside the largest body."""
COUNTED: Final = 8 << 10
"""What a body of fewer bytes holds is not counted."""
DENSE: Final = 10_000
"""Parts from which on a body is dense: dense ones are worked on one at a time."""
LARGE: Final = 256 << 10
"""Bytes of a body from which on the event loop does not wait until it is read."""
PARTS_MAX: Final = 500_000
"""A body of more parts is refused."""
WAIT_S: Final = 10.0
"""How long a body waits for room."""

Read = TypeVar("Read")
_TEXT_OR_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)
_OBJECT: Final = 4
"""Parts that an object counts as: it takes about as much memory as four items of a list."""


class Bodies:
    """The bodies that a server works on."""

    def __init__(self, most: int = BODY_MAX) -> None:
        """`most` are the bytes of the largest body, which are also those that one caller may have read at a time."""
        self.most = most
        self._free = most + BESIDE
        self._of_caller: Counter[str] = Counter()
        self._freed = asyncio.Condition()
        self._dense = asyncio.Lock()

    @asynccontextmanager
    async def read(self, request: Request, caller: Caller, *, large: bool) -> AsyncIterator[bytes | bytearray]:
        """Read a body and keep its room until the block ends; it is empty if there is none.

        `large` allows `most` bytes, not `SMALL_BODY_MAX`. Raises `LimitExceeded`, and `RequestRefused` without room.
        """
        most = self.most if large else min(self.most, SMALL_BODY_MAX)
        size = most if "transfer-encoding" in request.headers else int(request.headers.get("content-length", 0))
        if size > most:
            raise LimitExceeded("body", limit=most, actual=size, unit=BYTES)
        if (running := request.scope["state"].get(RUNNING)) is not None:
            running.body_max = most
        taken = size if size > TAKEN else 0
        await self._take(caller, taken)
        try:
            body = bytearray()
            async for part in request.stream():
                body += part
            parts = 0 if len(body) < COUNTED else await in_thread_if_large(parts_in, body)
            if parts > PARTS_MAX:
                raise LimitExceeded("body", limit=PARTS_MAX, actual=parts, unit="parts outside of texts")
            async with self._dense if parts > DENSE else nullcontext():
                await in_thread_if_large(require_single_keys, body)
                yield body
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # They keep what was decoded.
            raise
        finally:
            await self._give_back(caller, taken)

    async def _take(self, caller: Caller, size: int) -> None:
        if not size:
            return
        try:
            async with asyncio.timeout(WAIT_S), self._freed:
                await self._freed.wait_for(
                    lambda: size <= self._free and self._of_caller[caller.token] + size <= self.most
                )
                self._free -= size
                self._of_caller[caller.token] += size
        except TimeoutError:
            why = "the server works on as many large requests as it has memory for"
            raise RequestRefused("TooBusy", 503, why, "send the request again later") from None

    async def _give_back(self, caller: Caller, size: int) -> None:
        if size:
            self._free += size
            self._of_caller.subtract({caller.token: size})
            if not self._of_caller[caller.token]:
                del self._of_caller[caller.token]
            async with self._freed:
                self._freed.notify_all()


def parts_in(body: bytes | bytearray) -> int:
    """Return how much JSON holds: its items, and four for each object; marks in texts do not count.

    Exact from `DENSE` to `PARTS_MAX`, where it ends.
    """
    found = _OBJECT * body.count(b"{") + body.count(b"[") + body.count(b",")
    if found <= DENSE:
        return found
    found = 0
    for token in _TEXT_OR_MARK.finditer(body):
        match body[token.start()]:
            case 0x7B:  # {
                found += _OBJECT
            case 0x5B | 0x2C:  # [ or a comma
                found += 1
        if found > PARTS_MAX:
            break
    return found


def require_single_keys(body: bytes | bytearray) -> None:
    """Raise `InvalidInput`, with its name, for a key that stands twice in one object. Each reader takes another one."""
    with suppress(json.JSONDecodeError, UnicodeDecodeError):  # What reads the body says why it is no JSON.
        try:
            _SINGLE_KEYS.decode(body.decode())
        except RecursionError as error:
            raise InvalidInput("body", "is nested too deeply") from error


def _require_once(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) < len(members):
        ((name, _),) = Counter(name for name, _ in members).most_common(1)
        raise InvalidInput(name, "is given twice in one object")


_SINGLE_KEYS: Final = json.JSONDecoder(object_pairs_hook=_require_once, parse_int=len, parse_float=len, strict=False)


async def in_thread_if_large(read: Callable[[bytes | bytearray], Read], body: bytes | bytearray) -> Read:
    """Return what a function makes of a body, without keeping the event loop from other requests if it is large."""
    return await asyncio.to_thread(read, body) if len(body) > LARGE else read(body)
