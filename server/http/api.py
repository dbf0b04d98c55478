"""The JSON API: a route for each path of the table of operations, and how each is called on a store."""

import hashlib
import hmac
import inspect
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from tempfile import TemporaryFile
from typing import IO, Any, Final, NoReturn, get_origin, get_type_hints
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from mnemolog.adapters.support.store_access import exported_lines, known_async_session, known_session, with_pools
from mnemolog.aio.store import (
    AsyncAdminService,
    AsyncAuditService,
    AsyncMemoryStore,
    AsyncModelService,
    AsyncQuarantine,
    AsyncSession,
)
from mnemolog.aio.wrappers import Pool, pool_of, run_in, stopping
from mnemolog.application.visible_events import reading
from mnemolog.audit.service import AuditService
from mnemolog.domain import errors, structured_log
from mnemolog.domain.encoding import to_json, to_printable_json
from mnemolog.domain.head import Head, position_at
from mnemolog.domain.request import request_key
from mnemolog.domain.result import Results
from mnemolog.domain.session import checked_key, checked_session_id
from mnemolog.domain.values import ORIGIN, checked_number, checked_whole
from mnemolog.domain.working_memory import MISSING
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.server.http.authentication import Authentication, Caller, Callers
from mnemolog.server.http.config import Folders
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.guard import HUNG_UP, Bodies, in_thread_if_large
from mnemolog.server.http.live_events import FollowEndpoint, Followers, Parts, Stream
from mnemolog.server.http.openapi import DOCUMENT, document_body
from mnemolog.server.http.problems import (
    FAILED,
    REPORT_IT,
    RequestRefused,
    as_plain,
    place_of,
    problem_response,
    without_content_of_others,
)
from mnemolog.server.http.routes import FILES, JSON, KEY_HEADER, OCTETS, PREFIX, ROUTES, HttpOperation
from mnemolog.server.http.serialization import (
    PAGE,
    PAGE_MAX,
    WAIT_MAX_S,
    WAITS,
    Answers,
    Arguments,
    is_paged,
    takes_long,
)
from mnemolog.session import Session
from mnemolog.store import MemoryStore

TAG_KEY: Final = secrets.token_bytes(32)
"""The key of the hash in entity tags. A restarted server has another one: its answers may look different."""
PAGE_BYTES: Final = 8 * 2**20
"""A page ends with the item that reaches this size as JSON."""
POSITIONS: Final = 10_000
"""How many events of the log a page is looked for in, where a caller does not see all of them."""
PART: Final = 200
"""How many items of a page are read at once."""
Call = Callable[[MemoryStore, dict[str, Any]], Any]

_OWNERS: Final[dict[type, tuple[type, Callable[[MemoryStore], Any]]]] = {
    MemoryStore: (AsyncMemoryStore, lambda store: store),
    Session: (AsyncSession, lambda _: None),
    AuditService: (AsyncAuditService, lambda store: store.audit),
    ModelService: (AsyncModelService, lambda store: store.models),
    AdminService: (AsyncAdminService, lambda store: store.admin),
    Quarantine: (AsyncQuarantine, lambda store: store.admin.quarantine()),
}
"""The twin for asyncio of each class whose methods are offered, and which one of a store it is."""


class CallResult(msgspec.Struct, frozen=True):
    """What a call returned."""

    result: Any
    next: int | None = None
    """Where the next page begins; None if there is none."""
    etag: str | None = None
    """The entity tag of the result; None where it does not depend on the log alone."""
    is_unchanged: bool = False
    """Whether the caller has this result already: then it was not made again."""
    is_new: bool = False
    """Whether the call has made what it returns: a session."""


def call_for(
    operation: HttpOperation, folders: Folders
) -> Callable[[MemoryStore, dict[str, Any], Request], CallResult]:
    """Return the function that makes a call."""
    call = _page_of(operation) if is_paged(operation) else partial(_whole, _call_of(operation, folders))
    if operation.makes_session:
        call = partial(_session, operation.method.__name__)
    return partial(_of_log, call) if operation.of_log_alone else lambda store, arguments, _: call(store, arguments)


