"""The one writer of a process: stages a group of units of work, then commits them together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from pysqlite3 import dbapi2

from mnemolog.domain import errors
from mnemolog.domain.clock import Clock
from mnemolog.domain.position import Position
from mnemolog.infra import sqlite
from mnemolog.infra.group_commit import GroupCommit, Request
from mnemolog.infra.schema import APPEND_ONLY_TRIGGERS, INSERT_EVENT
from mnemolog.infra.transaction import StreamCache, Transaction

Result = TypeVar("Result")
Group = Sequence[Request[Transaction]]

_SELECT_HEAD: Final = "SELECT position, digest FROM events ORDER BY position DESC LIMIT 1"
_SELECT_LAST_GIVEN: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"


class LogWriter:
    """Appends to one log. Safe to call from many threads; not to be carried across a fork."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        path: Path,
        clock: Clock,
        genesis: bytes,
        busy_timeout_s: float,
        committed: Callable[[], None],
    ) -> None:
        self._path, self._clock, self._genesis = path, clock, genesis
        self._busy_timeout_s = busy_timeout_s
        self._committed = committed
        self._engine = engine
        self._connection: sa.Connection | None = None
        self._driver: Any = None
        self._cache = StreamCache()
        self._data_version: int | None = None
        self._head, self._head_digest = Position(0), genesis
        self._failed: errors.LogWriteFailed | None = None
        self._open_lock = threading.Lock()
        self._queue: GroupCommit[Transaction] = GroupCommit(self._run_group)

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` alone under the write lock; return its result when what it staged is durable.

        What `work` raises is raised here, and then nothing it staged is written. `work` may run twice
        and must not have effects of its own.
        """
        return self._queue.submit(work)

    def close(self) -> None:
        """Finish what is queued, refuse what comes after, let go of the file."""
        self._queue.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run_group(self, group: Group) -> None:
        try:
            self._write(group)
        except (sa.exc.SQLAlchemyError, dbapi2.Error, errors.MnemologError) as error:
            if len(group) > 1 and sqlite.is_constraint_violation(error):
                for request in group:  # One of them is to blame: find out which, spare the others.
                    self._run_group([request])
            else:
                self._settle_all(group, self._meaning_of(error))

    def _write(self, group: Group) -> None:
        if self._failed is not None:
            raise self._failed
        driver = self._ensure_connected()
        driver.execute("BEGIN IMMEDIATE")
        rows: list[Any] = []
        try:
            transaction = self._begin(driver)
            for request in group:
                mark = transaction.mark()
                try:
                    request.result = request.work(transaction)
                    request.error = None
                except Exception as error:
                    request.error = error
                    transaction.undo(mark)
            rows = transaction.rows
            if len(rows) == 1:
                driver.execute(INSERT_EVENT, rows[0])
            elif rows:
                driver.executemany(INSERT_EVENT, rows)
            driver.execute("COMMIT" if rows else "ROLLBACK")
        except BaseException as error:
            # An interrupt may arrive between the commit and here: then there is no transaction any more.
            if rows and not driver.in_transaction and not isinstance(error, Exception):
                self._after_commit(transaction, group)
            else:
                self._roll_back(driver)
            raise
        self._after_commit(transaction, group)

    def _begin(self, driver: Any) -> Transaction:
        """Return the transaction's view of the log, read anew if another connection has written."""
        data_version = driver.execute("PRAGMA data_version").fetchone()[0]
        if data_version != self._data_version:
            self._cache.another_writer_was_here()
            found = driver.execute(_SELECT_HEAD).fetchone()
            position, self._head_digest = found or (0, self._genesis)
            given = driver.execute(_SELECT_LAST_GIVEN).fetchone()
            # A position once given is never given again, even if its row was cut off from outside.
            self._head = Position(max(position, given[0] if given else 0))
            self._data_version = data_version
        return Transaction(
            driver.execute,
            head=self._head,
            head_digest=self._head_digest,
            cache=self._cache,
            clock=self._clock,
        )

    def _after_commit(self, transaction: Transaction, group: Group) -> None:
        self._head, self._head_digest = transaction.head, transaction.head_digest
        transaction.committed()
        for request in group:
            request.settled = True
        if transaction.rows:
            self._committed()

    def _roll_back(self, driver: Any) -> None:
        self._cache.clear()
        self._data_version = None
        if driver.in_transaction:
            driver.execute("ROLLBACK")

    def _settle_all(self, group: Group, error: Exception) -> None:
        for request in group:
            request.error = request.error or error
            request.settled = True

    def _meaning_of(self, error: Exception) -> Exception:
        if isinstance(error, errors.MnemologError) or sqlite.is_constraint_violation(error):
            return error
        meaning = sqlite.map_error(error, self._path, busy_timeout_s=self._busy_timeout_s)
        if isinstance(meaning, errors.LogWriteFailed):
            # Never try again: the next sync may succeed although the kernel dropped our pages.
            self._failed = meaning
        meaning.__cause__ = error
        return meaning

    def _ensure_connected(self) -> Any:
        if self._connection is None:
            with self._open_lock:
                self._connection = self._engine.connect()
                self._driver = self._connection.connection.driver_connection
            self._require_triggers()
        return self._driver

    def _require_triggers(self) -> None:
        found = {row[0] for row in self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
        if missing := APPEND_ONLY_TRIGGERS.keys() - found:
            self._failed = errors.LogWriteFailed(f"the log lost its append-only triggers {sorted(missing)}")
            raise self._failed
