"""Working memory of a session: values, a task, notes and checkpoints."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, overload

from mnemolog.application import previews
from mnemolog.application.facts import Facts
from mnemolog.application.read_audit import gated, gives_back
from mnemolog.application.session_service import Decision, Sessions
from mnemolog.application.switches import Switches
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import working_memory as memory
from mnemolog.domain.events import CheckpointCreated, CheckpointRestored, Event, RecordedEvent, TaskChanged
from mnemolog.domain.position import Micros
from mnemolog.domain.result import Results, name_of
from mnemolog.domain.session import SessionState, checkpoint_of, task_of
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.recall.prefetch import Prefetcher
from mnemolog.results import Checkpoint, Note, RestorePreview, Task


@dataclass(frozen=True, kw_only=True)
class SessionParts:
    """The parts of a store that the handles on its sessions use."""

    visible: VisibleEvents
    sessions: Sessions
    facts: Facts
    switches: Switches
    projections: ProjectionSet
    contexts: Contexts
    prefetcher: Prefetcher


@gated("session.")
class MemoryView(ABC):
    """Working memory, read-only."""

    id: str

    @abstractmethod
    def _state(self) -> SessionState:
        """Return the state to read from. Raises `UnknownSession`."""

    @abstractmethod
    def _now(self) -> Micros:
        """Return the time at which expiry is judged."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key.

        - `key`: the key
        - `default`: what to return if it has no value, or its value has expired

        A stored `None` is returned as `None`; pass `default=mnemolog.MISSING` to tell the two apart. The result is
        a copy: changing it does not change working memory. Raises `InvalidInput` for a reserved key.
        """
        found = memory.value_at(self._state(), key, self._now())
        return default if found is memory.MISSING else found

    def keys(self, pattern: str | None = None) -> list[str]:
        """Return the keys that have a value, sorted.

        - `pattern`: only keys that match this glob (`*?[]`)
        """
        return memory.keys(self._state(), self._now(), pattern=pattern)

    def all(self) -> dict[str, Any]:
        """Return copies of all values, by key."""
        return memory.all_values(self._state(), self._now())

    def task(self) -> Task | None:
        """Return the task the session works on; None before `set_task`."""
        found = self._state().task
        return None if found is None else Task.of(found)

    @overload
    def notes(self, *, with_times: Literal[False] = False) -> list[str]: ...

    @overload
    def notes(self, *, with_times: Literal[True]) -> Results[Note]: ...

    def notes(self, *, with_times: bool = False) -> list[str] | Results[Note]:
        """Return the notes, oldest first.

        - `with_times`: also when each was added
        """
        found = memory.notes(self._state())
        return Results(Note.of(note) for note in found) if with_times else [note.text for note in found]

    def checkpoints(self) -> Results[Checkpoint]:
        """Return the checkpoints, including inherited ones, oldest first."""
        return Results(Checkpoint.of(found) for found in memory.checkpoints(self._state()))

    def lineage(self) -> list[str]:
        """Return the ids of the session's ancestors, root first, then its own."""
        return [*self._state().ancestors, self.id]


