"""Working memory of a session: values, a task, notes and checkpoints, read and written through its handle."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Literal, overload

from mnemolog.application.session_service import Decision
from mnemolog.domain import checkpoints, notes, task, values
from mnemolog.domain.events import CheckpointCreated, Event, RecordedEvent, TaskChanged
from mnemolog.domain.limits import MemoryLimits
from mnemolog.domain.lineage import lineage
from mnemolog.domain.position import Micros
from mnemolog.domain.state import SessionState, checkpoint_of, task_of
from mnemolog.domain.values import MISSING, checked_value_key, value_at
from mnemolog.results import CheckpointAt, MemoryStats, NoteAt, TaskAt, checkpoint_at, note_at, task_at


class MemoryView(ABC):
    """Working memory to be read."""

    id: str

    @abstractmethod
    def _state(self) -> SessionState:
        """Return the state to answer from. Raises `UnknownSession`."""

    @abstractmethod
    def _now(self) -> Micros:
        """Return the moment at which it is asked whether a value has expired."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or `default` where there is none or it has expired.

        A stored `None` comes back as `None`; pass `default=mnemolog.MISSING` to tell the two apart. What
        comes back is a copy: changing it changes nothing. Raises `InvalidInput` for a reserved key.
        """
        found = value_at(self._state(), key, self._now())
        return default if found is MISSING else found

    def exists(self, key: str) -> bool:
        """Whether `key` has a value, `None` included, that has not expired."""
        return value_at(self._state(), checked_value_key(key), self._now()) is not MISSING

    def keys(self, pattern: str | None = None) -> list[str]:
        """Return the keys that have a value, sorted; with `pattern` those that the glob (`*?[]`) fits."""
        return values.keys(self._state(), self._now(), pattern=pattern)

    def all(self) -> dict[str, Any]:
        """Return all values by key: copies."""
        return values.all_values(self._state(), self._now())

    def task(self) -> TaskAt | None:
        """Return what the session works on, None before `set_task`."""
        found = self._state().task
        return None if found is None else task_at(found)

    @overload
    def notes(self, *, with_times: Literal[False] = False) -> list[str]: ...

    @overload
    def notes(self, *, with_times: Literal[True]) -> list[NoteAt]: ...

    def notes(self, *, with_times: bool = False) -> list[str] | list[NoteAt]:
        """Return the notes in the order in which they were added."""
        found = notes.notes(self._state())
        return [note_at(note) for note in found] if with_times else [note.text for note in found]

    def checkpoints(self) -> list[CheckpointAt]:
        """Return the checkpoints, inherited ones included, oldest first."""
        return [checkpoint_at(found) for found in checkpoints.checkpoints(self._state())]

    def lineage(self) -> list[str]:
        """Return the ids of the session's ancestors, root first, and its own last."""
        return [*lineage(self._state()), self.id]

    def stats(self) -> MemoryStats:
        """Return how much working memory holds."""
        state, now = self._state(), self._now()
        expired = sum(values.is_expired(value, now) for value in state.values.values())
        return MemoryStats(
            values=len(state.values) - expired,
            expired_values=expired,
            values_bytes=state.values_bytes,
            notes=len(state.notes),
            notes_bytes=state.notes_bytes,
            checkpoints=len(state.checkpoints),
            has_task=state.task is not None,
        )


