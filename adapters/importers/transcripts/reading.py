"""Read one transcript, which another program may be writing, from its saved offset, and save the new offset."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from mnemolog.adapters.importers.entry import Entry, MakeReader
from mnemolog.adapters.importers.format import Message
from mnemolog.adapters.importers.formats import claude_code, codex, flat
from mnemolog.adapters.importers.import_files import DEFAULT_AGENT
from mnemolog.adapters.importers.message_reader import MessageReader
from mnemolog.adapters.importers.read import detect_format
from mnemolog.adapters.importers.source import objects_on
from mnemolog.adapters.importers.transcripts.file_offsets import FileOffsets, Links, ReadState
from mnemolog.adapters.importers.transcripts.recording import Report
from mnemolog.adapters.importers.turn import KeyMaker, TurnMaker
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.runtime.files import open_file
from mnemolog.infra.text_file import LINE_BYTES_MAX, unpacker_of, without_mark

LINES_MAX: Final = 5_000
BYTES_MAX: Final = 8 << 20
"""Read at most before the offset is saved."""
CHECKED_BYTES: Final = 4_096


class JsonLinesReader:
    """Reads a file of JSON Lines that grows: one turn a line."""

    def __init__(self, maker: TurnMaker) -> None:
        self._reader = MessageReader(maker, flat.JSONL)
        self.state: dict[str, Any] = {}

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line. Raises `InvalidInput`."""
        turn = self._reader.turn(Message(line, f"line {line}", row))
        return None if turn is None else Entry(session=turn.session, turns=[turn], recounted=True)


FORMATS: Final[dict[str, MakeReader]] = {
    claude_code.FORMAT.name: claude_code.ClaudeCodeReader,
    codex.FORMAT.name: codex.CodexReader,
    flat.JSONL.name: JsonLinesReader,
}
"""The readers of transcripts. JSON Lines have to be named: nearly every file of lines could be one."""


class Reading:
    """A transcript that is being read. `save` saves `state` and `links`."""

    def __init__(self, path: Path, offsets: FileOffsets, number: int | None, state: ReadState) -> None:
        self.path, self.state = path, state
        self.agent = DEFAULT_AGENT if state.format == flat.JSONL.name else state.format
        self.links = Links(offsets, number)
        self._keys = KeyMaker(state.places)
        self._maker = TurnMaker(path, self._keys)
        self._reader = FORMATS[state.format](self._maker)
        self._reader.state |= state.reader
        self._offsets = offsets
        self._saved = state.offset, state.line

    @property
    def is_long_unsaved(self) -> bool:
        """Whether it is time to save."""
        offset, line = self._saved
        return self.state.line - line >= LINES_MAX or self.state.offset - offset >= BYTES_MAX

    def entries(self, report: Report) -> Iterator[list[Entry]]:
        """Yield the entries of each further line. What cannot be read is counted in the report.

        `state` is after a line as soon as its entries are yielded, so process them before `save`. Raises `OSError`.
        """
        for line in lines_from(self.path, offset=self.state.offset, number=self.state.line):
            report.lines += 1
            rows, error = objects_on(line.text) if line.text is not None else ([], InvalidInput("line", "too long"))
            found = list[Entry]()
            for row in rows:
                try:
                    entry = self._reader.entry(line.number, row)
                except InvalidInput as refused:
                    report.refuse(ImportRefused(self.path, line.number, str(refused)))
                else:
                    found += [] if entry is None else [entry]
            for reason, count in self._maker.left_out.items():
                report.left_out[reason] = report.left_out.get(reason, 0) + count
            self._maker.left_out.clear()
            if error is not None:
                report.refuse(ImportRefused(self.path, line.number, str(error)))
            self.state.offset, self.state.line = line.end, line.number
            yield found

    def save(self, *, is_first_pass: bool = False) -> None:
        """Save how far it was read. Call it when all of that is in the log. Raises `Overtaken`, `OSError`."""
        self.state.is_first_pass = is_first_pass
        self.state.reader, self.state.places = self._reader.state, self._keys.latest()
        self.state.mark = mark_at(self.path, self.state.offset, self._offsets.secret)
        self.links.number = self._offsets.save(self.path, self.state, began=self._saved[0], links=self.links.fresh)
        self.links.fresh.clear()
        self._saved = self.state.offset, self.state.line


def begin(path: Path, offsets: FileOffsets, *, format: str | None) -> Reading | None:  # noqa: A002
    """Resume reading a file. None if it has nothing new or is not a transcript.

    Raises `ImportRefused` for a compressed file, `OSError`.
    """
    size = path.stat().st_size
    number, state = offsets.find(path)
    if state.offset and (
        state.is_first_pass or size < state.offset or mark_at(path, state.offset, offsets.secret) != state.mark
    ):
        number, state = None, ReadState()  # Truncated or replaced: keys and texts show which turns are new.
        offsets.drop(path)
    if size == state.offset:
        return None
    with open_file(path, follow=True) as file:
        if unpacker := unpacker_of(file):
            raise ImportRefused(path, 1, f"it is compressed; unpack it with `{unpacker} --keep {path}`")
    if format is None and not state.format:
        try:
            format = detect_format(path)  # noqa: A001
        except ImportRefused as refused:
            if isinstance(refused.__cause__, OSError):  # It was not read.
                raise refused.__cause__ from None
        if format not in FORMATS or format == flat.JSONL.name:
            return None
    state.format = format or state.format
    return Reading(path, offsets, number, state)


class Line(NamedTuple):
    """A complete line. `text` is None if it was too long."""

    number: int
    end: int
    """The offset after it."""
    text: bytes | None


def lines_from(path: Path, *, offset: int, number: int) -> Iterator[Line]:
    """Yield the lines after `offset`, the first of which is line `number` + 1.

    A last line without a line end is complete if it is a JSON object: half a line never is. Raises `OSError`.
    """
    with open_file(path, follow=True) as file:
        file.seek(offset)
        while text := file.readline(LINE_BYTES_MAX + 1):
            if len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
                while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                    pass
                if not rest:
                    return
                text = b""
            elif not text.endswith(b"\n") and (text.isspace() or objects_on(text)[1] is not None):
                return
            number += 1
            yield Line(number, file.tell(), (without_mark(text) if number == 1 else text) or None)


def mark_at(path: Path, offset: int, secret: bytes) -> bytes:
    """Return a digest of the bytes before `offset`, to detect that a file was replaced. Empty if the file is shorter.

    It covers the last 4 KiB only. Changes before those are detected by the keys of turns.
    """
    with open_file(path, follow=True) as file:
        begin = max(0, offset - CHECKED_BYTES)
        file.seek(begin)
        read = file.read(offset - begin)
    return b"" if len(read) < offset - begin else blake2b(read, key=secret[:64], digest_size=16).digest()
