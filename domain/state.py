"""The state of a session at a position: a pure fold of its stream, turns left out (`mnemolog.domain.session.evolve`).

Everything here is immutable. The maps are persistent (HAMT): a state shares almost all of its memory with
the one before it, so keeping many of one session is cheap. Snapshots store a state in bytes, which are equal for equal
states; tests compare two replays by a digest of them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from immutables import Map

from mnemolog.domain.encoding import UNDECODABLE, msgpack_encoder
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import CheckpointCreated, SessionStarted, TaskChanged
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.spans import Span, Spans

_ENCODER: Final = msgpack_encoder("deterministic")
_DECODER: Final = msgspec.msgpack.Decoder()


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The value of a key. Kept encoded, so that it cannot be changed in place."""

    encoded: bytes
    """msgpack, with the keys of objects in order."""
    expires_at: Micros | None = None

    @property
    def value(self) -> Any:
        """The value as JSON types: a copy of the caller's own."""
        return _DECODER.decode(self.encoded)


def new_value(value: Any, *, expires_at: int | None) -> Value:
    """Return a JSON value, encoded."""
    return Value(_ENCODER.encode(value), None if expires_at is None else Micros(expires_at))


def entry_bytes(key: str, value: Value | None) -> int:
    """Return how many bytes a key with its value adds to `values_bytes`; 0 for no value."""
    return 0 if value is None else len(key.encode()) + len(value.encoded)


class TaskState(msgspec.Struct, frozen=True, array_like=True):
    """What a session is working on."""

    description: str
    step: int | None
    total: int | None
    percent: float | None
    status: str
    changed_at: Micros


def task_of(changed: TaskChanged, *, changed_at: Micros) -> TaskState:
    """Return the task that an event describes."""
    return TaskState(changed.description, changed.step, changed.total, changed.percent, changed.status, changed_at)


class NoteState(msgspec.Struct, frozen=True, array_like=True):
    """A line of the scratchpad."""

    text: str
    added_at: Micros


class CheckpointState(msgspec.Struct, frozen=True, array_like=True):
    """A named moment of a session: only the position of that moment in the log."""

    id: str
    session: str
    """The session that created it: an ancestor's where it was inherited."""
    name: str
    description: str
    position: Position
    created_at: Micros


def checkpoint_of(
    created: CheckpointCreated, *, session: str, position: Position, created_at: Micros
) -> CheckpointState:
    """Return the checkpoint that an event of `session` created."""
    return CheckpointState(created.id, session, created.name, created.description, position, created_at)


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """A session as of a position."""

    session: str
    started: SessionStarted
    started_position: Position
    ended: bool = False
    ancestors: tuple[str, ...] = ()
    """Root first, the parent last."""
    spans: Spans
    """The turns it sees."""
    values: Map[str, Value] = Map()
    """Expired ones included: whether a value exists depends on the time of the read."""
    values_bytes: int = 0
    """`entry_bytes` of all values."""
    task: TaskState | None = None
    notes: Map[int, NoteState] = Map()
    """By index: 0, 1, 2 and so on without gaps."""
    notes_bytes: int = 0
    """Bytes of UTF-8 of all notes."""
    checkpoints: Map[str, CheckpointState] = Map()
    """By id, inherited ones included."""
    checkpoint_names: Map[str, str] = Map()
    """The ids of the checkpoints by their names."""
    lost_checkpoints: Map[Position, str] = Map()
    """The sessions of checkpoints whose name is forgotten, by position: earlier restores of them stay valid."""


STATE_FORMAT: Final = 1
"""Rises with every change of the bytes. A snapshot of another format is ignored, and the state is folded again."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A state in the order of its bytes: values by key, notes by place, checkpoints by position and id."""

    format: int
    session: str
    started: SessionStarted
    started_position: Position
    ended: bool
    ancestors: tuple[str, ...]
    spans: tuple[Span, ...]
    values: list[tuple[str, Value]]
    task: TaskState | None
    notes: list[NoteState]
    checkpoints: list[CheckpointState]
    lost_checkpoints: list[tuple[Position, str]] = []


_STORED: Final = msgspec.msgpack.Decoder(_Stored)


def encode_state(state: SessionState) -> bytes:
    """Return the bytes of a state: canonical msgpack."""
    return _ENCODER.encode(
        _Stored(
            format=STATE_FORMAT,
            session=state.session,
            started=state.started,
            started_position=state.started_position,
            ended=state.ended,
            ancestors=state.ancestors,
            spans=state.spans,
            values=sorted(state.values.items()),
            task=state.task,
            notes=[state.notes[place] for place in range(len(state.notes))],
            checkpoints=sorted(state.checkpoints.values(), key=lambda found: (found.position, found.id)),
            lost_checkpoints=sorted(state.lost_checkpoints.items()),
        )
    )


def decode_state(stored: bytes) -> SessionState:
    """Return the state that `encode_state` encoded as `stored`. Raises `InvalidInput` for other bytes."""
    try:
        found = _STORED.decode(stored)
    except UNDECODABLE as error:
        raise InvalidInput("state", f"not a stored state: {error}") from error
    if found.format != STATE_FORMAT:
        raise InvalidInput("state", f"format {found.format}, this mnemolog reads {STATE_FORMAT}")
    return SessionState(
        session=found.session,
        started=found.started,
        started_position=found.started_position,
        ended=found.ended,
        ancestors=found.ancestors,
        spans=found.spans,
        values=Map(found.values),
        values_bytes=sum(entry_bytes(key, value) for key, value in found.values),
        task=found.task,
        notes=Map(enumerate(found.notes)),
        notes_bytes=sum(len(note.text.encode()) for note in found.notes),
        checkpoints=Map((checkpoint.id, checkpoint) for checkpoint in found.checkpoints),
        checkpoint_names=Map((checkpoint.name, checkpoint.id) for checkpoint in found.checkpoints),
        lost_checkpoints=Map(found.lost_checkpoints),
    )
