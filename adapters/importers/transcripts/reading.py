"""Read transcripts from where they were left: one file line by line, and one run over many."""

import threading
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import filelock

from mnemolog.adapters.importers.formats import coding_agents, flat
from mnemolog.adapters.importers.import_files import DEFAULT_AGENT
from mnemolog.adapters.importers.message_reader import MessageReader
from mnemolog.adapters.importers.read import detect_format
from mnemolog.adapters.importers.source import objects_on
from mnemolog.adapters.importers.transcripts.interpreter import TranscriptInterpreter
from mnemolog.adapters.importers.transcripts.recording import (
    FILE,
    FileOffsets,
    Links,
    Overtaken,
    ReadState,
    Recorder,
    Report,
    StoreLookup,
)
from mnemolog.adapters.importers.turn import Entry, KeyMaker, MakeReader, Message, TurnMaker
from mnemolog.adapters.support.store_access import open_tables
from mnemolog.domain import errors
from mnemolog.domain.display import Bytes
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.values import ORIGIN
from mnemolog.infra.runtime.files import lock_file, open_file
from mnemolog.infra.text_file import LINE_BYTES_MAX, unpacker_of, without_mark
from mnemolog.projections.ports import Progress, tell
from mnemolog.store import MemoryStore

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
    coding_agents.CLAUDE_CODE.name: coding_agents.ClaudeCodeReader,
    coding_agents.CODEX.name: coding_agents.CodexReader,
    flat.JSONL.name: JsonLinesReader,
}
"""The readers of transcripts. JSON Lines have to be named: nearly every file of lines could be one."""


class Reading:
    """A transcript that is being read. `save` saves `state` and `links`."""

    def __init__(self, path: Path, offsets: FileOffsets, number: int | None, state: ReadState) -> None:
        self.path, self.state = path, state
        self.agent = DEFAULT_AGENT if state.format == flat.JSONL.name else state.format
        self.links = Links(offsets, number)
        self._maker = TurnMaker(path, KeyMaker(state.places))
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
            rows, error = (
                objects_on(line.text) if line.text is not None else ([], errors.InvalidInput("line", "too long"))
            )
            found = list[Entry]()
            for row in rows:
                try:
                    entry = self._reader.entry(line.number, row)
                except errors.InvalidInput as refused:
                    report.refuse(errors.ImportRefused(self.path, line.number, str(refused)))
                else:
                    found += [] if entry is None else [entry]
            for reason, count in self._maker.left_out.items():
                report.left_out[reason] = report.left_out.get(reason, 0) + count
            self._maker.left_out.clear()
            if error is not None:
                report.refuse(errors.ImportRefused(self.path, line.number, str(error)))
            self.state.offset, self.state.line = line.end, line.number
            yield found

    def save(self, *, is_first_pass: bool = False) -> None:
        """Save how far it was read. Call it when all of that is in the log. Raises `Overtaken`, `OSError`."""
        self.state.is_first_pass = is_first_pass
        self.state.reader, self.state.places = self._reader.state, self._maker.keys.latest()
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
            raise errors.ImportRefused(path, 1, f"it is compressed; unpack it with `{unpacker} --keep {path}`")
    if format is None and not state.format:
        try:
            format = detect_format(path)  # noqa: A001
        except errors.ImportRefused as refused:
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


LOCK_FILE: Final = ".watch.lock"