def _whole(call: Call, store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
    return CallResult(call(store, arguments))


def _session(name: str, store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
    known = None if name == "start_session" else store.find_session(arguments["id"])
    return CallResult(getattr(store, name)(**arguments), is_new=known is None)


def _of_log(
    call: Callable[[MemoryStore, dict[str, Any]], CallResult],
    store: MemoryStore,
    arguments: dict[str, Any],
    request: Request,
) -> CallResult:
    known = request.headers.get("if-none-match", "")
    try:
        # Read first: what is appended meanwhile may be in the answer, and then the tag is that of an older one.
        etag = _etag(request, store.head())
    except errors.LogUnreachable:  # The answer comes from projections alone.
        return call(store, arguments)
    # Only a caller who was given the answer knows its tag. Anybody can send `*`: the call decides what is answered.
    found = CallResult(None) if (is_known := etag in known) else call(store, arguments)
    is_unchanged = is_known or known.strip() == "*"
    return msgspec.structs.replace(found, etag=etag, is_unchanged=is_unchanged)


def _etag(request: Request, head: Head) -> str:
    """Return the entity tag of an answer, which depends on the request and on the log up to a head."""
    caller, url = request.state.caller, (request.scope["raw_path"], request.scope["query_string"])
    of = (head.position, head.digest, url, caller.token, caller.actor, sorted(caller.verbs), caller.scopes)
    return f'"{hmac.digest(TAG_KEY, to_json(of), "sha256").hex()[:32]}"'


def _call_of(operation: HttpOperation, folders: Folders) -> Call:
    name = operation.method.__name__
    if operation.of_session:
        return partial(_on_session, operation)
    if operation.method is MemoryStore.find_session:
        return lambda store, arguments: known_session(store, checked_session_id(arguments["id"]))
    if operation.method is MemoryStore.backup:
        return partial(_back_up, folders)
    if operation.owner is ModelService and "model" in inspect.signature(operation.method).parameters:
        return partial(_on_model, name)
    owner = _OWNERS[operation.owner][1]
    return lambda store, arguments: getattr(owner(store), name)(**arguments)


def _on_session(operation: HttpOperation, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    name, session = operation.method.__name__, known_session(store, checked_session_id(arguments.pop("session")))
    if name == "get":
        arguments["default"] = MISSING
    at = arguments.pop("at", None) if operation.as_of else None
    if at is None:
        return getattr(session, name)(**arguments)
    if arguments.pop("hidden", False):
        raise errors.InvalidInput("hidden", "cannot be given together with `at`; leave one out")
    return getattr(session.at(at), name)(**arguments)


def _page_of(operation: HttpOperation) -> Callable[[MemoryStore, dict[str, Any]], CallResult]:
    call = _call_of(operation, Folders())
    is_read_on = get_origin(get_type_hints(operation.method)["return"]) is Iterator

    def page(store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
        limit, last = arguments.pop("limit", PAGE), arguments.pop("last", None)
        checked_whole("limit", limit, most=PAGE_MAX)
        if last is not None:
            checked_whole("last", last, most=PAGE_MAX)
            found = page(store, arguments | {"limit": last, "newest_first": True})
            if not arguments.get("newest_first"):
                found.result.reverse()
            return found
        if is_read_on:
            end = _end_of_part(store, arguments) if store.parts.boundary.scopes else None
            return _page(call(store, arguments), limit, end=end)
        if operation.method is MemoryStore.sessions:
            after = arguments.pop("after", 0)
            found = call(store, arguments)
            return _page((item for item in found if item.started_position > after), limit, of=found)
        first = call(store, arguments | {"limit": min(limit, PART)})
        return _page(_read_on(partial(call, store), arguments, first), limit, of=first)

    return page


def _end_of_part(store: MemoryStore, arguments: dict[str, Any]) -> int | None:
    """Bound a call to the first `POSITIONS` events of its range. Return where that ends, None if it has no more."""
    log = store.parts.log
    upto = log.head().position if (asked := arguments.get("upto")) is None else position_at("upto", asked, log)
    end = position_at("after", arguments.get("after", ORIGIN), log) + POSITIONS
    if end >= upto:
        return None
    arguments["upto"] = end
    return end


def _page(items: Iterable[Any], limit: int, *, of: Any = None, end: int | None = None) -> CallResult:
    """Return the first items, at most `limit` and about `PAGE_BYTES`, as a list like `of`.

    After `end` more may follow: the next page begins there if this one has all items.
    """
    found, size = Results[Any](), 0
    for item in items:
        if len(found) == limit or size >= PAGE_BYTES:
            end = int(getattr(found[-1], "started_position", None) or found[-1].position)
            break
        found.append(item)
        size += len(to_printable_json(item, enc_hook=as_plain))
    found.stale = getattr(of, "stale", None)
    return CallResult(found, next=end)


def _read_on(call: Callable[[dict[str, Any]], Any], arguments: dict[str, Any], part: Results[Any]) -> Iterator[Any]:
    """Yield the items of a list part by part, so that little more is read than a page has room for."""
    cursor = "before" if arguments.get("newest_first") else "after"
    yield from part
    while part.next is not None:
        part = call(arguments | {"limit": PART, cursor: part.next})
        yield from part


def _back_up(folders: Folders, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    store.parts.boundary.require_none("backup")  # First: the refusal below names the folder of the server.
    if folders.backups is None:
        raise errors.BackupRefused(store.path, "this server was started without a folder for backups")
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    return store.backup(folders.backups / name, keys=folders.backup_keys, **arguments)


def _on_model(name: str, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    model: str = arguments["model"]
    # The library also takes folders: a caller is not to open those of the server.
    if not any(model == item.name or item.fingerprint.startswith(model) for item in store.models.list()):
        raise errors.ModelRefused(model, "no model with that name or fingerprint prefix")
    return getattr(store.models, name)(**arguments)


def require_short_waits(arguments: dict[str, Any]) -> None:
    """Raise `InvalidInput` if a caller wants to wait for longer than `WAIT_MAX_S`: a thread of the server waits too."""
    for name in WAITS & arguments.keys():
        checked_number(name, arguments[name], most=WAIT_MAX_S)


NO_STORE: Final = {"cache-control": "no-store"}
REVALIDATED: Final = {"cache-control": "private, no-cache"}
"""Headers of an answer with an entity tag: the caller may keep it, and asks whether it is still right."""
STOPPABLE: Final = ("recall", "background")
"""Pools whose work ends at its next step when its caller hangs up; that of other pools is short, or appends."""
CHUNK_BYTES: Final = 65_536


def make_app(
    store: AsyncMemoryStore,
    *,
    folders: Folders | None = None,
    followers: Followers | None = None,
    bodies: Bodies | None = None,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] | None = None,
    with_api: bool = True,
    needs_token: bool = False,
) -> Starlette:
    """Return the application: the API below `/v1`, and further `routes`.

    `middleware` sets `request.state.caller` and refuses what may not come in; by default everybody is the local user.
    `needs_token` is what the OpenAPI document says of that.
    """
    api = Mount(PREFIX, app=_Api(folders or Folders(), followers or Followers(store), bodies or Bodies()))
    app = Starlette(
        routes=[Route(DOCUMENT, partial(_document, needs_token)), api, *routes] if with_api else routes,
        middleware=[Middleware(Authentication, callers=Callers(store), store=store)]
        if middleware is None
        else middleware,
        exception_handlers={
            errors.MnemologError: _problem,
            RequestRefused: _problem,
            HTTPException: _http_problem,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _document(needs_token: bool, _: Request) -> Response:
    return Response(document_body(needs_token=needs_token), media_type=JSON)


async def _problem(request: Request, error: Any) -> Response:
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is not None and not caller.may("read"):
        error = without_content_of_others(error)
    return problem_response(error)


async def _http_problem(_: Request, error: Any) -> Response:
    status, headers = HTTPStatus(error.status_code), error.headers or {}
    why = f"this path takes {headers['Allow']}" if "Allow" in headers else error.detail
    return problem_response(RequestRefused(status.phrase.replace(" ", ""), status, why), **headers)


async def _gone(_: Request, __: Any) -> Response:
    return Response(status_code=HUNG_UP)  # Its client is gone.


async def _failed(request: Request, error: Exception) -> Response:
    # Its class and place are logged, not its message.
    structured_log.error("http.failed", route=getattr(request.state, "route", ""), error=error, **place_of(error))
    return problem_response(RequestRefused("InternalError", 500, FAILED, REPORT_IT))


class _Api(Router):
    """Finds endpoints by the path as it was sent, percent-encoded: an argument in it may hold a slash."""

    def __init__(self, folders: Folders, followers: Followers, bodies: Bodies) -> None:
        endpoints: list[Endpoint] = [OperationEndpoint(operation, folders, bodies) for operation in ROUTES]
        endpoints.append(FollowEndpoint(followers))
        by_path: dict[str, list[Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.operation.path, []).append(endpoint)
        paths = [(path, _Path(of_path)) for path, of_path in by_path.items()]
        super().__init__(
            [Route(path, endpoint=of_path, methods=list(of_path.endpoints)) for path, of_path in paths],
            redirect_slashes=False,
            default=_no_path,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        await super().__call__(scope, receive, send)


async def _no_path(_: Scope, __: Receive, ___: Send) -> NoReturn:
    raise RequestRefused("NotFound", 404, "there is no such path", f"`GET {DOCUMENT}` lists all paths")


class _Path:
    """The endpoints of one path, by method."""

    def __init__(self, endpoints: "Iterable[Endpoint]") -> None:
        self.endpoints = {endpoint.operation.http: endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoints["GET" if scope["method"] == "HEAD" else scope["method"]]
        operation, request = endpoint.operation, Request(scope, receive, send)
        request.state.route = PREFIX + operation.path
        caller: Caller = request.state.caller
        if operation.verb == "read" and not caller.may("read"):
            with reading(with_pools(caller.store)[0].parts.visible, operation.name):
                caller.require("read", operation.name)
        caller.require(operation.verb, operation.name)
        response = await endpoint.respond(request)
        await response(scope, receive, send)


class OperationEndpoint:
    """Answers the requests to a method of the store. Everything that does not depend on the request is made once."""

    def __init__(self, operation: HttpOperation, folders: Folders, bodies: Bodies) -> None:
        self.operation, self._bodies = operation, bodies
        self._arguments, self._answers = Arguments(operation), Answers(operation)
        self._call = call_for(operation, folders)
        self._pool: Pool = pool_of(getattr(_OWNERS[operation.owner][0], operation.method.__name__))
        self._takes_long = takes_long(operation)
        self._compares = operation.method in (
            MemoryStore.record,
            MemoryStore.record_many,
            MemoryStore.switch,
            AdminService.create_token,
            AdminService.rotate_token,
        )

    async def respond(self, request: Request) -> Response:
        """Return the answer to a request."""
        if not self._arguments.in_body:
            return await self._answer(request, b"")
        # It carries turns, or a long list.
        is_large = self.operation.method in (MemoryStore.record, MemoryStore.record_many, AdminService.reapply_erasures)
        async with self._bodies.read(request, request.state.caller, large=is_large) as body:
            if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise errors.InvalidInput("content-type", "is not application/json")
            return await self._answer(request, body)

    async def _answer(self, request: Request, body: bytes | bytearray) -> Response:
        read = partial(self._arguments.read, _path_arguments(request), request.scope["query_string"])
        arguments = await in_thread_if_large(read, body)
        require_short_waits(arguments)
        caller: Caller = request.state.caller
        key = self._key(request, body)
        if self.operation.method is AdminService.create_token:
            caller.require_all(arguments.get("verbs", ("read", "record")))
        if self.operation.method is AdminService.rotate_token:
            old = await run_in("read", caller.store, lambda store: store.parts.tokens.named(arguments["token"]))
            caller.require_all(old.verbs)
            arguments["token"] = old.id
        if any(erasure.token for erasure in arguments.get("erasures", ())):
            caller.require("admin", "revoking tokens again")
        if self.operation.verb in ("record", "approve") and arguments.get("dry_run"):
            caller.require("read", f"a preview of {self.operation.name}")
        if arguments.get("receipt"):
            caller.require("record", f"{self.operation.name} with a receipt")
        if self._pool in STOPPABLE and (running := request.scope["state"].get(RUNNING)) is not None:
            running.can_stop = True
        if kinds := FILES.get(self.operation.method):
            kind = OCTETS if OCTETS in request.headers.get("accept", "") else kinds[0]
            if request.method == "HEAD":
                return Response(media_type=kind)
        if self.operation.method is AuditService.export:
            return await _streamed(caller, lambda of: exported_lines(of, **arguments), kind)
        if self.operation.method is AuditService.subject:
            with ExitStack() as unsent:
                file = unsent.enter_context(TemporaryFile())
                await self._made(request, arguments | {"file": file}, key)
                unsent.pop_all()  # It is whole, so that what is refused is no file. Sending closes it.
            return await _streamed(caller, lambda _: _parts(file), kind)
        outcome = await self._made(request, arguments, key)
        vary = request.scope["state"].get("vary", "*")
        headers = NO_STORE if outcome.etag is None else REVALIDATED | {"etag": outcome.etag, "vary": vary}
        if outcome.is_unchanged:
            return Response(status_code=304, headers=headers)
        written = self._answers.write(outcome.result, more=outcome.next, with_content=caller.may("read"))
        if outcome.is_new:
            headers = headers | {"location": f"{PREFIX}/sessions/{quote(outcome.result.id, safe='')}"}
        status = 204 if written is None else 201 if outcome.is_new else 200
        return Response(written, status, headers, None if written is None else JSON)

    def _key(self, request: Request, body: bytes | bytearray) -> tuple[str | None, str]:
        """Return the key of the request's event, and a digest that tells it from another request with that key.

        A turn, a switch or a token is compared with the one under that key: those have no digest. Raises `InvalidInput`
        where the key of a request would be ignored.
        """
        given = request.headers.get(KEY_HEADER)
        if given and self.operation.http == "POST" and self.operation.verb != "read" and not self.operation.takes_key:
            why = f"is not for {self.operation.name}: sent again, it is carried out again; leave it out"
            raise errors.InvalidInput(KEY_HEADER, why)
        if not given or self._compares:
            return (checked_key(given) if given else None), ""
        scope = request.scope
        asked = hashlib.sha256(b"\n".join((scope["method"].encode(), scope["raw_path"], scope["query_string"], b"")))
        asked.update(body)
        return checked_key(given), asked.hexdigest()[:32]

    async def _made(self, request: Request, arguments: dict[str, Any], key: tuple[str | None, str]) -> CallResult:
        store = request.state.caller.store
        if self.operation.method is Session.prefetch_result:  # Without a thread that waits.
            session = await known_async_session(store, checked_session_id(arguments.pop("session")))
            return CallResult(await session.prefetch_result(**arguments))
        pool = "read" if self._pool == "recall" and arguments.get("mode") == "text" else self._pool
        if self._takes_long:  # A call whose caller has hung up ends at its next step.
            arguments |= {"progress": stopping(None)}
        with request_key(*key):
            return await run_in(pool, store, lambda blocking: self._call(blocking, arguments, request))


Endpoint = OperationEndpoint | FollowEndpoint


def _path_arguments(request: Request) -> list[str]:
    try:
        return [unquote_to_bytes(argument).decode() for argument in request.path_params.values()]
    except UnicodeDecodeError as error:
        raise errors.InvalidInput("path", "is not UTF-8, percent-encoded") from error


async def _streamed(caller: Caller, lines_of: Callable[[MemoryStore], Iterator[bytes]], kind: str) -> Response:
    """Send an export as it is written, or a file. An export ends with its trailer; one that breaks off has none.

    `kind` is its media type. No thread waits for a caller who reads slowly: each chunk is made when the one before was
    taken.
    """
    lines = await run_in("read", caller.store, lines_of)
    first = await run_in("read", caller.store, lambda _: _chunk(lines))  # Now, so that what is refused is no stream.

    async def chunks() -> Parts:
        chunk = first
        while chunk:
            yield chunk.__bytes__
            chunk = await run_in("read", caller.store, lambda _: _chunk(lines))

    return Stream(chunks(), kind, caller)


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        yield from iter(partial(file.read, CHUNK_BYTES), b"")


def _chunk(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, about `CHUNK_BYTES`; none at the end."""
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            break
    return bytes(chunk)