@gated("session.")
class WorkingMemory(MemoryView):
    """Working memory, readable and writable. Every change is durable when the call returns.

    Concurrent writers never lose each other's changes: each decides on the current state, under the log's write
    lock. A refused change writes nothing and raises `InvalidInput`, `LimitExceeded`, `MemoryFull`, `UnknownSession`
    or `SessionAlreadyEnded`.
    """

    _parts: SessionParts

    def set(self, key: str, value: Any, *, ttl: float | timedelta | None = None) -> None:
        """Set a key to a value.

        - `key`: up to 512 bytes; keys that start with `mnemolog.` are reserved
        - `value`: any JSON value, `None` included, up to 256 KiB
        - `ttl`: after how many seconds it expires; None for never
        """
        self._decide(
            lambda state, now: memory.set_value(
                self.id, state, key, value, now=now, ttl=ttl, limits=self._parts.sessions.limits
            )
        )

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it had a value; an expired value does not count.

        - `key`: the key
        """
        deletes = was_there = False

        def decision(state: SessionState | None, now: Micros) -> list[Event]:
            nonlocal deletes, was_there
            deletes = bool(events := memory.delete_value(self.id, state, key))
            was_there = deletes and state is not None and memory.value_at(state, key, now) is not memory.MISSING
            return events

        made = self._decide(decision)
        return was_there if deletes else bool(made)  # Made by an earlier try of this request.

    def clear(self) -> None:
        """Delete every key. Keeps task, notes and checkpoints."""
        self._decide(lambda state, _: memory.clear_values(self.id, state))

    @gives_back
    def set_task(
        self,
        description: str,
        *,
        step: int | None = None,
        total: int | None = None,
        percent: float | None = None,
        status: str = "active",
    ) -> Task:
        """Set the task the session works on, replacing the last.

        - `description`: the task, up to 16 KiB
        - `step`: the current step, from 0 to `total`
        - `total`: the number of steps
        - `percent`: progress, from 0 to 100
        - `status`: a word such as `active` or `done`
        """
        return self._task_after(
            self._decide(
                lambda state, _: memory.set_task(
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
    ) -> Task:
        """Change fields of the task; None keeps the value of a field. Raises `NoTask`.

        - `step`: the current step, from 0 to `total`
        - `total`: the number of steps
        - `percent`: progress, from 0 to 100
        - `status`: a word such as `active` or `done`
        """
        return self._task_after(
            self._decide(
                lambda state, _: memory.update_task(
                    self.id, state, step=step, total=total, percent=percent, status=status
                )
            )
        )

    def note(self, text: str) -> None:
        """Append a note to the scratchpad.

        - `text`: the note, up to 64 KiB
        """
        self._decide(lambda state, _: memory.add_note(self.id, state, text, limits=self._parts.sessions.limits))

    def clear_notes(self) -> None:
        """Empty the scratchpad."""
        self._decide(lambda state, _: memory.clear_notes(self.id, state))

    @gives_back
    def checkpoint(self, name: str, description: str = "") -> Checkpoint:
        """Save this state under a name, for `restore`. Costs one small event, however much memory holds.

        - `name`: the name
        - `description`: what it is for, up to 4 KiB

        Raises `CheckpointExists` if the session has a checkpoint of that name.
        """
        created = self._decide(
            lambda state, _: memory.create_checkpoint(
                self.id,
                state,
                checkpoint_id=secrets.token_hex(8),
                name=name,
                description=description,
                limits=self._parts.sessions.limits,
            )
        )[-1]
        assert isinstance(created.event, CheckpointCreated)
        return Checkpoint.of(
            checkpoint_of(created.event, session=self.id, position=created.position, created_at=created.recorded_at)
        )

    @overload
    def restore(self, checkpoint: Checkpoint | str, *, dry_run: Literal[False] = False) -> Checkpoint: ...

    @overload
    def restore(self, checkpoint: Checkpoint | str, *, dry_run: Literal[True]) -> RestorePreview: ...

    def restore(self, checkpoint: Checkpoint | str, *, dry_run: bool = False) -> Checkpoint | RestorePreview:
        """Restore values, task and notes from a checkpoint, in one event.

        - `checkpoint`: the checkpoint, its id or its name
        - `dry_run`: write nothing; the answer is what a restore would change now

        Values that have expired since stay expired. All checkpoints are kept, later ones too. Turns after the
        checkpoint are hidden from the session's own recall. Raises `UnknownCheckpoint`.
        """
        wanted: str = name_of(checkpoint, Checkpoint, "checkpoint")
        if dry_run:
            switched = self._parts.switches.preview_restore(self.id, wanted)
            return previews.restore_preview(switched, now=self._now())
        # Fold and keep the state before taking the write lock: under the lock it is then only looked up.
        self._state()
        found: list[Checkpoint] = []

        def decision(state: SessionState | None, _: Micros) -> list[Event]:
            events = memory.restore_checkpoint(self.id, state, wanted)
            if state is not None:
                found.append(Checkpoint.of(memory.find_checkpoint(state, wanted)))
            return events

        made = self._decide(decision)
        if not found and isinstance(
            restored := made[-1].event, CheckpointRestored
        ):  # By an earlier try of this request.
            return Checkpoint.of(memory.find_checkpoint(self._state(), restored.id))
        return found[-1]

    def delete_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint. Raises `UnknownCheckpoint`.

        - `checkpoint`: the checkpoint, its id or its name
        """
        wanted: str = name_of(checkpoint, Checkpoint, "checkpoint")
        self._decide(lambda state, _: memory.delete_checkpoint(self.id, state, wanted))

    def _decide(self, decision: Decision) -> list[RecordedEvent]:
        """Append the events that `decision` returns for the current state, under the write lock."""
        return self._parts.sessions.decide(self.id, decision)

    def _task_after(self, recorded: list[RecordedEvent]) -> Task:
        if recorded and isinstance(recorded[-1].event, TaskChanged):
            return Task.of(task_of(recorded[-1].event, changed_at=recorded[-1].recorded_at))
        found = self.task()  # Nothing changed.
        assert found is not None
        return found
