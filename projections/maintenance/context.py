"""What the registry needs to examine, repair, rebuild, purge or back up projections, and the results of that."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import DATABASE_PARTS, StoreLayout
from mnemolog.domain.values import Position
from mnemolog.infra.runtime.files import remove
from mnemolog.infra.runtime.processes import is_running
from mnemolog.projections.ports import Progress, StoreLog
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import LOST_HISTORY, MEANS, Drift, Quarantine, identity
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import is_damage, opened
from mnemolog.projections.vectors.folders import IndexerLock, generation_folders

_TEMPORARY: Final = re.compile(r"\.[a-z]+\.(\d{1,18})\.[0-9a-f]{8}(?:-wal|-shm)?")
"""The names that `files.temporary_name` makes, with the files that SQLite keeps beside them."""
_LOCK: Final = re.compile(r"\.([0-9a-f]{16})\.lock")


def abandoned(projections: Path) -> list[Path]:
    """Return the temporary files and folders whose process no longer runs on this machine."""
    vectors = projections / "vectors"
    generations = [folder.path for folder in generation_folders(vectors)]
    folders = [projections, vectors, projections / "quarantine", *generations]
    return [item for folder in folders for item in abandoned_in(folder)]


def abandoned_in(folder: Path) -> list[Path]:
    """Return the temporary files in one folder whose process no longer runs on this machine."""
    named = [(path, _TEMPORARY.fullmatch(path.name)) for path in sorted(folder.glob(".*"))]
    return [path for path, match in named if match is not None and not is_running(int(match[1]))]


def remove_stale(path: Path) -> None:
    """Delete a stale file or folder, if it still exists. Raises `ProjectionUnreadable`."""
    try:
        remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error


@contextmanager
def indexers_locked_out(vectors: Path) -> Iterator[None]:
    """Keep indexers out while the block runs. Raises `IndexerBusy` at once if one is at work.

    Process ids mean little between containers that share a folder; these locks hold there too.
    """
    names = {match[1] for path in vectors.glob(".*.lock") if (match := _LOCK.fullmatch(path.name))}
    names |= {folder.prefix for folder in generation_folders(vectors)}
    with ExitStack() as held:
        for name in sorted(names):
            held.enter_context(IndexerLock(vectors, name).held(wait_s=0))
        yield


PRESENT: Final = "present"
"""State of a cache in which a quick look finds nothing wrong."""

Severity = Literal["note", "problem", "log"]
"""`note`: nothing is wrong. `problem`: something is, and nothing is lost by it. `log`: the log itself, or the keys
without which its content cannot be read, are in doubt."""


class TableStatus(Result, frozen=True, kw_only=True):
    """How far tables that follow the log have read."""

    state: str
    """`current`, `behind`, `missing`, `damaged`, `other-log`, `ahead`, `diverged` or `unreadable`."""
    position: Position
    behind_events: int
    action: str
    """What to do."""
    why: str = ""
    """What the database reported, if it could not be read."""


class ViewsStatus(TableStatus, frozen=True, kw_only=True):
    """How far the tables of sessions and turns and the text index have read."""

    sessions: int = 0
    turns: int = 0


class TablesStatus(TableStatus, frozen=True, kw_only=True):
    """How far the tables of an adapter have read: the index of threads, the items, the offsets of transcripts."""

    name: str
    """Of the file."""


class CacheStatus(Result, frozen=True, kw_only=True):
    """A database that saves work and does not follow the log: the embedding cache, the snapshots."""

    name: str
    state: str
    """`present`, `missing`, `damaged` or `unreadable`, as far as a quick look shows."""
    bytes: int
    action: str
    why: str = ""


class RebuildReport(Result, frozen=True, kw_only=True):
    """What a rebuild built, or with `dry_run` would build."""

    projection: str
    dry_run: bool
    upto: Position
    expected_turns: int
    """Turns of the log, without forgotten ones."""
    built_turns: int
    encoded_texts: int
    """Texts the model was called for; the others came from the embedding cache."""
    skipped_turns: int = 0
    """Turns whose text the model refused, skipped as requested."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether everything expected was built."""
        return self.dry_run or self.built_turns + self.skipped_turns == self.expected_turns


Kind = Literal[
    "log", "keys", "backup", "views", "tables", "cache", "vectors", "model", "names", "quarantine", "leftover", "store"
]


class Issue(Result, frozen=True, kw_only=True):
    """Something that is wrong with a store, or worth knowing."""

    what: Kind
    where: str
    """Path relative to the folder of the store."""
    state: str
    """A value of `Drift`, or of `verify` for the log; otherwise one word."""
    severity: Severity
    why: str
    """What was seen."""
    matters: str
    """What it means."""
    action: str
    """What to do."""
    fixable: bool
    """Whether `--fix` does something about it."""
    fixed: bool = False
    outcome: str = ""
    """What was done, or why it could not be done."""


class IssueWithFix(NamedTuple):
    """An issue and its fix. The fix returns what it did, and raises a `MnemologError` if it could not."""

    issue: Issue
    fix: Callable[[], str] | None = None
    last: bool = False
    """Whether the fix has to wait until all others are done."""


