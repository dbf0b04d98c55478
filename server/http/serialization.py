"""How arguments and results travel: derived from the signatures and type hints of the methods in the table.

Arguments in the path and the query of GET and DELETE are text, those of other requests a JSON object with the names of
the method's parameters. A time is ISO 8601 text, a position a number, a session its id, a duration seconds.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import Enum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.result import Result, Results, Stale
from mnemolog.domain.session import Original, SessionHandle
from mnemolog.domain.values import BOUNDS, INTEGER_MAX, ORIGIN, Micros, Position, Version, When
from mnemolog.domain.working_memory import MISSING
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import PrefetchReason, PrefetchResult, Stamp, Ticket
from mnemolog.results import Checkpoint, NewTurn
from mnemolog.server.http.problems import as_plain
from mnemolog.server.http.routes import LEFT_OUT_ARGUMENTS, HttpOperation
from mnemolog.session import Session, SessionAt

PAGE: Final = 1_000
"""Items on a page, unless the caller gives a `limit`."""
PAGE_MAX: Final = 10_000
QUERY_MAX: Final = 1_000
"""Arguments in a query."""
WAITS: Final = frozenset({"timeout_s", "wait_s"})
"""Arguments that say how long the server may wait, in seconds: at most `WAIT_MAX_S`."""
WAIT_MAX_S: Final = 60

Item = TypeVar("Item")


class ListPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A list, or a page of one."""

    items: list[Item]
    next: int | None = None
    """Pass this as `after` for the next page, with `newest_first` as `before`; null if there is none."""
    stale: Stale | None = None
    """Set if the log does not answer: then they come from projections alone."""


