"""A flag on a session: turns were undone, but which ones is not known yet. Stored as a reserved value."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import Event, ValueDeleted, ValueSet
from mnemolog.domain.session import opened
from mnemolog.domain.state import SessionState
from mnemolog.domain.values import RESERVED_PREFIX

KEY: Final = f"{RESERVED_PREFIX}undone"


def is_flagged(state: SessionState) -> bool:
    """Whether the flag is set."""
    return KEY in state.values


def flag(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to set the flag; no event if it is set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [] if is_flagged(opened(session_id, state)) else [ValueSet(key=KEY, value=True)]


def resolve(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to delete the flag; no event if it is not set. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [ValueDeleted(key=KEY)] if is_flagged(opened(session_id, state)) else []
