"""A flag on a session: turns were undone, but which ones is not known yet. Stored as a reserved value."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import Event, ValueDeleted, ValueSet
from mnemolog.domain.session import opened
from mnemolog.domain.state import SessionState
from mnemolog.domain.values import RESERVED_PREFIX

UNDONE: Final = f"{RESERVED_PREFIX}undone"


def is_undone(state: SessionState) -> bool:
    """Whether the flag is set."""
    return UNDONE in state.values


def mark_undone(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to set the flag; no event if it is set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [] if is_undone(opened(session_id, state)) else [ValueSet(key=UNDONE, value=True)]


def settle_undone(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to delete the flag; no event if it is not set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [ValueDeleted(key=UNDONE)] if is_undone(opened(session_id, state)) else []
