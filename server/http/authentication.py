"""Who makes a request, and what that caller may do: by a token, as the user of this machine, or named by a proxy.

A proxy that has asked a person for a login sends the name in a header. A caller bound to scopes must not learn what
else there is, so that every refusal is sent at a fixed time after its request came.
"""

import asyncio
import hmac
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address, ip_network
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast, get_args
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Send

from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import run_in
from mnemolog.application.session_service import without_scope_warnings
from mnemolog.domain.errors import InvalidInput, LogUnreachable, MnemologError, StoreClosed
from mnemolog.domain.events import TokenCreated
from mnemolog.domain.request import acting_as
from mnemolog.domain.scope import ROOT, Boundary, Scopes, covered, parse_scopes
from mnemolog.domain.tokens import KnownToken, Token, TokensState, Verb, digest_of_secret, ends_soon, id_of, new_token
from mnemolog.domain.values import to_datetime
from mnemolog.infra.runtime.files import read_file
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.server.http.connections import MINUTE_S, PEER, RUNNING
from mnemolog.server.http.problems import RequestRefused, problem_response
from mnemolog.server.http.routes import MCP_PATH, PREFIX, SCOPE_HEADER
from mnemolog.store import MemoryStore

VERBS: Final = frozenset[Verb](get_args(Verb))
LOCAL: Final = "local"
"""The actor of requests without a token, which only a server that this machine alone can reach answers."""
REFUSED_S: Final = 0.05
"""A refusal for a caller with scopes is sent so long after its request came, or a multiple of it, in seconds."""
FAILURES_PER_MINUTE: Final = 60
"""How many requests with an invalid token an address may make; then they are answered with 429."""
PUBLIC_BODY_MAX: Final = 16 * 1024
"""Bytes of the body of a request that anybody may make."""
AWAY_S: Final = 3_600.0
"""How long tokens that were valid when the log answered last may still read, in seconds: none can be revoked there."""
PARTS_MAX: Final = 1_000
"""Parts of the store that are kept, one for each set of scopes."""
ADDRESSES_MAX: Final = 10_000
"""Addresses whose invalid tokens are counted."""
BEARER: Final = b"bearer "
CHALLENGE: Final = 'Bearer realm="mnemolog"'
VARY: Final = ("accept", "authorization", "cookie", "origin", SCOPE_HEADER)
"""Headers that a kept answer depends on. So it does on the one in which a proxy names people."""
SAFE: Final = frozenset(("GET", "HEAD"))

