"""A log as text: JSON Lines that can be checked without mnemolog (docs/format.md, docs/verify_export.py).

The first line identifies the log. Then each event has a line with every stored column. The last line has their number:
an export that was cut off lacks it. Bytes of events are base64, digests hexadecimal. Nothing is decoded, so no keys are
needed, and an import gives back the stored bytes.
"""

from typing import Final

import msgspec

from mnemolog.domain.chain import LogRow
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput

FORMAT: Final = "mnemolog-export"
VERSION: Final = 1


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="header"):
    """The first line."""

    format: str
    version: int
    log_id: str
    log_format: int
    created_at: int
    """When the log was created, in microseconds since the Unix epoch."""
    after: int
    """The events after this position follow; 0 for the whole log."""
    digest: str
    """The digest of the event at `after`; digest(0) of the log where that is 0."""


class ExportedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="event"):
    """An event with all its columns."""

    position: int
    stream: str
    version: int
    topic: str
    state: bytes
    key: str | None
    recorded_at: int
    digest: str


class ExportTrailer(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line."""

    events: int
    position: int
    """The position of the last event."""
    digest: str


ExportLine = ExportHeader | ExportedEvent | ExportTrailer

_DECODER: Final[msgspec.json.Decoder[ExportLine]] = msgspec.json.Decoder(ExportLine)


def encoded(line: ExportLine) -> bytes:
    """Return a line of an export."""
    return to_json(line) + b"\n"


def decoded(line: bytes) -> ExportLine:
    """Return a line of an export, decoded. Raises `InvalidInput`."""
    try:
        return _DECODER.decode(line)
    except UNDECODABLE as error:
        raise InvalidInput("line", f"no line of an export: {error}") from error


def exported(row: LogRow) -> ExportedEvent:
    """Return a row as it is exported. Raises `UnicodeDecodeError` for a damaged text."""
    return ExportedEvent(
        position=row.position,
        stream=row.stream.decode(),
        version=row.version,
        topic=row.topic.decode(),
        state=row.state,
        key=None if row.key is None else row.key.decode(),
        recorded_at=row.recorded_at,
        digest=row.digest.hex(),
    )


def imported(event: ExportedEvent) -> LogRow:
    """Return the row that was exported. Raises `InvalidInput` for an invalid digest."""
    return LogRow(
        position=event.position,
        stream=event.stream.encode(),
        version=event.version,
        topic=event.topic.encode(),
        state=event.state,
        key=None if event.key is None else event.key.encode(),
        recorded_at=event.recorded_at,
        digest=digest_from_hex(event.digest),
    )


def digest_from_hex(text: str) -> bytes:
    """Return the bytes of a hexadecimal digest. Raises `InvalidInput`."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInput("digest", f"{text[:80]!r} is not hexadecimal") from error
