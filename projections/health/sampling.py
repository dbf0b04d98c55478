"""Follow parts of a log: its tail, and samples of the rest. A quick check; `verify` follows all of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.digest import link
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.health.verify import Finding, Kind
from mnemolog.projections.ports import AuditableLog

TAIL_EVENTS: Final = 1_000
"""Events at the end of a log that are all followed."""
SAMPLES: Final = 64
"""Places before the tail, evenly spread."""
SAMPLE_EVENTS: Final = 16
"""Events that are followed at each place."""


class Sampled(NamedTuple):
    """What following parts of a log found."""

    findings: list[Finding]
    events: int
    """Events that were followed."""
    keys: errors.KeysMissing | None
    """Why some content could not be decrypted: its keys are missing."""


def sample(log: AuditableLog, *, contents: bool) -> Sampled:
    """Check links and versions of the tail and of samples, and that their events can be read.

    Small logs are followed whole. With `contents` encrypted content is decrypted; without, only links are checked.
    """
    findings: list[Finding] = []
    events, missing = 0, None
    for after, upto in _parts(log.head().position):
        follower = _Follower(log, findings, contents=contents)
        follower.follow(after, upto)
        events, missing = events + follower.events, missing or follower.keys
    return Sampled(findings, events, missing)


def _parts(head: Position) -> Iterator[tuple[Position, Position]]:
    """Yield the ranges `(after, upto]` to follow, in order."""
    if head <= TAIL_EVENTS + SAMPLES * SAMPLE_EVENTS:
        if head > ORIGIN:
            yield ORIGIN, head
        return
    before = head - TAIL_EVENTS
    for number in range(SAMPLES):
        after = number * before // SAMPLES
        yield Position(after), Position(after + SAMPLE_EVENTS)
    yield Position(before), head


class _Follower:
    def __init__(self, log: AuditableLog, findings: list[Finding], *, contents: bool) -> None:
        self._log, self._findings, self._contents = log, findings, contents
        self.events = 0
        self.keys: errors.KeysMissing | None = None

    def follow(self, after: Position, upto: Position) -> None:
        position = after
        try:
            digest = self._log.digest_at(after)
            if digest is None:
                self._found(Kind.REMOVED, after, None, "there is no event at this position")
                return
            for rows in self._log.stored_rows(after=after, upto=upto, batch_max=TAIL_EVENTS):
                for row in rows:
                    digest = self._check(position, digest, row)
                    position = row[0]
                self.events += len(rows)
        except errors.LogDamaged as error:
            self._found(Kind.FILE, Position(position + 1), None, f"the log cannot be read here: {error}")
            return
        if position < upto:
            why = f"the events from {position + 1} to {upto} are not where they should be"
            self._found(Kind.REMOVED, Position(position + 1), None, why)

    def _check(self, before: Position, digest: bytes, row: tuple[Any, ...]) -> bytes:
        """Check one row, and return the digest that the next one follows."""
        position, stream, version, topic, state, key, recorded_at, stored = row
        try:
            follows = link(digest, position, stream, version, topic, state, key, recorded_at) == stored
        except (struct.error, TypeError):  # Damage can turn a value into one of another type.
            follows = False
        name = stream.decode(errors="replace") if isinstance(stream, bytes) else None
        if position != before + 1:
            why = f"events between positions {before} and {position} are gone, or {position} was changed"
            self._found(Kind.REMOVED, Position(before + 1), None, why)
        elif not follows:
            self._found(Kind.CHANGED, position, name, "its digest does not match its content and the event before it")
        elif self._contents and name is not None:
            self._decode(position, name, version, topic.decode(errors="replace"), state)
        return stored if isinstance(stored, bytes) else b""

    def _decode(self, position: Position, stream: str, version: int, topic: str, state: bytes) -> None:
        try:
            self._log.decode(position, stream, version, topic, state)
        except errors.KeysMissing as error:
            self.keys = self.keys or error
        except errors.UndecodableEvent as error:
            self._found(Kind.UNDECODABLE, position, stream, str(error))
        except errors.LogDamaged as error:
            self._found(Kind.SEALED, position, stream, str(error))

    def _found(self, kind: Kind, position: Position, stream: str | None, detail: str) -> None:
        self._findings.append(Finding(kind=kind, position=position, stream=stream, detail=detail))
