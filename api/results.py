"""Result types of the store, in addition to the read models of `mnemolog.projections`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.event import TO_SESSION
from mnemolog.domain.events import Event
from mnemolog.domain.message import has_value, read_message
from mnemolog.domain.result import Result
from mnemolog.domain.session import (
    CheckpointState,
    NoteState,
    Original,
    SessionLike,
    TaskState,
    checked_session_id,
    session_id_of,
)
from mnemolog.domain.values import Position, Time, UtcTime, quoted, to_datetime


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to record with `MemoryStore.record_many`. Fields as in `Session.record`, plus `original`."""

    session: SessionLike
    role: str
    text: str
    key: str | None = None
    speaker: str | None = None
    said_at: Time | None = None
    tool_calls: Sequence[Any] = ()
    metadata: Mapping[str, Any] | None = None
    original: Original | None = None
    """The turn in your own format, stored byte for byte (read with `mnemolog.adapters.support.store_access`)."""

    @classmethod
    def of(cls, message: object, *, session: SessionLike | None = None, **about: Any) -> NewTurn:
        """Return a message as a turn: a dict with `role` and `content`, an object of a provider's library, or a turn.

        `session` is for a message that names none; `about` adds fields that it lacks. Raises `InvalidInput`.
        """
        if isinstance(message, NewTurn) and not about and session in (None, message.session):
            return message
        fields = msgspec.structs.asdict(message) if isinstance(message, NewTurn) else read_message(message)
        named = fields.setdefault("session", session)
        if named is None:
            raise InvalidInput("session", "missing; name it in the message, {'session': 'trip', …}, or with session=")
        fields["session"] = checked_session_id(session_id_of(named))
        if session is not None and fields["session"] != session_id_of(session):
            raise InvalidInput(
                "session",
                f"{quoted(fields['session'])} is not {session_id_of(session)!r}, the session given for the call",
            )
        for name, value in about.items():
            if has_value(value):
                if has_value(fields.get(name)):
                    raise InvalidInput(name, "given twice: in the message and as an argument; keep one")
                fields[name] = value
        return cls(**fields)


class Model(Result, frozen=True, kw_only=True):
    """A model that has vectors on disk or was activated at some time."""

    called_by = "fingerprint"

    name: str
    """Its name when its vectors were built or when it was activated."""
    fingerprint: str
    """64 hexadecimal digits; 16 if it was never activated and all its vectors are damaged."""
    state: str
    """State of its vectors, as in `GenerationStatus`, or `missing`."""
    covers: Position
    """The last position that its vectors on disk cover."""
    behind_events: int
    vectors: int
    active: bool
    """Whether it is the model activated last. False for all before any activation: each store uses its own model."""
    activated_at: Position | None
    """Position of its last activation; None if it was never activated."""


class ModelActivation(Result, frozen=True, kw_only=True):
    """The result of activating a model."""

    model: str
    fingerprint: str
    position: Position
    """Position of the activation: readers switch when they have read it."""
    appended: bool
    """Whether an event was appended. False if the model was already active."""
    previous: str | None
    """Fingerprint of the model that was active before; None if none was."""
    covers: Position
    """The last position that its vectors covered then."""
    encoded_texts: int
    """Number of texts embedded to bring its vectors up to date."""


class ModelDrop(Result, frozen=True, kw_only=True):
    """What dropping a model removed, or with `dry_run` would remove."""

    model: str
    fingerprint: str
    dry_run: bool
    generations: tuple[str, ...]
    """Names of the folders of vectors."""
    vectors: int
    embeddings: int
    """Texts in the embedding cache: those whose vectors were in no segment yet."""


class Task(Result, frozen=True, kw_only=True):
    """The task a session works on."""

    description: str
    step: int | None
    total: int | None
    percent: float | None
    """0 to 100."""
    status: str
    changed_at: UtcTime

    @classmethod
    def of(cls, state: TaskState) -> Self:
        """Return the task of a session's state."""
        return cls(
            description=state.description,
            step=state.step,
            total=state.total,
            percent=state.percent,
            status=state.status,
            changed_at=to_datetime(state.changed_at),
        )


class Note(Result, frozen=True, kw_only=True):
    """A note with the time it was added."""

    text: str
    added_at: UtcTime

    @classmethod
    def of(cls, state: NoteState) -> Self:
        """Return a note of a session's state."""
        return cls(text=state.text, added_at=to_datetime(state.added_at))


class Checkpoint(Result, frozen=True, kw_only=True):
    """A named point in the history of a session."""

    called_by = "id"

    id: str
    session: str
    """The session that created it: an ancestor if it was inherited."""
    name: str
    description: str
    position: Position
    """Log position of the checkpoint, for `Session.at`."""
    created_at: UtcTime

    @classmethod
    def of(cls, state: CheckpointState) -> Self:
        """Return a checkpoint of a session's state."""
        return cls(
            id=state.id,
            session=state.session,
            name=state.name,
            description=state.description,
            position=state.position,
            created_at=to_datetime(state.created_at),
        )


class PlannedEvent(Result, frozen=True, kw_only=True):
    """An event that would be appended."""

    position: Position
    """Its position, if no other writer appends first."""
    stream: str
    topic: str
    event: Event


class SwitchPreview(Result, frozen=True, kw_only=True):
    """What a switch would append now."""

    left: str | None
    to: str
    """The session to enter. A new session without a given id gets another random id when the switch is made."""
    title: str
    agent: str
    """The agent that started the session, or would start it."""
    scope: str
    parent: Annotated[str, TO_SESSION] | None
    branched_at: int | None
    events: tuple[PlannedEvent, ...]
    """In order; empty for a retry of a switch already made."""


class ValueChange(Result, frozen=True, kw_only=True):
    """The change of one key of working memory."""

    key: str
    change: Literal["added", "changed", "removed"]
    before: Any
    """None if the key had no value."""
    after: Any
    """None if the key has no value afterwards. Equal to `before` if only the expiry changes."""


class RestorePreview(Result, frozen=True, kw_only=True):
    """What a restore would change now."""

    checkpoint: Checkpoint
    values: tuple[ValueChange, ...]
    task_changes: bool
    task_before: Task | None
    task_after: Task | None
    notes_removed: tuple[Note, ...]
    notes_added: tuple[Note, ...]
    """Notes that are restored."""
    turns_hidden: int
