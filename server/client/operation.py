"""Operations from the side of the caller: methods become requests, answers become their results."""

import inspect
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import Enum
from functools import update_wrapper
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, Final, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

import httpx2
import msgspec

from mnemolog.audit.exports import LogExport
from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput, LogUnreachable, StoreError
from mnemolog.domain.events import EVENT_TYPES, Event, ForeignEvent, Forgotten, RecordedEvent
from mnemolog.domain.export import ExportHeader, ExportTrailer
from mnemolog.domain.export import decoded as export_line
from mnemolog.domain.facts import parse_valid_time
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result, Results
from mnemolog.domain.session import SessionHandle, session_id_of
from mnemolog.domain.values import (
    INTEGER_MAX,
    Position,
    Time,
    checked_json,
    checked_number,
    checked_position,
    checked_whole,
    parse_time,
    to_datetime,
)
from mnemolog.operation_table import Method
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.results import Checkpoint, SwitchPreview
from mnemolog.server.client.connection import Call, Connection
from mnemolog.server.http.routes import BY_METHOD, FILES, LEFT_OUT, LEFT_OUT_ARGUMENTS, ROUTES, HttpOperation
from mnemolog.server.http.serialization import (
    PAGE_MAX,
    WAITS,
    ListPage,
    LogEvent,
    Prefetched,
    Value,
    answer_types,
    is_paged,
    parameters,
    takes_long,
    travels_as,
)

KEY_BYTES: Final = 16
_WITH_EVENTS: Final = frozenset({"events", "preview_switch", "audit.timeline", "audit.event"})
"""Operations whose answers hold events."""
_JSON_VALUES: Final = frozenset({"value", "metadata", "tool_calls"})
_STAND_INS: Final[tuple[type[Event], ...]] = (ForeignEvent, Forgotten)
"""Events that are shown in the place of one that cannot be, those with the most fields first."""


