"""Pages and actions: functions with an address. A page shows something, an action changes something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.result import Result
from mnemolog.domain.tokens import Verb
from mnemolog.domain.values import Position
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.parameters import text
from mnemolog.server.http.authentication import Caller

Row = TypeVar("Row", bound=Result)


class ErrorPage(Result, frozen=True, kw_only=True):
    """Why a page is not shown, or an action not done. Sent as problem details (RFC 9457) to programs."""

    status: int
    title: str
    """What happened, in words."""
    detail: str
    hint: str
    """What to do."""


class Refused(Exception):
    """A page is not shown, or an action not done."""

    def __init__(self, status: int, title: str, detail: str, hint: str) -> None:
        """As an `ErrorPage` has them."""
        super().__init__(detail)
        self.page = ErrorPage(status=status, title=title, detail=detail, hint=hint)


class Target(msgspec.Struct, frozen=True):
    """What has an address: a page or an action."""

    path: str
    title: str
    template: str
    verb: Verb
    whole: bool
    """Whether it is about the whole memory, so that who may see a part only is refused."""


class Page(Target, frozen=True):
    """A page: `show` returns a struct, which is sent as JSON or shown by the template, as `data` in it."""

    show: Callable[[Request, Caller, AsOf], Awaitable[msgspec.Struct]]


class Action(Target, frozen=True):
    """What a form does: `do` returns where to go next, or a struct to show once."""

    do: Callable[[Request, Caller, QueryParams], Awaitable[msgspec.Struct | Response]]
    needs_write: bool
    """Whether it is refused unless the console may write."""


def page(
    path: str, *, title: str, template: str, verb: Verb = "read", whole: bool = False
) -> Callable[[Callable[[Request, Caller, AsOf], Awaitable[msgspec.Struct]]], Page]:
    """Make a page of a function. `path` is as in Starlette; only callers with `verb` see it."""
    return lambda show: Page(path, title, template, verb, whole, show)


def action(
    path: str,
    *,
    title: str,
    verb: Verb,
    template: str = "",
    whole: bool = False,
    needs_write: bool = True,
) -> Callable[[Callable[[Request, Caller, QueryParams], Awaitable[Any]]], Action]:
    """Make an action of a function, which is called with a form that was posted to `path`."""
    return lambda do: Action(path, title, template, verb, whole, do, needs_write)


class ListPage(Result, frozen=True, kw_only=True):
    """A page with a list that is ordered by positions. The template `parts.html` shows the ways as `pager`."""

    earlier: Position | None = None
    """Pass it as `before` for the page with what is earlier; None if there is nothing."""
    later: Position | None = None
    """Pass it as `after` for the page with what is later; None if there is nothing, or the list is read backwards."""


def part_of(
    rows: Sequence[Row],
    place: Callable[[Row], Position],
    *,
    before: Position | None,
    after: Position | None,
    most: int,
) -> tuple[tuple[Row, ...], dict[str, Position]]:
    """Return up to `most` rows, the first ones after `after` or else the last ones before `before`; and the ways on.

    `rows` are those, in the order of their positions, and one more if there is one.
    """
    more, forward = len(rows) > most, after is not None
    items = tuple(rows[:most] if forward else rows[-most:])
    ways = {}
    if items and (forward or more):
        ways["earlier"] = place(items[0])
    if items and (more if forward else before is not None):
        ways["later"] = place(items[-1])
    return items, ways


def limited(caller: Caller, request: Request) -> AsyncMemoryStore:
    """Return the caller's store within the scope that the URL names. Raises `InvalidInput`, `OutsideScope`."""
    scope = text(request.query_params, "scope")
    return caller.store.within(scope) if scope else caller.store


def wants_json(request: Request) -> bool:
    """Return whether a request wants the data of a page instead of HTML."""
    accepted = request.headers.get("accept", "")
    return text(request.query_params, "format") == "json" or (
        "application/json" in accepted and "text/html" not in accepted
    )


def redirect(path: str) -> RedirectResponse:
    """Return the answer to a form whose result another page shows: `path` and query within the console."""
    return RedirectResponse(path, status_code=303)


def local_target(target: str) -> str:
    """Return a path with its query if it is one of this server, else the start page."""
    try:
        parts = urlsplit(target.replace("\\", "/"))
    except ValueError:
        return "/"
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_local and target.isprintable() else "/"
