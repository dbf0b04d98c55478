"""Render a turn as the text to embed."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import TurnRecorded

RECIPE: Final = "text/2"
"""Part of the model fingerprint. Change it whenever `render` changes, because every vector changes then."""


def render(turn: TurnRecorded) -> str:
    """Return the text to embed. Speakers' names are left out: they add little meaning, and the ranking scores them."""
    return turn.text
