"""The one writer of a process: stages a group of units of work, then commits them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from pysqlite3 import dbapi2

from mnemolog.domain import errors, structured_log
from mnemolog.domain.clock import Clock
from mnemolog.domain.limits import as_invalid_input
from mnemolog.domain.position import Position
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.group_commit import GroupCommit, Request
from mnemolog.infra.log.sqlite.schema import INSERT_EVENTS, INSERT_KEYLESS, ROWS_MAX, SELECT_TRIGGERS, altered_triggers
from mnemolog.infra.log.transaction import Row, Transaction

Group = Sequence[Request[Transaction]]
Result = TypeVar("Result")

_SELECT_HEAD: Final = "SELECT position, digest FROM events ORDER BY position DESC LIMIT 1"
_SELECT_DIGEST: Final = "SELECT digest FROM events WHERE position = ?"
_SELECT_LAST_GIVEN: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"


class LogWriter:
    """Appends to one log. Safe to call from many threads; not to be carried across a fork."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        path: Path,
        clock: Clock,
        codec: EventCodec,
        genesis: bytes,
        busy_timeout_s: float,
        committed: Callable[[], None],
    ) -> None:
        self._path, self._genesis = path, genesis
        self._busy_timeout_s = busy_timeout_s
        self._committed = committed
        self._engine = engine
        self._connection: sa.Connection | None = None
        self._driver: Any = None
        self._transaction = Transaction(clock, codec)
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
        """Finish what is queued, refuse what comes after, let go of the file."""
        self._queue.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = self._driver = None

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
        """Find out what an interrupt left: a group that is committed stands, what is half done is undone."""
        if self._driver is not None:
            if self._is_committed():
                self._settle(group)
            self._roll_back()
        self._in_doubt = None

    def _is_committed(self) -> bool:
        """Whether what is staged is in the file: the chain's digest is there, and no transaction is open."""
        rows, driver = self._transaction.rows, self._driver
        if not rows or driver.in_transaction:
            return False
        last = rows[-1]
        found = driver.execute(_SELECT_DIGEST, (last[0],)).fetchone()
        return found is not None and found[0] == last[6]

    def _run(self, group: Group) -> None:
        self._in_doubt = group
        try:
            if not (self._knows_head and self._write_on_what_is_known(group)):
                self._write_under_lock(group)
        except (sa.exc.SQLAlchemyError, dbapi2.Error, errors.MnemologError) as error:
            if len(group) > 1 and sqlite.is_constraint_violation(error):
                for request in group:  # One of them is to blame: find out which, spare the others.
                    self._run([request])
            else:
                meaning = self._meaning_of(error)
                structured_log.warning("append.failed", path=self._path, error=meaning, callers=len(group))
                for request in group:
                    request.error = request.error or meaning
                    request.settled = True
        self._in_doubt = None

    def _write_on_what_is_known(self, group: Group) -> bool:
        """Stage on the head as we left it and insert at the position behind it. False: nothing was done.

        The insert itself proves the staging right: had another process appended since, the position would
        be taken. One INSERT is a transaction of its own that takes the write lock before it reads, just as
        BEGIN IMMEDIATE does, with two statements less.
        """
        driver, transaction = self._driver, self._transaction
        try:
            if not self._stage(group) or not transaction.rows:
                self._roll_back()
                return False  # An answer without an insert proves nothing: ask again under the lock.
            if len(transaction.rows) <= ROWS_MAX:
                _insert(driver, transaction.rows)
            else:
                driver.execute("BEGIN IMMEDIATE")
                _insert(driver, transaction.rows)
                driver.execute("COMMIT")
        except dbapi2.IntegrityError:
            self._roll_back()
            return False
        except BaseException as error:
            self._settle_interrupted(group, error)
            raise
        self._settle(group)
        return True

    def _write_under_lock(self, group: Group) -> None:
        if self._failed is not None:
            raise self._failed
        driver = self._driver or self._connect()
        try:
            driver.execute("BEGIN IMMEDIATE")
            self._read_head()
            self._stage(group)
            _insert(driver, self._transaction.rows)
            driver.execute("COMMIT")
        except BaseException as error:
            self._settle_interrupted(group, error)
            raise
        self._settle(group)

    def _stage(self, group: Group) -> bool:
        """Run the group's work in order. What one of them raises undoes that one only, and says False."""
        transaction, clean = self._transaction, True
        for request in group:
            count, head, head_digest = len(transaction.rows), transaction.head, transaction.head_digest
            try:
                request.result = request.work(transaction)
                request.error = None
            except Exception as error:
                unstorable = isinstance(error, UnicodeEncodeError | OverflowError)
                request.error, clean = as_invalid_input(error) if unstorable else error, False
                transaction.undo_to(count, head, head_digest)
        return clean

    def _read_head(self) -> None:
        transaction, execute = self._transaction, self._driver.execute
        transaction.forget()
        transaction.codec.refresh()
        position, transaction.head_digest = execute(_SELECT_HEAD).fetchone() or (0, self._genesis)
        given = execute(_SELECT_LAST_GIVEN).fetchone()
        # A position once given is never given again, even if its row was cut off from outside.
        transaction.head = Position(max(position, given[0] if given else 0))
        self._knows_head = True

    def _settle(self, group: Group) -> None:
        for request in group:
            request.settled = True
        # Last: what is staged tells `_recover` that a commit stands.
        if self._transaction.committed():
            self._committed()

    def _settle_interrupted(self, group: Group, error: BaseException) -> None:
        """Roll back; or, if an interrupt arrived between the commit and us, let the commit stand."""
        if not isinstance(error, Exception) and self._is_committed():
            self._settle(group)
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        self._transaction.forget()
        self._knows_head = False
        if self._driver.in_transaction:
            self._driver.execute("ROLLBACK")

    def _meaning_of(self, error: Exception) -> Exception:
        if isinstance(error, errors.MnemologError) or sqlite.is_constraint_violation(error):
            return error
        meaning = sqlite.map_error(error, self._path, busy_timeout_s=self._busy_timeout_s)
        if isinstance(meaning, errors.LogWriteFailed):
            # Never try again: the next sync may succeed although the kernel dropped our pages.
            self._failed = meaning
        meaning.__cause__ = error
        return meaning

    def _connect(self) -> Any:
        # Only the leader of a group comes here, so there is nobody to share the connection with.
        self._connection = self._engine.connect()
        driver: Any = self._connection.connection.driver_connection
        if changed := altered_triggers(dict(driver.execute(SELECT_TRIGGERS))):
            self._failed = errors.LogWriteFailed(f"the log's triggers are not as they were made: {changed}")
            raise self._failed
        self._driver, self._transaction.execute = driver, driver.execute
        return driver


def _insert(driver: Any, rows: Sequence[Row]) -> None:
    if not rows:
        return
    if len(rows) > ROWS_MAX:
        for start in range(0, len(rows), ROWS_MAX):
            _insert(driver, rows[start : start + ROWS_MAX])
        return
    if len(rows) == 1:
        values: Sequence[Any] = rows[0]
        keyless = values[-1] is None
        if keyless:
            values = values[:-1]
    else:
        keyless = all(row[-1] is None for row in rows)
        values = [*chain.from_iterable([row[:-1] for row in rows] if keyless else rows)]
    statement = (INSERT_KEYLESS if keyless else INSERT_EVENTS)[len(rows)]
    if driver.execute(statement, values).rowcount != len(rows):
        raise errors.LogDamaged("the file did not take an event it was given; something swallows inserts")
