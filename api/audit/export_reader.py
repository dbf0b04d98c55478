"""Read an exported log line by line. Invalid lines are refused with their number."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from mnemolog.domain import digest
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
    imported,
)
from mnemolog.infra.text_file import TextSource


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
