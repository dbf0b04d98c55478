"""Append to a log: units of work, each alone under the write lock. Those that wait are committed together."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from mnemolog.domain import errors, structured_log
from mnemolog.domain.values import Position, as_invalid_input
from mnemolog.infra.log.engine import LogConnection, LogEngine
from mnemolog.infra.log.group_commit import CommitRequest, GroupCommit
from mnemolog.infra.log.seen_head import Known
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.condition import Listener

Group = Sequence[CommitRequest[Transaction]]
Result = TypeVar("Result")


class _Undone(Exception):
    """Ends a rehearsal: raising it undoes what a unit of work has staged."""


class Appends:
    """Appends to one log. Safe for many threads and many processes; not to be carried across a fork."""

    def __init__(
        self,
        engine: LogEngine,
        *,
        path: Path,
        transaction: Transaction,
        genesis: bytes,
        committed: Callable[[], None],
        read_only: bool,
    ) -> None:
        """`committed` is called after every commit."""
        self.is_read_only = read_only
        self._path = path
        self._genesis = genesis
        self._committed = committed
        self._engine = engine
        self._transaction = transaction
        self._errors: tuple[type[Exception], ...] = (*engine.driver_errors, errors.MnemologError)
        self.connection: LogConnection | None = None
        self._knows_head = False
        self._in_doubt: Group | None = None
        """The group that is being written; stays after an interrupt."""
        self._failed: errors.LogWriteFailed | None = None
        self._queue: GroupCommit[Transaction] = GroupCommit(self._run_group)
        self._around_append: Callable[[], AbstractContextManager[None]] | None = None
        self._on_commit: Callable[[int], None] | None = None
        self._origin = fork_guard.Origin()

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a unit of work alone under the write lock; return its result when it is durable.

        The work may run twice, so it must have no side effects. Raises what the work raises, `LogBusy`,
        `StorageFull`, `StoreNotWritable`, `StoreClosed`, `StoreForked` (nothing written), or `LogWriteFailed`
        (outcome unknown), `StoreReplaced` (nothing is where it would be looked for), `HistoryLost`.
        """
        if not self._origin.is_here:
            self._origin.require_here()
        if self.is_read_only:
            self.require_writable()
        self._engine.seen.require()
        # The thread that runs it may be another caller's: with another actor, and for another request.
        as_caller: Callable[[Transaction], Result] = partial(copy_context().run, work)  # type: ignore[call-arg]
        if self._around_append is None:
            return self._queue.submit(as_caller)
        with self._around_append():
            return self._queue.submit(as_caller)

    def require_writable(self) -> None:
        """Raise `StoreNotWritable` if the log was opened with `read_only`."""
        if self.is_read_only:
            raise errors.StoreNotWritable(self._path.parent, "the store was opened read-only").saying(
                hint="nothing was written; open the store without `read_only`, or the server without `--read-only`; "
                "a command needs a folder that it may write, on a disk with room"
            )

    def observe(
        self,
        *,
        around_append: Callable[[], AbstractContextManager[None]],
        on_commit: Callable[[int], None],
    ) -> None:
        """Enter `around_append()` around every `transact`; call `on_commit(group_size)` after every group.

        Errors of the append pass through the context manager. Both must be quick and must not raise errors of their
        own.
        """
        self._around_append, self._on_commit = around_append, on_commit

    def rehearse(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `transact` would return for `work`, without writing anything. Raises as that does."""
        results: list[Result] = []

        def undone(tx: Transaction) -> None:
            tx.reads.event_at(tx.head)  # What it returns is as of this event, which another process may have written.
            results.append(work(tx))
            raise _Undone

        with suppress(_Undone):
            self.transact(undone)
        return results[-1]

    def close(self) -> None:
        """Finish what is queued and release the connection. Appends after this raise `StoreClosed`."""
        self._queue.close()
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _run_group(self, group: Group) -> None:
        if self._in_doubt is not None:
            self._recover(self._in_doubt)
            group = [request for request in group if not request.settled]
        if not group:
            return
        self._run(group)
        if self._on_commit is not None:
            self._on_commit(len(group))

    def _recover(self, group: Group) -> None:
        """Settle the group of an interrupted write if it is committed; otherwise roll it back."""
        if self.connection is not None:
            if self._is_committed(self.connection):
                self._settle(group)
            self._roll_back(self.connection)
        self._in_doubt = None

    def _is_committed(self, connection: LogConnection) -> bool:
        """Whether the staged rows are in the log: it has the digest of the last one, and the chain covers the rest."""
        rows = self._transaction.rows
        return bool(rows) and connection.has_committed(rows[-1])

    def _run(self, group: Group) -> None:
        self._in_doubt = group
        try:
            if not (self._knows_head and self._write_on_known_head(group)):
                try:
                    self._write_under_lock(group)
                except self._engine.driver_errors as error:
                    if not self._engine.is_lost(error):
                        raise
                    self._write_under_lock(group)
        except self._errors as error:
            if len(group) > 1 and self._engine.is_conflict(error):
                for request in group:  # One of them is to blame: find out which, spare the others.
                    self._run([request])
            else:
                meaning = self._meaning_of(error)
                structured_log.warning("append.failed", path=self._path, error=meaning, callers=len(group))
                for request in group:
                    request.error = request.error or meaning
                    request.settled = True
        self._in_doubt = None

    def _write_on_known_head(self, group: Group) -> bool:
        """Stage on the head as this process left it, and append if it has not moved. False: nothing was done.

        That the head has not moved also proves everything else that was remembered: versions, keys, states. Where
        the append finds used keys, they are not looked up before: one that is used, or that decides about anything
        but its own insert, is looked up under the lock.
        """
        connection, transaction = self.connection, self._transaction
        if connection is None or connection.is_contended:
            return False
        head, head_digest = transaction.head, transaction.head_digest
        try:
            transaction.assumes_new_keys = connection.finds_used_keys
            if not self._stage(group) or not transaction.rows or not transaction.inserts_assumed_keys:
                self._roll_back(connection)
                return False  # An answer without an insert proves nothing: stage again under the lock.
            if not connection.append(transaction.rows, head=head, head_digest=head_digest):
                return False
        except BaseException as error:
            self._settle_interrupted(connection, group, error)
            raise
        self._settle(group)
        return True

    def _write_under_lock(self, group: Group) -> None:
        if self._failed is not None:
            raise self._failed
        connection = self.connection or self._connect()
        try:
            self._begin(connection)
            self._stage(group)
            connection.insert(self._transaction.rows)
            connection.commit()
        except BaseException as error:
            self._settle_interrupted(connection, group, error)
            raise
        self._settle(group)

    def _stage(self, group: Group) -> bool:
        """Run the group's work in order. An error undoes the work that raised it, no other; then return False."""
        transaction, clean = self._transaction, True
        for request in group:
            if isinstance(request.error, errors.LogBusy):  # Not again under the lock: others would wait for the keys.
                clean = False
                continue
            count = len(transaction.rows)
            head = transaction.head
            head_digest = transaction.head_digest
            try:
                request.result = request.work(transaction)
                request.error = None
            except Exception as error:
                request.error, clean = self._error_of_work(error), False
                transaction.undo_to(count, head, head_digest)
        return clean

    def _error_of_work(self, error: Exception) -> Exception:
        if isinstance(error, UnicodeEncodeError | OverflowError):
            return as_invalid_input(error)
        return self._meaning_of(error) if isinstance(error, self._engine.driver_errors) else error

    def _begin(self, connection: LogConnection) -> None:
        transaction = self._transaction
        transaction.forget()
        before = self._engine.seen.known
        position, digest, last_given, digest_there = connection.lock(before.position)
        self._engine.seen.compare(before, Known(position, digest or self._genesis), digest_there)
        self._engine.seen.require()
        transaction.codec.refresh()
        # A position once given is never given again, even if its row was cut off from outside.
        transaction.head = Position(max(position, last_given))
        transaction.head_digest = self._genesis if digest is None else digest
        self._knows_head = True

    def _settle(self, group: Group) -> None:
        for request in group:
            request.settled = True
        # Last: `_recover` needs the staged rows to see that a commit stands.
        if self._transaction.committed():
            head = Known(self._transaction.head, bytes(self._transaction.head_digest))
            self._engine.seen.saw(head, note=self._engine.nodes is not None)
            self._committed()

    def _settle_interrupted(self, connection: LogConnection, group: Group, error: BaseException) -> None:
        """Roll back; or, if an interrupt arrived after the commit, let the commit stand."""
        if not isinstance(error, Exception) and self._is_committed(connection):
            self._settle(group)
        else:
            self._roll_back(connection)

    def _roll_back(self, connection: LogConnection) -> None:
        self._transaction.forget()
        self._knows_head = False
        connection.roll_back()

    def _meaning_of(self, error: Exception) -> Exception:
        if self._engine.is_conflict(error):
            return error
        meaning = error if isinstance(error, errors.MnemologError) else self._engine.error_of(error)
        if isinstance(meaning, errors.LogWriteFailed):
            # Never try again: the next sync may succeed although the kernel dropped our pages.
            self._failed = meaning
        if meaning is not error:
            meaning.__cause__ = error
        return meaning

    def _connect(self) -> LogConnection:
        # Only the leader of a group comes here, so no other thread uses the connection.
        self._engine.seen.begin()
        connection = self._engine.connect()
        self.connection, self._transaction.reads = connection, connection.reads
        return connection


FOLLOWER_POLL_S: Final = 0.05
"""How late a follower may see commits of other processes."""


class Followers:
    """The followers of one log. Safe for many threads."""

    def __init__(self, engine: LogEngine) -> None:
        self._engine = engine
        self._listeners: dict[Listener, float] = {}
        """With the most seconds after which commits of other processes have to be seen."""
        self._lock = fork_guard.lock()

    @property
    def poll_interval_s(self) -> float:
        """How often a listener has to look for commits of other processes, in seconds."""
        return self._engine.poll_interval_s

    def listen(self, listener: Listener, *, poll_s_max: float = FOLLOWER_POLL_S) -> None:
        """Call `listener.set()` after every commit of this process.

        Where the engine watches for those of other processes, it is called after them as well, at most `poll_s_max`
        seconds later. Elsewhere look for them every `poll_interval_s` seconds.
        """
        with self._lock:
            self._listeners[listener] = poll_s_max
            self._watch_commits()

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._watch_commits()

    def _watch_commits(self) -> None:
        commits = self._engine.commits
        if commits is not None and self._listeners:
            commits.follow(self.notify, poll_s_max=min(self._listeners.values()))
        elif commits is not None:
            commits.unfollow()

    def notify(self) -> None:
        """Call `set()` of every listener."""
        if self._listeners:
            with self._lock:
                for listener in self._listeners:
                    listener.set()
