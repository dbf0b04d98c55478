"""The working memory of a session: keys with values, the task with its progress, and the notes of its scratchpad.

A value may have a time to live: it exists at a time `now` if and only if `now < expires_at`. An expired value counts
towards the limits until it is set again or deleted; where there is no room, setting a value deletes expired ones first.

Checkpoints are named moments of a session, to which it can be restored. Creating one is one small event, however large
the memory is, and restoring one as well: values, task and notes are what they were then. Expiry times are absolute, so
values that have expired since do not come back. All other checkpoints stay, later ones included, and so does the whole
history.
"""

import math
from datetime import timedelta
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from mnemolog.domain.errors import CheckpointExists, InvalidInput, NoTask, UnknownCheckpoint
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointDeleted,
    CheckpointRestored,
    Event,
    NoteAdded,
    NotesCleared,
    TaskChanged,
    ValueDeleted,
    ValuesCleared,
    ValueSet,
)
from mnemolog.domain.session import (
    CheckpointState,
    NoteState,
    SessionState,
    Value,
    entry_bytes,
    new_value,
    opened,
    task_of,
)
from mnemolog.domain.spelling import closest, spelled
from mnemolog.domain.values import (
    DESCRIPTION_BYTES_MAX,
    MEMORY_LIMITS,
    TASK_BYTES_MAX,
    VALUE_BYTES_MAX,
    MemoryLimits,
    Micros,
    checked_json,
    checked_label,
    checked_number,
    checked_room,
    checked_text,
    checked_whole,
)

RESERVED_PREFIX: Final = "mnemolog."
EXPIRED_DELETED_MAX: Final = 1_000
"""How many expired values setting one value deletes at most to make room."""