class Value(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A single value. Without `value` there is none."""

    value: Item | msgspec.UnsetType = msgspec.UNSET


class SessionFound(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as a handle has it."""

    id: str
    title: str
    agent: str
    scope: str


class SessionThen(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it was at a position: pass that as `at` to what reads the session."""

    id: str
    position: Position
    ended: bool


class Prefetch(msgspec.Struct, frozen=True, kw_only=True):
    """A recall that was requested in the background."""

    stamp: Stamp
    done: bool
    reason: PrefetchReason | None
    """Why there is no answer."""
    error: str | None


class Prefetched(msgspec.Struct, frozen=True, kw_only=True):
    """A prefetched answer, or why there is none."""

    recall: Recall | None
    reason: PrefetchReason | None
    error: str | None
    prefetch: Prefetch | None


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its place in the log."""

    position: Position
    stream: str
    version: Version
    topic: str
    recorded_at: Micros
    """Microseconds since the Unix epoch, as stored."""
    key: str | None
    event: Event


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of an operation."""

    name: str
    type: Any
    """How it travels: a type that msgspec knows."""
    required: bool
    default: Any = None
    in_path: bool = False
    is_duration: bool = False
    """Whether the method takes a `timedelta` for what travels as seconds."""
    is_time: bool = False
    """Whether a text is a time, and no name."""


_ARGUMENT_TYPES: Final[dict[Any, Any]] = {
    datetime: str,
    date: str,
    timedelta: float,
    Path: str,
    SessionHandle: str,
    NewTurn: dict[str, Any],
    Turn: int,
}
"""What a type travels as."""


def travels_as(hint: Any) -> Any:
    """Return the type that a value of a type hint has in JSON."""
    if hint in _ARGUMENT_TYPES:
        return _ARGUMENT_TYPES[hint]
    if isinstance(hint, type) and issubclass(hint, Result) and hint.called_by:
        return int if hint.called_by == "position" else str
    kind = get_origin(hint)
    if kind in (Union, UnionType):
        parts = {travels_as(part): None for part in get_args(hint)}
        if str in parts:  # A text covers the words of an enumeration.
            parts = {part: None for part in parts if not (isinstance(part, type) and issubclass(part, Enum))}
        return reduce(or_, parts)
    if kind in (Sequence, Iterable, list):
        return list[travels_as(get_args(hint)[0])]  # type: ignore[misc]
    return dict[str, Any] if kind is Mapping or hint is Mapping else hint


@cache
def parameters(operation: HttpOperation) -> tuple[Parameter, ...]:
    """Return the arguments of an operation, those in the path first."""
    signature, hints = inspect.signature(operation.method), get_type_hints(operation.method)
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    found: dict[str, Parameter] = {}
    if operation.of_session:
        found["session"] = Parameter(name="session", type=str, required=True)
    for name, parameter in list(signature.parameters.items())[1:]:
        if name not in LEFT_OUT_ARGUMENTS:
            required = parameter.default is parameter.empty
            default = None if required else parameter.default
            hint = str if name == "model" else hints[name]  # An object cannot travel.
            found[name] = Parameter(
                name=name,
                type=travels_as(hint),
                required=required,
                default=default,
                is_duration=_is_of(hint, timedelta) and not _is_of(hint, float),
                is_time=_is_of(hint, datetime) and not _is_of(hint, Checkpoint),
            )
    if operation.as_of:
        found["at"] = Parameter(name="at", type=travels_as(When) | None, required=False, is_time=True)
    if is_paged(operation) and "limit" not in found:
        found["limit"] = Parameter(name="limit", type=int, required=False, default=PAGE)
        found.setdefault("after", Parameter(name="after", type=int, required=False, default=ORIGIN))
    placed = [
        msgspec.structs.replace(item, type=int if item.type is int else str, required=True, default=None, in_path=True)
        for item in map(found.pop, in_path)
    ]
    return (*placed, *found.values())


def _is_of(hint: Any, kind: type) -> bool:
    """Whether values of a type hint, or the items of lists of it, may be of a type."""
    return hint is kind or any(_is_of(part, kind) for part in get_args(hint))


def is_paged(operation: HttpOperation) -> bool:
    """Whether the answer is a page of a list that may be long."""
    hints = get_type_hints(operation.method)
    listed = get_origin(hints["return"]) is Iterator or operation.name == "sessions"
    return listed or ("limit" in hints and get_origin(hints["return"]) is Results)


def bounds_of(operation: HttpOperation, name: str) -> tuple[int, int]:
    """Return the least and the most of an argument that is a number."""
    least, most = BOUNDS.get(name, (0, INTEGER_MAX))
    if name in WAITS:
        most = WAIT_MAX_S
    if name in ("limit", "last") and is_paged(operation):
        most = PAGE_MAX
    return least, most


def takes_long(operation: HttpOperation) -> bool:
    """Whether a call may take long: its method reports how far it is."""
    returns = get_type_hints(operation.method)["return"]
    return "progress" in inspect.signature(operation.method).parameters and get_origin(returns) is not Iterator


class Arguments:
    """Reads the arguments of an operation from a request."""

    def __init__(self, operation: HttpOperation) -> None:
        self.parameters = parameters(operation)
        self.in_body = operation.http in ("POST", "PUT", "PATCH")
        self._in_path = {item.name: item.type for item in self.parameters if item.in_path}
        self._others = {item.name: item for item in self.parameters if not item.in_path}
        self._durations = {item.name for item in self.parameters if item.is_duration}
        fields: list[Any] = [
            (name, item.type) if item.required else (name, item.type | msgspec.UnsetType, msgspec.UNSET)
            for name, item in self._others.items()
        ]
        title = "".join(part.title() for part in operation.name.replace("_", ".").split("."))
        self.struct = msgspec.defstruct(f"{title}Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(self.struct)

    def read(self, path: Sequence[str], query_string: bytes, body: bytes | bytearray) -> dict[str, Any]:
        """Return the arguments by name, those that were given. Raises `InvalidInput`."""
        query = fields_of("query", query_string, most=QUERY_MAX, unit="arguments")
        try:
            found = self._decoder.decode(body or b"{}") if self.in_body else self._from_query(query)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), self._others) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput("body", f"is not JSON: {error}") from error
        except RecursionError as error:
            raise InvalidInput("body", "is nested too deeply") from error
        if self.in_body and query:
            raise InvalidInput(query[0][0], "belongs into the body, which is a JSON object")
        given = {name: value for name in self._others if (value := getattr(found, name)) is not msgspec.UNSET}
        for (name, kind), text in zip(self._in_path.items(), path, strict=True):
            given[name] = text if kind is str else _of_path(name, text, kind)
        for name, value in given.items():
            if type(value) is int and value > INTEGER_MAX:
                raise InvalidInput(name, f"a whole number up to {INTEGER_MAX:,}, got {value:,}")
        for name in self._durations & given.keys():
            given[name] = _duration(name, given[name])
        if "messages" in given:
            given["messages"] = [_message(item, number) for number, item in enumerate(given["messages"])]
        return given

    def _from_query(self, query: Sequence[tuple[str, str]]) -> Any:
        texts: dict[str, list[str]] = {}
        for name, value in query:
            texts.setdefault(name, []).append(value)
        given = {}
        for name, values in texts.items():
            if (known := self._others.get(name)) is None:
                raise InvalidInput(name, f"is no argument; there are {', '.join(self._others) or 'none'}")
            given[name] = _of_query(name, values, known.type)
        return msgspec.convert(given, self.struct, strict=False)


def fields_of(name: str, text: bytes, *, most: int, unit: str) -> list[tuple[str, str]]:
    """Return the fields of a query or a form. Raises `InvalidInput` for one with files, or of too many fields."""
    try:
        return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=most)
    except ValueError as error:
        raise InvalidInput(name, f"is not UTF-8, percent-encoded, of up to {most:,} {unit}") from error


def _of_query(name: str, values: list[str], kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(get_origin(item) is list for item in kinds):
        return values
    if len(values) > 1:
        raise InvalidInput(name, "given more than once")
    if int in kinds and str in kinds:
        text = values[0]
        return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else text
    return values[0]


def _of_path(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(name, f"{text!r} is not a number") from error


def _duration(name: str, seconds: float | None) -> timedelta | None:
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise InvalidInput(name, f"{seconds:g} seconds is not a duration") from error


def _invalid(message: str, known: Iterable[str]) -> InvalidInput:
    """Return the error for arguments that do not fit, with the name of the one that does not."""
    why, _, place = message.partition(" - at `$")
    if place:
        return InvalidInput(place.strip("`").lstrip(".") or "body", why[0].lower() + why[1:].replace("`", ""))
    named = why.split("`")[1] if why.count("`") == 2 else "body"
    if named != "body":
        why = "is required" if "missing" in why else f"is no argument; there are {', '.join(known) or 'none'}"
    return InvalidInput(named, why.replace("`", ""))


def _message(message: dict[str, Any], number: int) -> dict[str, Any] | NewTurn:
    if message.get("original") is None:
        return message
    try:
        original = msgspec.convert(message["original"], Original)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"messages[{number}].original", str(error).replace("`", "")) from error
    return NewTurn.of({name: value for name, value in message.items() if name != "original"}, original=original)


class Answers:
    """Writes the result of an operation as JSON."""

    def __init__(self, operation: HttpOperation) -> None:
        hint = get_type_hints(operation.method)["return"]
        self.types = answer_types(Session if operation.name == "find_session" else hint)  # Not null: a status of 404.
        """What the JSON of an answer fits, one of them; none for no content."""

    def write(self, result: Any, *, more: int | None = None, with_content: bool = True) -> bytes | None:
        """Return the body of the answer, None for no content."""
        if not self.types:
            return None
        answer = answer_of(result, self.types[0], more)
        return to_printable_json(answer if with_content else without_content(answer), enc_hook=as_plain)


CONTENT: Final[dict[str, Any]] = {
    **dict.fromkeys(("title", "text", "name", "description", "status", "query", "why"), ""),
    **dict.fromkeys(
        ("speaker", "step", "total", "percent", "task_before", "task_after", "act", "now", "then", "takes")
    ),
    **dict.fromkeys(("nearest", "tool_calls", "values", "notes_removed", "notes_added"), ()),
    "metadata": {},
}
"""The fields of answers to writes that are content, and what a caller who may not read gets in their place."""


def without_content(answer: Any) -> Any:
    """Return the answer to a write without content: ids, places, times and numbers."""
    if isinstance(answer, (list, tuple)):
        return [without_content(item) for item in answer]
    if not isinstance(answer, msgspec.Struct):
        return answer
    fields = {name: CONTENT.get(name, getattr(answer, name)) for name in answer.__struct_fields__}
    return msgspec.structs.replace(answer, **{name: without_content(value) for name, value in fields.items()})


_RESULT_TYPES: Final[dict[Any, Any]] = {
    Session: SessionFound,
    SessionAt: SessionThen,
    Ticket: Prefetch,
    PrefetchResult: Prefetched,
    RecordedEvent: LogEvent,
}
"""What results that are no values travel as."""
_LISTS: Final = (Results, list, Iterator)


def answer_types(hint: Any) -> tuple[Any, ...]:
    """Return the types of the JSON that a result of a type hint is written as; none for no content."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    known = [part for part in parts if part is not NoneType]
    if known and all(get_origin(part) in _LISTS for part in known):
        items = reduce(or_, ((_RESULT_TYPES.get(item, item)) for part in known for item in get_args(part)))
        return (ListPage[items],)  # type: ignore[valid-type]
    found = tuple(_answer_type(part) for part in known)
    return found if len(known) == len(parts) else tuple(Union[item, None] for item in found)  # noqa: UP007


def _answer_type(hint: Any) -> Any:
    kind: Any = _RESULT_TYPES.get(hint, hint)
    of: Any = Value  # Not `Value[kind]`, which type checkers read as a type.
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else of[kind]


def answer_of(result: Any, kind: Any, more: int | None = None) -> Any:
    """Return a result as a value that msgspec writes."""
    for known in (Session, SessionAt, Ticket):
        if isinstance(result, known):
            return msgspec.convert(result, _RESULT_TYPES[known], from_attributes=True)
    match result:
        case PrefetchResult(ticket=ticket):
            made = None if ticket is None else answer_of(ticket, Prefetch)
            return Prefetched(recall=result.recall, reason=result.reason, error=result.error, prefetch=made)
        case RecordedEvent():
            return LogEvent(
                position=result.position,
                stream=result.stream,
                version=result.version,
                topic=result.event.topic,
                recorded_at=result.recorded_at,
                key=result.key,
                event=result.event,
            )
    if get_origin(kind) is ListPage:
        items = [answer_of(item, None) for item in result]
        return ListPage(items=items, next=more, stale=getattr(result, "stale", None))
    if get_origin(kind) is Value:
        return Value(value=msgspec.UNSET if result is MISSING else result)
    return result
