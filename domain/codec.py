"""Encode and decode the state of a session. Equal states have equal bytes.

Snapshots store these bytes; tests compare two replays by a digest of them.
"""

from __future__ import annotations

from typing import Final

import msgspec
from immutables import Map

from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.encoding import msgpack_encoder
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import SessionStarted
from mnemolog.domain.position import Position
from mnemolog.domain.spans import Span
from mnemolog.domain.state import CheckpointState, NoteState, SessionState, TaskState, Value, entry_bytes

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


_ENCODER: Final = msgpack_encoder("deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


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
        found = _DECODER.decode(stored)
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
