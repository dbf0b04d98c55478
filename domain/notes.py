"""The scratchpad of a session: notes in the order in which they were added."""

from __future__ import annotations

from mnemolog.domain.events import Event, NoteAdded, NotesCleared
from mnemolog.domain.limits import MEMORY_LIMITS, MemoryLimits, checked_room, checked_text
from mnemolog.domain.session import opened
from mnemolog.domain.state import NoteState, SessionState


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
    after = size + len(text.encode())
    checked_room("notes", before=size, after=after, limit=limits.notes_bytes_max, unit="bytes")
    return [NoteAdded(text=text)]


def clear_notes(session_id: str, state: SessionState | None) -> list[Event]:
    """Decide to empty the scratchpad; no event if it is empty. Raises `UnknownSession`, `SessionAlreadyEnded`."""
    return [NotesCleared()] if opened(session_id, state).notes else []


def notes(state: SessionState) -> list[NoteState]:
    """Return the notes in order."""
    return [state.notes[place] for place in range(len(state.notes))]
