"""The note that turns of a session were taken back, and that nobody has said yet which. It is a reserved value."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import Event, ValueDeleted, ValueSet
from mnemolog.domain.session import opened
from mnemolog.domain.state import SessionState
from mnemolog.domain.values import RESERVED_PREFIX

UNDONE: Final = f"{RESERVED_PREFIX}undone"


def is_undone(state: SessionState) -> bool:
    """Whether that is noted."""
    return UNDONE in state.values


def mark_undone(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to note it; no event if it is noted. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [] if is_undone(opened(session_id, state)) else [ValueSet(key=UNDONE, value=True)]


def settle_undone(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to delete the note; no event if there is none. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [ValueDeleted(key=UNDONE)] if is_undone(opened(session_id, state)) else []
