"""What the store answers with, beside the read models of `mnemolog.projections`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import Event
from mnemolog.domain.position import Position
from mnemolog.domain.raw_payload import Original
from mnemolog.domain.state import Checkpoint, Note, Task
from mnemolog.forgetting.results import ForgettingStatus
from mnemolog.projections.projector_status import ProjectorStatus
from mnemolog.projections.quarantine import QuarantineStatus
from mnemolog.projections.registry.results import CacheStatus, TablesStatus, ViewsStatus
from mnemolog.projections.vectors.inventory import GenerationStatus


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to record with `MemoryStore.record_many`. Fields as in `Session.record`, and an original."""

    session: str
    role: str
    text: str
    key: str | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    tool_calls: Sequence[Any] = ()
    metadata: Mapping[str, Any] | None = None
    original: Original | None = None
    """The turn as you have it, given back to the byte to who asks for it (`mnemolog.adapters.support.store_access`)."""


class WalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The write-ahead log of `log.db`: commits that are not in its pages yet, or were moved and not overwritten."""

    bytes: int
    waiting_frames: int
    """Pages that are not in `log.db` yet."""
    readers: tuple[int, ...]
    """Processes that read from it at this moment, where the system tells."""
    why: str
    """Why it is as large as it is; empty where it is not large."""


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
    wal: WalStatus
    sessions: int
    turns: int
    """Sessions and turns up to where the views have read."""
    views: ViewsStatus
    tables: tuple[TablesStatus, ...]
    """Those that there are."""
    vectors: tuple[GenerationStatus, ...]
    caches: tuple[CacheStatus, ...]
    projector: ProjectorStatus
    """This store's own, or where it has none, that of another process."""
    quarantined: int
    """Things in quarantine."""
    quarantine: QuarantineStatus
    forgetting: ForgettingStatus
    warnings: tuple[str, ...]
    """What must not be overlooked: lost history, a full quarantine."""
    sqlite_version: str


class ModelAt(msgspec.Struct, frozen=True, kw_only=True):
    """A model that has vectors on disk, or was activated once."""

    name: str
    """What it was called when its vectors were built, or when it was activated."""
    fingerprint: str
    """64 hexadecimal digits; 16, where it was never activated and its vectors are damaged throughout."""
    state: str
    """That of its vectors, as in `GenerationStatus`, or `missing`."""
    covers: Position
    """How far its vectors on disk go."""
    behind_events: int
    vectors: int
    active: bool
    """Whether it was activated last. Before any activation none is: a store answers with its own model."""
    activated_at: Position | None
    """Where it was activated last, None if it never was."""


class ModelActivation(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answers from now on."""

    model: str
    fingerprint: str
    position: Position
    """Where it was activated: readers switch when they have read this position."""
    appended: bool
    """Whether that is new. False where it was active already."""
    previous: str | None
    """Fingerprint of the model that was active before; None where none was."""
    covers: Position
    """How far its vectors went then."""
    encoded_texts: int
    """Texts the model was called for, to bring its vectors up to the head."""


class ModelDrop(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a model, or with `dry_run` would be."""

    model: str
    fingerprint: str
    dry_run: bool
    generations: tuple[str, ...]
    """Folders of vectors."""
    vectors: int
    embeddings: int
    """Texts in the embedding cache. 0 with `keep_embeddings`, which makes building it again free of model calls."""


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
