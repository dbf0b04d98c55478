"""The places of turns: one number for the session and the turn's number in it, forgotten turns counted."""

from __future__ import annotations

from typing import Any, Final

PLACES: Final = 1 << 24
"""Places per session. The first one is the position of the session's start times this number."""


def places_of(started_position: Any) -> tuple[Any, Any]:
    """Return the first and the last place of a session, by the position of its start: a number, or an expression."""
    first = started_position * PLACES
    return first, first + (PLACES - 1)
