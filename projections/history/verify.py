"""Verify the history: every digest, version, event and witness.

Witnesses are what files of a node know of it: manifests of segments, and turns that the log has lost.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, Finding, Kind, Row, finding_of, shown
from mnemolog.domain.display import counted
from mnemolog.domain.encoding import UNDECODABLE
from mnemolog.domain.events import (
    EVENT_TYPES,
    FOREIGN_STREAMS,
    REQUEST_DIGEST,
    SEALED,
    SEALED_TOPICS,
    CheckpointCreated,
    ContentErased,
    Event,
    ForgetRequested,
    Forgotten,
    RecordedEvent,
    SessionStarted,
    TurnRecorded,
    why_invalid,
)
from mnemolog.domain.head import Head
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.validation import History, flaw_in
from mnemolog.domain.values import ORIGIN, Micros, Position, Version, is_in_calendar
from mnemolog.projections.ports import AuditableLog, Progress, tell
from mnemolog.projections.quarantine import LOST_HISTORY, Quarantine
from mnemolog.projections.sql.conversation_views import VIEWS
from mnemolog.projections.sql.database import fetch, state_of
from mnemolog.projections.sql.opening import opened
from mnemolog.projections.vectors.folders import generation_folders, log_range_of, segment_folders

IN_QUARANTINE: Final = "quarantined"
"""What the name of a witness in quarantine begins with."""


def witnesses_of(folder: Path, log: AuditableLog) -> "Iterator[Witness]":
    """Yield what remembers the history of this log: the tags of tables, and the manifests of segments, those in
    quarantine included.

    A segment in quarantine is as good a witness as before, and one that is ahead of the log is the only witness of a
    tail that was lost. Purging the quarantine deletes these witnesses. A damaged manifest is no witness.
    """
    layout = StoreLayout(folder)
    found: list[tuple[str, str, Position, str]] = []
    for path in () if log.is_read_only else sorted(layout.projections.glob("*.db")):
        with suppress(errors.ProjectionUnreadable), opened(path) as database, database.reading() as connection:
            for name, position, log_id, digest in fetch(
                connection, "SELECT name, position, log_id, digest FROM tracking WHERE typeof(digest) = 'blob'"
            ):
                found.append((f"{path.name} ({name})", log_id, position, digest.hex()))
    for generation in generation_folders(layout.vectors):
        for part in segment_folders(generation.path):
            if (tag := log_range_of(part)) is not None:
                found.append((f"segment {part.parent.name}/{part.name}", tag.log_id, tag.upto, tag.digest))
    quarantine = Quarantine(layout.quarantine)
    for item in quarantine.items():
        if item.upto is not None:
            found.append((f"{IN_QUARANTINE} {item.name}", item.log_id, item.upto, item.digest))
    for path in quarantine.paths():
        for part in (path, *sorted(path.glob("[0-9]*-[0-9]*"))):  # A segment, or a generation with its segments.
            if (tag := log_range_of(part)) is not None:
                found.append((f"{IN_QUARANTINE} {path.name}", tag.log_id, tag.upto, tag.digest))
    for name, log_id, upto, digest in dict.fromkeys(found):
        with suppress(ValueError):
            if log_id == log.log_id:
                bytes.fromhex(digest)
                yield Witness(name, Head(position=upto, digest=digest))


class LostTurns(NamedTuple):
    """Turns that were read from another history of the log, and the views that have their texts."""

    file: Path
    turns: int
    first: Position
    last: Position


def lost_turns(layout: StoreLayout, log: AuditableLog) -> Iterator[LostTurns]:
    """Yield the turns of views that know more than the log, in use or in quarantine. An unreadable file has none."""
    quarantine = Quarantine(layout.quarantine)
    aside = [item.name for item in quarantine.items() if item.was == layout.views.name and item.state in LOST_HISTORY]
    for path in (layout.views, *(quarantine.folder / name for name in aside)):
        if path.exists():
            with suppress(errors.ProjectionUnreadable), opened(path) as database, database.reading() as connection:
                if state_of(connection, log, VIEWS)[0] in LOST_HISTORY:
                    yield from _after_the_common_part(path, connection, log)


def _after_the_common_part(path: Path, connection: sa.Connection, log: AuditableLog) -> Iterator[LostTurns]:
    """Yield the turns after the last one that both have: two histories of a log are the same up to some position."""
    positions = [position for (position,) in fetch(connection, "SELECT position FROM turns ORDER BY position")]

    def is_lost(position: Position) -> bool:
        rows = next(log.stored_rows(after=Position(position - 1), upto=position, batch_max=1), [])
        own = fetch(connection, "SELECT version, recorded_at FROM turns WHERE position = ?", position)
        return [(row[2], row[6]) for row in rows] != own

    lost = positions[bisect_left(positions, True, key=is_lost) :]
    if lost:
        yield LostTurns(path, len(lost), lost[0], lost[-1])


BATCH_MAX: Final = 500
"""Rows that are read together: more of them do not stay in the processor's caches until they are followed."""
TAIL_EVENTS: Final = 1_000
"""Events at the end of a log that are all followed."""
SAMPLES: Final = 64
"""Places before the tail, evenly spread."""
SAMPLE_EVENTS: Final = 16
"""Events that are followed at each place."""
FINDINGS_MAX: Final = 1_000
"""Findings that are listed; the rest is counted."""

