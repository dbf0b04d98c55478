"""Append to a log: units of work, each alone under the write lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from mnemolog.domain import errors
from mnemolog.domain.request import current_actor
from mnemolog.infra.log.engine import LogEngine
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.log.writer import LogWriter
from mnemolog.infra.runtime import fork_guard

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
        self.is_read_only, self._path = read_only, path
        self.writer = LogWriter(engine, path=path, transaction=transaction, genesis=genesis, committed=committed)
        self._around_append: Callable[[], AbstractContextManager[None]] | None = None
        self._origin = fork_guard.Origin()

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a unit of work alone under the write lock; return its result when it is durable.

        The work may run twice, so it must have no side effects. Raises what the work raises, `LogBusy`,
        `StorageFull`, `StoreNotWritable`, `StoreClosed`, `StoreForked` (nothing written), or `LogWriteFailed`
        (outcome unknown), `StoreReplaced` (nothing is where it would be looked for).
        """
        if not self._origin.is_here:
            self._origin.require_here()
        if self.is_read_only:
            self.require_writable()
        if actor := current_actor():  # The thread that runs the work may be another caller's.
            work = _by_actor(work, actor)
        if self._around_append is None:
            return self.writer.transact(work)
        with self._around_append():
            return self.writer.transact(work)

    def require_writable(self) -> None:
        """Raise `StoreNotWritable` if the log was opened with `read_only`."""
        if self.is_read_only:
            error = errors.StoreNotWritable(self._path.parent, "the store was opened read-only")
            error.hint = "nothing was written; open the store without `read_only`, or the server without `--read-only`"
            raise error

    def observe(
        self,
        *,
        around_append: Callable[[], AbstractContextManager[None]],
        on_commit: Callable[[float, int], None],
    ) -> None:
        """Enter `around_append()` around every `transact`; call `on_commit(seconds, group_size)` after every group.

        Errors of the append pass through the context manager. Both must be quick and must not raise errors of their
        own.
        """
        self._around_append = around_append
        self.writer.on_commit(on_commit)

    def rehearse(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `transact` would return for `work`, without writing anything. Raises as that does."""
        results: list[Result] = []

        def undone(tx: Transaction) -> None:
            results.append(work(tx))
            raise _Undone

        with suppress(_Undone):
            self.transact(undone)
        return results[-1]

    def close(self) -> None:
        """Finish queued appends. Appends after this raise `StoreClosed`."""
        self.writer.close()


def _by_actor(work: Callable[[Transaction], Result], actor: str) -> Callable[[Transaction], Result]:
    def by_actor(tx: Transaction) -> Result:
        tx.actor = actor
        try:
            return work(tx)
        finally:
            tx.actor = ""

    return by_actor