class ClientOperation:
    """One operation of the table, as a client calls it."""

    def __init__(self, operation: HttpOperation) -> None:
        self.operation = operation
        self.signature = inspect.signature(operation.method)
        self.hints = get_type_hints(operation.method)
        known = parameters(operation)
        self._in_path = [item.name for item in known if item.in_path]
        self._sent = {item.name for item in known}
        self._in_body = operation.http in ("POST", "PUT", "PATCH")
        self.decoders = [msgspec.json.Decoder(kind, dec_hook=_from_text) for kind in answer_types(self.hints["return"])]
        self.is_paged, self.takes_long = is_paged(operation), takes_long(operation)
        returns = self.hints["return"]
        self.is_iterator, self.is_results = get_origin(returns) is Iterator, get_origin(returns) is not list
        limit = self.signature.parameters.get("limit")
        self.limit: int | None = None if limit is None else limit.default
        """How many items the method returns if the caller gives no `limit`; None for all."""

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Return the request of a call with these arguments. Raises `InvalidInput` for what cannot be sent."""
        given = {name: self._to_send(name, value) for name, value in arguments.items() if self._is_sent(name, value)}
        path = self.operation.path
        for name in self._in_path:
            value = given.pop(name) if name in given else self.signature.parameters[name].default
            if travels_as(self.hints.get(name)) is int:
                checked_position(name, value)
            path = path.replace(f"{{{name}}}", _segment("session" if name == "id" else name, value))
        sent = {name: _sendable(name, value) for name, value in given.items()}
        return Call(
            method=self.operation.http,
            path=path,
            query=[] if self._in_body else [pair for name, value in sent.items() for pair in _query(name, value)],
            body=to_json(sent) if self._in_body else None,
            key=secrets.token_hex(KEY_BYTES) if self.operation.verb == "record" else None,
            # What was received of a file cannot be taken back.
            repeatable=self.operation.method not in FILES
            and (self.operation.verb in ("read", "record") or self.operation.http in ("GET", "PUT", "DELETE")),
            lasts_s=sum(checked_number(name, given[name]) for name in WAITS & given.keys()),
            takes_long=self.takes_long,
        )

    def result(self, body: bytes) -> Any:
        """Return what an answer holds. Raises `StoreError` for one that is not of this version of the API."""
        failure: msgspec.MsgspecError | None = None
        for decoder in self.decoders:
            try:
                found = decoder.decode(body)
            except msgspec.MsgspecError as error:
                failure = error
            else:
                has_events = self.operation.name in _WITH_EVENTS
                return _patched(found, msgspec.json.decode(body)) if has_events else _with_times(found)
        if failure is None:
            return None
        why = f"the answer to {self.operation.name} is not of this version of the API: {failure}"
        raise StoreError(why) from failure

    def _is_sent(self, name: str, value: Any) -> bool:
        if name in self._sent:
            return True
        parameter = self.signature.parameters.get(name)
        if parameter is None or value != parameter.default:
            instead = LEFT_OUT_ARGUMENTS.get(name, "leave it out")
            raise InvalidInput(name, f"is not for a store on a server: {instead}")
        return False

    def _to_send(self, name: str, value: Any) -> Any:
        hint = self.hints.get(name)
        kinds = get_args(hint)
        if name in _JSON_VALUES and not (name == "metadata" and value is None):
            return checked_json(name, list(value) if isinstance(value, tuple) else value, bytes_max=INTEGER_MAX)
        if SessionHandle in kinds and not (value is None and NoneType in kinds) and not _is_listed(value, kinds):
            return session_id_of(value, name)
        if name.startswith("valid_") and value is not None:
            return to_datetime(parse_valid_time(name, value)).isoformat()
        if datetime in kinds and Checkpoint not in kinds and value is not None and type(value) is not int:
            return _moment("at" if name == "when" else name, value, takes_positions=int in kinds)
        return _plain(name, value)


def _sendable(name: str, value: Any) -> Any:
    try:
        to_json(value)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        why = "not valid Unicode" if isinstance(error, UnicodeEncodeError) else f"cannot be sent: {error}"
        raise InvalidInput(name, why) from error
    return value


def _is_listed(value: Any, kinds: Sequence[Any]) -> bool:
    """Whether a value is a list where the method takes one."""
    return not isinstance(value, str) and isinstance(value, Sequence) and any(get_origin(k) is Sequence for k in kinds)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(name, f"{value} is not a number that can be sent")  # JSON would have null.
    match value:
        case Checkpoint() | Turn() if name != "checkpoint":
            return value.position
        case Result() if value.called_by:
            return getattr(value, value.called_by)
        case None | bool() | int() | float() | str() | Enum() | msgspec.Struct():
            return value
        case SessionHandle():
            return session_id_of(value, name)
        case timedelta():
            return value.total_seconds()
        case datetime() | date():
            return _moment(name, value, takes_positions=True)
        case Path():
            return str(value)
        case Mapping():
            return {key: _plain(name, item) for key, item in value.items()}
        case Sequence() | set() | frozenset() | range():
            return [_plain(name, item) for item in value]
    raise InvalidInput(name, f"a {type(value).__name__} cannot be sent to a server")


def _moment(name: str, value: Time, *, takes_positions: bool) -> str:
    """Return a time as it travels: in full and in UTC. Raises `InvalidInput`."""
    return to_datetime(parse_time(name, value, or_position=takes_positions)).isoformat()


def _segment(name: str, value: Any) -> str:
    if value == "":
        raise InvalidInput(name, "empty")
    try:
        return quote(str(value), safe="")
    except UnicodeEncodeError as error:
        raise InvalidInput(name, f"not valid Unicode: lone surrogate at character {error.start}") from error


def _query(name: str, value: Any) -> list[tuple[str, str]]:
    match value:
        case None:
            return []
        case bool():
            return [(name, "true" if value else "false")]
        case list():
            return [pair for item in value for pair in _query(name, item)]
        case Enum():
            return [(name, str(value.value))]
        case _:
            return [(name, str(value))]


def _from_text(kind: Any, text: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Path):
        return Path(text)
    raise NotImplementedError(kind)


def _with_times(answer: Any) -> Any:
    """Return an answer with the times among the filters of a recall as such: JSON has them as text."""
    match answer:
        case Recall(filters=filters):
            times = {name: msgspec.convert(filters[name], datetime) for name in ("since", "until") if name in filters}
            return msgspec.structs.replace(answer, filters=filters | times) if times else answer
        case Prefetched(recall=Recall()):
            return msgspec.structs.replace(answer, recall=_with_times(answer.recall))
    return answer


def _patched(value: Any, raw: Any) -> Any:
    """Return an answer with its events decoded by their topics: their types are not known before."""
    match value:
        case list() | tuple():
            return type(value)(_patched(item, of) for item, of in zip(value, raw, strict=True))
        case LogEvent():
            return RecordedEvent(
                position=value.position,
                stream=value.stream,
                version=value.version,
                recorded_at=value.recorded_at,
                key=value.key,
                event=_event(value.topic, raw["event"]),
            )
        case SwitchPreview():
            return msgspec.structs.replace(value, events=_patched(value.events, raw["events"]))
        case msgspec.Struct() if hasattr(value, "items"):
            return msgspec.structs.replace(value, items=_patched(value.items, raw["items"]))
        case msgspec.Struct() if raw.get("event") is not None:
            return msgspec.structs.replace(value, event=_event(raw["topic"], raw["event"]))
    return value


def _event(topic: str, fields: dict[str, Any]) -> Event:
    kind = next(kind for kind in _STAND_INS if _fits(kind, fields)) if "was" in fields else EVENT_TYPES[topic]
    return msgspec.convert(fields, kind)


def _fits(kind: type[Event], fields: dict[str, Any]) -> bool:
    return all(not item.required or item.encode_name in fields for item in msgspec.structs.fields(kind))


def exported_into(response: httpx2.Response, *, file: BinaryIO, url: str) -> LogExport:
    """Write an export as it arrives. Raises `LogUnreachable` for one that breaks off: it is not complete."""
    written = 0
    first = b""
    last = b""
    for line in _lines(response.iter_bytes()):
        written += file.write(line)
        first, last = first or line, line
    try:
        header, trailer = export_line(first), export_line(last)
    except InvalidInput as error:
        raise broken_off(url) from error
    if not isinstance(header, ExportHeader) or not isinstance(trailer, ExportTrailer):
        raise broken_off(url)
    head = Head(position=Position(trailer.position), digest=trailer.digest)
    return LogExport(
        log_id=header.log_id, after=Position(header.after), events=trailer.events, head=head, bytes=written
    )


def broken_off(url: str) -> LogUnreachable:
    """Return the error for an answer that breaks off."""
    return LogUnreachable(f"{url} did not send the end of the export: what was written is not complete")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


Class = TypeVar("Class", bound=type)

BY_NAME: Final = {operation.name: ClientOperation(operation) for operation in ROUTES}
_AS_OF: Final = {operation.method.__name__: operation for operation in ROUTES if operation.as_of}


class Remote:
    """The base of what is on a server: the connection, and the arguments that each call of it sends."""

    _given: Mapping[str, Any] = {}

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _call(self, name: str, /, **arguments: Any) -> Any:
        """Run an operation. `default` is returned where there is no value; `progress` is not called."""
        operation = BY_NAME[name]
        default = arguments.pop("default", None)
        arguments.pop("progress", None)
        arguments |= self._given
        if operation.is_paged:
            last = arguments.pop("last", None)
            falls = arguments.get("newest_first", False)
            if last is not None:
                arguments |= {"limit": last, "newest_first": True}
            checked_whole("limit" if last is None else "last", arguments.get("limit", PAGE_MAX))
            pages = self._pages(operation, arguments)
            first = next(pages)  # So that a refused call raises now.
            if operation.is_iterator:
                return map(self._result, chain(first.items, (item for page in pages for item in page.items)))
            whole = [first, *pages]
            found = Results(self._result(item) for page in whole for item in page.items)
            found.next = None if whole[-1].next is None else Position(whole[-1].next)
            if last is not None and not falls:
                found.reverse()
            found.stale = first.stale
            return found
        answer = operation.result(self._connection.send(operation.call(arguments)))
        match answer:
            case ListPage():
                listed = Results(map(self._result, answer.items))
                listed.stale = answer.stale
                return listed if operation.is_results else list(listed)
            case Value():
                return default if answer.value is msgspec.UNSET else answer.value
        return self._result(answer)

    def _result(self, value: Any) -> Any:
        """Return what a method returns for a value of an answer."""
        return value

    def _pages(self, operation: ClientOperation, arguments: dict[str, Any]) -> Iterator[ListPage[Any]]:
        """Yield the pages of a list up to its `limit`, or to its end."""
        left = arguments.get("limit", operation.limit)
        cursor = "before" if arguments.get("newest_first") else "after"
        while True:
            if left is None or left > PAGE_MAX:
                arguments["limit"] = PAGE_MAX
            elif "limit" in arguments or left != operation.limit:
                arguments["limit"] = left
            page = operation.result(self._connection.send(operation.call(arguments)))
            yield page
            left = None if left is None else left - len(page.items)
            if page.next is None or left == 0:
                return
            arguments[cursor] = page.next


def remote(cls: Class) -> Class:
    """Have a server carry out the methods of a class that the table of operations lists.

    The class is derived from one of the library. Methods that it defines itself stay. What the server does not offer
    raises `StoreError`, which says what there is instead.
    """
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_") and name not in vars(cls):
            operation = BY_METHOD.get(method) or _AS_OF.get(name)
            if operation is not None:
                setattr(cls, name, _derived(operation, method))
            elif method in LEFT_OUT:
                setattr(cls, name, _not_offered(method))
    return cls


def _derived(operation: HttpOperation, method: Method) -> Method:
    signature = inspect.signature(method)

    def call(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}() {error}") from None
        del arguments["self"]
        return self._call(operation.name, **arguments)

    return update_wrapper(call, method)


def _not_offered(method: Method) -> Method:
    def refuse(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
        raise StoreError(f"{method.__name__} is not for a store on a server: {LEFT_OUT[method]}")

    return update_wrapper(refuse, method)
