"""Is the history whole? Every link of the chain, every version, every event, every witness."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.digest import link
from mnemolog.domain.events import EVENT_TYPES, ContentErased, ForgetRequested, SessionStarted
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.sealed import SEALED, SEALED_TOPICS, misfit
from mnemolog.projections.ports import AuditableLog, Progress

BATCH_MAX: Final = 2_000
FINDINGS_MAX: Final = 1_000
"""Findings that are listed; the rest is counted."""

_DECODERS: Final = {topic.encode(): msgspec.msgpack.Decoder(kind) for topic, kind in EVENT_TYPES.items()}

_SEALED: Final = bytes((SEALED,))
_FORGETTING: Final = frozenset({ForgetRequested.topic.encode(), ContentErased.topic.encode()})


class Kind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """The stored event is not the one that was recorded (or its link was changed)."""
    REMOVED = "removed"
    """Events that were recorded are not there any more."""
    VERSION = "version"
    """A stream skips or repeats a version."""
    UNDECODABLE = "undecodable"
    """The bytes do not fit the topic, or nobody knows the topic."""
    WITNESS = "witness"
    """Something that remembers the log at this position remembers it differently."""
    SEALED = "sealed"
    """Its content does not open with its key."""
    UNPROTECTED = "unprotected"
    """The file has lost what keeps it append-only."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One contradiction, where it is."""

    kind: Kind
    position: Position
    stream: str | None
    detail: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an audit."""

    sound: bool
    events: int
    streams: int
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal: keep it elsewhere, and give it to a later verification."""
    witnesses: int
    sealed: int
    """Events whose content is encrypted, forgotten ones included."""
    opened: bool
    """Whether what is encrypted was opened as well. The chain is over what is stored, and needs no keys."""
    forgotten: int
    """Events whose content is forgotten. No finding: their digests stand."""
    findings: tuple[Finding, ...]
    findings_left_out: int


class Witness(NamedTuple):
    """Somebody outside the log who remembers its digest at a position."""

    name: str
    position: Position
    digest: bytes