Known = tuple[TokensState, datetime]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a request: `request.state.caller` of every request that was let through.

    A request is answered within all of its scopes, or those that the header `Mnemolog-Scope` names.
    """

    actor: str
    """The name that is recorded in each event this caller appends."""
    verbs: frozenset[Verb]
    scopes: Scopes = ()
    """What this caller may see. Empty: everything."""
    store: AsyncMemoryStore
    """The store as this caller may see it."""
    token: str = ""
    """The id of the token; empty for a request without one."""
    keeps_access: Callable[[], Awaitable[bool]] = lambda: asyncio.sleep(0, True)
    """Returns whether the same request would still have all the rights it had when it came. A stream asks before each
    part. Raises `MnemologError` while that is unknown.
    """

    def may(self, verb: Verb) -> bool:
        """Return whether this caller may do what `verb` names."""
        return verb in self.verbs

    def require(self, verb: Verb, what: str) -> None:
        """Raise `RequestRefused` unless this caller may do what `verb` names, which `what` needs."""
        if verb not in self.verbs:
            why = f"this caller may not {verb}, which {what} needs"
            raise RequestRefused("Forbidden", 403, why, "use a token with that verb")

    def require_all(self, verbs: Iterable[Verb]) -> None:
        """Raise `RequestRefused` unless this caller may do all that a token is to allow."""
        for verb in verbs:
            self.require(verb, f"making a token that may {verb}")


def local_caller(store: AsyncMemoryStore) -> Caller:
    """Return the user of this machine, who may do everything."""
    return Caller(actor=LOCAL, verbs=VERBS, store=store)


class _User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verbs: tuple[str, ...]
    scopes: tuple[str, ...] = ()


class Users:
    """The people whom a proxy has authenticated: it names them in a header, and a file says what each may do."""

    def __init__(self, header: str, file: Path, proxies: Sequence[str]) -> None:
        """`proxies` are the addresses or networks that may send the header. Raises `InvalidInput`, as `read` does."""
        self.header, self._file = header.lower(), file
        self._proxies = [ip_network(proxy) for proxy in proxies]
        self.read()

    def read(self) -> None:
        """Read the file, TOML with a table for each user: `["ann@example.org"]`, `verbs = ["read"]`, `scopes = []`.

        Raises `InvalidInput`; then what was read before holds.
        """
        try:
            users = msgspec.convert(tomllib.loads(read_file(self._file, follow=True).decode()), dict[str, _User])
            checked = [
                new_token("", "", actor=name, verbs=user.verbs, scopes=user.scopes, expires_at=None)
                for name, user in users.items()
            ]
        except (OSError, ValueError, MnemologError) as error:
            raise InvalidInput("users", f"{self._file} cannot be used: {error}") from error
        self._users = {user.acts_as: user for user in checked}

    def scopes(self) -> Iterator[str]:
        """Yield the scopes that people are bound to."""
        return (scope for user in self._users.values() for scope in user.scopes)

    def name_in(self, scope: Any) -> str:
        """Return the name that a request carries, empty if none. Raises `RequestRefused` where it may not carry one."""
        sent: list[str] = [
            value.decode(errors="replace") for name, value in scope["headers"] if name == self.header.encode()
        ]
        if not sent:
            return ""
        peer = scope["state"].get(PEER)
        if len(sent) > 1 or peer is None or not any(ip_address(peer) in proxy for proxy in self._proxies):
            why = f"only the proxy may send {self.header}, and once; this came from {peer or 'elsewhere'}"
            raise RequestRefused("HeaderNotTrusted", 403, why, "see --trust-header and --proxy-address")
        return sent[0].strip()

    def user(self, name: str) -> TokenCreated:
        """Return what a person may do, as a token says it. Raises `RequestRefused` for one who is not in the file."""
        if (user := self._users.get(name)) is None:
            why = f"the proxy knows {name!r}, but this server does not"
            raise RequestRefused("Forbidden", 403, why, "the file of --users says who may do what")
        return user


class Callers:
    """Finds who makes a request. A token that was revoked by any process is not found from then on.

    While the log cannot be reached, those count that were known when it answered last, for `AWAY_S`.
    """

    def __init__(self, store: AsyncMemoryStore, users: Users | None = None) -> None:
        """`users` may come without a token."""
        self.users = users
        self._last: tuple[TokensState, float] | None = None
        """The tokens that were read last, and when that was."""
        self._store, self._tokens = store, with_pools(store)[0].parts.tokens
        if users is not None:
            with_pools(store)[0].parts.names.people = users.scopes
        self._parts: LruCache[Scopes, AsyncMemoryStore] = LruCache(PARTS_MAX)
        self._reading: asyncio.Task[Known] | None = None
        self._next: asyncio.Task[Known] | None = None

    async def caller_of(self, secret: str) -> Caller | None:
        """Return the caller whose token this is; None if it is unknown, revoked or expired. Raises `LogUnreachable`."""
        known, now = await self.read_now()
        token = find_token(known, secret, now=now)
        if token is None:
            return None
        self._tokens.note_use(token.id, now)
        if self._tokens.uses_are_due:
            await run_in("access", self._store, lambda _: self._tokens.save_uses())
        return Caller(
            actor=token.actor,
            verbs=frozenset(token.verbs),
            scopes=token.scopes,
            store=await self._part(token.scopes),
            token=token.id,
        )

    async def person(self, user: TokenCreated) -> Caller:
        """Return the caller that a proxy has authenticated."""
        scopes = parse_scopes(user.scopes) if user.scopes else ()
        verbs = VERBS & frozenset(user.verbs)
        return Caller(actor=user.acts_as, verbs=verbs, scopes=scopes, store=await self._part(scopes))

    async def within(self, caller: Caller, scopes: Sequence[str]) -> Caller:
        """Return a caller for a request within some scopes. Raises `OutsideScope`, `InvalidInput`."""
        wanted = Boundary(caller.scopes).narrow(parse_scopes(scopes))
        return msgspec.structs.replace(caller, store=await self._part(wanted), scopes=wanted)

    def ending(self) -> int:
        """Return how many of the tokens that were read last end soon. Reads nothing."""
        known, now = () if self._last is None else self._last[0].values(), datetime.now(UTC)
        return sum(ends_soon(item.token, now) for item in known)

    async def _part(self, scopes: Scopes) -> AsyncMemoryStore:
        """Return the store within some scopes. All requests within them share it, with its prefetches."""
        if not scopes:
            return self._store
        if (part := self._parts.get(scopes)) is None:
            part = self._store.within(scopes)
            for dropped in self._parts.put(scopes, part):
                await dropped.close()
        return part

    async def read_now(self) -> Known:
        """Return the tokens as of a moment after this call. Requests that wait at the same time share one read.

        Raises `LogUnreachable` while it is unknown which tokens are valid.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._reading))
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Task[Known] | None) -> Known:
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next = self._next, None
        try:
            known, now = await run_in("access", self._store, _known)
        except LogUnreachable:
            if self._last is None or monotonic() - self._last[1] > AWAY_S:
                raise
            return self._last[0], await run_in("access", self._store, _now)
        self._last = known, monotonic()
        return known, now


