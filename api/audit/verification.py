"""Verify a log against its witnesses, note its head, and look at one event as it is stored."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from mnemolog.domain import errors, structured_log
from mnemolog.domain.chain import Chain, Kind, LogRow
from mnemolog.domain.events import Event, LossAccepted
from mnemolog.domain.head import Head, parse_head
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import SEEN_HEAD
from mnemolog.domain.values import ORIGIN, Clock, Micros, Position, UtcTime, checked_position, checked_text, to_datetime
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.seen_head import Line, append_next_head, read_heads
from mnemolog.operations.backup_files import noted_witnesses
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.history.verify import (
    IN_QUARANTINE,
    Verification,
    Witness,
    lost_heads,
    of_the_file,
    quick_verify,
    verify,
    witnesses_of,
)
from mnemolog.projections.ports import Progress


class StoredEvent(Result, frozen=True, kw_only=True):
    """One event of the log: its stored columns, whether its digest is valid, and its decoded content."""

    position: Position
    stream: str
    version: int
    topic: str
    key: str | None
    """Its idempotency key."""
    recorded_at: int
    """Microseconds since the Unix epoch, as stored."""
    at: UtcTime | None
    """The same as a time in UTC; None if it is out of range."""
    state: bytes
    """The stored bytes of the event itself; base64 in JSON."""
    digest: str
    """Hexadecimal, as stored."""
    previous_digest: str | None
    """The digest at the position before; None if there is no event."""
    link_holds: bool
    """Whether the digest matches these columns and the previous digest."""
    event: Event | None
    """The decoded event."""
    unreadable: str | None
    """Why it cannot be decoded; None if it can."""


POWER_CUT: Final = "power cut"
OUTSIDE: Final = "witness"
"""Kinds of warnings in `log.engine.seen`."""
HEADS_NAMED: Final = 64
"""Heads that an accepted loss names."""


def verify_store(
    folder: Path,
    log: EventLog,
    *,
    expect_head: str | None = None,
    heads: Path | None = None,
    contents: bool = False,
    others: Iterable[Witness] = (),
    progress: Progress | None,
) -> Verification:
    """Verify the log against all witnesses: what this folder has seen, heads kept elsewhere, and `others`."""
    witnesses = [*witnesses_of(folder, log), *_noted(expect_head, heads), *others]
    found = verify(log, witnesses=witnesses, contents=contents, progress=progress)
    named = tuple(of_the_file(why) for kind, why in log.engine.seen.warnings.items() if kind == POWER_CUT)
    accepted = (f"position {item.position}: {describe(item.event)}" for item in log.losses())
    return replace(
        found,
        sound=found.sound and not named,
        findings=(*named, *found.findings),
        moved_to=log.usable_engine.moved_to(),
        accepted=tuple(accepted),
    )


def _noted(expect_head: str | None, heads: Path | None) -> Iterator[Witness]:
    """Yield the heads that were kept outside of the store."""
    if expect_head is not None:
        yield Witness("the expected head", parse_head("expect_head", expect_head))
    if heads is not None:
        for line, head in read_heads(heads):
            yield Witness(f"{heads.name} line {line}", head)


def event_at(log: EventLog, position: int) -> StoredEvent:
    """Return the event at a position, damaged or not.

    Raises `InvalidInput` for a position outside the log, `LogDamaged` if the event at it is gone.
    """
    wanted = checked_position("position", position)
    before = Position(max(wanted - 2, ORIGIN))
    pages = log.stored_rows(after=before, upto=wanted, batch_max=2)
    rows = {row.position: row for page in pages for row in (LogRow(*columns) for columns in page)}
    row = rows.get(wanted)
    if row is None:
        head = log.head().position
        if wanted == ORIGIN or wanted > head:
            raise errors.InvalidInput("position", f"no event is at {wanted}; positions of this log are 1 to {head}")
        raise errors.LogDamaged("the event that was here is gone", position=wanted)
    previous = log.genesis if wanted == 1 else _bytes(rows[wanted - 1].digest) if wanted - 1 in rows else None
    event, unreadable = _read(log, row)
    return StoredEvent(
        position=wanted,
        stream=_text(row.stream),
        version=row.version,
        topic=_text(row.topic),
        key=None if row.key is None else _text(row.key),
        recorded_at=row.recorded_at,
        at=_moment(row.recorded_at),
        state=_bytes(row.state),
        digest=_bytes(row.digest).hex(),
        previous_digest=None if previous is None else previous.hex(),
        link_holds=previous is not None and not Chain(previous, position=wanted - 1).follow(row),
        event=event,
        unreadable=unreadable,
    )


def _read(log: EventLog, row: LogRow) -> tuple[Event | None, str | None]:
    try:
        stream, topic = _text(row.stream), _text(row.topic)
        return log.decode(row.position, stream, row.version, topic, _bytes(row.state)), None
    except errors.LogDamaged as error:
        return None, str(error)


def _text(stored: Any) -> str:
    return _bytes(stored).decode(errors="replace")


def _bytes(stored: Any) -> bytes:
    """Return bytes unchanged; empty if damage has changed the type of the value."""
    return stored if isinstance(stored, bytes) else b""


def _moment(recorded_at: int) -> datetime | None:
    try:
        return to_datetime(Micros(recorded_at))
    except (OverflowError, TypeError):
        return None


def find_lost_events(log: EventLog, file: Path | None) -> None:
    """Compare a log that is being opened with what has seen it. What it has lost is in `log.engine.seen`.

    Its folder's own note, and the file outside; where nothing was noted, the projections of this log. Raises
    `WitnessUnreadable`, also for a file of another log.
    """
    seen, witnesses = log.engine.seen, kept_outside(file)
    if file is not None and witnesses and witnesses[0].head.log_id not in (None, log.log_id):
        raise errors.WitnessUnreadable(file, None, f"it is of log {witnesses[0].head.log_id}, this is {log.log_id}")
    # All witnesses are read before the log: another process may append and read on meanwhile.
    if not (noted := seen.known).position:
        projections = witnesses_of(log.path.parent, log)
        witnesses += [witness for witness in projections if not witness.name.startswith(IN_QUARANTINE)]
    with as_it_is(), suppress(errors.LogDamaged, errors.LogUnreachable):  # The reads that need it say so.
        given, head = log.last_given(), log.head()
        if seen.lost and noted.position:
            own = Head(position=Position(noted.position), digest=noted.digest.hex())
            witnesses.append(Witness(SEEN_HEAD, own))
        lost = lost_heads(log, witnesses) if witnesses else {}
        if lost:
            seen.lost = seen.lost or next(iter(lost.values()))
        elif seen.lost and noted.position:  # It was accepted.
            seen.take()
        elif given > head.position:
            seen.lost = f"the log ends at {head.position}; positions up to {given} were given: it lost history"
        if seen.lost and seen.may_lose:
            seen.was_lost, seen.warnings[POWER_CUT] = True, seen.lost
            seen.take() if log.is_read_only else _go_on(log, lost, reason="")
        for item in log.losses()[-1:] if seen.may_lose else ():
            if isinstance(item.event, LossAccepted) and not item.event.reason:
                seen.warnings[POWER_CUT] = describe(item.event)
    seen.was_lost = bool(seen.lost)


@as_it_is()
def accept_loss(log: EventLog, file: Path | None, *, reason: str) -> None:
    """Continue with a log that has lost events: an event names who, why, and the heads that witnesses remember.

    Raises `InvalidInput` for an empty reason, and for a log that has lost nothing that a witness knows of, and
    `HistoryLost` for a loss since the log was opened.
    """
    log.appends.require_writable()
    reason = checked_text("reason", reason)
    if not reason:
        raise errors.InvalidInput("reason", "say why the loss is accepted")
    folder, seen = log.path.parent, log.engine.seen
    lost = lost_heads(log, [*witnesses_of(folder, log), *noted_witnesses(folder, log.log_id), *kept_outside(file)])
    if not (seen.warnings.pop(POWER_CUT, "") or lost or seen.lost):
        raise errors.InvalidInput("accept_loss", "the log has lost nothing that a witness knows of")
    _go_on(log, lost, reason=reason)


def _go_on(log: EventLog, lost: dict[str, str], *, reason: str) -> None:
    log.accept_loss(LossAccepted(head=str(log.head()), lost=[*lost][:HEADS_NAMED], reason=reason))


def append_head(log: EventLog, file: Path, *, now: Micros) -> Head:
    """Append the head of the log to a file of heads, unless the last head in it contradicts the log."""

    def head_after(last: Line | None) -> Head:
        head = log.head()
        if last is not None:
            line, noted = last
            for finding in quick_verify(log, [Witness(f"{file}:{line}", noted)]):
                if finding.kind is Kind.WITNESS:
                    raise errors.LogDamaged(f"{finding.detail}; nothing was written", position=finding.position)
        noted_at = to_datetime(now).isoformat()
        return Head(position=head.position, digest=head.digest, log_id=log.log_id, noted_at=noted_at)

    return append_next_head(file, head_after)


def kept_outside(file: Path | None) -> list[Witness]:
    """Return the last head of a file outside of the store."""
    heads = read_heads(file, from_end=True) if file is not None and file.exists() else ()
    return [Witness(f"{file}:{line}", head) for line, head in heads][-1:]


def keep_heads(log: EventLog, file: Path | None, clock: Clock) -> None:
    """Note the last head, and append it to the file outside if the log has moved.

    A file that cannot be written stops nothing: `status` says why.
    """
    seen = log.engine.seen
    if log.engine.replaced() is None:  # Otherwise the folder may be another store's.
        seen.saw(seen.known)
    if file is None or log.is_read_only or seen.lost:
        return
    try:
        if [item.head.position for item in kept_outside(file)] != [log.head().position]:
            append_head(log, file, now=clock.now())
        seen.warnings.pop(OUTSIDE, None)
    except errors.MnemologError as error:
        seen.warnings[OUTSIDE] = f"the witness outside is not kept: {file} is not written: {error}"
        structured_log.warning("witness.not_written", path=file, error=error)
