"""What the store answers with, beside the read models of `mnemolog.projections`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import Event
from mnemolog.domain.position import Position
from mnemolog.domain.state import Checkpoint, Note, Task
from mnemolog.projections.vectors.inventory import GenerationStatus
from mnemolog.projector_state import ProjectorStatus


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to record with `MemoryStore.record_many`. Fields as in `Session.record`."""

    session: str
    role: str
    text: str
    key: str | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    tool_calls: Sequence[Any] = ()
    metadata: Mapping[str, Any] | None = None


class ViewsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the tables and the text index have read."""

    state: str
    """`current`, `behind`, `missing`, `damaged`, `other-log`, `ahead` or `diverged`."""
    position: Position
    behind_events: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a store, from tags alone: nothing is read through or repaired."""

    path: str
    log_id: str
    log_format: int
    created_at: datetime
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal."""
    log_bytes: int
    sessions: int
    turns: int
    """Sessions and turns up to where the views have read."""
    views: ViewsStatus
    vectors: tuple[GenerationStatus, ...]
    projector: ProjectorStatus
    """This store's own, or where it has none, that of another process."""
    quarantined: int
    sqlite_version: str


class HeadAt(msgspec.Struct, frozen=True, kw_only=True):
    """A position with the log's digest there. Kept elsewhere, it witnesses the history up to it."""

    position: Position
    digest: str

    def __str__(self) -> str:
        return f"{self.position}:{self.digest}"


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild made, or with `dry_run` would make."""

    projection: str
    dry_run: bool
    upto: Position
    expected_turns: int
    built_turns: int
    encoded_texts: int
    """Texts the model was called for; the others came from the embedding cache."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether everything expected is there."""
        return self.dry_run or self.built_turns == self.expected_turns


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did."""

    files: int
    turns: int
    """Turns read from the files."""
    recorded: int
    already_there: int
    sessions: int
    """Sessions the turns belong to."""
    refused: tuple[str, ...]
    """Lines that were passed over, each as `path:line: why`. Empty unless the import was told to go on."""


class TaskAt(msgspec.Struct, frozen=True, kw_only=True):
    """What a session works on."""

    description: str
    step: int | None
    total: int | None
    percent: float | None
    """0 to 100."""
    status: str
    changed_at: datetime


class NoteAt(msgspec.Struct, frozen=True, kw_only=True):
    """A note with the moment it was added."""

    text: str
    added_at: datetime


class CheckpointAt(msgspec.Struct, frozen=True, kw_only=True):
    """A named moment of a session."""

    id: str
    session: str
    """Where it was created: an ancestor, if it was inherited."""
    name: str
    description: str
    position: Position
    """The offset to look at the session as it was then."""
    created_at: datetime


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much the working memory of a session holds."""

    values: int
    expired_values: int
    """Still counted in `values_bytes` until set anew or deleted."""
    values_bytes: int
    notes: int
    notes_bytes: int
    checkpoints: int
    has_task: bool


class PlannedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that would be appended."""

    position: Position
    """Where, if nobody else appends before."""
    stream: str
    topic: str
    event: Event


class SwitchPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch would append, were it made now."""

    left: str | None
    to: str
    """The session it would come to. Where one is started without an id, another id would be made up."""
    name: str
    agent: str
    """The agent that started it, or would."""
    scope: str
    parent: str | None
    branched_at: int | None
    events: tuple[PlannedEvent, ...]
    """In order; nothing for a retry of what is done."""


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a key of working memory."""

    key: str
    change: Literal["added", "changed", "removed"]
    before: Any
    """None where there is nothing."""
    after: Any
    """None where there is nothing. Equal to `before` where only the expiry changes."""


class RestorePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore would change, were it made now."""

    checkpoint: CheckpointAt
    values: tuple[ValueChange, ...]
    task_changes: bool
    task_before: TaskAt | None
    task_after: TaskAt | None
    notes_removed: tuple[NoteAt, ...]
    notes_added: tuple[NoteAt, ...]
    """Notes that come back."""
    turns_hidden: int


def task_at(task: Task) -> TaskAt:
    """Return a task as it is answered with."""
    return TaskAt(
        description=task.description,
        step=task.step,
        total=task.total,
        percent=task.percent,
        status=task.status,
        changed_at=to_datetime(task.changed_at),
    )


def note_at(note: Note) -> NoteAt:
    """Return a note as it is answered with."""
    return NoteAt(text=note.text, added_at=to_datetime(note.added_at))


def checkpoint_at(checkpoint: Checkpoint) -> CheckpointAt:
    """Return a checkpoint as it is answered with."""
    return CheckpointAt(
        id=checkpoint.id,
        session=checkpoint.session,
        name=checkpoint.name,
        description=checkpoint.description,
        position=checkpoint.position,
        created_at=to_datetime(checkpoint.created_at),
    )