class RequestBuckets:
    """A bucket of `per_minute` requests for each key, which fills in a minute. `ADDRESSES_MAX` keys are kept."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left: LruCache[str, tuple[float, float]] = LruCache(ADDRESSES_MAX)
        """How many requests were left, and when that was."""

    def wait_s(self, key: str) -> int:
        """Take a request. Return 0, or in how many seconds there will be one."""
        now = monotonic()
        left, since = self._left.get(key) or (float(self._per_minute), now)
        left = min(self._per_minute, left + (now - since) * self._per_minute / MINUTE_S)
        if left < 1:
            self._left.put(key, (left, now))
            return ceil((1 - left) * MINUTE_S / self._per_minute)
        self._left.put(key, (left - 1, now))
        return 0


def find_token(known: Mapping[str, KnownToken], secret: str, *, now: datetime) -> Token | None:
    """Return the token that a caller has sent if it is valid, else None. An unknown one takes the same work."""
    found = known.get(id_of(secret))
    matches = hmac.compare_digest(digest_of_secret(secret), _NO_DIGEST if found is None else found.digest)
    return found.token if found is not None and matches and found.token.is_valid(now) else None


_NO_DIGEST: Final = bytes(32)


def _now(store: MemoryStore) -> datetime:
    return to_datetime(store.parts.clock.now())


def _known(store: MemoryStore) -> Known:
    return store.parts.tokens.known(), _now(store)


class Authentication:
    """Lets requests of known callers in: sets `request.state.caller`, and the actor of what they append."""

    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        store: AsyncMemoryStore,
        *,
        needs_token: bool = False,
        cookie: str = "",
        public: Sequence[str] = (),
        login: str = "",
        failures_per_minute: int = FAILURES_PER_MINUTE,
        time: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`cookie` may have the token. Paths that begin with one of `public` are open to all; other pages lead to
        `login`.
        """
        self._app = app
        self._callers = callers
        self._local = None if needs_token else local_caller(store)
        self._cookie = cookie
        self._public = tuple(public)
        self._login = login
        self._vary = ", ".join((*VARY, callers.users.header) if callers.users else VARY)
        self._failures = RequestBuckets(failures_per_minute)
        self._time, self._sleep = time, sleep

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._time()
        headers = dict(scope["headers"])
        try:
            if (caller := await self._caller(scope, headers)) is None:
                await self._let_in_or_refuse(
                    scope, headers, receive, send, is_wrong=self._token_in(scope, headers) is not None
                )
                return
            if caller.scopes:
                send = self._delaying(send, began)
            caller = msgspec.structs.replace(caller, keeps_access=partial(self._keeps_access, scope, headers, caller))
            if (wanted := _wanted_scopes(scope, headers)) is not None:
                caller = await self._callers.within(caller, wanted)
        except (MnemologError, RequestRefused) as error:
            await problem_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(caller=caller, vary=self._vary)
        # The tools of MCP pass warnings about scopes on.
        with acting_as(caller.actor), nullcontext() if scope["path"] == MCP_PATH else without_scope_warnings():
            await self._app(scope, receive, send)

    async def _caller(self, scope: Any, headers: dict[bytes, bytes]) -> Caller | None:
        """Return who makes a request: the holder of its token, or whom the proxy names. Raises `RequestRefused`."""
        users, given = self._callers.users, self._token_in(scope, headers)
        if users is not None and (name := users.name_in(scope)) and b"authorization" not in headers:
            return await self._callers.person(users.user(name))
        return self._local if given is None else await self._callers.caller_of(given)

    async def _keeps_access(self, scope: Any, headers: dict[bytes, bytes], before: Caller) -> bool:
        """Return whether a request would have all rights that it had before. Raises `MnemologError` if unknown."""
        try:
            now = await self._caller(scope, headers)
        except (RequestRefused, StoreClosed):
            return False
        return (
            now is not None
            and now.verbs >= before.verbs
            and all(covered(now.scopes, scope) for scope in before.scopes or (ROOT,))
        )

    def _token_in(self, scope: Any, headers: dict[bytes, bytes]) -> str | None:
        """Return the token that a request carries, empty for other credentials; None if it carries none."""
        sent = headers.get(b"authorization")
        if sent is not None:
            return sent[len(BEARER) :].strip().decode("latin-1") if sent[: len(BEARER)].lower() == BEARER else ""
        if not self._cookie:
            return None
        # Not `http.cookies`, which ends at a cookie of another program that has, for example, JSON as its value.
        return cast(str | None, cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(self._cookie))

    def _delaying(self, send: Send, began: float) -> Send:
        """Return what sends refusals at a fixed time after the request came, or a multiple of it."""

        async def delayed(message: Any) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                await self._sleep(until_refusal_s(began, self._time()))
            await send(message)

        return delayed

    def _counting(self, scope: Any, receive: Any, send: Send, address: str) -> Send:
        """Return what sends the answer to a login. Each with an invalid token counts; too many lead to 429."""
        is_refused = False

        async def counted(message: Any) -> None:
            nonlocal is_refused
            if message.get("status") == 401 and (wait_s := self._failures.wait_s(address)):
                is_refused = True
                await _too_many(wait_s)(scope, receive, send)
            elif not is_refused:
                await send(message)

        return counted

    async def _let_in_or_refuse(
        self, scope: Any, headers: dict[bytes, bytes], receive: Any, send: Any, *, is_wrong: bool
    ) -> None:
        path, address = scope["path"], (scope.get("client") or ("", 0))[0]
        is_public = path.startswith(self._public) and b"authorization" not in headers
        if is_public:
            is_login = path == self._login and scope["method"] not in SAFE
            if (running := scope.setdefault("state", {}).get(RUNNING)) is not None:
                running.body_max = PUBLIC_BODY_MAX
            await self._app(scope, receive, self._counting(scope, receive, send, address) if is_login else send)
        elif is_wrong and (wait_s := self._failures.wait_s(address)):
            await _too_many(wait_s)(scope, receive, send)
        elif self._login and not is_program(path) and b"text/html" in headers.get(b"accept", b""):
            asked = path + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
            back = asked if scope["method"] in SAFE else "/"
            location = f"{self._login}?next={quote(back, safe='')}"
            answer = Response(status_code=303, headers={"location": location, "cache-control": "no-store"})
            await answer(scope, receive, send)
        else:
            why = "the token is not valid: it is unknown, revoked or expired" if is_wrong else "a token is needed"
            hint = "send the header `Authorization: Bearer TOKEN` (`connect(…, token=…)`); `token create` makes one"
            challenge = {"www-authenticate": CHALLENGE + (', error="invalid_token"' if is_wrong else "")}
            await problem_response(RequestRefused("Unauthorized", 401, why, hint), **challenge)(scope, receive, send)


