"""Derive the state of a session from its stream. Turns are skipped: the fold never needs them.

A branch starts with its parent's state at the branch point, and a restore brings back the state at an earlier position.
Neither is in the event: the fold gets it from `past`, which is a fold as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from immutables import Map

from mnemolog.domain import errors, spans
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointDeleted,
    CheckpointRestored,
    Forgotten,
    NoteAdded,
    NotesCleared,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    TaskChanged,
    TurnsRewound,
    ValueDeleted,
    ValuesCleared,
    ValueSet,
)
from mnemolog.domain.forgetting import was_checkpoint
from mnemolog.domain.position import Position
from mnemolog.domain.session import session_of
from mnemolog.domain.state import NoteState, SessionState, checkpoint_of, entry_bytes, new_value, task_of

Past = Callable[[str, Position], SessionState]
"""Returns the state of a session as of a position of the log, that position included."""

_replace: Final = msgspec.structs.replace


def evolve(state: SessionState | None, recorded: RecordedEvent, past: Past) -> SessionState | None:
    """Return the state after `recorded`. Turns and events of other kinds change nothing.

    `past` is called with positions before that of `recorded` only. A restore of a deleted checkpoint changes nothing.
    Raises `LogDamaged` for a session branched at a later position, and for a restore of what comes later.
    """
    event, position = recorded.event, recorded.position
    if state is None:
        return _begin(recorded, event, past) if isinstance(event, SessionStarted) else None
    match event:
        case SessionEnded():
            return _replace(state, ended=True)
        case SessionResumed():
            return _replace(state, ended=False)
        case CheckpointCreated() | CheckpointDeleted():
            return _with_checkpoints(state, recorded, event)
        case Forgotten() if was_checkpoint(event):
            return _replace(state, lost_checkpoints=state.lost_checkpoints.set(position, state.session))
        case CheckpointRestored():
            return _restore(state, recorded, event, past)
        case TurnsRewound(to=to):
            visible = spans.rewound(state.spans, to=Position(to), session=state.session, at=position)
            return _replace(state, spans=visible)
        case _:
            return _with_memory(state, recorded)


def _begin(recorded: RecordedEvent, started: SessionStarted, past: Past) -> SessionState | None:
    session, position = session_of(recorded.stream), recorded.position
    if session is None:
        return None
    if started.parent is None or started.branched_at is None:
        visible = spans.own(session, at=position)
        return SessionState(session=session, started=started, started_position=position, spans=visible)
    at = Position(started.branched_at)
    if at >= position:
        raise errors.LogDamaged(f"session {session!r} is branched at a later position", position=position)
    parent = past(started.parent, at)
    return _replace(
        parent,
        session=session,
        started=started,
        started_position=position,
        ended=False,
        ancestors=(*parent.ancestors, parent.session),
        spans=spans.branched(parent.spans, at=at, session=session, started=position),
    )


def _with_memory(state: SessionState, recorded: RecordedEvent) -> SessionState:
    match recorded.event:
        case ValueSet(key=key, value=value, expires_at=expires_at):
            new = new_value(value, expires_at=expires_at)
            change = entry_bytes(key, new) - entry_bytes(key, state.values.get(key))
            return _replace(state, values=state.values.set(key, new), values_bytes=state.values_bytes + change)
        case ValueDeleted(key=key) if key in state.values:
            left = state.values_bytes - entry_bytes(key, state.values[key])
            return _replace(state, values=state.values.delete(key), values_bytes=left)
        case ValuesCleared():
            return _replace(state, values=Map(), values_bytes=0)
        case TaskChanged() as task:
            return _replace(state, task=task_of(task, changed_at=recorded.recorded_at))
        case NoteAdded(text=text):
            notes = state.notes.set(len(state.notes), NoteState(text, recorded.recorded_at))
            return _replace(state, notes=notes, notes_bytes=state.notes_bytes + len(text.encode()))
        case NotesCleared():
            return _replace(state, notes=Map(), notes_bytes=0)
        case _:
            return state


def _with_checkpoints(
    state: SessionState, recorded: RecordedEvent, event: CheckpointCreated | CheckpointDeleted
) -> SessionState:
    checkpoints, names = state.checkpoints, state.checkpoint_names
    if isinstance(event, CheckpointCreated):
        created = checkpoint_of(
            event, session=state.session, position=recorded.position, created_at=recorded.recorded_at
        )
        return _replace(
            state, checkpoints=checkpoints.set(event.id, created), checkpoint_names=names.set(event.name, event.id)
        )
    if event.id not in checkpoints:
        return state
    name = checkpoints[event.id].name
    return _replace(state, checkpoints=checkpoints.delete(event.id), checkpoint_names=names.delete(name))


def _restore(state: SessionState, recorded: RecordedEvent, event: CheckpointRestored, past: Past) -> SessionState:
    created_in, at = _created_in(state, event), Position(event.position)
    if at >= recorded.position:
        why = f"session {state.session!r} restores what comes after it"
        raise errors.LogDamaged(why, position=recorded.position)
    if created_in is None:
        return state
    then = past(created_in, at)
    return _replace(
        state,
        values=then.values,
        values_bytes=then.values_bytes,
        task=then.task,
        notes=then.notes,
        notes_bytes=then.notes_bytes,
        spans=spans.rewound(state.spans, to=at, session=state.session, at=recorded.position),
    )


def _created_in(state: SessionState, event: CheckpointRestored) -> str | None:
    """Return the session that created the checkpoint of a restore, None where there is no such checkpoint."""
    checkpoint = state.checkpoints.get(event.id)
    if checkpoint is None:
        return state.lost_checkpoints.get(Position(event.position))
    return checkpoint.session if checkpoint.position == event.position else None
