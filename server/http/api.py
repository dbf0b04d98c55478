"""The JSON API as an ASGI application: one route for each operation of the table."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.application.session_list import without_scope_warnings
from mnemolog.audit.service import AuditService
from mnemolog.domain.errors import InvalidInput, LimitExceeded, MnemologError
from mnemolog.domain.idempotency import request_key
from mnemolog.domain.session import checked_key
from mnemolog.operations.service import AdminService
from mnemolog.server.http.authentication import Authentication, Callers
from mnemolog.server.http.exchange import EVENT_STREAM, NO_STORE, REVALIDATED, Exchange
from mnemolog.server.http.execution import (
    CallResult,
    Folders,
    call_for,
    pool_for,
    prefetch_result,
    require_short_waits,
)
from mnemolog.server.http.followers import TAIL, TailRoute
from mnemolog.server.http.openapi import DocumentRoute
from mnemolog.server.http.operations import OPERATIONS, PREFIX, Operation
from mnemolog.server.http.problems import internal_error, problem, problem_of, problem_response, to_body
from mnemolog.server.http.protocol import KEY_HEADER, MCP_PATH
from mnemolog.server.http.serialization import Answers, Arguments, reports_progress
from mnemolog.server.http.streaming import answer_with_export, answer_with_progress
from mnemolog.session import Session
from mnemolog.store import MemoryStore

STOPPABLE: Final = ("recall", "background")
"""Pools whose work ends at its next step when its caller hangs up; that of other pools is short, or appends."""


def make_app(
    store: AsyncMemoryStore,
    *,
    folders: Folders | None = None,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] | None = None,
    with_api: bool = True,
) -> ASGIApp:
    """Return the server's application: the API below `/v1`, and further `routes`.

    `middleware` sets `request.state.caller` and refuses what may not come in; by default everybody is the local user.
    """
    # A body that is found too large while it is read: without a handler, Starlette would answer 500.
    api, rest = (
        Api(store, folders or Folders()),
        Starlette(routes=routes, exception_handlers={LimitExceeded: _too_large}),
    )

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette would look at each request five times before the API sees it.
        path = scope.get("path", "")
        is_of_api = with_api and scope["type"] == "http" and path.startswith(f"{PREFIX}/")
        # The tools of MCP pass warnings about scopes on.
        with nullcontext() if path.startswith(MCP_PATH) else without_scope_warnings():
            await (api if is_of_api else rest)(scope, receive, send)

    app: ASGIApp = by_path
    default = [Middleware(Authentication, callers=Callers(store), store=store)]
    for one in reversed(default if middleware is None else middleware):
        app = one.cls(app, *one.args, **one.kwargs)
    return app


def _too_large(_: Request, error: Any) -> Response:
    return problem_response(problem_of(error))


class Route:
    """Answers the requests to one operation. Everything that does not depend on the request is made once."""

    def __init__(self, operation: Operation, folders: Folders) -> None:
        self.operation = operation
        self._arguments, self._answers = Arguments(operation), Answers(operation)
        self._call, self._pool = call_for(operation, folders), pool_for(operation)
        self._reports = reports_progress(operation)
        self._compares = operation.method in (
            MemoryStore.record,
            MemoryStore.record_many,
            MemoryStore.switch,
            AdminService.create_token,
        )

    async def __call__(self, exchange: Exchange, path: Sequence[str]) -> None:
        """Answer a request whose path has these arguments."""
        body = await exchange.body() if self._arguments.in_body else b""
        arguments = self._arguments.read(path, exchange.query(), body)
        require_short_waits(arguments)
        exchange.caller = await exchange.caller.for_call(arguments, self._arguments.sessions_in(arguments))
        key = self._key(exchange, body)
        if arguments.get("receipt") and not exchange.caller.may("record"):
            await exchange.refuse(_forbidden("record", f"{self.operation.name} with a receipt"))
            return
        if arguments.get("regex") and not exchange.caller.may("admin"):
            # Some expressions never end on some texts, and nothing else of the process runs meanwhile.
            await exchange.refuse(_forbidden("admin", "a regular expression"))
            return
        if self._pool in STOPPABLE:
            exchange.stop_when_gone()
        if self.operation.method is AuditService.export:
            await answer_with_export(exchange, arguments)
            return
        if self._reports and EVENT_STREAM in exchange.header(b"accept"):
            await answer_with_progress(
                exchange, lambda given: self._made(exchange, given, key), arguments, ended=self._last_event
            )
            return
        outcome = await self._made(exchange, arguments, key)
        headers = (NO_STORE,) if outcome.etag is None else (*REVALIDATED, (b"etag", outcome.etag.encode()))
        if outcome.is_unchanged:
            await exchange.answer(304, None, *headers)
            return
        written = self._answers.write(outcome.result, more=outcome.next)
        await exchange.answer(204 if written is None else 200, written, *headers)

    def _key(self, exchange: Exchange, body: bytes) -> str | None:
        """Return the key of the request's event. A turn or a switch is compared with the one under that key.

        A second token is refused. Other events are not compared: their key names the request, so that another one with
        the same key is no retry. Raises `InvalidInput` where the key of a request would be ignored.
        """
        given = exchange.header(KEY_HEADER.encode()).decode("latin-1")
        if given and self.operation.http == "POST" and self.operation.verb != "read" and not self.operation.takes_key:
            why = f"is not for {self.operation.name}: sent again, it is carried out again; leave it out"
            raise InvalidInput(KEY_HEADER, why)
        if not given or self._compares:
            return checked_key(given) if given else None
        asked = b"\n".join((exchange.scope["raw_path"], exchange.scope["query_string"], body))
        return checked_key(f"{given}#{hashlib.sha256(asked).hexdigest()[:16]}")

    async def _made(self, exchange: Exchange, arguments: dict[str, Any], key: str | None) -> CallResult:
        if self.operation.method is Session.prefetch_result:
            return await prefetch_result(exchange.caller.store, arguments)
        known = exchange.header(b"if-none-match").decode("latin-1") or None
        pool = "read" if self._pool == "recall" and arguments.get("mode") == "text" else self._pool
        if self._reports:  # Also where it reports to nobody: a call whose caller has hung up ends at its next step.
            arguments = {"progress": stopping(None)} | arguments
        with request_key(key):
            return await run_in(pool, exchange.caller.store, lambda store: self._call(store, arguments, known))

    def _last_event(self, call: asyncio.Future[Any]) -> tuple[str, bytes]:
        try:
            return "result", self._answers.write(call.result().result) or b"null"
        except Exception as error:
            return "error", to_body(_problem(error, self.operation.name))


AnyRoute = Route | TailRoute | DocumentRoute
Found = tuple[AnyRoute, tuple[bytes, ...]]
STREAMS: Final = (AuditService.export, TAIL.method)
"""Whose answers have no end that is known when they begin."""
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Node:
    """The routes of the paths with the same beginning."""

    def __init__(self) -> None:
        self._named: dict[bytes, Node] = {}
        self._any: Node | None = None
        self._routes: dict[str, AnyRoute] = {}

    def add(self, path: Sequence[str], method: str, route: AnyRoute) -> None:
        """Add a route by the rest of its path."""
        if not path:
            self._routes[method] = route
        elif path[0].startswith("{"):
            self._any = self._any or Node()
            self._any.add(path[1:], method, route)
        else:
            self._named.setdefault(path[0].encode(), Node()).add(path[1:], method, route)

    def find(self, path: Sequence[bytes], method: str, arguments: tuple[bytes, ...] = ()) -> Found | None:
        """Return the route of a path and the arguments in it, still encoded. None if there is none."""
        if not path:
            return (self._routes[method], arguments) if method in self._routes else None
        named = self._named.get(path[0])
        found = None if named is None else named.find(path[1:], method, arguments)
        if found is None and self._any is not None and path[0]:
            found = self._any.find(path[1:], method, (*arguments, path[0]))
        return found


class Api:
    """Answers the requests below `/v1`. Paths are split before they are decoded: an argument may hold a slash."""

    def __init__(self, store: AsyncMemoryStore, folders: Folders) -> None:
        """`store` is the whole one: it is read for followers of the log, who each see what they may."""
        self._root = Node()
        routes: list[AnyRoute] = [
            TailRoute(store),
            DocumentRoute(),
            *(Route(operation, folders) for operation in OPERATIONS),
        ]
        for route in routes:
            self._root.add(route.operation.path.split("/")[1:], route.operation.http, route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        exchange = Exchange(scope, receive, send)
        raw: bytes = scope["raw_path"].partition(b"?")[0]
        path = raw.removeprefix(PREFIX.encode()).split(b"/")[1:]
        found = self._root.find(path, "GET" if scope["method"] == "HEAD" else scope["method"])
        if found is None:
            await self._refuse(exchange, path)
            return
        route, arguments = found
        scope["state"]["route"] = PREFIX + route.operation.path
        if not exchange.caller.may(route.operation.verb):
            await exchange.refuse(_forbidden(route.operation.verb, route.operation.name))
            return
        if scope["method"] == "HEAD" and route.operation.method in STREAMS:
            await exchange.answer(200, None, NO_STORE)
            return
        try:
            await route(exchange, [_decoded(argument) for argument in arguments])
        except Exception as error:
            if exchange.is_begun:
                raise
            await exchange.refuse(_problem(error, route.operation.name))

    async def _refuse(self, exchange: Exchange, path: Sequence[bytes]) -> None:
        allowed = ", ".join(method for method in _METHODS if self._root.find(path, method) is not None)
        if allowed:
            members = problem("MethodNotAllowed", 405, f"this path takes {allowed}")
            await exchange.refuse(members, (b"allow", allowed.encode()))
            return
        hint = f"`GET {PREFIX}/openapi.json` lists all paths"
        await exchange.refuse(problem("NotFound", 404, "there is no such path", hint))


def _forbidden(verb: str, what: str) -> dict[str, Any]:
    return problem("Forbidden", 403, f"this caller may not {verb}, which {what} needs", "use a token with that verb")


def _problem(error: Exception, operation: str) -> dict[str, Any]:
    return problem_of(error) if isinstance(error, MnemologError) else internal_error(error, operation)


def _decoded(argument: bytes) -> str:
    try:
        return unquote_to_bytes(argument).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("path", "is not UTF-8, percent-encoded") from error