def verify(
    log: AuditableLog,
    *,
    witnesses: Iterable[Witness] = (),
    contents: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Check the log from its first event to its head.

    Finds events that were edited, swapped, removed or cut off, streams with missing versions, events that
    cannot be read, and every witness that remembers another history. A history that was rewritten whole,
    links included, is found by a witness only. With `contents` everything encrypted is opened too, which raises
    `KeysMissing` where that cannot be.
    """
    head = log.head()
    findings = _unprotected(log)
    chain = _Chain(log, findings, contents=contents)
    for rows in log.stored_rows(after=ORIGIN, upto=head.position, batch_max=BATCH_MAX):
        chain.follow(rows)
        if progress is not None:
            progress(rows[-1][0], head.position)
    findings.extend(_cut_off(log, last=chain.position))
    asked = list(witnesses)
    for witness in asked:
        findings.extend(_ask(log, witness, last=chain.position))
    findings.sort(key=lambda finding: finding.position)
    return Verification(
        sound=not findings,
        events=chain.events,
        streams=len(chain.versions),
        head=chain.position,
        digest=chain.digest.hex(),
        witnesses=len(asked),
        sealed=chain.sealed,
        opened=contents,
        forgotten=chain.forgotten(),
        findings=tuple(findings[:FINDINGS_MAX]),
        findings_left_out=max(0, len(findings) - FINDINGS_MAX),
    )


def glance(log: AuditableLog, witnesses: Iterable[Witness]) -> list[Finding]:
    """Return what is wrong with the log as far as its ends and its witnesses tell. Reads no event through."""
    last = log.head().position
    asked = [finding for witness in witnesses for finding in _ask(log, witness, last=last)]
    return [*_unprotected(log), *_cut_off(log, last=last), *asked]


class _Chain:
    """The state of a walk along the log."""

    def __init__(self, log: AuditableLog, findings: list[Finding], *, contents: bool) -> None:
        self._log, self._contents = log, contents
        self.position = ORIGIN
        self.digest = log.genesis
        self.events = self.sealed = 0
        self._requested: dict[str, int] = {}
        self._erased: set[str] = set()
        self.versions: dict[bytes, int] = {}
        self._findings = findings

    def follow(self, rows: list[tuple[Any, ...]]) -> None:
        """Check rows that come next. One loop for everything: it runs once per event of the log."""
        versions, decoders = self.versions, _DECODERS
        before, digest = self.position, self.digest
        for position, stream, version, topic, state, key, recorded_at, stored in rows:
            sound = link(digest, position, stream, version, topic, state, key, recorded_at) == stored
            if not sound or position != before + 1:  # Appends leave no holes: a hole is a removal.
                self._report_break(before, position, stream)
            if version != (known := versions.get(stream, 0)) + 1:
                self._report(Kind.VERSION, position, stream, f"version {version} follows {known}")
            versions[stream] = version
            try:
                if state[:1] == _SEALED:
                    self.sealed += 1
                    self._look_into(position, stream, version, topic, state)
                else:
                    event = decoders[topic].decode(state)
                    if topic in _FORGETTING:
                        self._note(event)
                    elif isinstance(event, SessionStarted) and event.sealed_name:
                        self.sealed += 1
            except (KeyError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                name = topic.decode(errors="replace")
                why = f"topic {name!r} is unknown" if isinstance(error, KeyError) else f"{name}: {error}"
                self._report(Kind.UNDECODABLE, position, stream, why)
            # Go on from what is stored: one changed event is one finding, not one for all that follow.
            before, digest = position, stored
        self.position, self.digest = before, digest
        self.events += len(rows)

    def forgotten(self) -> int:
        """Return how many events lost their content, as the log tells."""
        return sum(self._requested.get(request, 0) for request in self._erased)

    def _look_into(self, position: Position, stream: bytes, version: int, topic: bytes, state: bytes) -> None:
        name = topic.decode(errors="replace")
        why = f"topic {name!r} is no content" if name not in SEALED_TOPICS else misfit(state)
        if why is not None:
            self._report(Kind.UNDECODABLE, position, stream, f"{name}: {why}")
        elif self._contents:
            try:
                self._log.decode(position, stream.decode(errors="replace"), version, name, state)
            except errors.UndecodableEvent as error:
                self._report(Kind.UNDECODABLE, position, stream, str(error))
            except errors.LogDamaged as error:
                self._report(Kind.SEALED, position, stream, str(error))

    def _note(self, event: Any) -> None:
        if isinstance(event, ForgetRequested):
            self._requested[event.id] = sum(sum(target.counts.values()) for target in event.targets)
        elif isinstance(event, ContentErased):
            self._erased.add(event.request)

    def _report_break(self, before: Position, position: Position, stream: bytes) -> None:
        if position > before + 1:
            detail = f"events between positions {before} and {position} are gone, or {position} was changed"
            self._report(Kind.REMOVED, Position(before + 1), None, detail)
        else:
            detail = "its digest does not follow from its content and the event before it"
            self._report(Kind.CHANGED, position, stream, detail)

    def _report(self, kind: Kind, position: Position, stream: bytes | None, detail: str) -> None:
        name = None if stream is None else stream.decode(errors="replace")
        self._findings.append(Finding(kind=kind, position=position, stream=name, detail=detail))


def _unprotected(log: AuditableLog) -> list[Finding]:
    return [
        Finding(kind=Kind.UNPROTECTED, position=ORIGIN, stream=None, detail=f"trigger {name} is missing")
        for name in log.missing_triggers()
    ]


def _cut_off(log: AuditableLog, *, last: Position) -> list[Finding]:
    if (given := log.last_given()) <= last:
        return []
    detail = f"positions up to {given} were given, the last event there is has {last}"
    return [Finding(kind=Kind.REMOVED, position=Position(last + 1), stream=None, detail=detail)]


def _ask(log: AuditableLog, witness: Witness, *, last: Position) -> list[Finding]:
    if witness.position > last:
        detail = f"{witness.name} has seen position {witness.position}; the log ends at {last}: it lost history"
        return [Finding(kind=Kind.WITNESS, position=Position(last + 1), stream=None, detail=detail)]
    stored = log.digest_at(witness.position)
    if stored == witness.digest:
        return []
    what = "no event is there" if stored is None else f"the log has {stored.hex()}"
    detail = f"{witness.name} remembers {witness.digest.hex()}; {what}"
    return [Finding(kind=Kind.WITNESS, position=witness.position, stream=None, detail=detail)]