UNREADABLE_ACTION: Final = errors.Hint(
    *("Find out which process holds the file and who may read it, then run ", errors.remedy("status"), " again.")
)
_SIGNS_OF_DAMAGE: Final = ("no such table", "no such column", "Could not decode to UTF-8")


class LogAtHead:
    """A log whose head is read once, so that one status call describes one moment."""

    def __init__(self, log: StoreLog) -> None:
        self._log = log
        self._head = log.head()
        self.log_id = log.log_id
        self.busy_timeout_s = log.busy_timeout_s
        self.followers = log.followers
        self.epoch = log.epoch
        self.read = log.read
        self.read_stream = log.read_stream
        self.count = log.count
        self.first_event = log.first_event
        self.fold = log.fold
        self.require_whole = log.require_whole

    def head(self) -> Head:
        """Return the head as it was read first."""
        return self._head

    def digest_at(self, position: Position) -> bytes | None:
        """Return the digest at a position, None where the log has no event there."""
        return bytes.fromhex(self._head.digest) if position == self._head.position else self._log.digest_at(position)


class StoreContext(NamedTuple):
    """A store, as the maintenance of its projections sees it."""

    layout: StoreLayout
    log: StoreLog
    projections: ProjectionSet
    active: str | None = None
    """Fingerprint of the active model, if one was activated."""
    readable: bool = True
    """Whether the content of the log can be decrypted."""
    progress: Progress | None = None

    @property
    def quarantine(self) -> Quarantine:
        """The quarantine of the store."""
        return Quarantine(self.layout.quarantine)

    def named(self, path: Path) -> str:
        """Return a path as reports show it: relative to the folder of the store."""
        folder = self.layout.folder
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

    def quarantine_database(self, path: Path, *, why: str, state: str) -> str:
        """Move a database with its parts to quarantine, and return what was done. Raises `ProjectionUnreadable`."""
        return self.quarantined(
            path, self.quarantine.add(path, reason=why, state=state, parts=DATABASE_PARTS, judged=identity(path))
        )

    def quarantined(self, path: Path, moved: Path | None) -> str:
        """Return what was done, where `path` was to be moved to `moved`. Raises `ProjectionUnreadable`."""
        if moved is not None:
            return f"moved to quarantine as {self.named(moved)}"
        if identity(path) is None:
            return "nothing to do: it no longer exists"
        full = self.quarantine.status().full
        why = "the quarantine is full" if full else "the file system refuses, or it has been replaced meanwhile"
        raise errors.ProjectionUnreadable(path, f"it could not be moved to quarantine: {why}")

    def purge_database(self, path: Path, purge: Callable[[ProjectionDatabase], object]) -> bool:
        """Purge a database, down to its bytes. A damaged one is deleted: all of it can be rebuilt.

        False while another process reads the old bytes.
        """
        if not path.exists():
            return True
        try:
            with opened(path, busy_timeout_s=self.log.busy_timeout_s) as database:
                purge(database)
                return database.scrub()
        except errors.ProjectionUnreadable as error:
            if not is_damage(error):
                raise
            remove_database(path)
            return True


class Database:
    """A projection in a database of its own."""

    def __init__(self, name: str) -> None:
        self.name, self.file = name, f"{name}.db"

    def path(self, layout: StoreLayout) -> Path:
        """Return where the file is."""
        return layout.projections / self.file

    def backup_paths(self, layout: StoreLayout) -> list[Path]:
        """Return the database, if it exists."""
        return [path for path in (self.path(layout),) if path.exists()]

    def issue(
        self, context: StoreContext, state: Drift, *, what: Kind, why: str, action: str, fix: Callable[[], str] | None
    ) -> IssueWithFix:
        """Return what is wrong with the database, and its fix. A file that cannot be read is not touched."""
        harmless, fixable = state in (Drift.BEHIND, Drift.MISSING), fix is not None and state is not Drift.UNREADABLE
        issue = Issue(
            what=what,
            where=context.named(self.path(context.layout)),
            state=state.value,
            severity="log" if state in LOST_HISTORY else "note" if harmless else "problem",
            why=why,
            matters=MEANS[state],
            action=action,
            fixable=fixable,
        )
        return IssueWithFix(issue, fix if fixable else None)


def remove_database(path: Path) -> None:
    """Delete a database with its parts. Raises `ProjectionUnreadable`."""
    for part in ("", *DATABASE_PARTS):
        remove_stale(path.with_name(path.name + part))


def state_by(error: errors.ProjectionUnreadable) -> Drift:
    """Return the state of a database file that raised `error`.

    A missing table or column counts as damage, because all tables are created in one transaction; so does text that
    is not UTF-8.
    """
    if is_damage(error) or any(sign in error.cause for sign in _SIGNS_OF_DAMAGE):
        return Drift.DAMAGED
    return Drift.UNREADABLE


Forgotten = Callable[[], Sequence[Position]]
"""Returns the positions of all forgotten turns, rising."""
