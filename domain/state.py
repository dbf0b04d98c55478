"""The state of a session at a position: a pure fold of its stream, turns left out (`mnemolog.domain.session.evolve`).

Everything here is immutable. The maps are persistent (HAMT): a state shares almost all of its memory with
the one before it, so keeping many of one session is cheap. Snapshots store a state in bytes, which are equal for equal
states; tests compare two replays by a digest of them.

The part of the log that a session sees is part of its state, as ranges of streams: its own turns and those of its
ancestors. These spans are ordered by position, root first, and do not overlap; only the last one can be open. Positions
count events of the whole log, so one position cuts the spans of all sessions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from immutables import Map

from mnemolog.domain.encoding import UNDECODABLE, msgpack_encoder
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import CheckpointCreated, SessionStarted, TaskChanged
from mnemolog.domain.position import Micros, Position


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The turns of `session` at positions in `(after, upto]`; `upto` None means up to the end."""

    session: str
    after: Position
    upto: Position | None = None

    def holds(self, session: str, position: Position) -> bool:
        """Whether a turn of `session` at `position` is in this span."""
        return session == self.session and self.after < position and (self.upto is None or position <= self.upto)


Spans = tuple[Span, ...]


def own(session: str, *, at: Position) -> Spans:
    """Return what a session without ancestors sees if the event at `at` started it."""
    return (Span(session, at),)


def cut(spans: Spans, *, upto: Position) -> Spans:
    """Return the spans up to `upto`. All of them are closed, none is empty."""
    return tuple(
        span if span.upto is not None and span.upto <= upto else Span(span.session, span.after, upto)
        for span in spans
        if span.after < upto
    )


def branched(spans: Spans, *, at: Position, session: str, started: Position) -> Spans:
    """Return what a branch sees: its parent's spans as they were at `at`, and its own turns after `started`."""
    return cut(spans, upto=at) + own(session, at=started)


def rewound(spans: Spans, *, to: Position, session: str, at: Position) -> Spans:
    """Return what a session sees once the event at `at` has hidden everything after `to`."""
    return cut(spans, upto=to) + own(session, at=at)


def without(spans: Spans, others: Spans) -> Spans:
    """Return the parts of `spans` that are in none of `others`. All of them must be closed."""
    left = spans
    for other in others:
        left = tuple(piece for span in left for piece in _cut_out(span, other))
    return left


def _cut_out(span: Span, other: Span) -> Spans:
    if span.session != other.session or span.upto is None or other.upto is None:
        return (span,)
    pieces = (
        Span(span.session, span.after, min(span.upto, other.after)),
        Span(span.session, max(span.after, other.upto), span.upto),
    )
    if other.after >= span.upto or other.upto <= span.after:
        return (span,)
    return tuple(piece for piece in pieces if piece.upto is not None and piece.after < piece.upto)


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
