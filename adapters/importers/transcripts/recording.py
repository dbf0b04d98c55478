"""Write what is new in a transcript to a store, and report it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.recognition import Item, Recording
from mnemolog.adapters.importers.turn import ImportedTurn, event_of
from mnemolog.adapters.support.store_access import begin_session, enter_session, known_session, sessions_of, visible_of
from mnemolog.application.commands import state_in
from mnemolog.domain import errors, session
from mnemolog.domain.position import Position
from mnemolog.infra.log.transaction import Transaction
from mnemolog.store import MemoryStore

REFUSED_LISTED_MAX: Final = 100


class Report(msgspec.Struct, kw_only=True):
    """The result of reading transcripts."""

    files: int = 0
    """Files with anything new."""
    lines: int = 0
    recorded: int = 0
    """Turns that were added to the log."""
    already_there: int = 0
    """Turns that were in the log before, copies from other sessions included."""
    sessions: int = 0
    """Sessions that were started."""
    switches: dict[str, int] = {}
    """By reason: `new`, `branch`, `compress`, `rewind`."""
    left_out: dict[str, int] = {}
    """Messages, and parts of them, that are not turns, by reason: `empty`, `not said`, `unknown kind ...`."""
    refused: int = 0
    """Lines that cannot be recorded."""
    refusals: list[str] = []
    """The first of those lines, with file, line and reason."""

    def refuse(self, error: errors.ImportRefused) -> None:
        """Count a line that cannot be recorded."""
        self.refused += 1
        if len(self.refusals) < REFUSED_LISTED_MAX:
            self.refusals.append(str(error))

    @property
    def is_news(self) -> bool:
        """Whether anything changed that is worth reporting."""
        return bool(self.recorded or self.sessions or self.switches or self.refused)


class Recorder:
    """Records one transcript: turns in batches, everything else at once.

    `flush` ends a batch: everything said before it is in the log when it returns. Methods raise `InvalidInput` and
    `SessionError` for what the store refuses.
    """

    def __init__(self, store: MemoryStore, report: Report, *, agent: str, upto: Position) -> None:
        self._store, self._report, self.agent = store, report, agent
        self.recording = Recording(visible_of(store).log, upto, self._write)

    def say(self, name: str, turns: Sequence[ImportedTurn]) -> None:
        """Record turns in a session, perhaps together with those of later lines."""
        for turn in turns:
            self.recording.add(name, turn)

    def flush(self) -> None:
        """Record the batch."""
        for _, outcome in self.recording.record_batch():
            if isinstance(outcome, errors.ImportRefused):
                self._report.refuse(outcome)
            else:
                self._report.recorded += outcome is True
                self._report.already_there += outcome is not True

    def already_there(self, turns: Sequence[ImportedTurn]) -> None:
        """Count turns that are in the log, in this session or in the one that they were copied from."""
        self._report.already_there += len(turns)

    def start(self, name: str, *, title: str, scope: str, parent: str | None = None) -> None:
        """Start a session; the agent stays in its current one. A subagent sees no turns of its `parent`."""
        begin_session(self._store, name, title=title, agent=self.agent, scope=scope, parent=parent)
        self._report.sessions += 1

    def branch(self, name: str, *, left: str, at: Position, title: str) -> None:
        """Branch a session from another; the agent stays in its current one."""
        known_session(self._store, left).branch(name, at=at, title=title)
        self._report.sessions += 1

    def switch(self, reason: str, to: str | None = None, *, left: str | None = None, **how: Any) -> None:
        """Switch the agent (docs/sessions.md); to the session `to`, or in place."""
        if to is None:
            sessions_of(self._store).decide(left or "", lambda state, _: list(session.resume(left or "", state)))
        enter_session(self._store, to, reason=reason, session=left, agent=self.agent, **how)
        self._report.sessions += to is not None
        self._report.switches[reason] = self._report.switches.get(reason, 0) + 1

    def _write(self, tx: Transaction, item: Item, recording: Recording) -> bool:
        if (key := recording.new_key(tx, item)) is None:
            return False
        stream = session.session_stream(item.session)
        for event in session.resume(item.session, state_in(tx, item.session, visible_of(self._store).states)):
            tx.append(stream, event)
        tx.append(stream, event_of(item.turn), key=key)
        return True
