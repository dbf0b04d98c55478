"""Pages and actions: functions with an address, and what a request asks of them. An action changes something."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import Pool, run_in
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.result import Result
from mnemolog.domain.tokens import Verb
from mnemolog.domain.values import ORIGIN, Position, checked_whole, quoted
from mnemolog.server.console.moment import AsOf
from mnemolog.server.http.authentication import Caller
from mnemolog.server.http.serialization import fields_of
from mnemolog.store import MemoryStore

FORM_FIELDS_MAX: Final = 1_000
POSITIONS_MAX: Final = 10_000
"""How many positions one page takes."""

AnyStore = TypeVar("AnyStore", MemoryStore, AsyncMemoryStore)
Row = TypeVar("Row", bound=Result)
Number = TypeVar("Number", int, float)
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_RANGE: Final = re.compile(r"([0-9]{1,15})(?:\s*-\s*([0-9]{1,15}))?")


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


class ConsoleRequest(msgspec.Struct, frozen=True):
    """A request, and the parameters of its URL or the fields of its form. Methods raise `InvalidInput`."""

    request: Request
    fields: QueryParams

    @property
    def caller(self) -> Caller:
        """Who sent it."""
        caller: Caller = self.request.state.caller
        return caller

    @property
    def scope(self) -> str:
        """The scope that the URL names; empty for none."""
        return text(self.request.query_params, "scope")

    def limited(self, store: AnyStore) -> AnyStore:
        """Return a store within the scope that the URL names. Raises `OutsideScope`."""
        return store.within(self.scope) if self.scope else store

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter without the white space around it."""
        return text(self.fields, name, default)

    def several(self, name: str, *, apart: str = r"[,\n]") -> tuple[str, ...]:
        """Return the values of a parameter that is given several times, or with `apart` between its values."""
        values = (part.strip() for value in self.fields.getlist(name) for part in re.split(apart, str(value)))
        return tuple(dict.fromkeys(value for value in values if value))

    def position(self, name: str) -> Position | None:
        """Return a position; None if the parameter is missing or empty."""
        return _position(name, self.text(name))

    def position_in_path(self) -> Position:
        """Return the position that the path of a page names."""
        return _position("position", text(self.request.path_params, "position")) or ORIGIN

    def whole(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """Return a whole number."""
        return checked_whole(name, self._number(name, default, int, "a whole number"), least=least, most=most)

    def decimal(self, name: str) -> float | None:
        """Return a number; None if there is none."""
        return self._number(name, 0.0, float, "a number") if self.text(name) else None

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the positions of a list such as `12, 40-45`."""
        found = tuple(dict.fromkeys(position for part in self.several(name) for position in _range(name, part)))
        return _bounded(name, found)

    def _number(self, name: str, default: Number, kind: type[Number], what: str) -> Number:
        value = self.text(name)
        try:
            return kind(value) if value else default
        except ValueError:
            raise InvalidInput(name, f"{value!r} is not {what}") from None


class PageRequest(ConsoleRequest, frozen=True):
    """A request for a page."""

    at: AsOf
    """The moment that it shows."""

    def last_before(self) -> Position:
        """Return the last event of a list that is read backwards: that of the moment, or the one before `before`."""
        before = self.position("before")
        return self.at.position if before is None else Position(min(max(before - 1, ORIGIN), self.at.position))


def form_of(body: bytes) -> QueryParams:
    """Return the fields of a form. Raises `InvalidInput` for one with files, or with too many fields."""
    return QueryParams(fields_of("form", body, most=FORM_FIELDS_MAX, unit="fields"))


def text(fields: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return a parameter without the white space around it."""
    return str(fields.get(name, default)).strip() or default


def _position(name: str, value: str) -> Position | None:
    if value and not _DIGITS.fullmatch(value):
        raise InvalidInput(name, f"{quoted(value)} is not a position such as 1200")
    return Position(int(value)) if value else None


def _range(name: str, part: str) -> Iterator[int]:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise InvalidInput(name, f"{part!r} is neither a position nor a range of positions such as 40-45")
    first, last = int(found[1]), int(found[2] or found[1])
    yield from _bounded(name, range(first, last + 1))


def _bounded(name: str, found: range | tuple[int, ...]) -> tuple[int, ...]:
    if len(found) > POSITIONS_MAX:
        raise InvalidInput(name, f"{len(found):,} positions at once; take at most {POSITIONS_MAX:,}")
    return tuple(found)


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

    show: Callable[[PageRequest], Awaitable[msgspec.Struct]]


class Action(Target, frozen=True):
    """What a form does: `do` returns where to go next, or a struct to show once."""

    do: Callable[[ConsoleRequest], Awaitable[msgspec.Struct | Response]]
    needs_write: bool
    """Whether it is refused unless the console may write."""


def page(
    path: str, *, title: str, template: str, verb: Verb = "read", whole: bool = False
) -> Callable[[Callable[[PageRequest], Awaitable[msgspec.Struct]]], Page]:
    """Make a page of a function. `path` is as in Starlette; only callers with `verb` see it."""
    return lambda show: Page(path, title, template, verb, whole, show)


def view(
    path: str, *, title: str, template: str, verb: Verb = "read", whole: bool = False, pool: Pool = "read"
) -> Callable[[Callable[[MemoryStore, PageRequest], msgspec.Struct]], Page]:
    """Make a page of a function that reads the store of the caller, in one of its threads. Else as `page`."""
    made = page(path, title=title, template=template, verb=verb, whole=whole)
    return lambda look: made(lambda asked: run_in(pool, asked.caller.store, lambda store: look(store, asked)))


def action(
    path: str,
    *,
    title: str,
    verb: Verb,
    template: str = "",
    whole: bool = False,
    needs_write: bool = True,
) -> Callable[[Callable[[ConsoleRequest], Awaitable[Any]]], Action]:
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
