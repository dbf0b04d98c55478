"""Follow parts of a log: its tail, and samples of the rest. A quick check; `verify` follows all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, Finding, Kind, Row, finding_of
from mnemolog.domain.position import ORIGIN, Position
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
        chain = Chain(b"", position=after)
        try:
            digest = self._log.digest_at(after)
            if digest is None:
                self._found(Kind.REMOVED, after, "there is no event at this position")
                return
            chain.digest = digest
            for rows in self._log.stored_rows(after=after, upto=upto, batch_max=TAIL_EVENTS):
                for row in rows:
                    if found := chain.follow(row):
                        chain.skip(row)
                        self._findings.extend(found)
                    elif self._contents:
                        self._decode(row)
                self.events += len(rows)
        except errors.LogDamaged as error:
            self._found(Kind.FILE, Position(chain.position + 1), f"the log cannot be read here: {error}")
            return
        if chain.position < upto:
            why = f"the events from {chain.position + 1} to {upto} are not where they should be"
            self._found(Kind.REMOVED, Position(chain.position + 1), why)

    def _decode(self, row: Row) -> None:
        position, stream, version, topic, state, *_ = row
        try:
            self._log.decode(position, stream.decode(errors="replace"), version, topic.decode(errors="replace"), state)
        except errors.KeysMissing as error:
            self.keys = self.keys or error
        except errors.UndecodableEvent as error:
            self._findings.append(finding_of(row, Kind.UNDECODABLE, str(error)))
        except errors.LogDamaged as error:
            self._findings.append(finding_of(row, Kind.SEALED, str(error)))

    def _found(self, kind: Kind, position: Position, detail: str) -> None:
        self._findings.append(Finding(kind=kind, position=position, stream=None, detail=detail))