def until_refusal_s(began: float, now: float) -> float:
    """Return how long to wait before a refusal is sent, in seconds, so that the work before it cannot be timed."""
    return REFUSED_S - (now - began) % REFUSED_S


def _too_many(wait_s: int) -> Response:
    why = "too many requests with an invalid token came from this address"
    refused = RequestRefused("TooManyRequests", 429, why, f"wait {wait_s} s and send a valid one")
    return problem_response(refused, **{"retry-after": str(wait_s)})


def is_program(path: str) -> bool:
    """Whether a path is of the API or of MCP, which programs use, and not of a page."""
    return path in (PREFIX, MCP_PATH, "/metrics") or path.startswith((f"{PREFIX}/", f"{MCP_PATH}/"))


def _wanted_scopes(scope: Any, headers: dict[bytes, bytes]) -> list[str] | None:
    """Return the scopes that a request is limited to: by its header, and for MCP by its query. None for no limit.

    In the header they are separated by commas, and each may be percent-encoded.
    """
    if (named := headers.get(SCOPE_HEADER.encode())) is not None:
        return [unquote(item.strip()) for item in named.decode(errors="replace").split(",")]
    if scope["path"] != MCP_PATH:
        return None
    return [value for name, value in parse_qsl(scope["query_string"].decode("latin-1")) if name == "scope"] or None
