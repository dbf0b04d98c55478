"""Recording transcripts, many of them, as far as they have been written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import filelock

from mnemolog.adapters.importers.transcripts.file_offsets import FILE, Overtaken, Places
from mnemolog.adapters.importers.transcripts.formats import FORMATS, order_of
from mnemolog.adapters.importers.transcripts.interpreter import Decisions
from mnemolog.adapters.importers.transcripts.lookup import KnownSessions
from mnemolog.adapters.importers.transcripts.preview import Preview
from mnemolog.adapters.importers.transcripts.reading import LINES_MAX, Reading, begin
from mnemolog.adapters.importers.transcripts.recording import Recorder
from mnemolog.adapters.importers.transcripts.report import Report
from mnemolog.adapters.support.store_access import log_of, open_tables
from mnemolog.domain import errors
from mnemolog.domain.scope import parse_scope
from mnemolog.projections.ports import Progress
from mnemolog.store import MemoryStore

LOCK_FILE: Final = ".watch.lock"
_SLICE_S: Final = 0.1

ReadOne = Callable[[Path, Report, Callable[[int], None]], bool]


class Look(NamedTuple):
    """What a file looked like. One that looks the same has nothing new."""

    size: int
    modified_ns: int


class Transcripts:
    """Records transcripts into a store, each from where it was read to. Several may do so for one store.

    `format`, one of `FORMATS`, overrules what content says of a file. `scope` is that of all sessions, in place of the
    folder that each works in. `stop` ends whatever is being done, soon, with nothing lost. Raises `InvalidInput` for
    what is no format or no scope.
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
        self._store, self._format, self._scope = store, format, scope
        keyring = log_of(store).keyring
        self._secret = b"" if keyring is None else keyring.secret()
        self._known = KnownSessions(store)
        self._places = open_tables(store, FILE, Places)
        self._lock = filelock.FileLock(self._places.database.path.with_name(LOCK_FILE), mode=0o600, thread_local=False)
        self._looks: dict[Path, Look] = {}

    def __enter__(self) -> Transcripts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. To be called before the store is closed."""
        self._places.database.close()

    def catch_up(self, paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
        """Record what is in these files and not recorded yet. Return what came of it.

        A file that vanishes meanwhile is passed over; one that cannot be read, and lines that are bad, are counted in
        the report and stop nothing. Raises `LogBusy`: what was read may be read again.
        """
        return self._go_through(self._record, paths, progress)

    def preview(self, paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
        """Return what `catch_up` would record now, without recording it.

        In a rollout that was forked, it may take a turn for a copy that is none.
        """
        return self._go_through(partial(self._look_into, Preview(self._known)), paths, progress)

    def _go_through(self, read: ReadOne, paths: Iterable[Path], progress: Progress | None) -> Report:
        report, looks = Report(), self._changed(paths)
        total, done = sum(look.size for look in looks.values()), 0
        for path, look in looks.items():
            before = done

            def tell(offset: int, before: int = before) -> None:
                if progress is not None:
                    progress(min(before + offset, total), total)

            if self.stop.is_set():
                break
            try:
                if read(path, report, tell):
                    self._looks[path] = look
            except FileNotFoundError:
                pass  # It was there a moment ago; what was read of it is recorded.
            except OSError as error:
                self._looks[path] = look
                report.refuse(errors.ImportRefused(path, 1, f"the file cannot be read: {error.strerror}"))
            done += look.size
        return report

    def _changed(self, paths: Iterable[Path]) -> dict[Path, Look]:
        """Return the files that look as if there were anything new, those first whose sessions others go on from."""
        found = []
        for path in paths:
            try:
                stat = path.stat()
            except OSError:
                continue
            look = Look(stat.st_size, stat.st_mtime_ns)
            if self._looks.get(path) != look:
                found.append((path, look))
        return dict(sorted(found, key=lambda item: order_of(item[0], item[1].modified_ns)))

    def _record(self, path: Path, report: Report, tell: Callable[[int], None]) -> bool:
        """Record what is new in a file. Return whether all of it was read."""
        with self._held() as held:
            if not held or (reading := self._begin(path)) is None:
                return held
            agent = reading.format.agent
            decisions = Decisions(self._known, reading.place, reading.links, agent=agent, scope=self._scope)
            recorder = Recorder(self._store, decisions, report, agent=agent)
            report.files += 1
            try:
                for entry in reading.entries(report):
                    if entry is not None:
                        try:
                            recorder.take(entry)
                        except (errors.InvalidInput, errors.SessionError) as error:  # Names that the store refuses.
                            report.refuse(errors.ImportRefused(path, reading.place.line, str(error)))
                    if recorder.is_full or reading.is_long_unsaved:
                        recorder.flush()
                        reading.save()
                        tell(reading.place.offset)
                        if self.stop.is_set():
                            return False
                recorder.flush()
                reading.save()
                tell(reading.place.offset)
            except Overtaken:
                return False
        return True

    def _look_into(self, preview: Preview, path: Path, report: Report, tell: Callable[[int], None]) -> bool:
        """Count what is new in a file."""
        if (reading := self._begin(path)) is not None:
            report.files += 1
            for entry in reading.entries(report):
                if entry is not None:
                    preview.take(entry, report)
                if reading.place.line % LINES_MAX == 0:
                    tell(reading.place.offset)
                    if self.stop.is_set():
                        break
        return False

    def _begin(self, path: Path) -> Reading | None:
        return begin(path, self._places, format=self._format, secret=self._secret)

    @contextmanager
    def _held(self) -> Iterator[bool]:
        """Hold the right to read for this store, of all processes; without it where `stop` was set meanwhile."""
        while not self.stop.is_set():
            try:
                self._lock.acquire(timeout=_SLICE_S, poll_interval=0.01)
            except filelock.Timeout:
                continue
            try:
                yield True
            finally:
                self._lock.release()
            return
        yield False
