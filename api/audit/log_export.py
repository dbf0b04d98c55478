"""Export a log as JSON Lines, verifiable without mnemolog, and read an export. Invalid lines are refused by number."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.audit.results import LogExport
from mnemolog.domain import digest, errors
from mnemolog.domain.chain import Chain
from mnemolog.domain.digest import LogRow
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.export import (
    FORMAT,
    VERSION,
    ExportedEvent,
    ExportHeader,
    ExportLine,
    ExportTrailer,
    decoded,
    digest_from_hex,
    encoded,
    exported,
    imported,
)
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.atomic_files import new_file
from mnemolog.infra.text_file import TextSource
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
    began = log.digest_at(after)
    if began is None:
        raise errors.LogDamaged("the event that was here is gone", position=after)
    identity = log.identity
    yield ExportHeader(
        format=FORMAT,
        version=VERSION,
        log_id=identity.log_id,
        log_format=identity.log_format,
        created_at=identity.created_at,
        after=after,
        digest=began.hex(),
    )
    chain = Chain(began, position=after)
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


def is_log_export(path: Path) -> bool:
    """Whether a file is the export of a log, not of a conversation. Raises `ImportRefused` if it cannot be read."""
    with TextSource(path) as source:
        first = next((line for line in source.head if line.strip()), b"")
    try:
        return isinstance(decoded(first), ExportHeader)
    except InvalidInput:
        return False


class ExportReader:
    """The rows of an export. Every line is checked before it is yielded, and at last that the export is whole."""

    def __init__(self, source: TextSource) -> None:
        self._path, self._lines = source.path, source.lines()
        self._number = 1
        self.header = self._read_header()
        try:
            self.chain = Chain(digest_from_hex(self.header.digest), position=self.header.after)
        except InvalidInput as error:
            raise self.refused(str(error)) from error

    def rows(self) -> Iterator[LogRow]:
        """Yield every row. Raises `ImportRefused`, naming the first invalid line."""
        for line in self._decoded():
            if isinstance(line, ExportTrailer):
                self._check_end(line)
                return
            if not isinstance(line, ExportedEvent):
                raise self.refused("a second header")
            try:
                row = imported(line)
            except InvalidInput as error:
                raise self.refused(str(error)) from error
            for finding in self.chain.follow(row):
                raise self.refused(finding.detail)
            yield row
        raise self.refused("the export ends here without its last line: it is incomplete")

    def refused(self, why: str) -> ImportRefused:
        """Return the error for the line that was read last."""
        refused = ImportRefused(self._path, self._number, why)
        refused.hint = "name an export, as it was written, or the folder of a store"
        return refused

    def _decoded(self) -> Iterator[ExportLine]:
        for number, text in self._lines:
            self._number = number
            try:
                yield decoded(text)
            except InvalidInput as error:
                raise self.refused(str(error)) from error

    def _read_header(self) -> ExportHeader:
        line = next(self._decoded(), None)
        if not isinstance(line, ExportHeader) or line.format != FORMAT:
            raise self.refused("not an export of a log: its first line is not a header")
        if line.version > VERSION:
            raise self.refused(f"export format {line.version}; this mnemolog reads {VERSION}")
        if line.after < 0 or (line.after == 0 and _genesis(line) != line.digest):
            raise self.refused("its description of the log does not match its digest")
        return line

    def _check_end(self, line: ExportTrailer) -> None:
        chain = self.chain
        if line != ExportTrailer(events=chain.rows, position=chain.position, digest=chain.digest.hex()):
            raise self.refused("the last line does not match the events before it")
        for number, _ in self._lines:
            self._number = number
            raise self.refused("there is more text after the last line")


def _genesis(header: ExportHeader) -> str | None:
    try:
        return digest.genesis(log_id=header.log_id, log_format=header.log_format, created_at=header.created_at).hex()
    except struct.error:
        return None
