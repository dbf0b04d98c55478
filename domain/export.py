"""A log as text: JSON Lines that can be checked without mnemolog (docs/format.md, docs/verify_export.py).

The first line says what it is, then comes a line for each event with every stored column, then one that says how many
there were: an export that was cut off has no end. Bytes of events are base64, digests hexadecimal. Nothing is decoded,
so that no keys are needed, and what comes back is what was stored, byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.row import LogRow

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
    """That of the event at `after`; of the log itself where that is 0."""


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
    """That of the last event."""
    digest: str


ExportLine = ExportHeader | ExportedEvent | ExportTrailer

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[ExportLine]] = msgspec.json.Decoder(ExportLine)


def encoded(line: ExportLine) -> bytes:
    """Return a line of an export."""
    return _ENCODER.encode(line) + b"\n"


def decoded(line: bytes) -> ExportLine:
    """Return what a line of an export says. Raises `InvalidInput`."""
    try:
        return _DECODER.decode(line)
    except UNDECODABLE as error:
        raise InvalidInput("line", f"no line of an export: {error}") from error


def exported(row: LogRow) -> ExportedEvent:
    """Return a row as it is exported. Raises `UnicodeDecodeError` where a damaged text is none."""
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
    """Return the row that was exported. Raises `InvalidInput` where the digest is none."""
    return LogRow(
        position=event.position,
        stream=event.stream.encode(),
        version=event.version,
        topic=event.topic.encode(),
        state=event.state,
        key=None if event.key is None else event.key.encode(),
        recorded_at=event.recorded_at,
        digest=digest_of(event.digest),
    )


def digest_of(text: str) -> bytes:
    """Return the bytes of a hexadecimal digest. Raises `InvalidInput`."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInput("digest", f"{text[:80]!r} is not hexadecimal") from error
