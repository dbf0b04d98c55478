"""Results of status, doctor and rebuild for projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.domain.result import Result

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


class Rebuilt(NamedTuple):
    """What a rebuild of one projection built."""

    turns: int
    encoded: int = 0
    """Texts the model was called for."""
    skipped: int = 0
    """Turns whose text the model refused."""


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
