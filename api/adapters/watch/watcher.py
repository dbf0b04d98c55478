"""Reading folders of transcripts, once or for as long as it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

import filelock

from mnemolog.adapters.extras import require
from mnemolog.adapters.watch.formats import FORMATS, format_of, order_of
from mnemolog.adapters.watch.places import FILE, Counts, Overtaken, Place, Places
from mnemolog.adapters.watch.preview import Preview
from mnemolog.adapters.watch.recording import Recorder
from mnemolog.adapters.watch.report import Report
from mnemolog.adapters.watch.sessions import KnownSessions
from mnemolog.adapters.watch.tail import Line, lines_from, mark_at
from mnemolog.domain import errors, journal
from mnemolog.domain.scope import parse_scope
from mnemolog.importing.decoding import decode
from mnemolog.importing.keys import KeyMaker
from mnemolog.importing.transcript import Entry, Reader
from mnemolog.projections.ports import Progress
from mnemolog.seam import log_of, open_tables
from mnemolog.store import MemoryStore


def ready_to_follow() -> None:
    """Raise `ExtraMissing` unless the system can tell of changes."""
    require("watch", "watchfiles")


LOCK_FILE: Final = ".watch.lock"
LINES_MAX: Final = 5_000
BYTES_MAX: Final = 8 << 20
"""Read at most before how far it got is saved."""
SCAN_S: Final = 5.0
"""All files are looked at so often: to be told of changes is quicker, but no promise."""
_WAKE_MS: Final = 500
_SLICE_S: Final = 0.1


class Look(NamedTuple):
    """What a file looked like. One that looks the same has nothing new."""

    size: int
    modified_ns: int


class Watcher:
    """Records what agents write into transcripts. Several may watch the same folders for one store.

    `folders` are looked through with all that is below them. `format` overrules what content says of a file. `scope` is
    that of all sessions, in place of the folder that each works in. Files last written before `since`, and those whose
    path fits one of the patterns `exclude`, are left out. Nothing else is: what is said is recorded as it is.

    `stop` ends whatever is being done, soon, with nothing lost. Raises `InvalidInput` for what is no folder, no format
    or no scope.
    """

    def __init__(
        self,
        store: MemoryStore,
        folders: Sequence[str | Path],
        *,
        format: str | None = None,  # noqa: A002
        scope: str | None = None,
        since: datetime | None = None,
        exclude: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> None:
        self.folders = [Path(folder).resolve() for folder in folders]  # As the system names what has changed in them.
        for folder in self.folders:
            if not folder.is_dir():
                raise errors.InvalidInput("folder", f"{folder} is no folder")
        if scope is not None:
            parse_scope(scope)
        if format is not None and format not in FORMATS:
            raise errors.InvalidInput("format", f"{format!r} is none of {', '.join(FORMATS)}")
        self.stop = stop or threading.Event()
        self._store, self._format, self._scope = store, format, scope
        self._since = None if since is None else since.timestamp()
        self._exclude = exclude
        keyring = log_of(store).keyring
        self._secret = b"" if keyring is None else keyring.secret()
        self._known = KnownSessions(store)
        self._places = open_tables(store, FILE, Places)
        self._lock = filelock.FileLock(self._places.database.path.with_name(LOCK_FILE), mode=0o600, thread_local=False)
        self._looks: dict[Path, Look] = {}

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. To be called before the store is closed."""
        self._places.database.close()

    def catch_up(self, *, progress: Progress | None = None, paths: Sequence[Path] | None = None) -> Report:
        """Record what is there and not recorded yet, of all files or of these. Return what came of it."""
        return self._go_through(self._record, progress, paths)

    def preview(self, *, progress: Progress | None = None) -> Report:
        """Return what `catch_up` would record now, without recording it.

        In a rollout that was forked, it may take a turn for a copy that is none.
        """
        preview = Preview(self._known)
        return self._go_through(lambda path, report, tell: self._look_into(preview, path, report, tell), progress, None)

    def follow(self, tell: Callable[[Report], None], *, poll_s: float | None = None) -> None:
        """Record what is written, as it is written, until `stop` is set. `tell` is given what changed, each time.

        With `poll_s` files are looked at so often; else the system tells of changes, which needs the extra `watch`.
        Raises `ExtraMissing`.
        """
        if poll_s is None:
            ready_to_follow()
        for paths in self._polled(poll_s) if poll_s is not None else self._told():
            if self.stop.is_set():
                return
            try:
                report = self.catch_up(paths=paths)
            except errors.LogBusy as error:  # What was read is as it was; so is where it was read to.
                journal.warning("watch.busy", error=error)
                continue
            if report.is_news:
                tell(report)

    def _polled(self, every_s: float) -> Iterator[None]:
        yield None
        while not self.stop.wait(every_s):
            yield None

    def _told(self) -> Iterator[list[Path] | None]:
        """Yield paths that were written to, and None when all are to be looked at: first, and now and then."""
        from watchfiles import watch

        scanned = float("-inf")
        try:
            for changes in watch(
                *self.folders,
                watch_filter=lambda _, path: path.endswith(".jsonl"),
                debounce=200,
                stop_event=self.stop,
                rust_timeout=_WAKE_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                if time.monotonic() - scanned >= SCAN_S:
                    yield None
                    scanned = time.monotonic()
                elif changes:
                    yield sorted({Path(path) for _, path in changes})
        except OSError as error:  # No inotify, or no more of it: it is limited for each user.
            journal.warning("watch.polls", error=error)
            yield from self._polled(SCAN_S)

    def _go_through(
        self,
        read: Callable[[Path, Report, Callable[[int], None]], bool],
        progress: Progress | None,
        paths: Sequence[Path] | None,
    ) -> Report:
        report = Report()
        looks = {path: look for path, look in self._files(paths) if self._looks.get(path) != look}
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

    def _files(self, paths: Sequence[Path] | None) -> list[tuple[Path, Look]]:
        """Return the files to look at, those first whose sessions others go on from."""
        found = []
        for folder in self.folders:
            for path in folder.rglob("*.jsonl") if paths is None else (p for p in paths if p.is_relative_to(folder)):
                if any(fnmatch(str(path), pattern) for pattern in self._exclude):
                    continue
                try:
                    stat = path.stat()
                except OSError:
                    continue
                if self._since is None or stat.st_mtime >= self._since:
                    found.append((path, Look(stat.st_size, stat.st_mtime_ns)))
        found.sort(key=lambda item: order_of(item[0], item[1].modified_ns))
        return found

    def _record(self, path: Path, report: Report, tell: Callable[[int], None]) -> bool:
        """Record what is new in a file. Return whether all of it was read."""
        with self._held() as held:
            if not held or (opened := self._open(path)) is None:
                return held
            number, place = opened
            counts = Counts(self._places, number)
            reader = self._reader(path, place, counts)
            recorder = Recorder(
                self._known, self._places, number, place, report, agent=FORMATS[place.format].agent, scope=self._scope
            )
            report.files += 1
            saved = place.offset, place.line

            def save() -> None:
                nonlocal saved
                recorder.flush()
                place.reader, place.mark = reader.state, mark_at(path, place.offset, self._secret)
                counts.number = recorder.number = self._places.save(
                    path, place, began=saved[0], links=recorder.links, counts=counts.fresh
                )
                recorder.links.clear()
                counts.fresh.clear()
                saved = place.offset, place.line
                tell(place.offset)

            try:
                for line in lines_from(path, offset=place.offset, number=place.line):
                    entry = _entry(path, reader, line, report)
                    if entry is not None:
                        try:
                            recorder.take(entry)
                        except (errors.InvalidInput, errors.SessionError) as error:  # Names that the store refuses.
                            report.refuse(errors.ImportRefused(path, line.number, str(error)))
                    place.offset, place.line = line.end, line.number
                    if recorder.is_full or line.number - saved[1] >= LINES_MAX or line.end - saved[0] >= BYTES_MAX:
                        save()
                        if self.stop.is_set():
                            return False
                save()
            except Overtaken:
                return False
        return True

    def _look_into(self, preview: Preview, path: Path, report: Report, tell: Callable[[int], None]) -> bool:
        """Count what is new in a file."""
        if (opened := self._open(path)) is not None:
            number, place = opened
            reader = self._reader(path, place, Counts(self._places, number))
            report.files += 1
            for line in lines_from(path, offset=place.offset, number=place.line):
                if (entry := _entry(path, reader, line, report)) is not None:
                    preview.take(entry, report)
                if line.number % LINES_MAX == 0:
                    tell(line.end)
                    if self.stop.is_set():
                        break
        return False

    def _open(self, path: Path) -> tuple[int | None, Place] | None:
        """Return how far a file was read, None if nothing is behind that or it is no transcript."""
        size = path.stat().st_size
        number, place = self._places.find(path)
        if place.offset and (size < place.offset or mark_at(path, place.offset, self._secret) != place.mark):
            number, place = None, Place()  # Cut off, or another file: what is new in it is told by its keys.
            self._places.drop(path)
        if size == place.offset:
            return None
        place.format = self._format or place.format or format_of(path)
        return (number, place) if place.format else None

    def _reader(self, path: Path, place: Place, counts: Counts) -> Reader:
        reader = FORMATS[place.format].make(path, KeyMaker(self._secret, counts))
        reader.state |= place.reader
        return reader

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


def _entry(path: Path, reader: Reader, line: Line, report: Report) -> Entry | None:
    """Return what stands on a line. One that is bad is counted and passed over."""
    report.lines += 1
    if line.text is not None and line.text.isspace():
        return None
    try:
        if line.text is None:
            raise errors.InvalidInput("line", "too long")
        row = decode(line.text)
        if not isinstance(row, dict):
            raise errors.InvalidInput("JSON", f"expected an object on the line, got {type(row).__name__}")
        return reader.entry(line.number, row)
    except errors.InvalidInput as error:
        report.refuse(errors.ImportRefused(path, line.number, str(error)))
        return None