_DECODERS: Final = {topic.encode(): msgspec.msgpack.Decoder(kind) for topic, kind in EVENT_TYPES.items()}

_FOREIGN: Final = FOREIGN_STREAMS.encode()
_SEALED: Final = bytes((SEALED,))
_SEALED_TOPICS: Final = frozenset(topic.encode() for topic in SEALED_TOPICS)
_CHECKPOINT: Final = CheckpointCreated.topic.encode()
_FORGETTING: Final = frozenset({ForgetRequested.topic.encode(), ContentErased.topic.encode()})

Decode = Callable[[int, str, int, str, bytes], Event]
"""Returns the event at a position, of a stream, version and topic, with its content decrypted."""


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
    confirmable: int = 0
    """Idempotency keys that a server of an earlier form wrote: who guesses a value can confirm it with one."""
    unfit: int = 0
    """Events that do not fit what comes before them. Each is a finding."""
    moved_to: str = ""
    """Where the log was moved: it takes no more events. No finding. Empty if it takes events."""
    accepted: tuple[str, ...] = ()
    """What the log has lost and an operator has accepted. No findings."""
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


class Findings:
    """The first findings, and the number of all."""

    def __init__(self) -> None:
        self.first: list[Finding] = []
        self.count = 0

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings. Those that are not listed take no memory."""
        for finding in findings:
            self.count += 1
            if len(self.first) < FINDINGS_MAX:
                self.first.append(finding)


@as_it_is()
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
    given, last = log.ends()
    chain = Chain(log.genesis)
    events = EventChecker(log.decode if contents else None)
    found = Findings()
    found.add([*_unprotected(log), *_miscounted(log, given, last=last)])
    with ThreadPoolExecutor(1) as beside:  # SQLite checks the file without the GIL, while we follow the chain.
        checked = beside.submit(log.contradictions)
        walk(log, chain, events, found, upto=last, progress=progress)
    found.add(of_the_file(detail) for detail in checked.result())
    asked = list(witnesses)
    contradicted = [finding for witness in asked for finding in _ask(log, witness, last=last)]
    listed = sorted([*found.first, *contradicted], key=lambda finding: finding.position)[:FINDINGS_MAX]
    count = found.count + len(contradicted)
    return Verification(
        sound=not count,
        events=chain.rows,
        streams=len(chain.versions),
        head=Position(chain.position),
        digest=chain.digest.hex(),
        witnesses=len(asked),
        sealed=events.sealed,
        opened=events.opens,
        forgotten=events.forgotten(),
        confirmable=events.confirmable,
        unfit=events.unfit,
        findings=tuple(listed),
        findings_left_out=count - len(listed),
    )


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
    found = Findings()
    events = 0
    missing = None
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


def quick_verify(log: AuditableLog, witnesses: Iterable[Witness]) -> list[Finding]:
    """Return what is wrong with the log as far as its ends and its witnesses tell. Reads no event through."""
    given, last = log.ends()
    asked = [finding for witness in witnesses for finding in _ask(log, witness, last=last)]
    return [*_unprotected(log), *_miscounted(log, given, last=last), *asked]


def lost_heads(log: AuditableLog, witnesses: Iterable[Witness]) -> dict[str, str]:
    """Return the heads that witnesses remember and the log does not have, the last one first, with what is said."""
    latest, (_, last) = sorted(witnesses, key=lambda item: -item.head.position), log.ends()
    return {str(item.head): found[0].detail for item in latest if (found := _ask(log, item, last=last))}


def walk(
    log: AuditableLog,
    chain: Chain,
    events: "EventChecker",
    found: Findings,
    *,
    upto: Position,
    progress: Progress | None = None,
) -> None:
    """Check the rows from the place of `chain` up to a position. Raises `KeysMissing`."""
    try:
        for rows in log.stored_rows(after=Position(chain.position), upto=upto, batch_max=BATCH_MAX):
            for row in rows:
                if broken := chain.follow(row):
                    chain.skip(row)
                    found.add(broken)
                    events.history = None
                    if [type(value) for value in row[1:5] + row[6:7]] != [bytes, int, bytes, bytes, int]:
                        continue  # Damage can turn a value into one of another type.
                if (flaw := events.check(row)) is not None:
                    found.add([flaw])
            tell(progress, rows[-1][0], upto)
    except errors.LogDamaged as error:
        found.add([of_the_file(f"from here on the log cannot be read: {error}", position=chain.position + 1)])
        return
    if chain.position < upto:
        why = f"events from here to {upto} are not found where they should be"
        found.add([of_the_file(why, position=chain.position + 1)])


class EventChecker:
    """Checks that each event of a log can be decoded, and fits the events before it."""

    def __init__(self, decode: Decode | None = None, *, opaque: bool = False, is_part: bool = False) -> None:
        """`decode` decrypts content. Without it only the form of what is encrypted is checked; with `opaque`, nothing.

        Of a part of a log what comes before is not known, so whether its events fit is not checked.
        """
        self._decode = decode
        self._opaque = opaque
        self.opens = decode is not None
        self.sealed = self.unfit = self.confirmable = 0
        self.history: History | None = None if is_part else History()
        """What the events so far say; None where events may be missing."""
        self._requested: dict[str, int] = {}
        self._erased: set[str] = set()
        self._started: set[bytes] = set()
        """Streams of sessions that were started."""

    def forgotten(self) -> int:
        """Return how many events lost their content, as the log tells."""
        return sum(self._requested.get(request, 0) for request in self._erased)

    def check(self, row: Row) -> Finding | None:
        """Take the next event. Return what is wrong with it. Raises `KeysMissing`."""
        _, stream, _, topic, state, key, recorded_at, _ = row
        if key is not None and REQUEST_DIGEST.search(key):
            self.confirmable += 1
        decoder = _DECODERS.get(topic)
        if decoder is None:
            is_foreign = stream.startswith(_FOREIGN)  # Of another library, whose topics mnemolog does not know.
            return None if is_foreign else finding_of(row, Kind.UNDECODABLE, f"topic {_text(topic)!r} is unknown")
        event: Event | None = None
        try:
            if state[:1] == _SEALED:
                self.sealed += 1
                if topic not in _SEALED_TOPICS:
                    why: str | None = f"topic {_text(topic)!r} is no content"
                else:
                    why = None if self._opaque else why_invalid(state)
                if why is not None:
                    return finding_of(row, Kind.UNDECODABLE, f"{_text(topic)}: {why}")
                if self._decode is not None:
                    event = self._opened(row)
                elif stream in self._started and topic != _CHECKPOINT and is_in_calendar(recorded_at):
                    return None  # Whatever it says fits.
            else:
                event = decoder.decode(state)
            why = self._why_unfit(row, event)
            if topic in _FORGETTING:
                self._note(event)
            elif isinstance(event, SessionStarted) and event.sealed_title:
                self.sealed += 1
                self._opened(row)
        except errors.UndecodableEvent as error:
            return finding_of(row, Kind.UNDECODABLE, str(error))
        except errors.LogDamaged as error:
            return finding_of(row, Kind.SEALED, str(error))
        except UNDECODABLE as error:
            return finding_of(row, Kind.UNDECODABLE, f"{_text(topic)}: {error}")
        if why is None:
            return None
        self.unfit += 1
        return finding_of(row, Kind.UNFIT, f"{_text(topic)}: {why}")

    def _opened(self, row: Row) -> Event | None:
        """Return an event with its content decrypted, None where that is not wanted."""
        if self._decode is None:
            return None
        position, stream, version, topic, state, *_ = row
        return self._decode(position, _text(stream), version, _text(topic), state)

    def _why_unfit(self, row: Row, event: Event | None) -> str | None:
        """Add an event to the history. Return why it does not fit. `event` is None where it is encrypted."""
        if self.history is None:
            return None
        position, stream, version, topic, _, _, recorded_at, _ = row
        if isinstance(event, TurnRecorded) and stream in self._started:  # Most events are, and change no history.
            return flaw_in(event, position=position, recorded_at=recorded_at)
        recorded = RecordedEvent(
            position=Position(position),
            stream=_text(stream),
            version=Version(version),
            recorded_at=Micros(recorded_at),
            key=None,
            event=Forgotten(was=_text(topic)) if event is None else event,
        )
        why = self.history.follow(recorded)
        if why is None and isinstance(event, SessionStarted):
            self._started.add(stream)
        return why

    def _note(self, event: Any) -> None:
        if isinstance(event, ForgetRequested):
            self._requested[event.id] = sum(sum(target.counts.values()) for target in event.targets)
        elif isinstance(event, ContentErased):
            self._erased.add(event.request)


def _text(topic: bytes) -> str:
    return topic.decode(errors="replace")


def _unprotected(log: AuditableLog) -> list[Finding]:
    return [
        Finding(kind=Kind.UNPROTECTED, position=ORIGIN, stream=None, detail=f"trigger {name} is missing")
        for name in log.missing_triggers()
    ]


def _miscounted(log: AuditableLog, given: tuple[Position, Position], *, last: Position) -> list[Finding]:
    before, after = given
    if before > last:
        detail = f"positions up to {before} were given, the last event there is has {last}"
        return [Finding(kind=Kind.REMOVED, position=Position(last + 1), stream=None, detail=detail)]
    if after < last:
        detail = f"the counter of positions says {after}, the last event there is has {last}"
        return [Finding(kind=Kind.CHANGED, position=last, stream=_stream_at(log, last), detail=detail)]
    return []


def of_the_file(detail: str, *, position: int = ORIGIN) -> Finding:
    """Return the finding for what is wrong with the file itself, from a position on."""
    return Finding(kind=Kind.FILE, position=Position(position), stream=None, detail=detail)


def _ask(log: AuditableLog, witness: Witness, *, last: Position) -> list[Finding]:
    """Return what speaks against the log, unless an operator has accepted that it does not have it."""
    found = _contradiction(log, witness, last=last)
    return [] if found and str(witness.head) in log.accepted() else found


def _contradiction(log: AuditableLog, witness: Witness, *, last: Position) -> list[Finding]:
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
    return [Finding(kind=Kind.WITNESS, position=head.position, stream=_stream_at(log, head.position), detail=detail)]


def _stream_at(log: AuditableLog, position: Position) -> str | None:
    rows = next(log.stored_rows(after=Position(position - 1), upto=position, batch_max=1), [])
    return shown(rows[0][1]) if rows else None
