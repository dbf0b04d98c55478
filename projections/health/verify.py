"""Verify the history: every digest, version, event and witness."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.clock import is_in_calendar
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.digest import link
from mnemolog.domain.display import counted
from mnemolog.domain.encrypted_content import SEALED, SEALED_TOPICS, why_invalid
from mnemolog.domain.events import (
    EVENT_TYPES,
    FOREIGN_STREAMS,
    CheckpointCreated,
    ContentErased,
    Event,
    ForgetRequested,
    Forgotten,
    RecordedEvent,
    SessionStarted,
    TurnRecorded,
)
from mnemolog.domain.head import Head
from mnemolog.domain.position import ORIGIN, Micros, Position, Version
from mnemolog.domain.result import Result
from mnemolog.domain.validation import History, flaw_in
from mnemolog.projections.ports import AuditableLog, Progress

BATCH_MAX: Final = 500
"""Rows that are read together: more of them do not stay in the processor's caches until they are followed."""
FINDINGS_MAX: Final = 1_000
"""Findings that are listed; the rest is counted."""

_DECODERS: Final = {topic.encode(): msgspec.msgpack.Decoder(kind) for topic, kind in EVENT_TYPES.items()}

_FOREIGN: Final = FOREIGN_STREAMS.encode()
_SEALED: Final = bytes((SEALED,))
_SEALED_TOPICS: Final = frozenset(topic.encode() for topic in SEALED_TOPICS)
_CHECKPOINT: Final = CheckpointCreated.topic.encode()
_FORGETTING: Final = frozenset({ForgetRequested.topic.encode(), ContentErased.topic.encode()})


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


_BREAKS: Final = frozenset({Kind.CHANGED, Kind.REMOVED, Kind.VERSION, Kind.FILE})
"""Kinds after which events may be missing, so that whether later ones fit cannot be told."""


class Finding(Result, frozen=True, kw_only=True):
    """One contradiction, where it is."""

    kind: Kind
    position: Position
    """0 where it concerns the log as a whole; of what was removed, the first position that is missing."""
    stream: str | None
    """None if it concerns the log as a whole, or if there is no event to take the stream from."""
    detail: str


class Verification(Result, frozen=True, kw_only=True):
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
    unfit: int = 0
    """Events that do not fit what comes before them. Each is a finding."""
    moved_to: str = ""
    """Where the log was moved: it takes no more events. No finding. Empty if it takes events."""
    findings: tuple[Finding, ...]
    findings_left_out: int

    @property
    def damaged(self) -> bool:
        """Whether anything else than events that do not fit was found."""
        return len(self.findings) + self.findings_left_out > self.unfit

    def _shown(self) -> Iterable[str]:
        if self.damaged:
            yield f"DAMAGED: {counted(len(self.findings) + self.findings_left_out, 'finding')}"
        else:
            yield "sound" if self.sound else f"NOT SOUND: {counted(self.unfit, 'event')} that do not fit"
        yield from (counted(self.events, "event"), f"head={self.head}")


class Witness(NamedTuple):
    """A head that was kept outside the log, and where it was found."""

    name: str
    head: Head
    """Without a log id it is taken to be of this log."""


