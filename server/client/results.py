"""Answers of a server as the values that the methods return."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO, Final

import httpx2
import msgspec

from mnemolog.audit.results import LogExport
from mnemolog.domain.errors import InvalidInput, LogUnreachable, StoreError
from mnemolog.domain.events import EVENT_TYPES, Event, ForeignEvent, Forgotten, RecordedEvent
from mnemolog.domain.export import ExportHeader, ExportTrailer
from mnemolog.domain.export import decoded as export_line
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.projections.recall.answer import Recall
from mnemolog.results import SwitchPreview
from mnemolog.server.client.request_encoding import ClientOperation
from mnemolog.server.http.serialization import LogEvent, Prefetched

_STAND_INS: Final[tuple[type[Event], ...]] = (ForeignEvent, Forgotten)
"""Events that are shown in the place of one that cannot be, those with the most fields first."""


def decoded(operation: ClientOperation, body: bytes) -> Any:
    """Return the answer to an operation. Raises `StoreError` for one that is not of this version of the API."""
    if not operation.decoders:
        return None
    failure: msgspec.MsgspecError | None = None
    for decoder in operation.decoders:
        try:
            found = decoder.decode(body)
        except msgspec.MsgspecError as error:
            failure = error
        else:
            return _with_events(found, body) if operation.has_events else _with_times(found)
    why = f"the answer to {operation.operation.name} is not of this version of the API: {failure}"
    raise StoreError(why) from failure


def _with_times(answer: Any) -> Any:
    """Return an answer with the times among the filters of a recall as such: JSON has them as text."""
    match answer:
        case Recall(filters=filters):
            times = {name: msgspec.convert(filters[name], datetime) for name in ("since", "until") if name in filters}
            return msgspec.structs.replace(answer, filters=filters | times) if times else answer
        case Prefetched(recall=Recall()):
            return msgspec.structs.replace(answer, recall=_with_times(answer.recall))
    return answer


def _with_events(answer: Any, body: bytes) -> Any:
    """Return an answer with its events decoded by their topics: their types are not known before."""
    return _patched(answer, msgspec.json.decode(body))


def _patched(value: Any, raw: Any) -> Any:
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
    written, first, last = 0, b"", b""
    for line in _lines(response.iter_bytes()):
        written += file.write(line)
        first, last = first or line, line
    try:
        header, trailer = export_line(first), export_line(last)
    except InvalidInput as error:
        raise _broken_off(url) from error
    if not isinstance(header, ExportHeader) or not isinstance(trailer, ExportTrailer):
        raise _broken_off(url)
    head = Head(position=Position(trailer.position), digest=trailer.digest)
    return LogExport(
        log_id=header.log_id, after=Position(header.after), events=trailer.events, head=head, bytes=written
    )


def _broken_off(url: str) -> LogUnreachable:
    return LogUnreachable(f"{url} did not send the end of the export: what was written is not complete")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest
