"""Export a log as JSON Lines, verifiable without mnemolog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.audit.results import LogExport
from mnemolog.domain import errors
from mnemolog.domain.chain import Chain
from mnemolog.domain.export import FORMAT, VERSION, ExportHeader, ExportLine, ExportTrailer, encoded, exported
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.atomic_files import new_file
from mnemolog.projections.ports import Progress

BATCH_MAX: Final = 1_000


def export_log(
    log: EventLog,
    target: Path | BinaryIO,
    *,
    after: Position,
    upto: Position,
    replace: bool = False,
    progress: Progress | None = None,
) -> LogExport:
    """Write the events of `(after, upto]` to a new file, renamed when it is complete, or to an open one.

    Every digest is checked: an event that fails is not exported. Raises `LogDamaged`, `InvalidInput`,
    `StoreNotWritable`, `StorageFull`; then no file is left.
    """
    if isinstance(target, Path):
        with new_file(target, replace=replace) as file:
            return _write(log, file, after=after, upto=upto, progress=progress)
    return _write(log, target, after=after, upto=upto, progress=progress)


def _write(log: EventLog, file: BinaryIO, *, after: Position, upto: Position, progress: Progress | None) -> LogExport:
    written, end = 0, None
    for line in export_lines(log, after=after, upto=upto, progress=progress):
        written += file.write(encoded(line))
        end = line
    if not isinstance(end, ExportTrailer):
        raise AssertionError("an export has an end")
    head = Head(position=Position(end.position), digest=end.digest)
    return LogExport(log_id=log.log_id, after=after, events=end.events, head=head, bytes=written)


def export_lines(
    log: EventLog, *, after: Position, upto: Position, progress: Progress | None = None
) -> Iterator[ExportLine]:
    """Yield the lines of an export of the events of `(after, upto]`, the trailer last. Raises `LogDamaged`."""
    digest = log.digest_at(after)
    if digest is None:
        raise errors.LogDamaged("the event that was here is gone", position=after)
    identity = log.identity
    yield ExportHeader(
        format=FORMAT,
        version=VERSION,
        log_id=identity.log_id,
        log_format=identity.log_format,
        created_at=identity.created_at,
        after=after,
        digest=digest.hex(),
    )
    chain = Chain(digest, position=after)
    for page in log.stored_rows(after=after, upto=upto, batch_max=BATCH_MAX):
        for row in chain.checked(page, outcome="nothing was exported"):
            try:
                yield exported(row)
            except UnicodeDecodeError as error:
                raise errors.LogDamaged(
                    "its text columns are not valid UTF-8; nothing was exported", position=row.position
                ) from error
        if progress is not None:
            progress(chain.position - after, upto - after)
    if chain.position != upto:
        raise errors.LogDamaged("events from here on are gone; nothing was exported", position=chain.position + 1)
    yield ExportTrailer(events=chain.rows, position=chain.position, digest=chain.digest.hex())
