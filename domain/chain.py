"""The digest chain, which reveals any change of history, and the checks of its rows.

    digest(0) = SHA-256(genesis tag ‖ format ‖ created at ‖ log id)
    digest(n) = SHA-256(event tag ‖ digest(before n) ‖ position ‖ version ‖ recorded_at ‖ lengths ‖
                        stream ‖ topic ‖ state ‖ key)

Numbers are big-endian signed 64-bit, lengths signed 32-bit (-1 for an absent key), so no two rows share a
preimage. Stored bytes are hashed, never re-encoded ones. docs/adr/0004-offset-digest-and-log-identity.md.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.result import Result
from mnemolog.domain.values import ORIGIN, Position

_GENESIS_TAG: Final = b"mnemolog/genesis/1\x00"
_EVENT: Final = sha256(b"mnemolog/event/1\x00")
"""The state of the hash after the tag: copying it costs less than looking up the algorithm again."""
_IDENTITY: Final = struct.Struct(">qq")
_HEADER: Final = struct.Struct(">qqqiiii")


def genesis(*, log_id: str, log_format: int, created_at: int) -> bytes:
    """Return digest(0) of a log: 32 bytes over the identity of the log, different for any two logs."""
    return sha256(_GENESIS_TAG + _IDENTITY.pack(log_format, created_at) + log_id.encode()).digest()


def link(
    previous: bytes,
    position: int,
    stream: bytes,
    version: int,
    topic: bytes,
    state: bytes,
    key: bytes | None,
    recorded_at: int,
) -> bytes:
    """Return the digest of one event (32 bytes), given the digest of the event before it."""
    header = _HEADER.pack(
        position,
        version,
        recorded_at,
        len(stream),
        len(topic),
        len(state),
        -1 if key is None else len(key),
    )
    chained = _EVENT.copy()
    chained.update(b"".join((previous, header, stream, topic, state, key or b"")))
    return chained.digest()


class LogRow(NamedTuple):
    """Every column of a stored event, which the chain covers. Texts are UTF-8 unless they are damaged."""

    position: int
    stream: bytes
    version: int
    topic: bytes
    state: bytes
    key: bytes | None
    recorded_at: int
    digest: bytes


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


class Chain:
    """The place of a reader in a log: position and digest of the last row, and the version of each stream so far.

    One changed event is one finding: the next row is compared with the digest as it is stored.
    """

    def __init__(self, digest: bytes, *, position: int = ORIGIN) -> None:
        self.position = position
        self.digest = digest
        self.rows = 0
        self.versions: dict[bytes, int] = {}
        self.gone = 0
        """How many positions rows have skipped, less the versions that they have skipped."""
        self._is_part = position > ORIGIN
        """Then the versions before the first row are not known."""

    def follow(self, row: Row) -> list[Finding]:
        """Continue with the next row if it follows the rows before it. Otherwise return how it contradicts them."""
        position, stream, version, topic, state, key, recorded_at, digest = row
        try:
            sound = link(self.digest, position, stream, version, topic, state, key, recorded_at) == digest
        except (struct.error, TypeError):  # Damage can turn a value into one of another type.
            sound = False
        known = self.versions.get(stream)
        if known is None:
            known = version - 1 if self._is_part and isinstance(version, int) else 0
        sound = sound and position == self.position + 1  # Appends leave no holes.
        if sound and version == known + 1:
            self.position = position
            self.digest = digest
            self.versions[stream] = version
            self.rows += 1
            return []
        found = [] if sound else [self._break(row)]
        if version != known + 1:
            found.append(finding_of(row, Kind.VERSION, f"version {version} of its stream follows {known}"))
        return found

    def skip(self, row: Row) -> None:
        """Continue with a row that contradicts those before it: later rows are compared with what it says."""
        position, stream, version, *_, digest = row
        self.gone += max(position - self.position - 1, 0)
        self.position, self.digest = position, digest if isinstance(digest, bytes) else b""
        self.rows += 1
        if isinstance(version, int):
            self.gone -= version - 1 - self.versions.get(stream, version - 1 if self._is_part else 0)
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


def damage_in(rows: Iterable[Row], chain: Chain, *, seen: tuple[int, bytes]) -> list[Finding]:
    """Follow rows to the end of a log from the place of `chain`. Return what does not fit, each with a stream it is in.

    The first has no stream if any stream may have lost its newest event. That cannot be where an event was changed:
    the rows behind it fit, or it is the head that was seen, and what it is stored in is what it was recorded in. Nor
    where events are gone from streams that now skip as many versions.
    """
    found, last = list[Finding](), list[Finding]()
    for row in rows:
        if last := chain.follow(row):
            chain.skip(row)
            found += [replace(item, stream=shown(row[1])) for item in last]
    is_alone = any(chain.versions.get((item.stream or "").encode()) == 1 for item in found)
    if (last and (chain.position, chain.digest) != seen) or chain.gone or is_alone:
        found[0] = replace(found[0], stream=None)
    return found


def finding_of(row: Row, kind: Kind, detail: str) -> Finding:
    """Return a finding about a row."""
    return Finding(kind=kind, position=Position(row[0]), stream=shown(row[1]), detail=detail)


def shown(stream: Any) -> str | None:
    """Return the name of a stream as text, also where it is damaged; None if it is not even bytes."""
    return stream.decode(errors="replace") if isinstance(stream, bytes) else None