class Transcripts:
    """Records transcripts into a store, each from the offset where the last read ended. Safe for several processes.

    `format`, one of `FORMATS`, overrides the detected format. `scope` applies to all sessions, instead of the folder
    that each one works in. Setting `stop` ends the work soon and loses nothing. Raises `InvalidInput` for an unknown
    format or an invalid scope.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        format: str | None = None,  # noqa: A002
        scope: str | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        if scope is not None:
            parse_scope(scope)
        if format is not None and format not in FORMATS:
            raise errors.InvalidInput("format", f"{format!r} is none of {', '.join(FORMATS)}")
        self.stop = stop or threading.Event()
        self._store = store
        self._format = format
        self._scope = scope
        self._lookup = StoreLookup(store)
        self._offsets = open_tables(store, FILE, FileOffsets)
        if (keyring := self._lookup.log.keyring) is not None:
            self._offsets.secret = keyring.secret()
        self._lock = lock_file(self._offsets.database.path.with_name(LOCK_FILE))
        self._stamps: dict[Path, tuple[int, int]] = {}
        """Size and time of each file that was read: if neither has changed, the file has nothing new.

        A file that could not be read has the error of the system there, as a size below zero.
        """

    def __enter__(self) -> "Transcripts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Call it before the store is closed."""
        self._offsets.database.close()

    def catch_up(self, paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
        """Record what these files hold and the log does not. Return a report.

        A file that vanishes meanwhile is skipped. Unreadable files and bad lines are counted in the report; they do not
        stop the others. The next call tries an unreadable file again, and counts it once. Raises `errors.AWAY`: call it
        again, the files are read from the last saved offset.
        """
        report, stamps = Report(), self._changed(paths)
        total, done = Bytes(sum(size for size, _ in stamps.values())), 0

        def report_progress(offset: int) -> None:
            tell(progress, min(done + offset, total), total)

        for path, stamp in stamps.items():
            if self.stop.is_set():
                break
            try:
                if self._record(path, report, report_progress):
                    self._stamps[path] = stamp
            except FileNotFoundError:
                pass  # Deleted meanwhile; what was read of it is recorded.
            except errors.ImportRefused as error:  # It is compressed; Codex does this to rollouts that are a week old.
                self._stamps[path] = stamp
                if not self._lookup.of(coding_agents.session_of(path)):
                    report.refuse(error)
            except OSError as error:  # It is read as soon as it can be.
                if self._stamps.get(path) != (trouble := (-(error.errno or 1), 0)):
                    self._stamps[path] = trouble
                    report.refuse(errors.ImportRefused(path, 1, f"the file cannot be read: {error.strerror}"))
            done += stamp[0]
        return report

    def _changed(self, paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
        """Return the files that have changed since the last read, parent sessions before their continuations."""
        found = []
        for path in paths:
            try:
                stat = path.stat()
            except OSError:
                continue
            stamp = stat.st_size, stat.st_mtime_ns
            if self._stamps.get(path) != stamp:
                found.append((path, stamp))
        return dict(sorted(found, key=lambda item: reading_order(item[0], item[1][1])))

    def _record(self, path: Path, report: Report, report_progress: Callable[[int], None]) -> bool:
        """Record what is new in a file. Return whether it was read to the end."""
        try:
            held = self._lock.acquire(cancel_check=self.stop.is_set)
        except filelock.Timeout:
            return False
        with held:
            if (reading := begin(path, self._offsets, format=self._format)) is None:
                return True
            # Turns are compared with the log only while a file is read from its beginning: later lines are new.
            redaction = self._lookup.log.redaction()
            upto = ORIGIN if reading.state.offset else self._lookup.log.head().position
            recorder = Recorder(self._store, report, agent=reading.agent, upto=upto)
            interpreter = TranscriptInterpreter(self._lookup, recorder, reading.state, reading.links, scope=self._scope)
            report.files += 1
            try:
                for entries in reading.entries(report):
                    for entry in entries:
                        try:
                            interpreter.take(entry.redacted(redaction))
                        except (errors.InvalidInput, errors.SessionError) as error:  # The store refuses a name.
                            report.refuse(errors.ImportRefused(path, reading.state.line, str(error)))
                    if recorder.recording.is_full or reading.is_long_unsaved:
                        recorder.flush()
                        reading.save(is_first_pass=recorder.recording.has_read)
                        report_progress(reading.state.offset)
                        if self.stop.is_set():
                            return False
                recorder.flush()
                reading.save()
                report_progress(reading.state.offset)
            except Overtaken:
                return False
        return True


def reading_order(path: Path, modified_ns: int) -> tuple[int, str, int]:
    """Sort key: parent sessions before their continuations, as far as file metadata shows.

    Files of subagents are in deeper folders. The name of a rollout starts with its start time. For all others only the
    time of the last write is known.
    """
    return len(path.parts), path.name if path.name.startswith("rollout-") else "", modified_ns