class WorkingMemory(MemoryView):
    """Working memory to be read and written. Every call is durable when it returns.

    Writers never lose one another's changes: each decides under the log's write lock, on the state as it
    is then. What cannot be written raises, and nothing is written: `InvalidInput`, `LimitExceeded`,
    `MemoryFull`, `UnknownSession`, `SessionAlreadyEnded`.
    """

    @abstractmethod
    def _decide(self, decision: Decision) -> list[RecordedEvent]:
        """Append what `decision` makes of the state under the write lock."""

    @property
    @abstractmethod
    def _limits(self) -> MemoryLimits:
        """How much working memory may hold."""

    def set(self, key: str, value: Any, *, ttl: float | timedelta | None = None) -> None:
        """Set `key` to any JSON value, `None` included. It expires `ttl` seconds from now, or never.

        Keys hold up to 512 bytes, values up to 256 KiB; keys that start with `mnemolog.` are reserved.
        """
        self._decide(
            lambda state, now: values.set_value(self.id, state, key, value, now=now, ttl=ttl, limits=self._limits)
        )

    def delete(self, key: str) -> bool:
        """Delete `key`. Return whether it was there; an expired value was not."""
        was_there = False

        def decision(state: SessionState | None, now: Micros) -> list[Event]:
            nonlocal was_there
            events = values.delete_value(self.id, state, key)
            was_there = bool(events) and state is not None and value_at(state, key, now) is not MISSING
            return events

        self._decide(decision)
        return was_there

    def clear(self) -> None:
        """Delete every key. Task, notes and checkpoints stay."""
        self._decide(lambda state, _: values.clear_values(self.id, state))

    def set_task(
        self,
        description: str,
        *,
        step: int | None = None,
        total: int | None = None,
        percent: float | None = None,
        status: str = "active",
    ) -> TaskAt:
        """Say what the session works on, in place of what it was before: step of a total, 0 to 100 percent."""
        return self._task_after(
            self._decide(
                lambda state, _: task.set_task(
                    self.id, state, description, step=step, total=total, percent=percent, status=status
                )
            )
        )

    def update_task(
        self,
        *,
        step: int | None = None,
        total: int | None = None,
        percent: float | None = None,
        status: str | None = None,
    ) -> TaskAt:
        """Change the given fields of the task; others stay as they are then. Raises `NoTask`."""
        return self._task_after(
            self._decide(
                lambda state, _: task.update_task(
                    self.id, state, step=step, total=total, percent=percent, status=status
                )
            )
        )

    def note(self, text: str) -> None:
        """Add a note, up to 64 KiB, at the end of the scratchpad."""
        self._decide(lambda state, _: notes.add_note(self.id, state, text, limits=self._limits))

    def clear_notes(self) -> None:
        """Empty the scratchpad."""
        self._decide(lambda state, _: notes.clear_notes(self.id, state))

    def checkpoint(self, name: str, description: str = "") -> CheckpointAt:
        """Name this moment, to come back to it with `restore`. Costs one small event, whatever memory holds.

        Raises `CheckpointExists` where the session has one of that name.
        """
        created = self._decide(
            lambda state, _: checkpoints.create_checkpoint(
                self.id,
                state,
                checkpoint_id=secrets.token_hex(8),
                name=name,
                description=description,
                limits=self._limits,
            )
        )[-1]
        assert isinstance(created.event, CheckpointCreated)
        return checkpoint_at(
            checkpoint_of(created.event, session=self.id, position=created.position, created_at=created.recorded_at)
        )

    def restore(self, checkpoint: str) -> CheckpointAt:
        """Bring values, task and notes back to a checkpoint, given by id or name, in one event.

        What has expired since stays expired; every checkpoint stays, later ones too; turns behind the
        checkpoint are hidden from the session's own recall. Raises `UnknownCheckpoint`.
        """
        # FoldedState and kept before the write lock is taken: under it the state then is only looked up.
        self._state()
        found: list[CheckpointAt] = []

        def decision(state: SessionState | None, _: Micros) -> list[Event]:
            events = checkpoints.restore_checkpoint(self.id, state, checkpoint)
            if state is not None:
                found.append(checkpoint_at(checkpoints.find_checkpoint(state, checkpoint)))
            return events

        self._decide(decision)
        return found[-1]

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a checkpoint, given by id or name. Raises `UnknownCheckpoint`."""
        self._decide(lambda state, _: checkpoints.delete_checkpoint(self.id, state, checkpoint))

    def _task_after(self, recorded: list[RecordedEvent]) -> TaskAt:
        if recorded and isinstance(recorded[-1].event, TaskChanged):
            return task_at(task_of(recorded[-1].event, changed_at=recorded[-1].recorded_at))
        found = self.task()  # Nothing was to change.
        assert found is not None
        return found
