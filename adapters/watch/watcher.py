"""Record folders of transcripts, once or continuously."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Final

from mnemolog.adapters.extras import require
from mnemolog.adapters.importers.transcripts import Report, Transcripts
from mnemolog.domain import errors, structured_log
from mnemolog.domain.values import WAIT_S_MAX, Time, checked_number, parse_time
from mnemolog.infra.runtime.files import local_paths
from mnemolog.projections.ports import Progress
from mnemolog.projections.projector import retry_delay_s
from mnemolog.store import MemoryStore

SCAN_S: Final = 5.0
"""How often all files are checked: notifications of changes are faster, but not guaranteed."""
POLL_S_MIN: Final = 0.05
_WAKE_MS: Final = 500
_ENDINGS: Final = (".jsonl", ".jsonl.zst", ".jsonl.gz")


HOMES: Final = (
    ("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    ("CODEX_HOME", ".codex", "sessions"),
    ("CODEX_HOME", ".codex", "archived_sessions"),
)
"""For each agent the environment variable that names its folder, its default in the user's home, and the folder of
transcripts in it."""


def default_folders(environment: Mapping[str, str], user: Path) -> list[Path]:
    """Return the folders with transcripts of this user's agents, as far as they exist."""
    folders = (Path(environment.get(variable) or user / home, inside) for variable, home, inside in HOMES)
    return [folder for folder in folders if folder.is_dir()]


def ready_to_follow(poll_s: float | None = None) -> None:
    """Raise `ExtraMissing` if the extra for notifications of changes is not installed, unless files are polled.

    Raises `InvalidInput` for an interval that is too short or too long.
    """
    if poll_s is None:
        require("watch", "watchfiles")
    else:
        checked_number("poll_s", poll_s, least=POLL_S_MIN, most=WAIT_S_MAX)


class Watcher:
    """Records what agents write into transcripts. Several processes may watch the same folders for one store.

    `folders` are searched recursively. `format` overrides the detected format. `scope` applies to all sessions, instead
    of the folder that each one works in. Files last written before `since`, and files whose path matches a pattern in
    `exclude`, are skipped. Content is not filtered.

    Setting `stop` ends the work soon and loses nothing. Raises `InvalidInput` for a folder that does not exist, an
    unknown format or an invalid scope.
    """

    def __init__(
        self,
        store: MemoryStore,
        folders: str | Path | Sequence[str | Path],
        *,
        format: str | None = None,  # noqa: A002
        scope: str | None = None,
        since: Time | None = None,
        exclude: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> None:
        self.folders = [
            folder.resolve() for folder in local_paths("folders", folders)
        ]  # Notifications have resolved paths.
        for folder in self.folders:
            if not folder.is_dir():
                raise errors.InvalidInput("folder", f"{folder} is not a folder")
        self.stop = stop or threading.Event()
        self._since = None if since is None else parse_time("since", since) / 1_000_000
        self._exclude = exclude
        self._transcripts = Transcripts(store, format=format, scope=scope, stop=self.stop)

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Call it before the store is closed."""
        self._transcripts.close()

    def catch_up(self, *, progress: Progress | None = None, paths: Sequence[Path] | None = None) -> Report:
        """Record what is new in all files, or in these. Return a report."""
        return self._transcripts.catch_up(self._files(paths), progress=progress)

    def wait_and_catch_up(self, *, progress: Progress | None = None, paths: Sequence[Path] | None = None) -> Report:
        """Catch up. While the log or a file of the store is away, wait for it, until `stop` is set."""
        for failures in count(1):
            try:
                return self.catch_up(progress=progress, paths=paths)
            except errors.AWAY as error:  # What was not recorded is read again from the saved offset.
                structured_log.warning("watch.waits", error=error)
                if self.stop.wait(min(SCAN_S, retry_delay_s(failures))):
                    break
        return Report()

    def follow(self, on_report: Callable[[Report], None], *, poll_s: float | None = None) -> None:
        """Record what is written, as it is written, until `stop` is set. Call `on_report` after each change.

        With `poll_s`, files are checked every so many seconds. Without it, the system notifies of changes, which needs
        the extra `watch`: raises `ExtraMissing`. A log, folder or file that is away for a while is waited for.
        """
        ready_to_follow(poll_s)
        for paths in self._polled(poll_s) if poll_s is not None else self._notified():
            if self.stop.is_set():
                return
            if (report := self.wait_and_catch_up(paths=paths)).is_news:
                on_report(report)

    def _polled(self, every_s: float) -> Iterator[None]:
        yield None
        while not self.stop.wait(every_s):
            yield None

    def _notified(self) -> Iterator[list[Path] | None]:
        """Yield changed paths, or None to check all files: first, and then every `SCAN_S` seconds."""
        from watchfiles import watch

        scanned = float("-inf")
        try:
            for changes in watch(
                *self.folders,
                watch_filter=lambda _, path: path.endswith(_ENDINGS),
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
        except (OSError, RuntimeError) as error:  # No inotify, this user's limit is reached, or a folder is away.
            structured_log.warning("watch.polls", error=error)
            yield from self._polled(SCAN_S)

    def _files(self, paths: Sequence[Path] | None) -> Iterator[Path]:
        """Yield the transcripts in the folders, or those among `paths`."""
        for folder in self.folders:  # `os.walk` passes over folders that cannot be read now, unlike `rglob`.
            found = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
            for path in found if paths is None else (p for p in paths if p.is_relative_to(folder)):
                if path.name.endswith(_ENDINGS) and not self._is_left_out(path):
                    yield path

    def _is_left_out(self, path: Path) -> bool:
        if any(fnmatch(str(path), pattern) for pattern in self._exclude):
            return True
        try:
            return self._since is not None and path.stat().st_mtime < self._since
        except OSError:
            return True
