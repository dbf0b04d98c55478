"""Recording folders of transcripts, once or for as long as it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from mnemolog.adapters.extras import require
from mnemolog.adapters.importers.transcripts import Report, Transcripts
from mnemolog.domain import errors, structured_log
from mnemolog.projections.ports import Progress
from mnemolog.store import MemoryStore

SCAN_S: Final = 5.0
"""All files are looked at so often: to be told of changes is quicker, but no promise."""
_WAKE_MS: Final = 500


def ready_to_follow() -> None:
    """Raise `ExtraMissing` unless the system can tell of changes."""
    require("watch", "watchfiles")


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
        self.stop = stop or threading.Event()
        self._since = None if since is None else since.timestamp()
        self._exclude = exclude
        self._transcripts = Transcripts(store, format=format, scope=scope, stop=self.stop)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. To be called before the store is closed."""
        self._transcripts.close()

    def catch_up(self, *, progress: Progress | None = None, paths: Sequence[Path] | None = None) -> Report:
        """Record what is there and not recorded yet, of all files or of these. Return what came of it."""
        return self._transcripts.catch_up(self._files(paths), progress=progress)

    def preview(self, *, progress: Progress | None = None) -> Report:
        """Return what `catch_up` would record now, without recording it.

        In a rollout that was forked, it may take a turn for a copy that is none.
        """
        return self._transcripts.preview(self._files(None), progress=progress)

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
                structured_log.warning("watch.busy", error=error)
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
            structured_log.warning("watch.polls", error=error)
            yield from self._polled(SCAN_S)

    def _files(self, paths: Sequence[Path] | None) -> Iterator[Path]:
        """Yield the transcripts in the folders, or those of these paths that are."""
        for folder in self.folders:
            for path in folder.rglob("*.jsonl") if paths is None else (p for p in paths if p.is_relative_to(folder)):
                if not self._is_left_out(path):
                    yield path

    def _is_left_out(self, path: Path) -> bool:
        if any(fnmatch(str(path), pattern) for pattern in self._exclude):
            return True
        try:
            return self._since is not None and path.stat().st_mtime < self._since
        except OSError:
            return True
