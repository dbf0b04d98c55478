"""The words of a turn as the model sees them."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import TurnRecorded

RECIPE: Final = "text/2"
"""Part of the model fingerprint: change what `render` returns and every vector is another one."""


def render(turn: TurnRecorded) -> str:
    """Return the text to embed: what was said. Names of speakers say little of that, and the ranking knows them."""
    return turn.text
