"""Find the secrets that a log holds: where each is and of which kind, never what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.events import RecallServed, RecordedEvent, TurnRecorded
from mnemolog.domain.original import original_of
from mnemolog.domain.position import Position
from mnemolog.domain.redaction import secrets_in
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.domain.thread_events import ThreadCheckpointed, ThreadWritten
from mnemolog.domain.threads import unpack
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.history.thread_contents import Contents, Gone
from mnemolog.projections.ports import Progress, ShownEvents

BATCH_MAX: Final = 500
SHOWN_FROM: Final = 20
"""A secret of so many characters begins with what its issuer writes there; of a shorter one nothing is shown."""
_ALL_SECRET: Final = ("private", "url-password", "authorization", "aws-secret-key")


class Secret(Result, frozen=True, kw_only=True):
    """A secret in an event."""

    _columns: ClassVar[tuple[str, ...]] = ("position", "kind", "field", "session", "masked")

    position: Position
    kind: str
    field: str
    """Of the event, or `stream` or `key`; `channel NAME` for a value of a graph's thread."""
    session: str | None
    """None for an event of no session."""
    masked: str
    """Its first four characters, where they are no secret, and its length."""


def scan_secrets(
    log: EventLog, events: ShownEvents, *, after: Position, upto: Position, progress: Progress | None
) -> Iterator[Secret]:
    """Yield the secrets of the events in `(after, upto]` that may be shown; each one of an event once."""
    contents = Contents(log, log.epoch())
    for read_upto, batch in events(after=after, upto=upto, batch_max=BATCH_MAX):
        for recorded in batch:
            position, session, seen = recorded.position, session_of(recorded.stream), set[tuple[str, str]]()
            for field, text in _texts_of(recorded, contents):
                for begin, end, kind in secrets_in(text):
                    if (kind, text[begin:end]) not in seen:
                        seen.add((kind, text[begin:end]))
                        masked = _masked(kind, text[begin:end])
                        yield Secret(position=position, kind=kind, field=field, session=session, masked=masked)
        if progress is not None:
            progress(read_upto - after, upto - after)


def _texts_of(recorded: RecordedEvent, contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event with their fields. What depends on forgotten content is left out."""
    event, packed = recorded.event, list[tuple[str, bytes]]()
    named = [(name, getattr(event, name)) for name in event.__struct_fields__]
    for field, value in (*named, ("stream", recorded.stream), ("key", recorded.key)):
        yield from ((field, text) for text in _texts_in(value))
    try:
        match event:
            case TurnRecorded():
                original = original_of(event)
                packed = [] if original is None else [("original", original.data)]
            case ThreadWritten():
                packed = [(f"channel {write.channel}", unpack(write.blob)) for write in event.writes]
            case ThreadCheckpointed():
                packed = [("checkpoint", unpack(event.checkpoint)), ("metadata", unpack(event.metadata))]
                for value in event.values:
                    found = contents.value(recorded.position, value.name, of=event)
                    packed.append((f"channel {value.name}", found.data))
    except Gone:
        pass
    except ValueError as error:
        raise errors.LogDamaged(f"position {recorded.position} cannot be read: {error}") from error
    yield from ((field, data.decode("latin-1")) for field, data in packed)


def _texts_in(value: Any, of: str = "") -> Iterator[str]:
    """Yield the texts of a field, each after its key in an object, which may tell what it is."""
    match value:
        case RecallServed():
            yield from _texts_in(msgspec.structs.asdict(value))
        case str():
            yield f"{of}: {value}" if of else value
        case list():
            for item in value:
                yield from _texts_in(item)
        case dict():
            for key, item in value.items():
                yield from _texts_in(item, key) if isinstance(item, str) else (key, *_texts_in(item))


def _masked(kind: str, secret: str) -> str:
    shown = "" if kind in _ALL_SECRET or len(secret) < SHOWN_FROM else secret[:4]
    return f"{shown}… ({len(secret)} characters)"