_EXPIRES_AT_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, the end of `datetime`."""


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING
"""There is no value. Different from a stored `None`."""


def checked_value_key(key: str) -> str:
    """Return `key` if it can name a value: one line, 512 bytes at most, not reserved. Raises `InvalidInput`."""
    checked_label("key", key)
    if key.startswith(RESERVED_PREFIX):
        raise InvalidInput("key", f"{key!r}: keys that start with {RESERVED_PREFIX!r} are reserved")
    return key


def checked_expiry(ttl: float | timedelta | None, *, now: Micros) -> Micros | None:
    """Return when a value that lives `ttl` seconds from `now` on expires; None for never.

    Less than a microsecond counts as one. Raises `InvalidInput` unless `ttl` is a positive finite number
    of seconds (not a bool) or a positive timedelta, and ends before the year 10000.
    """
    match ttl:
        case None:
            return None
        case timedelta():
            micros = ttl // timedelta(microseconds=1)
        case bool():
            raise InvalidInput("ttl", "expected seconds or a timedelta, got bool")
        case int():
            micros = ttl * 1_000_000
        case float() if not math.isfinite(ttl):
            raise InvalidInput("ttl", f"{ttl} is not a finite number of seconds")
        case float():
            # Beyond the limit anyway, and 1e308 * 1e6 would be infinite.
            micros = max(round(min(ttl, 1e12) * 1_000_000), 1) if ttl > 0 else 0
        case _:
            raise InvalidInput("ttl", f"expected seconds or a timedelta, got {type(ttl).__name__}")
    if micros <= 0:
        raise InvalidInput("ttl", "must be more than 0 seconds; delete the value to remove it now")
    if now + micros > _EXPIRES_AT_MAX:
        raise InvalidInput("ttl", "ends after the year 9999; leave it out for a value that never expires")
    return Micros(now + micros)


def set_value(
    session_id: str,
    state: SessionState | None,
    key: str,
    value: Any,
    *,
    now: Micros,
    ttl: float | timedelta | None = None,
    limits: MemoryLimits = MEMORY_LIMITS,
) -> list[Event]:
    """Decide to set a key to any JSON value, `None` included; without `ttl` it never expires.

    The last event is the `ValueSet`; before it may come the deletion of expired values, where there
    would be no room otherwise. Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput`, `LimitExceeded`
    (256 KiB a value) or `MemoryFull`.
    """
    state = opened(session_id, state)
    key = _spelled(state, key)
    expires_at = checked_expiry(ttl, now=now)
    new = new_value(checked_json("value", value, bytes_max=VALUE_BYTES_MAX), expires_at=expires_at)
    old = state.values.get(key)
    count = len(state.values) + (old is None)
    size = state.values_bytes - entry_bytes(key, old) + entry_bytes(key, new)
    deleted: list[Event] = []
    if count > limits.values_max or size > limits.values_bytes_max:
        for name in _first_expired(state, now, without=key):
            deleted.append(ValueDeleted(key=name))
            count -= 1
            size -= entry_bytes(name, state.values[name])
    checked_room("values", before=len(state.values), after=count, limit=limits.values_max, unit="values")
    checked_room("values", before=state.values_bytes, after=size, limit=limits.values_bytes_max, unit="bytes")
    # Decoded from the copy: a caller who changes the object later changes nothing here.
    return [*deleted, ValueSet(key=key, value=new.value, expires_at=expires_at)]


def delete_value(session_id: str, state: SessionState | None, key: str) -> list[Event]:
    """Decide to delete a key; no event if it is missing. An expired one is deleted as well.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput`.
    """
    state = opened(session_id, state)
    key = _spelled(state, key)
    return [ValueDeleted(key=key)] if key in state.values else []


def clear_values(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to delete every key; no event if there is none. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [ValuesCleared()] if opened(session_id, state).values else []


def _spelled(state: SessionState, key: str) -> str:
    """Return a key as the values of a session spell it. Raises `InvalidInput`."""
    if checked_value_key(key).isascii():
        return key
    return spelled(key, lambda name: any(known == name or known.startswith(f"{name}/") for known in state.values))


def is_expired(value: Value, now: Micros) -> bool:
    """Whether `value` is gone at `now`."""
    return value.expires_at is not None and now >= value.expires_at


def value_at(state: SessionState, key: str, now: Micros) -> Any | Literal[Missing.MISSING]:
    """Return the value of `key` at `now`, or `MISSING`. Raises `InvalidInput` for what cannot be a key."""
    value = state.values.get(_spelled(state, key))
    return MISSING if value is None or is_expired(value, now) else value.value


def keys(state: SessionState, now: Micros, *, pattern: str | None = None) -> list[str]:
    """Return the keys that exist at `now`, sorted; with `pattern` those that match the glob (`*?[]`).

    Case matters, and `*` crosses slashes.
    """
    if pattern is not None:
        checked_text("pattern", pattern)
    return sorted(
        key
        for key, value in state.values.items()
        if not is_expired(value, now) and not key.startswith(RESERVED_PREFIX)
        if pattern is None or fnmatchcase(key, pattern)
    )


def all_values(state: SessionState, now: Micros) -> dict[str, Any]:
    """Return copies of the values that exist at `now`, by key in sorted order."""
    return {key: state.values[key].value for key in keys(state, now)}


def _first_expired(state: SessionState, now: Micros, *, without: str) -> list[str]:
    """Return the keys that expired first, without the one that is being set."""
    expired = [
        (value.expires_at or 0, key) for key, value in state.values.items() if is_expired(value, now) and key != without
    ]
    return [key for _, key in sorted(expired)[:EXPIRED_DELETED_MAX]]


def set_task(
    session_id: str,
    state: SessionState | None,
    description: str,
    *,
    step: int | None = None,
    total: int | None = None,
    percent: float | None = None,
    status: str = "active",
) -> list[Event]:
    """Decide to work on a task, in place of the one before. Recorded even if it equals that one.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput` or `LimitExceeded`.
    """
    opened(session_id, state)
    return [_checked_task(description, step=step, total=total, percent=percent, status=status)]


def update_task(
    session_id: str,
    state: SessionState | None,
    *,
    step: int | None = None,
    total: int | None = None,
    percent: float | None = None,
    status: str | None = None,
) -> list[Event]:
    """Decide to change the given fields of the current task; None leaves a field as it is.

    Where nothing would change there is no event. Raises `UnknownSession`, `SessionAlreadyEnded`, `NoTask` or
    `InvalidInput`.
    """
    state = opened(session_id, state)
    if state.task is None:
        raise NoTask(session_id)
    before = state.task
    merged = _checked_task(
        before.description,
        step=before.step if step is None else step,
        total=before.total if total is None else total,
        percent=before.percent if percent is None else percent,
        status=before.status if status is None else status,
    )
    return [] if task_of(merged, changed_at=before.changed_at) == before else [merged]


def _checked_task(
    description: str, *, step: int | None, total: int | None, percent: float | None, status: str
) -> TaskChanged:
    step, total = _checked_count("step", step), _checked_count("total", total)
    if step is not None and total is not None and step > total:
        raise InvalidInput("step", f"{step} is more than the total of {total}")
    return TaskChanged(
        description=checked_text("description", description, bytes_max=TASK_BYTES_MAX),
        step=step,
        total=total,
        percent=None if percent is None else checked_number("percent", percent),
        status=checked_label("status", status),
    )


def _checked_count(field: str, value: int | None) -> int | None:
    return None if value is None else checked_whole(field, value)


def add_note(
    session_id: str, state: SessionState | None, text: str, *, limits: MemoryLimits = MEMORY_LIMITS
) -> list[Event]:
    """Decide to add a note.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput`, `LimitExceeded`, `MemoryFull`.
    """
    state = opened(session_id, state)
    checked_text("note", text, bytes_max=limits.note_bytes_max)
    count, size = len(state.notes), state.notes_bytes
    checked_room("notes", before=count, after=count + 1, limit=limits.notes_max, unit="notes")
    checked_room("notes", before=size, after=size + len(text.encode()), limit=limits.notes_bytes_max, unit="bytes")
    return [NoteAdded(text=text)]


def clear_notes(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to empty the scratchpad; no event if it is empty. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [NotesCleared()] if opened(session_id, state).notes else []


def notes(state: SessionState) -> list[NoteState]:
    """Return the notes in order."""
    return [state.notes[place] for place in range(len(state.notes))]


_UNDONE: Final = f"{RESERVED_PREFIX}undone"
"""The key of a flag on a session: turns were undone, but which ones is not known yet."""


def is_undo_pending(state: SessionState) -> bool:
    """Whether the flag is set."""
    return _UNDONE in state.values


def flag_undo(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to set the flag; no event if it is set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [] if is_undo_pending(opened(session_id, state)) else [ValueSet(key=_UNDONE, value=True)]


def resolve_undo(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to delete the flag; no event if it is not set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [ValueDeleted(key=_UNDONE)] if is_undo_pending(opened(session_id, state)) else []


def create_checkpoint(
    session_id: str,
    state: SessionState | None,
    *,
    checkpoint_id: str,
    name: str,
    description: str = "",
    limits: MemoryLimits = MEMORY_LIMITS,
) -> list[Event]:
    """Decide to name this moment. No other checkpoint of the session may have its id or name.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `CheckpointExists`, `InvalidInput`, `LimitExceeded`, `MemoryFull`.
    """
    state = opened(session_id, state)
    for field, label in (("checkpoint_id", checkpoint_id), ("name", name)):
        # A name that equals the id of another would make "restore X" ambiguous.
        if checked_label(field, label) in state.checkpoints or label in state.checkpoint_names:
            raise CheckpointExists(session_id, label)
    if description:
        checked_text("description", description, bytes_max=DESCRIPTION_BYTES_MAX)
    count = len(state.checkpoints)
    checked_room("checkpoints", before=count, after=count + 1, limit=limits.checkpoints_max, unit="checkpoints")
    return [CheckpointCreated(id=checkpoint_id, name=name, description=description)]


def delete_checkpoint(session_id: str, state: SessionState | None, checkpoint: str) -> list[Event]:
    """Decide to delete a checkpoint, given by id or name; an inherited one only for this session.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `UnknownCheckpoint`.
    """
    return [CheckpointDeleted(id=find_checkpoint(opened(session_id, state), checkpoint).id)]


def restore_checkpoint(session_id: str, state: SessionState | None, checkpoint: str) -> list[Event]:
    """Decide to restore values, task and notes of a checkpoint, given by id or name.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `UnknownCheckpoint`.
    """
    found = find_checkpoint(opened(session_id, state), checkpoint)
    return [CheckpointRestored(id=found.id, position=found.position)]


def find_checkpoint(state: SessionState, checkpoint: str) -> CheckpointState:
    """Return the checkpoint with that id, or else with that name. Raises `UnknownCheckpoint`."""
    found = state.checkpoints.get(checkpoint) or state.checkpoints.get(state.checkpoint_names.get(checkpoint, ""))
    if found is None:
        raise UnknownCheckpoint(state.session, checkpoint, names=closest(checkpoint, state.checkpoint_names))
    return found


def checkpoints(state: SessionState) -> list[CheckpointState]:
    """Return the checkpoints of a session, inherited ones included, oldest first."""
    return sorted(state.checkpoints.values(), key=lambda checkpoint: checkpoint.position)
