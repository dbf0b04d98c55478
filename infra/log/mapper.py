"""Events to stored bytes and back: msgpack by msgspec, under topics we chose."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import Mapper, StoredEvent, Transcoder

from mnemolog.domain import errors
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.events import EVENT_TYPES, Event
from mnemolog.domain.position import Version

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODERS: Final = {topic: msgspec.msgpack.Decoder(kind) for topic, kind in EVENT_TYPES.items()}


def encode(event: Event) -> bytes:
    """Return the bytes an event is stored as. Raises `InvalidInput` for what msgpack cannot hold."""
    try:
        return _ENCODER.encode(event)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as error:
        raise errors.InvalidInput("event", f"cannot be stored: {error}") from error


def decode(topic: str, state: bytes | bytearray, *, position: int) -> Event:
    """Return the event that was stored. Raises `UndecodableEvent`, naming `position` and topic."""
    decoder = _DECODERS.get(topic)
    if decoder is None:
        raise errors.UndecodableEvent(position=position, topic=topic, why="unknown topic")
    try:
        return decoder.decode(state)
    except UNDECODABLE as error:
        raise errors.UndecodableEvent(position=position, topic=topic, why=str(error)) from error


class StreamEvent(NamedTuple):
    """An event with its place in a stream: the eventsourcing library's `DomainEventProtocol`."""

    stream: str
    version: Version
    event: Event

    @property
    def originator_id(self) -> str:
        """The stream, in the library's words."""
        return self.stream

    @property
    def originator_version(self) -> int:
        """The version, in the library's words."""
        return self.version


class MsgpackTranscoder(Transcoder):
    """The library's transcoder interface over msgpack, for snapshots and foreign aggregates."""

    def encode(self, obj: Any) -> bytes:
        """Return `obj` as msgpack."""
        return _ENCODER.encode(obj)

    def decode(self, data: bytes) -> Any:
        """Return what `data` was encoded from, as builtin types."""
        return msgspec.msgpack.decode(data)


class Storing(Protocol):
    """A log that seals what it stores: `EventLog` is one."""

    def encode(self, stream: str, version: int, event: Event) -> bytes:
        """Return the bytes of an event."""
        ...

    def decode(self, position: int, stream: str, version: int, topic: str, state: bytes) -> Event:
        """Return the event of stored bytes."""
        ...


class EventMapper(Mapper[str]):
    """The library's mapper for our events, so that its `EventStore` reads and writes our log."""

    def __init__(self, log: Storing | None = None) -> None:
        super().__init__(MsgpackTranscoder())
        self._log = log

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """Return the stored form of a `StreamEvent`."""
        event = cast(StreamEvent, domain_event)
        log = self._log
        state = encode(event.event) if log is None else log.encode(event.stream, event.version, event.event)
        return StoredEvent(event.stream, event.version, event.event.topic, state)

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """Return the `StreamEvent` of a stored one. Raises `UndecodableEvent`."""
        position = getattr(stored_event, "id", stored_event.originator_version)
        stream, version = str(stored_event.originator_id), Version(stored_event.originator_version)
        if self._log is None:
            event = decode(stored_event.topic, stored_event.state, position=position)
        else:
            event = self._log.decode(position, stream, version, stored_event.topic, stored_event.state)
        return cast(DomainEventProtocol[str], StreamEvent(stream, version, event))
