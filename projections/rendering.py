"""The words of a turn as search sees them. One recipe for the text index and for embeddings."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import TurnRecorded

RECIPE: Final = "speaker-text/1"
"""Part of the model fingerprint: change what `render` returns and every vector is another one."""


def render(turn: TurnRecorded) -> str:
    """Return the text to index: who spoke, where it is known, and what was said."""
    return f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text
