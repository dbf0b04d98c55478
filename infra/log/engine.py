"""The port for the database under a log: `mnemolog.infra.log.sqlite` and `mnemolog.infra.log.postgres` implement it.

Its queries are written once for every SQL database (`LogReader`). Group commit, staging, the digest chain, the event
codec and folding are shared by all engines, so they are not here.

An engine must commit positions in their order, without gaps: it assigns positions and links digests under one lock per
log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mnemolog.domain.chain import genesis
from mnemolog.domain.errors import MnemologError, StoreNotWritable, StoreReplaced
from mnemolog.domain.values import Micros
from mnemolog.infra.log.reader import LogReader
from mnemolog.infra.log.seen_head import SeenHead

if TYPE_CHECKING:
    from mnemolog.infra.log.postgres.heads import LogHeads
    from mnemolog.infra.log.postgres.nodes import PostgresNodes

PLAIN_FORMAT: Final = 1
"""The format of a log whose content is stored as it is."""
LOG_FORMAT: Final = 2
"""The newest format: that of a log whose content is encrypted (`mnemolog.infra.keys.keyring`)."""

StagedRow = tuple[int, str, int, str, bytearray, int, bytearray, str | None]
"""A row to insert: position, stream, version, topic, state, recorded_at, digest, key.

Blobs are bytearrays: pysqlite3 binds those directly, and looks for an adapter of bytes first.
"""


class LogIdentity(NamedTuple):
    """The identity of a log, set when it is created."""

    log_id: str
    log_format: int
    created_at: Micros

    @property
    def is_sealed(self) -> bool:
        """Whether its content is encrypted."""
        return self.log_format > PLAIN_FORMAT

    @property
    def genesis(self) -> bytes:
        """digest(0), which the first event follows."""
        return genesis(**self._asdict())


def moved(path: Path, moved_to: str, *, undo: str) -> StoreNotWritable:
    """Return the error of appends to a log that was moved. `undo` says how to give up the move."""
    hint = f"nothing was written; use the store there, or to give up the move: {undo}"
    return StoreNotWritable(path, f"the log was moved to {moved_to}").saying(hint=hint)


class LogConnection(Protocol):
    """The one connection that a process appends through. Used by one thread at a time.

    `append`, `lock` and `commit` raise `StoreReplaced` if the log is no longer where it was opened, and from then on.
    After a commit they look again: what was committed is then in a log that may be gone, so it is not acknowledged.
    """

    reads: LogReader
    """Queries on this connection, inside its transaction where one is open."""
    is_contended: bool = False
    """Whether other processes append so often that the next append had better begin with `lock`."""
    finds_used_keys: bool = False
    """Whether `append` refuses an idempotency key that is used, so that it need not be looked up before."""

    def append(self, rows: Sequence[StagedRow], *, head: int, head_digest: bytes) -> bool:
        """Commit rows that were staged after this head, all or none.

        False: nothing was written, since the head has moved, a key is used, or the connection was lost. Call `lock`
        next: the connection may hold the log's lock already.
        """

    def lock(self, seen: int) -> tuple[int, bytes | None, int, bytes | None]:
        """Begin a transaction under the log's lock. Return the head, the last given position, and the digest at `seen`.

        An empty log has position 0 and digest None.
        """

    def insert(self, rows: Sequence[StagedRow]) -> None:
        """Insert rows in the open transaction."""

    def commit(self) -> None:
        """Commit, durably."""

    def roll_back(self) -> None:
        """Undo what is not committed. Does nothing where no transaction is open."""

    def has_committed(self, row: StagedRow) -> bool:
        """Whether exactly this row is committed, in a log that is where it was opened.

        For use after an interrupt, when the outcome is not known.
        """

    def close(self) -> None:
        """Release the connection."""


class LogEngine(Protocol):
    """The database of one log."""

    seen: SeenHead
    """The last head of the log that was seen."""
    nodes: PostgresNodes | None = None
    """The nodes of the log. None where the log is a file in the only folder that has projections of it."""
    driver_errors: tuple[type[Exception], ...]
    """The exceptions of the driver, for `error_of`."""
    busy_timeout_s: float
    """How long to wait for a lock that another process holds, in seconds."""
    poll_interval_s: float
    """How often a follower has to look for commits of other processes, in seconds. With `commits`, a precaution."""
    commits: LogHeads | None = None
    """Watches for commits of other processes. None where a follower has to look for itself."""

    def reading(self) -> AbstractContextManager[LogReader]:
        """Return a reader. Each query sees what is committed when it runs. Raises only errors of mnemolog."""

    def connect(self) -> LogConnection:
        """Return the connection for appends.

        Raises `StoreNotWritable` if the log was moved, `LogWriteFailed` if it is no longer append-only.
        """

    def is_conflict(self, error: BaseException) -> bool:
        """Whether a constraint refused one of the rows."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether the connection was lost, and nothing was written: the work may be done again."""
        return False

    def error_of(self, error: BaseException) -> MnemologError:
        """Return the error of mnemolog for an exception of the driver."""

    def moved_to(self) -> str:
        """Return where the log was moved; empty if it was not."""

    def set_moved_to(self, place: str, *, head: int) -> bool:
        """Note durably where the log was moved, so that `connect` refuses; with an empty place that it was not.

        Returns False, and notes nothing, if the log has events after `head`.
        """

    def replaced(self) -> StoreReplaced | None:
        """Return the error of calls to a file that is not the one that was opened, None if it is."""
        return None

    def set_back(self) -> None:
        """Let the next append take the position after the last event, whatever was given before."""

    def missing_triggers(self) -> list[str]:
        """Return which of the triggers that keep the log append-only are missing or altered."""

    def contradictions(self) -> list[str]:
        """Return what is wrong with the database beside the content of its rows. Reads all of it."""

    def size_bytes(self) -> int:
        """Return the size of the log on disk."""

    def copy_to(self, target: Path, *, moved: Callable[[int], None]) -> None:
        """Copy the log of one moment into the new file `target`, durably, without holding up writers.

        `moved` is called with the bytes copied by each step, and may raise to stop.
        """

    def close(self) -> None:
        """Close every connection."""


def altered_triggers(found: Mapping[str, str], created: Mapping[str, str]) -> list[str]:
    """Return the names of triggers that are missing, altered or foreign, given the definitions of both."""
    names = created.keys() | found.keys()  # Damage can leave a trigger whose name is not text.
    return sorted(str(name) for name in names if found.get(name) != created.get(name))
