"""Read one transcript from its saved offset, and save the new offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.source import decode
from mnemolog.adapters.importers.transcript import Entry
from mnemolog.adapters.importers.transcripts.file_offsets import BufferedMapping, FileOffsets
from mnemolog.adapters.importers.transcripts.formats import FORMATS, format_of
from mnemolog.adapters.importers.transcripts.place import Anchor, Place
from mnemolog.adapters.importers.transcripts.report import Report
from mnemolog.adapters.importers.transcripts.tail import Line, lines_from, mark_at
from mnemolog.adapters.importers.turn import TurnMaker
from mnemolog.domain.errors import ImportRefused, InvalidInput

LINES_MAX: Final = 5_000
BYTES_MAX: Final = 8 << 20
"""Read at most before the offset is saved."""


class Reading:
    """A transcript that is being read. `save` saves `place` and `links`."""

    def __init__(self, path: Path, offsets: FileOffsets, number: int | None, place: Place, *, secret: bytes) -> None:
        self.path, self.place = path, place
        self.format = FORMATS[place.format]
        self.links: BufferedMapping[str, Anchor] = BufferedMapping(offsets.link, number)
        self._counts: BufferedMapping[int, int] = BufferedMapping(offsets.count, number)
        self._reader = self.format.make(TurnMaker(path, KeyMaker(secret, self._counts)))
        self._reader.state |= place.reader
        self._offsets, self._secret = offsets, secret
        self._saved = place.offset, place.line

    @property
    def is_long_unsaved(self) -> bool:
        """Whether it is time to save."""
        offset, line = self._saved
        return self.place.line - line >= LINES_MAX or self.place.offset - offset >= BYTES_MAX

    def entries(self, report: Report) -> Iterator[Entry | None]:
        """Yield the entry of each further line, None for a line without one. Bad lines are counted in the report.

        `place` is after a line as soon as its entry is yielded, so process the entry before `save`. Raises `OSError`.
        """
        for line in lines_from(self.path, offset=self.place.offset, number=self.place.line):
            report.lines += 1
            try:
                entry = self._entry(line)
            except InvalidInput as error:
                report.refuse(ImportRefused(self.path, line.number, str(error)))
                entry = None
            self.place.offset, self.place.line = line.end, line.number
            yield entry

    def save(self) -> None:
        """Save how far it was read. Call it when all of that is in the log. Raises `Overtaken`, `OSError`."""
        self.place.reader = self._reader.state
        self.place.mark = mark_at(self.path, self.place.offset, self._secret)
        number = self._offsets.save(
            self.path, self.place, began=self._saved[0], links=self.links.fresh, counts=self._counts.fresh
        )
        self.links.saved(number)
        self._counts.saved(number)
        self._saved = self.place.offset, self.place.line

    def _entry(self, line: Line) -> Entry | None:
        if line.text is None:
            raise InvalidInput("line", "too long")
        if line.text.isspace():
            return None
        row = decode(line.text)
        if not isinstance(row, dict):
            raise InvalidInput("JSON", f"expected an object on the line, got {type(row).__name__}")
        return self._reader.entry(line.number, row)


def begin(path: Path, offsets: FileOffsets, *, format: str | None, secret: bytes) -> Reading | None:  # noqa: A002
    """Resume reading a file. None if it has nothing new or is not a transcript. Raises `OSError`."""
    size = path.stat().st_size
    number, place = offsets.find(path)
    if place.offset and (size < place.offset or mark_at(path, place.offset, secret) != place.mark):
        number, place = None, Place()  # Truncated or replaced: keys show which turns are new.
        offsets.drop(path)
    if size == place.offset:
        return None
    place.format = format or place.format or format_of(path)
    return Reading(path, offsets, number, place, secret=secret) if place.format else None
