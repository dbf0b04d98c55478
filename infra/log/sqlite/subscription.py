"""A live reading of the log: what is there, then what comes, from any process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from eventsourcing.persistence import ListenNotifySubscription

if TYPE_CHECKING:
    from mnemolog.eventsourcing import SqliteRecorder

POLL_INTERVAL_S: Final = 0.05
"""How late an append of another process may be seen. Our own process' appends wake us at once."""


class SqliteSubscription(ListenNotifySubscription["SqliteRecorder"]):
    """Yields notifications after `gt`, for ever, until stopped."""

    def __init__(self, recorder: SqliteRecorder, gt: int | None = None, topics: Sequence[str] = ()) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._recorder.listen(self._has_been_notified)

    def stop(self) -> None:
        """Stop the subscription: the iteration ends."""
        super().stop()
        self._recorder.unlisten(self._has_been_notified)

    def _loop_on_pull(self) -> None:
        # SQLite tells nobody about another process' commit, so the wait has an end.
        try:
            while not self._has_been_stopped:
                self._pull()
                self._has_been_notified.wait(timeout=POLL_INTERVAL_S)
        except BaseException as error:
            if self._thread_error is None:
                self._thread_error = error
            self.stop()
