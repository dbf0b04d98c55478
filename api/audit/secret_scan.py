"""Find the secrets that a log holds: where each is and of which kind, never what it is."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import to_builtins

from mnemolog.domain import errors
from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.redaction import Redaction
from mnemolog.domain.result import Result
from mnemolog.domain.session import original_of, session_of
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten, unpack
from mnemolog.domain.values import Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.history.states import Contents, Gone
from mnemolog.projections.ports import Progress, ShownEvents, tell

BATCH_MAX: Final = 500


class Secret(Result, frozen=True, kw_only=True):
    """A secret in an event."""

    position: Position
    kind: str
    field: str
    """Of the event, or `stream` or `key`; `channel NAME` for a value of a graph's thread."""
    session: str | None
    """None for an event of no session."""
    length: int
    """In characters."""


def scan_secrets(
    log: EventLog, events: ShownEvents, *, after: Position, upto: Position, progress: Progress | None
) -> Iterator[Secret]:
    """Yield the secrets of the events in `(after, upto]` that may be shown; each one of an event once."""
    contents = Contents(log, log.epoch())
    for read_upto, batch in events(after=after, upto=upto, batch_max=BATCH_MAX):
        for recorded in batch:
            session, of = session_of(recorded.stream), dict[str, tuple[str, str]]()
            for field, value in _fields_of(recorded, contents):
                redaction = Redaction()
                redaction.data(value) if isinstance(value, bytes) else redaction.value(value)
                for secret, kind in redaction.found.items():
                    of.setdefault(secret, (kind, field))
            for secret, (kind, field) in of.items():
                yield Secret(position=recorded.position, kind=kind, field=field, session=session, length=len(secret))
        tell(progress, read_upto - after, upto - after)


def _fields_of(recorded: RecordedEvent, contents: Contents) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an event, what is packed in it as bytes. What depends on forgotten content is left out."""
    event = recorded.event
    yield from ((name, to_builtins(getattr(event, name), builtin_types=[bytes])) for name in event.__struct_fields__)
    yield from (("stream", recorded.stream), ("key", recorded.key))
    try:
        match event:
            case TurnRecorded():
                if (original := original_of(event)) is not None:
                    yield "original", original.data
            case ThreadWritten():
                for write in event.writes:
                    yield f"channel {write.channel}", unpack(write.blob)
            case ThreadCheckpointed():
                yield from (("checkpoint", unpack(event.checkpoint)), ("metadata", unpack(event.metadata)))
                for value in event.values:
                    yield f"channel {value.name}", contents.value(recorded.position, value.name, of=event).data
    except Gone:
        pass
    except ValueError as error:
        raise errors.LogDamaged(f"position {recorded.position} cannot be read: {error}") from error
