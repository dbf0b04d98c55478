"""Read an exported log line by line. Invalid lines are refused with their number."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from mnemolog.domain import digest
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.export import (
    FORMAT,
    VERSION,
    ExportedEvent,
    ExportHeader,
    ExportLine,
    ExportTrailer,
    decoded,
    digest_of,
    imported,
)
from mnemolog.domain.log_row import LogRow
from mnemolog.infra.text_file import TextSource

Line = tuple[int, LogRow]
"""An event and its line number."""


def is_log_export(path: Path) -> bool:
    """Whether a file is the export of a log, not of a conversation. Raises `ImportRefused` if it cannot be read."""
    with TextSource(path) as source:
        first = next((line for line in source.head if line.strip()), b"")
    try:
        return isinstance(decoded(first), ExportHeader)
    except InvalidInput:
        return False


class ExportReader:
    """The events of an export. Every line is checked before it is yielded; the end after the last event."""

    def __init__(self, source: TextSource) -> None:
        self._source, self._lines = source, source.lines()
        self.header = self._read_header()
        self.start = self._digest(1, self.header.digest)
        """The digest that the first event follows."""

    def events(self) -> Iterator[Line]:
        """Yield every event with its line number. Raises `ImportRefused`, naming the first invalid line."""
        position, before, number = self.header.after, self.start, 1
        versions: dict[bytes, int] = {}
        for number, text in self._lines:
            line = self._decoded(number, text)
            if isinstance(line, ExportTrailer):
                self._check_end(number, line, position=position, digest=before)
                return
            row = self._row(number, line)
            if row.position != position + 1:
                raise self._refused(number, f"expected position {position + 1}, found {row.position}")
            if not row.follows(before):
                raise self._refused(number, "its digest does not match it and the event before")
            known = versions.get(row.stream, row.version - 1 if self.header.after else 0)
            if row.version != known + 1:
                raise self._refused(number, f"expected version {known + 1} of its stream, found {row.version}")
            position, before, versions[row.stream] = row.position, row.digest, row.version
            yield number, row
        raise self._refused(number, "the export ends here without its last line: it is incomplete")

    def _read_header(self) -> ExportHeader:
        for number, text in self._lines:
            line = self._decoded(number, text)
            if not isinstance(line, ExportHeader) or line.format != FORMAT:
                break
            if line.version > VERSION:
                raise self._refused(number, f"export format {line.version}; this mnemolog reads {VERSION}")
            if line.after < 0 or (line.after == 0 and _genesis(line) != line.digest):
                raise self._refused(number, "its description of the log does not match its digest")
            return line
        raise self._refused(1, "not an export of a log: its first line is not a header")

    def _check_end(self, number: int, line: ExportTrailer, *, position: int, digest: bytes) -> None:
        if line != ExportTrailer(events=position - self.header.after, position=position, digest=digest.hex()):
            raise self._refused(number, "the last line does not match the events before it")
        for after, _ in self._lines:
            raise self._refused(after, "there is more text after the last line")

    def _row(self, number: int, line: ExportLine) -> LogRow:
        if not isinstance(line, ExportedEvent):
            raise self._refused(number, "a second header")
        try:
            return imported(line)
        except InvalidInput as error:
            raise self._refused(number, str(error)) from error

    def _decoded(self, number: int, text: bytes) -> ExportLine:
        try:
            return decoded(text)
        except InvalidInput as error:
            raise self._refused(number, str(error)) from error

    def _digest(self, number: int, text: str) -> bytes:
        try:
            return digest_of(text)
        except InvalidInput as error:
            raise self._refused(number, str(error)) from error

    def _refused(self, number: int, why: str) -> ImportRefused:
        refused = ImportRefused(self._source.path, number, why)
        refused.hint = "name an export, as it was written, or the folder of a store"
        return refused


def _genesis(header: ExportHeader) -> str | None:
    try:
        return digest.genesis(log_id=header.log_id, log_format=header.log_format, created_at=header.created_at).hex()
    except struct.error:
        return None
