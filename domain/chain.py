"""Follow the chain of a log, and report where its rows are not those that were recorded."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from mnemolog.domain.digest import LogRow, link
from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result


class Kind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """The stored event is not the recorded one, or its digest was changed."""
    REMOVED = "removed"
    """Recorded events are missing."""
    VERSION = "version"
    """A stream skips or repeats a version."""
    UNDECODABLE = "undecodable"
    """The bytes do not fit the topic, or the topic is unknown."""
    UNFIT = "unfit"
    """The chain is right, but the event does not fit what comes before it (`mnemolog.domain.validation`)."""
    WITNESS = "witness"
    """A witness of the log at this position contradicts it."""
    SEALED = "sealed"
    """Its content cannot be decrypted with its key."""
    UNPROTECTED = "unprotected"
    """The file has lost what keeps it append-only."""
    FILE = "file"
    """SQLite cannot read the file, finds it contradicting itself, or it is not laid out as it was made."""


class Finding(Result, frozen=True, kw_only=True):
    """One contradiction, where it is."""

    kind: Kind
    position: Position
    """0 where it concerns the log as a whole; of what was removed, the first position that is missing."""
    stream: str | None
    """None if it concerns the log as a whole, or if there is no event to take the stream from."""
    detail: str


Row = tuple[Any, ...]
"""The columns of `LogRow`, as they are read. Making a `LogRow` of each would take a tenth of the time of `verify`."""


def follows(
    before: Any,
    position: Any,
    stream: Any,
    version: Any,
    topic: Any,
    state: Any,
    key: Any,
    recorded_at: Any,
    digest: Any,
) -> bool:
    """Whether a row of these columns is the event that was recorded after the one with the digest `before`."""
    try:
        return bool(link(before, position, stream, version, topic, state, key, recorded_at) == digest)
    except (struct.error, TypeError):  # Damage can turn a value into one of another type.
        return False


class Chain:
    """The place of a reader in a log: position and digest of the last row, and the version of each stream so far.

    One changed event is one finding: the next row is compared with the digest as it is stored.
    """

    def __init__(self, digest: bytes, *, position: int = ORIGIN) -> None:
        self.position, self.digest, self.rows = position, digest, 0
        self.versions: dict[bytes, int] = {}
        self._is_part = position > ORIGIN
        """Then the versions before the first row are not known."""

    def follow(self, row: Row) -> list[Finding]:
        """Continue with the next row if it follows the rows before it. Otherwise return how it contradicts them."""
        position, stream, version, *_, digest = row
        sound = follows(self.digest, *row)
        known = self.version(stream, version)
        sound = sound and position == self.position + 1  # Appends leave no holes.
        if sound and version == known + 1:
            self.position, self.digest, self.versions[stream] = position, digest, version
            self.rows += 1
            return []
        found = [] if sound else [self._break(row)]
        if version != known + 1:
            found.append(finding_of(row, Kind.VERSION, f"version {version} of its stream follows {known}"))
        return found

    def version(self, stream: Any, version: Any) -> int:
        """Return the version of a stream so far, where `version` follows; the one before it if that is not known."""
        known = self.versions.get(stream)
        if known is None:
            known = version - 1 if self._is_part and isinstance(version, int) else 0
        return known

    def skip(self, row: Row) -> None:
        """Continue with a row that contradicts those before it: later rows are compared with what it says."""
        _, stream, version, *_, digest = row
        self.position, self.digest = row[0], digest if isinstance(digest, bytes) else b""
        self.rows += 1
        if isinstance(version, int):
            self.versions[stream] = version

    def checked(self, rows: Iterable[Row], *, outcome: str) -> Iterator[LogRow]:
        """Yield rows. Raises `LogDamaged`, with the outcome, at the first that contradicts the rows before it."""
        for row in rows:
            for finding in self.follow(row):
                raise LogDamaged(f"{finding.detail}; {outcome}", position=finding.position)
            yield LogRow._make(row)

    def _break(self, row: Row) -> Finding:
        before, position = self.position, row[0]
        if position > before + 1:
            why = f"events between positions {before} and {position} are gone, or {position} was changed"
            return Finding(kind=Kind.REMOVED, position=Position(before + 1), stream=None, detail=why)
        return finding_of(row, Kind.CHANGED, "its digest does not match its content and the event before it")


class Damage(NamedTuple):
    """What does not fit in a part of a log that was followed row by row, and which streams it may concern."""

    findings: list[Finding]
    streams: dict[str, int]
    """The first position of what is damaged in each stream that it is stored in, or is known to be gone from."""
    anywhere: int | None
    """The first position of what is gone or was moved, if it may have been in any stream."""

    def require(self, stream: str, upto: int | None) -> None:
        """Raise `LogDamaged` if events of a stream, up to a position, may be gone or others than those recorded."""
        for position in (self.streams.get(stream), self.anywhere):
            if position is not None and (upto is None or position <= upto):
                why = f"what is read of {stream!r} may lack an event: one is gone, or is not the one that was recorded"
                raise LogDamaged(why, position=position)


def damage_in(rows: Iterable[Row], chain: Chain) -> Damage:
    """Follow rows to the end of a log from the place of `chain`.

    A changed event leaves the rows behind it as they were: then what it is stored in is what it was recorded in. An
    event that is gone was in the stream that now skips a version. If the two do not add up, if the last row does not
    fit, or if a stream has only one event, which does not fit, any stream may have lost its newest event.
    """
    findings, streams, gone = list[Finding](), dict[Any, int](), 0
    last: list[Finding] = []
    for row in rows:
        if last := chain.follow(row):
            position, stream, version = row[:3]
            gone += max(position - chain.position - 1, 0)
            if isinstance(version, int):
                gone -= version - chain.version(stream, version) - 1
            streams.setdefault(stream, last[0].position)
            findings += last
            chain.skip(row)
    is_anywhere = gone or last or any(chain.versions.get(stream) == 1 for stream in streams)
    first = findings[0].position if is_anywhere else None
    return Damage(findings, {shown(stream) or "": position for stream, position in streams.items()}, first)


def finding_of(row: Row, kind: Kind, detail: str) -> Finding:
    """Return a finding about a row."""
    return Finding(kind=kind, position=Position(row[0]), stream=shown(row[1]), detail=detail)


def has_types(row: Row) -> bool:
    """Whether the columns have their types, as they do unless the file is damaged."""
    row = LogRow._make(row)
    return all(isinstance(value, bytes) for value in (row.stream, row.topic, row.state)) and all(
        isinstance(value, int) for value in (row.version, row.recorded_at)
    )


def shown(stream: Any) -> str | None:
    """Return the name of a stream as text, also where it is damaged; None if it is not even bytes."""
    return stream.decode(errors="replace") if isinstance(stream, bytes) else None
