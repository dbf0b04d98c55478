"""Apply the interpreter's steps to a store: turns in batches, other steps immediately. Or count what would be new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from mnemolog.adapters.importers.entry import Compacted, Entry
from mnemolog.adapters.importers.recognition import Item, Recording
from mnemolog.adapters.importers.transcripts.interpreter import TranscriptInterpreter
from mnemolog.adapters.importers.transcripts.lookup import StoreLookup, is_copy
from mnemolog.adapters.importers.transcripts.steps import AlreadyThere, Branch, Say, Settle, Start, Step, Switch
from mnemolog.adapters.importers.turn import event_of
from mnemolog.adapters.support.store_access import known_session, sessions_of, visible_of
from mnemolog.application.commands import state_in
from mnemolog.domain import errors, session
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.infra.log.transaction import Transaction
from mnemolog.store import MemoryStore

REFUSED_LISTED_MAX: Final = 100


class Report(msgspec.Struct, kw_only=True):
    """The result of reading transcripts, or of a preview."""

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

    def switched(self, reason: str) -> None:
        """Count a switch."""
        self.switches[reason] = self.switches.get(reason, 0) + 1

    @property
    def is_news(self) -> bool:
        """Whether anything changed that is worth reporting."""
        return bool(self.recorded or self.sessions or self.switches or self.refused)


class Recorder:
    """Records one transcript. `flush` ends a batch: everything taken before it is in the log when it returns."""

    def __init__(
        self, store: MemoryStore, interpreter: TranscriptInterpreter, report: Report, *, agent: str, upto: Position
    ) -> None:
        self._store, self._interpreter, self._report, self._agent = store, interpreter, report, agent
        self.recording = Recording(visible_of(store).log, upto, self._write)

    def take(self, entry: Entry) -> None:
        """Process a line. Its turns may be recorded together with those of later lines.

        Raises `InvalidInput`, `SessionError` if the store refuses it: the line is skipped.
        """
        for step in self._interpreter.interpret(entry):
            self._do(step)

    def flush(self) -> None:
        """Record the batch."""
        for _, outcome in self.recording.record_batch():
            if isinstance(outcome, errors.ImportRefused):
                self._report.refuse(outcome)
            else:
                self._report.recorded += outcome is True
                self._report.already_there += outcome is not True

    def _do(self, step: Step) -> None:
        match step:
            case Say(name, turns):
                for turn in turns:
                    self.recording.add(name, turn)
            case AlreadyThere(turns):
                self._report.already_there += turns
            case Settle():
                self.flush()
            case Start():
                self._store.session(
                    step.session, title=step.title, agent=self._agent, scope=step.scope, parent=step.parent
                )
                self._report.sessions += 1
            case Branch():
                known_session(self._store, step.left).branch(step.session, at=step.at, title=step.title)
                self._report.sessions += 1
            case Switch():
                self._switch(step)

    def _switch(self, step: Switch) -> None:
        if step.to is None:
            name = step.left or ""
            sessions_of(self._store).decide(name, lambda state, _: list(session.resume(name, state)))
        self._store.switch(
            step.to,
            reason=step.reason,
            session=step.left,
            agent=self._agent,
            at=step.at,
            title=step.title,
            scope=step.scope,
            key=step.key,
        )
        self._report.sessions += step.to is not None
        self._report.switched(step.reason)

    def _write(self, tx: Transaction, item: Item, recording: Recording) -> bool:
        if (key := recording.new_key(tx, item)) is None:
            return False
        stream = session.session_stream(item.session)
        for event in session.resume(item.session, state_in(tx, item.session, visible_of(self._store).states)):
            tx.append(stream, event)
        tx.append(stream, event_of(item.turn), key=key)
        return True


class Preview:
    """Counts turns and sessions that the log does not have; of the events between turns, only compactions."""

    def __init__(self, lookup: StoreLookup) -> None:
        self._lookup = lookup
        self._met: set[tuple[str, str]] = set()
        self._said: dict[str, set[int]] = {}
        """Hashes of what sessions say in the files."""
        self._copies: dict[str, Iterator[RecordedEvent]] = {}
        """What sessions that begin with copies may still copy from the log."""
        self._sessions: set[str] = set()
        self._diverged: set[str] = set()
        """Sessions with a turn of their own: what follows is not a copy."""

    def take(self, entry: Entry, report: Report) -> None:
        """Count the content of a line."""
        if isinstance(entry.move, Compacted):
            report.switched("compress")
        if not entry.turns:
            return
        if self._is_recorded(entry):
            report.already_there += len(entry.turns)
            return
        report.recorded += len(entry.turns)
        self._diverged.add(entry.session)
        if entry.session not in self._sessions and not self._lookup.of(entry.session):
            report.sessions += 1
        self._sessions.add(entry.session)

    def _is_recorded(self, entry: Entry) -> bool:
        first, home, other = entry.turns[0], entry.session if entry.recounted else "", entry.copied_from
        there = self._lookup.at(home, first.key) if home else self._lookup.anywhere(first.key)
        is_met = there is not None or (home, first.key) in self._met
        self._met.add((home, first.key))
        said = hash((first.role, first.text))
        self._said.setdefault(home, set()).add(said)
        if is_met or other is None or not home or home in self._diverged:
            return is_met
        if home not in self._copies:
            self._copies[home] = self._lookup.turns(other, ORIGIN) if self._lookup.of(other) else iter(())
        turn = next(self._copies[home], None)
        return said in self._said.get(other, ()) if turn is None else is_copy(first, turn)
