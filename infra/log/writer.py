"""The writer of a process: stages a group of units of work and commits them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from mnemolog.domain import errors, structured_log
from mnemolog.domain.limits import as_invalid_input
from mnemolog.domain.position import Position
from mnemolog.infra.log.engine import LogConnection, LogEngine
from mnemolog.infra.log.group_commit import CommitRequest, GroupCommit
from mnemolog.infra.log.transaction import Transaction

Group = Sequence[CommitRequest[Transaction]]
Result = TypeVar("Result")


class LogWriter:
    """Appends to one log. Safe to call from many threads; not to be carried across a fork."""

    def __init__(
        self,
        engine: LogEngine,
        *,
        path: Path,
        transaction: Transaction,
        genesis: bytes,
        committed: Callable[[], None],
    ) -> None:
        self._path, self._genesis = path, genesis
        self._committed = committed
        self._engine = engine
        self._errors: tuple[type[Exception], ...] = (*engine.driver_errors, errors.MnemologError)
        self.connection: LogConnection | None = None
        self._transaction = transaction
        self._knows_head = False
        self._in_doubt: Group | None = None
        """The group that is being written; stays after an interrupt."""
        self._failed: errors.LogWriteFailed | None = None
        self._queue: GroupCommit[Transaction] = GroupCommit(self._run_group)
        self._on_commit: Callable[[float, int], None] | None = None

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a unit of work as if alone under the write lock; return its result when it is durable.

        Raises what the work raises, and then nothing it staged is written. The work may run twice, so it must have
        no side effects.
        """
        return self._queue.submit(work)

    def on_commit(self, callback: Callable[[float, int], None]) -> None:
        """Call `callback(seconds, group_size)` after every group: how long it took, and how many units of work it had.

        The thread that wrote the group calls it. It must be quick and must not raise.
        """
        self._on_commit = callback

    def close(self) -> None:
        """Finish what is queued, refuse later appends, release the connection."""
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
        if self._on_commit is None:
            self._run(group)
        else:
            began = perf_counter()
            self._run(group)
            self._on_commit(perf_counter() - began, len(group))

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
            if isinstance(
                request.error, errors.LogBusy
            ):  # Not again under the lock: others would wait for the keys, too.
                clean = False
                continue
            count, head, head_digest = len(transaction.rows), transaction.head, transaction.head_digest
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
        position, digest, last_given = connection.lock()
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
        connection = self._engine.connect()
        self.connection, self._transaction.reads = connection, connection.reads
        return connection
