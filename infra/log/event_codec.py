"""Convert the events of a log to stored bytes and back, with encryption and decryption of their content."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import UNDECODABLE, msgpack_encoder
from mnemolog.domain.events import (
    CONTENT_TOPICS,
    EVENT_TYPES,
    FOREIGN_STREAMS,
    SEALED,
    SEALED_TOPICS,
    Event,
    ForeignEvent,
    Forgotten,
    RecordedEvent,
    SessionStarted,
)
from mnemolog.domain.validation import NOT_IN_CALENDAR
from mnemolog.domain.values import Micros, Position, Version, is_in_calendar
from mnemolog.infra.keys.keyring import Sealer
from mnemolog.infra.log.reader import LONG_PAGE, PAGE, LogReader

_ENCODER: Final = msgpack_encoder("deterministic")
_DECODERS: Final = {topic: msgspec.msgpack.Decoder(kind) for topic, kind in EVENT_TYPES.items()}


def encode(event: Event) -> bytes:
    """Return the bytes an event is stored as: msgpack. Raises `InvalidInput` for what msgpack cannot hold."""
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


class EventCodec:
    """How the events of a log are stored. Without a sealer everything is plain."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self.sealer = sealer

    def refresh(self) -> None:
        """Notice keys that other processes have destroyed. Call it before reading."""
        if self.sealer is not None:
            self.sealer.keyring.refresh()

    def encode(self, stream: str, version: int, event: Event, holds_sealed: Callable[[str], bool]) -> bytes:
        """Return the bytes of an event as stored.

        `holds_sealed` says whether a stream without keys has content, and so has lost its keys.

        Raises `InvalidInput` for what msgpack cannot hold, `KeysMissing`.
        """
        sealer, topic = self.sealer, event.topic
        if sealer is None or topic not in CONTENT_TOPICS:
            return encode(event)

        if not isinstance(event, SessionStarted):
            return sealer.seal(stream, version, topic, encode(event), holds_sealed)
        title = sealer.seal(stream, version, topic, event.title.encode(), holds_sealed)
        return encode(msgspec.structs.replace(event, title="", sealed_title=title))

    def decode(self, stream: str, version: int, topic: str, state: bytes | bytearray, *, position: int) -> Event:
        """Return the event that was stored: `Forgotten` where its key was destroyed, `ForeignEvent` of another library.

        Raises `UndecodableEvent`, `LogDamaged`, `KeysMissing`.
        """
        if topic not in EVENT_TYPES and stream.startswith(FOREIGN_STREAMS):
            return ForeignEvent(was=topic, state=bytes(state))
        sealer = self.sealer
        if sealer is None:
            return decode(topic, state, position=position)
        if len(state) and state[0] == SEALED:
            if topic in EVENT_TYPES and topic not in SEALED_TOPICS:
                raise errors.UndecodableEvent(position=position, topic=topic, why="its topic is never encrypted")
            plain = sealer.open(stream, version, topic, state, position=position)
            return Forgotten(was=topic) if plain is None else decode(topic, plain, position=position)
        event = decode(topic, state, position=position)
        if isinstance(event, SessionStarted) and event.sealed_title:
            title = sealer.open(stream, version, topic, event.sealed_title, position=position)
            # A title that is no text was not sealed by mnemolog, and is only a label.
            said = "" if title is None else title.decode(errors="replace")
            return msgspec.structs.replace(event, title=said, sealed_title=b"")
        return event

    def recorded_events(self, rows: Iterable[Sequence[Any]]) -> list[RecordedEvent]:
        """Return the events that rows of the log hold. Content whose key is destroyed is `Forgotten`."""
        found = list(rows)
        if found:
            self.refresh()
        return [self.recorded_event(*row) for row in found]

    def not_turns(
        self, reads: LogReader, stream: str, after: Version, upto: Position | None = None
    ) -> list[RecordedEvent]:
        """Return the events of a stream after version `after`, up to position `upto`, without turns."""
        rows = reads.not_turns(stream, after=after, page=LONG_PAGE if upto is None else PAGE)
        # Positions rise with versions. A condition on them would not end the scan: it would read on to the last
        # event of the stream, so that a read of the past would cost as much as everything since.
        found = self.recorded_events(rows if upto is None else takewhile(lambda row: row[0] <= upto, rows))
        if found or not after:
            reads.require_versions(stream, after=after, upto=found[-1].version if found else reads.version(stream))
        return found

    def is_forgotten(self, stream: str, version: int, head: bytes) -> bool:
        """Whether content was forgotten, by the first bytes of what is stored, at least three where it is sealed."""
        if self.sealer is None or not head or head[0] != SEALED:
            return False
        return self.sealer.keyring.is_destroyed(stream, head[2], version)

    def recorded_event(
        self,
        position: int,
        stream: str,
        version: int,
        topic: str,
        state: bytes | bytearray,
        key: str | None,
        recorded_at: int,
    ) -> RecordedEvent:
        """Return the event that a row of the log holds. Raises as `decode` does."""
        event = self.decode(stream, version, topic, state, position=position)
        if not is_in_calendar(recorded_at):
            raise errors.UndecodableEvent(position=position, topic=topic, why=NOT_IN_CALENDAR)
        return RecordedEvent(
            position=Position(position),
            stream=stream,
            version=Version(version),
            recorded_at=Micros(recorded_at),
            key=key,
            event=event,
        )
