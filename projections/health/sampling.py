"""Follow parts of a log: its tail, and samples of the rest. A quick check; `verify` follows all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, Finding, Kind
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.health.verify import EventChecker, Findings, walk
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

    Small logs are followed whole. With `contents` encrypted content is decrypted.
    """
    found, events, missing = Findings(), 0, None
    for after, upto in _parts(log.head().position):
        try:
            digest = log.digest_at(after)
        except errors.LogDamaged:
            digest = None
        if digest is None:
            why = "there is no event with a digest at this position"
            found.add([Finding(kind=Kind.REMOVED, position=after, stream=None, detail=why)])
            continue
        chain = Chain(digest, position=after)
        missing = _follow(log, chain, found, upto=upto, contents=contents) or missing
        events += chain.rows
    return Sampled(found.first, events, missing)


def _follow(
    log: AuditableLog, chain: Chain, found: Findings, *, upto: Position, contents: bool
) -> errors.KeysMissing | None:
    """Follow a part of the log, from where keys are missing on without opening content. Return which are missing."""
    events = EventChecker(log.decode if contents else None, opaque=not contents, is_part=True)
    try:
        walk(log, chain, events, found, upto=upto)
    except errors.KeysMissing as error:
        _follow(log, chain, found, upto=upto, contents=False)
        return error
    return None


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
