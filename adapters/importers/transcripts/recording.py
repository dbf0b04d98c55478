"""Apply the interpreter's steps to a store: turns in batches, other steps immediately."""

from __future__ import annotations

from mnemolog.adapters.importers.import_files import BATCH_CHARACTERS_MAX, BATCH_MAX
from mnemolog.adapters.importers.transcript import Entry
from mnemolog.adapters.importers.transcripts.interpreter import TranscriptInterpreter
from mnemolog.adapters.importers.transcripts.report import Report
from mnemolog.adapters.importers.transcripts.steps import AlreadyThere, Branch, Say, Settle, Start, Step, Switch
from mnemolog.adapters.importers.turn import ImportedTurn, event_of
from mnemolog.adapters.support.store_access import known_session, sessions_of
from mnemolog.application.commands import state_in
from mnemolog.domain import errors, session
from mnemolog.infra.log.transaction import Transaction
from mnemolog.store import MemoryStore


class Recorder:
    """Records one transcript. `flush` ends a batch: everything taken before it is in the log when it returns."""

    def __init__(self, store: MemoryStore, interpreter: TranscriptInterpreter, report: Report, *, agent: str) -> None:
        self._store, self._interpreter, self._report, self._agent = store, interpreter, report, agent
        self._batch: list[tuple[str, ImportedTurn]] = []
        self._characters = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._batch) >= BATCH_MAX or self._characters >= BATCH_CHARACTERS_MAX

    def take(self, entry: Entry) -> None:
        """Process a line. Its turns may be recorded together with those of later lines.

        Raises `InvalidInput`, `SessionError` if the store refuses it: the line is skipped.
        """
        for step in self._interpreter.interpret(entry):
            self._do(step)

    def flush(self) -> None:
        """Record the batch."""
        batch, self._batch, self._characters = self._batch, [], 0
        if batch:
            fresh, there, refused = sessions_of(self._store).log.transact(lambda tx: self._record(tx, batch))
            self._report.recorded += fresh
            self._report.already_there += there
            for error in refused:
                self._report.refuse(error)

    def _do(self, step: Step) -> None:
        match step:
            case Say(name, turns):
                self._batch += [(name, turn) for turn in turns]
                self._characters += sum(len(turn.text) for turn in turns)
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

    def _record(
        self, tx: Transaction, batch: list[tuple[str, ImportedTurn]]
    ) -> tuple[int, int, list[errors.ImportRefused]]:
        """Record a batch in one transaction. Each turn is recorded, already present, or refused without a trace."""
        states = sessions_of(self._store).states
        fresh, there, refused = 0, 0, list[errors.ImportRefused]()
        for name, turn in batch:
            stream = session.session_stream(name)
            try:
                if tx.position_of(stream, turn.key) is not None:
                    there += 1
                    continue
                for event in session.resume(name, state_in(tx, name, states)):
                    tx.append(stream, event)
                tx.append(stream, event_of(turn), key=turn.key)
                fresh += 1
            except (errors.InvalidInput, errors.SessionError) as error:
                refused.append(errors.ImportRefused(turn.path, turn.line, str(error)))
        return fresh, there, refused