def verify(
    log: AuditableLog,
    *,
    witnesses: Iterable[Witness] = (),
    contents: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Check the log from its first event to its head.

    Finds events that were edited, swapped, removed or cut off, streams with missing versions, events that
    cannot be read or do not fit what comes before them, a file that SQLite finds at odds with itself, and every
    witness that remembers another history.
    A history that was rewritten whole, links included, is found by a witness only. With `contents` everything
    encrypted is opened too, which raises `KeysMissing` where that cannot be.
    """
    given, last = _ends(log)
    findings = [*_unprotected(log), *_miscounted(log, given, last=last)]
    chain = _Chain(log, findings, contents=contents)
    with ThreadPoolExecutor(1) as beside:  # SQLite checks the file without the GIL, while we follow the chain.
        checked = beside.submit(log.contradictions)
        _walk(log, chain, upto=last, progress=progress)
    findings.extend(of_the_file(detail) for detail in checked.result())
    asked = list(witnesses)
    for witness in asked:
        findings.extend(_ask(log, witness, last=last))
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
        unfit=chain.unfit,
        findings=tuple(findings[:FINDINGS_MAX]),
        findings_left_out=max(0, len(findings) - FINDINGS_MAX),
    )


def quick_verify(log: AuditableLog, witnesses: Iterable[Witness]) -> list[Finding]:
    """Return what is wrong with the log as far as its ends and its witnesses tell. Reads no event through."""
    given, last = _ends(log)
    asked = [finding for witness in witnesses for finding in _ask(log, witness, last=last)]
    return [*_unprotected(log), *_miscounted(log, given, last=last), *asked]


def _walk(log: AuditableLog, chain: _Chain, *, upto: Position, progress: Progress | None) -> None:
    try:
        for rows in log.stored_rows(after=ORIGIN, upto=upto, batch_max=BATCH_MAX):
            chain.follow(rows)
            if progress is not None:
                progress(rows[-1][0], upto)
    except errors.LogDamaged as error:
        chain.stop(f"from here on the log cannot be read: {error}")
        return
    if chain.position < upto:
        chain.stop(f"events from here to {upto} are not found where they should be")


class _Chain:
    """The state of a walk along the log."""

    def __init__(self, log: AuditableLog, findings: list[Finding], *, contents: bool) -> None:
        self._log, self._contents = log, contents
        self.position = ORIGIN
        self.digest = log.genesis
        self.events = self.sealed = self.unfit = 0
        self._requested: dict[str, int] = {}
        self._erased: set[str] = set()
        self.versions: dict[bytes, int] = {}
        self._findings = findings
        self._history: History | None = History()
        """What the events so far say; None from the first break on, because events may be missing."""
        self._started: set[bytes] = set()
        """Streams of sessions that were started."""

    def follow(self, rows: list[tuple[Any, ...]]) -> None:
        """Check rows that come next. One loop for everything: it runs once per event of the log."""
        versions, decoders, contents = self.versions, _DECODERS, self._contents
        before, digest = self.position, self.digest
        for position, stream, version, topic, state, key, recorded_at, stored in rows:
            try:
                sound = link(digest, position, stream, version, topic, state, key, recorded_at) == stored
            except (struct.error, TypeError):  # Damage can turn a value into one of another type.
                self._report_break(before, position, stream)
                before, digest = position, _bytes(stored)
                continue
            if not sound or position != before + 1:  # Appends leave no holes: a hole is a removal.
                self._report_break(before, position, stream)
                stored = _bytes(stored)
            if version != (known := versions.get(stream, 0)) + 1:
                self._report(Kind.VERSION, position, stream, f"version {version} follows {known}")
            versions[stream] = version
            # Continue from the stored digest: one changed event is one finding, not one for all that follow.
            before, digest = position, stored
            event: Event | None
            try:
                if state[:1] == _SEALED and topic in decoders:
                    self.sealed += 1
                    event = None
                    if contents or topic not in _SEALED_TOPICS or why_invalid(state) is not None:
                        event = self._look_into(position, stream, version, topic, state)
                        if event is None:
                            continue
                else:
                    event = decoders[topic].decode(state)
                    if topic in _FORGETTING:
                        self._note(event)
                    elif isinstance(event, SessionStarted) and event.sealed_title:
                        self.sealed += 1
                        if contents:
                            self._open(position, stream, version, topic, state)
            except (KeyError, *UNDECODABLE) as error:
                if not (isinstance(error, KeyError) and _is_foreign(stream)):
                    name = topic.decode(errors="replace")
                    why = f"topic {name!r} is unknown" if isinstance(error, KeyError) else f"{name}: {error}"
                    self._report(Kind.UNDECODABLE, position, stream, why)
                continue
            if (
                event is not None
                or topic == _CHECKPOINT
                or stream not in self._started
                or not is_in_calendar(recorded_at)
            ):
                self._judge(position, stream, version, topic, event, recorded_at)
        self.position, self.digest = before, digest
        self.events += len(rows)

    def _judge(
        self, position: int, stream: bytes, version: int, topic: bytes, event: Event | None, recorded_at: int
    ) -> None:
        """Report an event that does not fit. `event` is None where it is encrypted."""
        if self._history is None:
            return
        if isinstance(event, TurnRecorded) and stream in self._started:
            why = flaw_in(event, position=position, recorded_at=recorded_at)
            if why is not None:
                self._report_unfit(position, stream, topic, why)
            return
        recorded = RecordedEvent(
            position=Position(position),
            stream=stream.decode(errors="replace"),
            version=Version(version),
            recorded_at=Micros(recorded_at),
            key=None,
            event=Forgotten(was=topic.decode()) if event is None else event,
        )
        if (why := self._history.follow(recorded)) is not None:
            self._report_unfit(position, stream, topic, why)
        elif isinstance(event, SessionStarted):
            self._started.add(stream)

    def _report_unfit(self, position: int, stream: bytes, topic: bytes, why: str) -> None:
        self.unfit += 1
        self._report(Kind.UNFIT, Position(position), stream, f"{topic.decode()}: {why}")

    def forgotten(self) -> int:
        """Return how many events lost their content, as the log tells."""
        return sum(self._requested.get(request, 0) for request in self._erased)

    def _look_into(self, position: Position, stream: bytes, version: int, topic: bytes, state: bytes) -> Event | None:
        """Return the event that is encrypted, None after reporting why it cannot be read."""
        name = topic.decode(errors="replace")
        why = f"topic {name!r} is no content" if topic not in _SEALED_TOPICS else why_invalid(state)
        if why is not None:
            self._report(Kind.UNDECODABLE, position, stream, f"{name}: {why}")
            return None
        return self._open(position, stream, version, topic, state)

    def _open(self, position: Position, stream: bytes, version: int, topic: bytes, state: bytes) -> Event | None:
        """Return the event with its content decrypted, None after reporting why that cannot be."""
        name = topic.decode(errors="replace")
        try:
            return self._log.decode(position, stream.decode(errors="replace"), version, name, state)
        except errors.UndecodableEvent as error:
            self._report(Kind.UNDECODABLE, position, stream, str(error))
        except errors.LogDamaged as error:
            self._report(Kind.SEALED, position, stream, str(error))
        return None

    def _note(self, event: Any) -> None:
        if isinstance(event, ForgetRequested):
            self._requested[event.id] = sum(sum(target.counts.values()) for target in event.targets)
        elif isinstance(event, ContentErased):
            self._erased.add(event.request)

    def stop(self, why: str) -> None:
        """Report that the log cannot be read further."""
        self._report(Kind.FILE, Position(self.position + 1), None, why)

    def _report_break(self, before: Position, position: Position, stream: bytes) -> None:
        if position > before + 1:
            detail = f"events between positions {before} and {position} are gone, or {position} was changed"
            self._report(Kind.REMOVED, Position(before + 1), None, detail)
        else:
            detail = "its digest does not match its content and the event before it"
            self._report(Kind.CHANGED, position, stream, detail)

    def _report(self, kind: Kind, position: Position, stream: bytes | None, detail: str) -> None:
        if kind in _BREAKS:
            self._history = None
        self._findings.append(Finding(kind=kind, position=position, stream=_name(stream), detail=detail))


def _is_foreign(stream: Any) -> bool:
    """Whether a stream holds events of another library, whose topics mnemolog does not know."""
    return isinstance(stream, bytes) and stream.startswith(_FOREIGN)


def _bytes(stored: Any) -> bytes:
    return stored if isinstance(stored, bytes) else b""


def _name(stream: Any) -> str | None:
    return stream.decode(errors="replace") if isinstance(stream, bytes) else None


def _unprotected(log: AuditableLog) -> list[Finding]:
    return [
        Finding(kind=Kind.UNPROTECTED, position=ORIGIN, stream=None, detail=f"trigger {name} is missing")
        for name in log.missing_triggers()
    ]


def _ends(log: AuditableLog) -> tuple[tuple[Position, Position], Position]:
    """Return what the counter of positions says before and after, and the last position.

    Others append meanwhile, so that it may have moved on: but not back, and not in between.
    """
    before, last = log.last_given(), log.head().position
    return (before, log.last_given()), last


def _miscounted(log: AuditableLog, given: tuple[Position, Position], *, last: Position) -> list[Finding]:
    before, after = given
    if before > last:
        detail = f"positions up to {before} were given, the last event there is has {last}"
        return [Finding(kind=Kind.REMOVED, position=Position(last + 1), stream=None, detail=detail)]
    if after < last:
        detail = f"the counter of positions says {after}, the last event there is has {last}"
        return [Finding(kind=Kind.CHANGED, position=last, stream=_stream_at(log, last), detail=detail)]
    return []


def of_the_file(detail: str) -> Finding:
    """Return the finding for what is wrong with the file itself."""
    return Finding(kind=Kind.FILE, position=ORIGIN, stream=None, detail=detail)


def _ask(log: AuditableLog, witness: Witness, *, last: Position) -> list[Finding]:
    head = witness.head
    if head.log_id not in (None, log.log_id):
        detail = f"{witness.name} is of log {head.log_id}, this is {log.log_id}"
        return [Finding(kind=Kind.WITNESS, position=ORIGIN, stream=None, detail=detail)]
    if head.position > last:
        detail = f"{witness.name} has seen position {head.position}; the log ends at {last}: it lost history"
        return [Finding(kind=Kind.WITNESS, position=Position(last + 1), stream=None, detail=detail)]
    try:
        stored = log.digest_at(head.position)
    except errors.LogDamaged as error:
        stored, what = b"", str(error)
    else:
        what = "the log has no event there" if stored is None else f"the log has {stored.hex()}"
    if stored == head.digest_bytes:
        return []
    detail = f"{witness.name} remembers {head.digest_bytes.hex()}; {what}"
    stream = _stream_at(log, head.position)
    return [Finding(kind=Kind.WITNESS, position=head.position, stream=stream, detail=detail)]


def _stream_at(log: AuditableLog, position: Position) -> str | None:
    rows = next(log.stored_rows(after=Position(position - 1), upto=position, batch_max=1), [])
    return _name(rows[0][1]) if rows else None
