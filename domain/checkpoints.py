"""Checkpoints: named moments of a session, to which its working memory can be restored.

Creating one is one small event, however large the memory is. Restoring one is one event as well: values, task and notes
are what they were then. Expiry times are absolute, so values that have expired since do not come back. All other
checkpoints stay, later ones included, and so does the whole history.
"""

from __future__ import annotations

from mnemolog.domain.errors import CheckpointExists, UnknownCheckpoint
from mnemolog.domain.events import CheckpointCreated, CheckpointDeleted, CheckpointRestored, Event
from mnemolog.domain.limits import (
    DESCRIPTION_BYTES_MAX,
    MEMORY_LIMITS,
    MemoryLimits,
    checked_label,
    checked_room,
    checked_text,
)
from mnemolog.domain.session import opened
from mnemolog.domain.similar_labels import closest
from mnemolog.domain.state import CheckpointState, SessionState


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
