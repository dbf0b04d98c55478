"""Record what is new in a set of transcripts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import filelock

from mnemolog.adapters.importers.formats import codex
from mnemolog.adapters.importers.transcripts.file_offsets import FILE, FileOffsets, Overtaken
from mnemolog.adapters.importers.transcripts.interpreter import TranscriptInterpreter
from mnemolog.adapters.importers.transcripts.reading import FORMATS, begin
from mnemolog.adapters.importers.transcripts.recording import Recorder, Report, StoreLookup
from mnemolog.adapters.support.store_access import open_tables
from mnemolog.domain import errors
from mnemolog.domain.display import Bytes
from mnemolog.domain.position import ORIGIN
from mnemolog.domain.scope import parse_scope
from mnemolog.infra.runtime.files import lock_file
from mnemolog.projections.ports import Progress, tell
from mnemolog.store import MemoryStore

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

    def __enter__(self) -> Transcripts:
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
                if not self._lookup.of(codex.session_of(path)):
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
            upto = ORIGIN if reading.state.offset else self._lookup.head()
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
